"""What inversion drew, on the page."""

from __future__ import annotations

import base64

import pytest

from report.reader import Page
from sordino.report import inverted
from sordino.report.html import PNG, picture
from sordino.report.reading import Run

LINE = {
    "attack": "ig", "model": "first", "batch": 1, "mse": 0.25, "psnr": 6.02, "ssim": 0.031, "control_ssim": 0.61,
    "informative": True, "reconstructed": 0.0, "message_bound": 0.064, "reconstruction_bound": 0.21, "prior_chance": 0.01,
    "notes": [], "pictures": None,
}  # fmt: skip
SHOWN = base64.b64encode(PNG + b"rest").decode()


def run(*lines: object, **more: object) -> Run:
    return Run("x", {}, "", inversion={"results": list(lines), "verdict": "It tells.", **more})


def section(found: Run) -> Page:
    made = inverted.section(found)
    assert made is not None
    return Page(str(made))


def test_a_line_has_its_control_and_what_the_proof_allows():
    text = section(run(LINE)).text
    assert "It tells." in text and "ig, first round" in text and "0.031" in text and "0.610" in text
    assert "6.4%" in text and "21.0%" in text and "near in 1.0% of cases" in text and "Hayes" in text


def test_a_control_that_fails_is_said_in_the_line():
    assert (
        "0.410 (fails: this line says nothing)"
        in section(run({**LINE, "control_ssim": 0.41, "informative": False})).text
    )
    assert inverted.control({"control_ssim": None}) == "none"


def test_pictures_come_with_a_warning_and_only_from_png():
    shown = run({**LINE, "pictures": {"original": SHOWN, "drawn": SHOWN, "undefended": SHOWN}})
    page = section(shown)
    assert inverted.shows_records(shown) and len(page.all("img")) == 3 and inverted.WARNING in page.text
    assert all(image["src"].startswith("data:image/png;base64,") for image in page.all("img"))
    for other in ("", "aGVsbG8=", "javascript:alert(1)", SHOWN + '"><script>', 7, None):
        bad = run({**LINE, "pictures": {"original": other}})
        assert not inverted.shows_records(bad) and not section(bad).all("img")
    assert not inverted.shows_records(run(LINE)) and not section(run(LINE)).all("img")


def test_classes_have_a_table_of_their_own():
    line = {"attack": "ked-mi", "model": "trained", "top1": 0.76, "top5": 1.0, "chance": 0.2, "times_chance": 3.8,
            "judge_accuracy": 0.776, "notes": ["KED-MI draws classes."]}  # fmt: skip
    text = section(run(line)).text
    assert "76.0%" in text and "77.6%" in text and "3.8" in text and "KED-MI draws classes." in text


@pytest.mark.parametrize("rows", [None, [], ["x"], 3])
def test_nothing_is_shown_where_nothing_was_attacked(rows):
    assert inverted.section(Run("x", {}, "", inversion={"results": rows})) is None
    assert inverted.section(Run("x", {}, "")) is None


def test_lines_from_a_stranger_are_text():
    rows = [{"attack": "<script>", "ssim": "1", "pictures": []}, {"ssim": 0.1, "notes": 3, "batch": {}, "psnr": None}]
    made = inverted.section(run(*rows, refused=[{"attack": "<b>", "why": "<i>"}, 3], verdict="<u>"))
    assert made is not None and "<script>" not in made and "<b>" not in made and "<u>" not in made and "<i>" not in made


def test_a_picture_is_a_png_inside_the_page_or_none():
    assert picture(SHOWN, '"a"') == f'<img alt="&quot;a&quot;" src="data:image/png;base64,{SHOWN}">'
    assert picture("not base64!", "a") is None and picture("aGVsbG8=", "a") is None
