"""The bound that clips is the bound that noises, never the next one; and a rule pays for what it asks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats
from stage import PLAN, build

from sordino.errors import NotPrivate
from sordino.methods import METHODS
from sordino.privacy import mechanisms
from sordino.privacy.bounds import Flat
from sordino.privacy.randomness import SERVER, stream
from sordino.privacy.release import Private
from sordino.rules.base import NOTHING, RoundOutput
from sordino.rules.query import Answer, answer_codes, is_raw, split

D, Z, ROUNDS = 2000, 1.5, 6


@dataclass(frozen=True)
class Leaping:
    """A rule whose bound changes tenfold every round."""

    def init(self):
        return {"bound": 1.0}

    def query(self, state):
        return NOTHING

    def bound(self, state, answer):
        return Flat(state["bound"])

    def observe(self, state, seen):
        return {"bound": seen.bound.size * (10.0 if seen.round % 2 else 0.1)}


def contribution(v, bound, grid):
    return Private(mechanisms.Sum(grid.encode(bound.clip(v)), grid), bound=bound)


def one_round(rule, state, t, seed=0):
    """Two clients with nothing to say about D coordinates; what comes out is noise alone."""
    source = stream(seed, t, SERVER, "noise")
    pre_clip, with_sum = rule.query(state)
    z_sum, (std_pre, std_with) = split(Z, pre_clip, with_sum)
    events = []

    def ask(query, std, bound):
        if query is None:
            return None
        norms, limit = np.array([1.0, 2.0]), Flat(1.0 if is_raw(query) else query.norm)
        if is_raw(query):
            return Answer(query.encode(norms, bound), 2)
        grid = mechanisms.FixedPoint.for_bound(limit, 2)
        total = Private(mechanisms.Sum(answer_codes(query, norms, bound, grid), grid), bound=limit)
        told, event = mechanisms.gaussian(total, limit, std / query.norm, source)
        events.append(event.noise_multiplier)
        return Answer(told.value, 2, std)

    asked = ask(pre_clip, std_pre, rule.bound(state, None).size)
    bound = rule.bound(state, asked)
    grid = mechanisms.FixedPoint.for_bound(bound, 2)
    still = [contribution(np.zeros(D), bound, grid) for _ in range(2)]
    total = mechanisms.add(still[1:], still[0])
    noisy, event = mechanisms.gaussian(total, bound, z_sum, source)
    assert bound.honest == hasattr(event, "noise_multiplier")  # a bound that does not match its noise proves nothing
    events.append(event.noise_multiplier if bound.honest else math.nan)
    said = ask(with_sum, std_with, bound.size)
    mean = bound.decode(noisy.value / 2)
    after = rule.observe(state, RoundOutput(t, bound, said, mean, np.asarray(bound.std(z_sum)) / 2, asked))
    return after, bound, z_sum, noisy.value, events


def plausible(noise, std):
    """Whether a chi-square test at one in a million takes the noise to have this standard deviation."""
    statistic = np.sum((noise / std) ** 2)
    return 5e-7 < stats.chi2.cdf(statistic, noise.size) < 1 - 5e-7


def test_a_bound_that_changes_every_round():
    rule = Leaping()
    state = rule.init()
    for t in range(1, ROUNDS + 1):
        state, bound, z_sum, noise, _ = one_round(rule, state, t)
        following = rule.bound(state, None)
        assert bound.size != following.size
        assert plausible(noise, z_sum * bound.size)
        assert not plausible(noise, z_sum * following.size)
        for wrong in (2 / 3, 3 / 2):
            assert not plausible(noise, wrong * z_sum * bound.size)


def test_the_next_bound_cannot_noise_this_sum():
    rule = Leaping()
    now = rule.bound(rule.init(), None)
    following = rule.bound(rule.observe(rule.init(), RoundOutput(1, now, None, np.zeros(1), 0.0)), None)
    total = contribution(np.ones(3), now, mechanisms.FixedPoint.for_bound(now, 1))
    with pytest.raises(NotPrivate, match="use the bound that clipped it"):
        mechanisms.gaussian(total, following, Z, stream(0, 1, SERVER, "noise"))


@pytest.mark.parametrize("name", [name for name, m in METHODS.items() if m.private])
def test_every_certified_method(name):
    """Its noise is that of the bound that clipped, and with its questions the round is one event of the multiplier."""
    rule = build(name, sizes=(D // 2, D // 2), units=2)
    state = rule.init()
    for t in range(1, ROUNDS + 1):
        state, bound, z_sum, noise, events = one_round(rule, state, t)
        assert getattr(bound, "honest", True)
        std = bound.std(z_sum)
        assert plausible(noise, std) and not plausible(noise, 1.5 * np.asarray(std))
        assert np.sum(1 / np.square(events)) == pytest.approx(Z**-2)


def test_published_dp_fedacn_ignores_its_bound():
    """Sigma stays while the bound runs away: the multiplier that the noise amounts to changes with the data."""
    rule = build("dp-fedacn", variant="published")
    state, true = rule.init(), []
    for t in range(1, ROUNDS + 1):
        state, bound, z_sum, noise, _ = one_round(rule, state, t)
        assert not bound.honest and plausible(noise, Z * PLAN.bound)
        true.append(Z * PLAN.bound / bound.size)
    assert max(true) / min(true) > 1.5 and not any(math.isclose(z, Z) for z in true)


def test_published_dp_fedacn_finds_room_for_its_noise_however_small_its_bound():
    """As printed the bound falls by a factor in every round and the noise does not: a grid made for the bound would overflow."""
    small = build("dp-fedacn", variant="published").bound({"bound": 1e-30, "begun": 1}, None)
    grid = mechanisms.FixedPoint.for_bound(small, 1000)
    raw = Private(mechanisms.Sum(grid.encode(np.zeros(D)), grid), bound=small)
    noisy, _ = mechanisms.gaussian(raw, small, Z, np.random.default_rng(0))
    assert plausible(noisy.value, Z * PLAN.bound)


def test_clients_clip_to_what_they_are_told():
    for name, method in METHODS.items():
        for variant in method.variants:
            rule = build(name, sizes=(3, 2), variant=variant)
            bound = rule.bound(rule.init(), None)
            huge = bound.clip(np.full(5, 1e9))
            assert np.linalg.norm(huge) <= bound.size and np.linalg.norm(huge) > 0.9 * bound.size, (name, variant)
            assert not bound.clip(np.full(5, math.nan)).any()
