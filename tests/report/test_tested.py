"""Figures of the public test set in the report."""

from __future__ import annotations

from sordino.report import tested as section
from sordino.report.reading import Run


def test_a_warning_the_figures_and_the_confusions_are_shown():
    scored = {
        "examples": 4, "accuracy": 0.5, "majority": 0.75, "warnings": ["the model names one class only (<a>)."],
        "classes": [
            {"name": "<a>", "precision": 0.5, "recall": 1.0, "examples": 3},
            {"name": "b", "precision": None, "recall": 0.0, "examples": 1},
        ],
        "confusion": [[3, 0], [1, 0]],
    }  # fmt: skip
    text = str(section.tested(Run("run", {}, "", scored=scored)))
    assert "The model names one class only (&lt;a&gt;)" in text and "<a>" not in text
    assert "75.0%" in text and "–" in text and "as b" in text
    assert section.tested(Run("run", {}, "")) is None
