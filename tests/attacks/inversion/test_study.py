"""The study of inversion: rows that stay, the table that is made of them, and what the kept rows must show."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
MODULES = ("inversion_rows", "inversion_table", "inversion_classes", "page")


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import inversion_table

    yield inversion_table
    for name in MODULES:
        sys.modules.pop(name, None)


def row(line, ssim, **more):
    common = {"mse": 0.1, "psnr": 10.0, "seconds": 1.4, "message_at_most": 1.0, "at_most": 1.0, "network": line.network}
    return {"name": line.name, **vars(line), "ssim": ssim, **common, **more}


def test_a_row_that_is_there_stays_and_one_of_other_settings_is_replaced(study, tmp_path, monkeypatch):
    results, asked = tmp_path / "rows.jsonl", []

    def attacked(line, attack, federation, out):
        asked.append(line.name)
        return row(line, 0.6, settings=repr(attack))

    monkeypatch.setattr(study, "attacked", attacked)
    monkeypatch.setattr(study.Federation, "from_dataset", lambda *_, **__: None)
    wanted = [line for line in study.lines("cifar10") if line.batch == 1 and line.defence == "none"]
    study.run(wanted, results, tmp_path, small=False)
    study.run(wanted, results, tmp_path, small=False)
    assert asked == [line.name for line in wanted]
    monkeypatch.setitem(study.ATTACKS, "ig", replace(study.ATTACKS["ig"], steps=7))
    study.run(wanted, results, tmp_path, small=False)
    assert asked[3:] == ["cifar10-none-ig-1"]
    assert len(results.read_text().splitlines()) == 4 and len(study.kept("cifar10", results)) == 3


def test_a_line_whose_control_fails_says_so(study):
    def line(defence, batch):
        return study.Line("cifar10", defence, "ig", batch)

    table = list(study.by_defence([row(line("none", 1), 0.6), row(line("none", 4), 0.4), row(line("dp", 1), 0.1), row(line("dp", 4), 0.1)]))  # fmt: skip
    assert table[2].endswith("| - |") and "| 0.600 | 1 |" in table[2]
    assert table[4].endswith("| SSIM 0.600 |") and table[5].endswith("| SSIM 0.400: failed, tells nothing |")
    assert "4 of 48 lines" in table[6]


def test_the_kept_rows_show_what_the_page_says(study):
    from inversion_classes import by_class
    from inversion_rows import RESULTS, read

    rows = read(RESULTS)
    page = (RESULTS.parents[1] / "attacks.md").read_text()
    for data in ("cifar10", "fashion-mnist"):
        kept = study.kept(data, RESULTS)
        assert "\n".join(study.by_defence(kept)).strip() in page
        assert all(one["ssim"] < 0.2 for one in kept if one["epsilon"] == 8.0)
    assert all(text in page for text in by_class([one for name, one in rows.items() if name.startswith("classes-")]))
    dlg, ig = rows["cifar10-none-dlg-1"], rows["cifar10-none-ig-1"]
    assert dlg["ssim"] >= 0.9 and dlg["seconds"] < 120 and ig["psnr"] >= 18
    assert rows["cifar10-none-gi-4"]["psnr"] >= rows["cifar10-none-ig-4"]["psnr"]
    assert rows["classes-mnist"]["times_chance"] >= 3
