"""Contrast: text is readable in light, dark and print (WCAG 2.1, 4.5 to 1 for text, 3 to 1 for graphics)."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

CSS = files("sordino.report").joinpath("report.css").read_text()
THEMES = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block)) for block in re.findall(r":root \{(.*?)\}", CSS, re.S)]


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_formula():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


def test_there_are_three_themes_and_print_is_the_light_one():
    light, dark, printed = THEMES
    assert light == printed and light != dark and "prefers-color-scheme: dark" in CSS


@pytest.mark.parametrize("theme", THEMES)
def test_contrast(theme):
    for word in ("ink", "quiet", "line", "good", "bad", "open"):
        assert contrast(theme[word], theme["paper"]) >= 4.5, word
    assert contrast(theme["ink"], theme["panel"]) >= 4.5
    assert contrast(theme["claimed"], theme["paper"]) >= 3
