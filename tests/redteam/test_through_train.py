"""The attacks of `through_train` in a small form: the lower bound stays under what is printed, and the attacks could have won."""

from __future__ import annotations

import os

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from redteam.through_train import CONFIDENCE, Attack, attacks  # noqa: E402
from sordino.audit.thresholds import split  # noqa: E402
from sordino.errors import SordinoError  # noqa: E402

RUNS = 24
IN_CI = ("loss with a flag", "positions that cancel, in groups")
RUN_HERE = [a for a in attacks() if a.name in IN_CI or os.environ.get("SORDINO_SLOW_TESTS")]


@pytest.mark.parametrize("attack", attacks(), ids=lambda a: a.name)
def test_no_record_moves_the_sum_by_more_than_it_may(attack: Attack, one_thread):
    assert attack.control > 2  # in a plain implementation it does
    try:
        moved = np.linalg.norm(attack.sum(attack.one) - attack.sum(attack.other))
    except SordinoError:
        return  # refused
    assert moved <= 2 * attack.plan(0).bound


@pytest.mark.parametrize("attack", RUN_HERE, ids=lambda a: a.name)
def test_the_lower_bound_stays_under_what_is_printed(attack: Attack, one_thread):
    try:
        printed, lower = attack.lower(RUNS)
    except SordinoError:
        return
    print(f"{attack.name}: printed {printed:.3g}, lower bound {lower:.3g}")
    assert lower <= printed


def test_the_attack_wins_where_records_mix():
    """The same test on the noisy sums of the plain implementation: it must be told apart, or the others show nothing."""
    attack = next(a for a in attacks() if a.name == "loss with a flag")
    plan, rng = attack.plan(0), np.random.Generator(np.random.PCG64(0))
    sums = [attack.naive(target) for target in (attack.other, attack.one)]
    way = (sums[1] - sums[0]) / np.linalg.norm(sums[1] - sums[0])
    worlds = [
        np.array([[(s + plan.multiplier * plan.bound * rng.standard_normal(s.size)) @ way] for _ in range(100)])
        for s in sums
    ]
    assert split(worlds[0], worlds[1], plan.delta, CONFIDENCE, gdp=False).epsilon > 0.5  # what is printed is 0.35
