"""No attack figure on the page without its control, its caveats and the number of records that it rests on."""

from __future__ import annotations

import pytest

from sordino.report.attacked import caveats, control, judged, verdict
from sordino.report.run import write_report

from .conftest import rounds
from .reader import Page

LINE = {
    "attack": "rf",
    "auc": 0.512,
    "auc_ci": [0.48, 0.54],
    "members": 1437,
    "non_members": 360,
    "control_auc": 0.731,
    "informative": True,
    "notes": ["tpr_at_1pct rest on few false alarms."],
}
WEAK = LINE | {
    "attack": "dt",
    "control_auc": 0.509,
    "informative": False,
    "notes": ["Trained on 80 records.", LINE["notes"][0]],
}


def page(make, lines, **more) -> str:
    return Page(write_report(make(metrics=rounds(20), attack={"results": lines, **more})).read_text()).text


def test_control_judged_records_and_caveats_stand_beside_the_figures(make):
    text = page(make, [LINE, WEAK], refused=[{"attack": "lira", "why": "no models were kept."}])
    assert "rf 0.731 1,437 + 360 0.512 0.480 to 0.540" in text
    assert "dt 0.509 (fails) 1,437 + 360" in text
    assert "On the undefended control dt failed: those lines carry no information about the defence." in text
    assert "dt: Trained on 80 records." in text and "tpr_at_1pct rest on few false alarms." in text
    assert "lira was not possible: no models were kept." in text


@pytest.mark.parametrize(
    "lines",
    [
        [WEAK],
        [WEAK, WEAK | {"attack": "gb"}],
        [LINE | {"control_auc": None, "informative": None}],
        [{"attack": "rf", "auc": 0.5}],
    ],
)
def test_a_table_that_tells_nothing_says_so_on_the_page(make, lines):
    text = page(make, lines)
    assert "no information about the defence" in text and "tells about the defence" not in text


def test_a_stored_verdict_is_not_trusted_over_the_lines(make):
    """Lines of an earlier attack may have been merged in after it was written."""
    text = page(
        make, [WEAK], verdict="Every attack succeeds on the undefended control, so the table tells about the defence."
    )
    assert "tells about the defence" not in text and "resists these attacks too" in text


def test_words_that_are_no_judgement_count_as_none():
    assert "No undefended control" in verdict([LINE | {"informative": "yes"}])
    assert verdict([LINE]) == "Every attack succeeds on the undefended control, so the table tells about the defence."
    assert "No control was attacked with dt" in verdict([LINE, WEAK | {"informative": None}])
    assert control(LINE | {"informative": "yes"}) == "0.731 (not judged)" and control({}) == "none"
    assert control(LINE | {"informative": [1]}) == "0.731 (not judged)" and "No undefended" in verdict(
        [LINE | {"informative": [1]}]
    )
    assert judged({"members": True, "non_members": 3}) == judged({}) == "not recorded"
    assert caveats([{"notes": "not a list"}]) == []
