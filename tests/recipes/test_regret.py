"""The study of regret: its arithmetic by hand, and its small form."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def regret(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import regret

    yield regret
    sys.modules.pop("regret")


def line(accuracy, seed, config, rounds=240):
    where = {"setting": "digits", "epsilon": 4.0, "plan": {"model": "std-linear", "rounds": rounds}}
    return {**where, "seed": seed, "config": config, "accuracy": accuracy}


def test_the_oracle_is_the_best_mean_over_all_seeds(regret):
    lucky, steady, alone = {"bound": 0.1}, {"bound": 1.0}, {"bound": 5.0}
    rows = [line(0.50, 0, None, rounds=120)]  # of an earlier recipe
    rows += [line(0.90, 0, None), line(0.92, 1, None)]
    rows += [line(0.96, 0, lucky), line(0.86, 1, lucky), line(0.93, 0, steady), line(0.93, 1, steady)]
    rows += [line(0.99, 0, alone)]  # run on one seed only: searched, and not among the best three
    (cell,) = regret.cells(rows)
    assert cell["best"] == steady and cell["tried"] == 3 and cell["seeds"] == 2
    assert cell["regret"] == pytest.approx(0.93 - 0.91)
    assert cell["elsewhere"] == pytest.approx(0.93 - 0.92)  # the search saw seed 0
    assert "| digits | std-linear | 4 | 91.0 ± 1.0 | 93.0 | +2.0 | +1.0 | bound 1 | 3 | 2 |" in regret.table([cell])


def test_other_seeds_tell_luck_from_lead(regret):
    """A configuration that was lucky on the seed of the search shows nothing on the others."""
    lucky = {"bound": 0.1}
    rows = [line(0.90, seed, None) for seed in range(3)] + [line(a, s, lucky) for s, a in enumerate((0.96, 0.90, 0.90))]
    (cell,) = regret.cells(rows)
    assert cell["regret"] == pytest.approx(0.02) and cell["elsewhere"] == pytest.approx(0.0)


def test_a_configuration_is_a_whole_plan_of_the_same_passes(regret):
    from sordino.federation.population import Federation

    federation = Federation.from_dataset("digits", "iid", 10)
    plan = regret.recipe(federation, regret.SETTINGS["digits"], 4.0, 0)
    tried = list(regret.configurations(plan))
    assert len(tried) == 24 and len({str(config) for config in tried}) == 24
    for config in tried:
        assert config["rounds"] * config["batch_size"] == pytest.approx(plan.rounds * plan.batch_size, rel=0.01)


def test_the_small_form_runs_and_is_not_run_twice(regret, tmp_path):
    book = regret.Book(tmp_path / "regret.jsonl")
    regret.fill_cell(book, "digits", 4.0, (0,), small=True)
    (cell,) = regret.cells(book.rows)
    assert cell["tried"] == 4 and cell["recipe"] > 0.92 and cell["regret"] < 0.03
    again = regret.Book(tmp_path / "regret.jsonl")
    regret.fill_cell(again, "digits", 4.0, (0,), small=True)
    assert again.rows == book.rows


@pytest.mark.parametrize("method", ["adact", "quantile"])
def test_a_first_bound_a_thousand_times_off_loses_little(regret, tmp_path, method):
    """On 360 test pictures a point is 3.6 of them; the table in docs/regret.md has all methods."""
    book = regret.Book(tmp_path / "regret.jsonl")
    small, right, large = (
        book.accuracy("digits", 8.0, 0, {"method": method, "bound": b, "rounds": 60}) for b in (1e-3, 1.0, 1e3)
    )
    assert min(small, large) > right - 0.03 and right > 0.9
