"""Every method on two clients, with the numbers worked out by hand.

Client A's update is (3, 4), of norm 5; client B's is (0, 1), of norm 1. Noise is put in by hand where a rule sees it.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from stage import build

from sordino.privacy.bounds import L1, Automatic, Coordinates, Flat, Grouped
from sordino.rules import search
from sordino.rules.base import RoundOutput, trust
from sordino.rules.query import Answer, BoundedValue, CentredBit, HistogramBin, RawBit, RawNorm

A, B = np.array([3.0, 4.0]), np.array([0.0, 1.0])
NORMS = np.array([5.0, 1.0])


def clipped_sum(bound):
    return bound.clip(A) + bound.clip(B)


def seen(bound, answer=None, round=1, mean=None, noise=0.0, pre_clip=None, **more):
    return RoundOutput(round, bound, answer, np.zeros(2) if mean is None else mean, noise, pre_clip, **more)


def answer(query, bound, noise=0.0, std=0.0):
    total = query.encode(NORMS, bound)
    return Answer(total + noise if total.size == 1 else total, 2, std)


def test_dp_fedavg():
    rule = build("dp-fedavg", bound=2.5)
    bound = rule.bound(rule.init(), None)
    assert rule.query(rule.init()) == (None, None) and bound == Flat(2.5)
    assert np.allclose(clipped_sum(bound), [1.5, 2 + 1])  # A is halved, B passes
    assert bound.std(2.0) == 5.0
    assert build("dp-fedavg", bound=2.5, mechanism="laplace").bound({}, None) == L1(2.5)


def test_quantile_published():
    """One of two within C = 2, so b = 1/2; noise of 0.4 on the sum makes it 0.7; C = 2 exp(-0.2 * 0.2)."""
    rule = build("quantile", bound=2.0, variant="published", options={"share": 0.1})
    state = rule.init()
    assert rule.query(state) == (None, CentredBit(0.1))
    said = answer(CentredBit(0.1), 2.0, noise=0.4, std=10.0)
    assert rule.observe(state, seen(Flat(2.0), said))["bound"] == pytest.approx(2 * math.exp(-0.04))
    # Noise cannot push the fraction out of [0, 1].
    said = answer(CentredBit(0.1), 2.0, noise=99.0, std=10.0)
    assert rule.observe(state, seen(Flat(2.0), said))["bound"] == pytest.approx(2 * math.exp(-0.1))


def test_quantile_certified_halves_its_step_and_trusts_less():
    rule = build("quantile", bound=6.0, options={"warm": 1.6})
    state = {**rule.init(), "searching": 0.0}
    # Both lie within 6: b = 1, C = 6 exp(-1.6 / 2).
    state = rule.observe(state, seen(Flat(6.0), answer(CentredBit(), 6.0)))
    assert state["bound"] == pytest.approx(6 * math.exp(-0.8)) and state["step"] == 1.6
    # Suppose now that neither does: the bound was overshot, the step is halved, C grows by exp(0.8 / 2).
    state = rule.observe({**state, "bound": 0.5}, seen(Flat(0.5), answer(CentredBit(), 0.5)))
    assert state["bound"] == pytest.approx(0.5 * math.exp(0.4)) and state["step"] == 0.8
    # Noise of std 1/4 in the mean is believed half way, and explains half of a miss; the side is the same, so the step is kept.
    state = rule.observe({**state, "bound": 0.5}, seen(Flat(0.5), answer(CentredBit(), 0.5, std=0.5)))
    assert trust(0.25) == 0.5 and state["bound"] == pytest.approx(0.5 * math.exp(0.2)) and state["step"] == 0.8


def test_quantile_certified_searches_again_when_the_bound_is_far_off():
    """Norms of 1 and 5 under 600: both within. Once may be chance; the second time the search begins at the bound in force."""
    rule = build("quantile", bound=600.0, options={"warm": 1.6})
    both = answer(CentredBit(), 600.0)
    once = rule.observe({**rule.init(), "searching": 0.0}, seen(Flat(600.0), both))
    assert once["bound"] == pytest.approx(600 * math.exp(-0.8)) and not once["searching"]
    there = {**once, "bound": 600.0}
    again = rule.observe(there, seen(Flat(600.0), both))
    belief = search.heard(search.around(600.0), 1.0, 600.0, 0.5, 0.0)
    assert again["searching"] and again["belief"] == belief.tolist()
    assert again["bound"] == pytest.approx(search.place(belief)[0]) and again["bound"] < 200
    # Noise of 1/4 in the mean explains a miss of 1/2.
    assert not rule.observe(there, seen(Flat(600.0), answer(CentredBit(), 600.0, std=0.5)))["searching"]


def test_quantile_as_published_and_without_warm_up_never_searches():
    for changes in ({"variant": "published"}, {"options": {"warm": 0.0}}):
        assert set(build("quantile", **changes).init()) == {"bound", "step", "side", "far"}


@pytest.mark.parametrize("name", ["adact", "geyer"])
def test_exact_quantiles_as_published(name):
    rule = build(name, bound=9.0, variant="published")
    state = rule.init()
    assert rule.query(state) == (RawNorm(), None)
    assert rule.bound(state, None) == Flat(9.0)
    bound = rule.bound(state, answer(RawNorm(), 9.0))
    assert bound == Flat(3.0)  # the median of 1 and 5
    assert np.allclose(clipped_sum(bound), [3 * 0.6, 4 * 0.6 + 1])
    assert bound.std(2.0) == 6.0  # in proportion to the bound of this very round
    assert rule.observe(state, seen(bound)) == {"bound": 3.0}
    # A client whose update is not finite counts as zero and says nothing; an empty cohort keeps the bound.
    assert rule.bound(state, Answer(np.array([math.nan, 5.0]), 2)) == Flat(5.0)
    assert rule.bound({"bound": 3.0}, Answer(np.empty(0), 2)) == Flat(3.0)


def test_adact_published_tau():
    rule = build("adact", variant="published", options={"tau": 0.75})
    assert rule.bound(rule.init(), answer(RawNorm(), 1.0)) == Flat(4.0)  # three quarters of the way from 1 to 5


@pytest.mark.parametrize("name", ["adact", "geyer"])
def test_same_round_histogram(name):
    """Norms 1 and 5 between edges 1/2, 1, 2, 4, 8: one unit in the second bin, one in the fifth.

    Less half of the two, the curve at the edges is -1, 0, 0, 0, 1: it reaches zero at 1.
    """
    tau = {"tau": 0.5} if name == "adact" else {}
    rule = build(name, options={"low": 0.5, "high": 8.0, "bins": 5, "share": 0.2, **tau})
    state = rule.init()
    pre_clip, with_sum = rule.query(state)
    assert isinstance(pre_clip, HistogramBin) and with_sum is None and np.allclose(pre_clip.edges, [0.5, 1, 2, 4, 8])
    said = answer(pre_clip, 1.0)
    assert said.total.tolist() == [0, 1, 0, 0, 1, 0]
    bound = rule.bound(state, said)
    assert bound.size == pytest.approx(1.0)
    assert np.allclose(clipped_sum(bound), [0.6, 0.8 + 1])
    assert rule.observe(state, seen(bound, pre_clip=said))["log_bound"] == pytest.approx(0.0)


def test_dp_fedacn_published():
    """C_0 = (5 + 1)/2 = 3. One of two lies below: L = 0, rho_1 = 1, C_2 = 3. Below 6 both would: L = 1/2."""
    rule = build("dp-fedacn", bound=2.0, variant="published")
    state = rule.init()
    assert rule.query(state) == (RawNorm(), RawBit())
    bound = rule.bound(state, answer(RawNorm(), 2.0))
    assert bound.size == 3.0
    assert bound.std(1.5) == 3.0 and not bound.honest  # 1.5 times the plan's 2, whatever the bound
    state = rule.observe(state, seen(bound, answer(RawBit(), 3.0)))
    assert state == {"bound": 3.0, "begun": 1}
    assert rule.query(state) == (None, RawBit())
    six = rule.bound({"bound": 6.0, "begun": 1}, None)
    assert six.std(1.5) == 3.0
    state = rule.observe({"bound": 6.0, "begun": 1}, seen(six, answer(RawBit(), 6.0), round=2))
    assert state["bound"] == pytest.approx(6 * math.exp(+0.5) * math.sqrt(0.5))  # grows although all lie below


def test_dp_fedacn_certified():
    """Same clients, repaired: with both below 6 in round 2 the bound shrinks by exp(-1/2) and rho_2 = sqrt(1/2)."""
    rule = build("dp-fedacn", bound=6.0)
    state = rule.init()
    assert isinstance(rule.query(state).with_sum, CentredBit) and rule.query(state).pre_clip is None
    state = rule.observe(state, seen(Flat(6.0), answer(CentredBit(), 6.0)))
    assert state["bound"] == pytest.approx(6 * math.exp(-0.5))  # rho_1 = 1
    state = rule.observe({**state, "bound": 6.0}, seen(Flat(6.0), answer(CentredBit(), 6.0), round=2))
    assert state["bound"] == pytest.approx(6 * math.exp(-0.5) * math.sqrt(0.5))
    assert rule.bound(state, None).std(2.0) == pytest.approx(2 * state["bound"])


def test_dp_fedagnc():
    """Published: the mean, 3. Certified at C = 2, kappa = 3: min(5, 6) and 1 make a mean of 3, 1.5 times the bound."""
    rule = build("dp-fedagnc", bound=2.0, variant="published")
    assert rule.query(rule.init()) == (None, RawNorm())
    assert rule.observe(rule.init(), seen(Flat(2.0), answer(RawNorm(), 2.0))) == {"bound": 3.0}

    rule = build("dp-fedagnc", bound=2.0, options={"gain": 1.0})
    query = rule.query(rule.init()).with_sum
    assert isinstance(query, BoundedValue) and query.cap == 3.0
    assert rule.observe(rule.init(), seen(Flat(2.0), answer(query, 2.0)))["bound"] == pytest.approx(3.0)
    # At C = 1/2 client A is cut off at 1.5: (1.5 + 1)/2 = 1.25.
    assert rule.observe({"bound": 0.5}, seen(Flat(0.5), answer(query, 0.5)))["bound"] == pytest.approx(1.25)
    # The default gain takes the root of that step; a negative noisy mean shrinks the bound by kappa and no more.
    rule = build("dp-fedagnc", bound=2.0)
    assert rule.observe(rule.init(), seen(Flat(2.0), answer(query, 2.0)))["bound"] == pytest.approx(2 * math.sqrt(1.5))
    low = answer(query, 2.0, noise=-9.0)
    assert rule.observe(rule.init(), seen(Flat(2.0), low))["bound"] == pytest.approx(2 / math.sqrt(3))


def test_dp_fedamvc():
    rule = build("dp-fedamvc", bound=5.0, rounds=5)  # 5, 4, 3, 2, 1
    state, sizes = rule.init(), []
    for t in range(1, 7):
        bound = rule.bound(state, None)
        sizes.append(bound.size)
        state = rule.observe(state, seen(bound, round=t))
    assert np.allclose(sizes, [5, 4, 3, 2, 1, 1])
    assert np.allclose(clipped_sum(Flat(sizes[2])), [1.8, 2.4 + 1])
    assert build("dp-fedamvc", rounds=1).bound({"round": 1}, None).size == 1.0


def test_dp_fedddc():
    """C_t = 5 * 0.25^(t/2): 2.5 and 1.25. z_t/z_0 = 0.81^(t/2): 0.9 and 0.81."""
    from stage import PLAN, replace

    from sordino.methods import method

    plan = replace(PLAN, bound=5.0, rounds=2, options={"clip_end": 0.25, "mu_start": 0.81})
    rule = build("dp-fedddc", bound=5.0, rounds=2, options=plan.options)
    first = rule.bound(rule.init(), None)
    assert first.size == pytest.approx(2.5) and np.allclose(clipped_sum(first), [1.5, 2 + 1])
    assert rule.bound(rule.observe(rule.init(), seen(first)), None).size == pytest.approx(1.25)
    assert np.allclose(method("dp-fedddc").schedule(plan), [0.9, 0.81])


def test_dp_fedggc():
    """Two groups of one coordinate, C_g = sqrt(8)/sqrt(2) = 2: A becomes (2, 2), B stays. Joint bound sqrt(8)."""
    rule = build("dp-fedggc", sizes=(1, 1), bound=math.sqrt(8))
    bound = rule.bound(rule.init(), None)
    assert isinstance(bound, Grouped) and np.allclose(bound.bounds, [2, 2])
    assert np.allclose(clipped_sum(bound), [2, 2 + 1])
    assert bound.size == pytest.approx(math.sqrt(8)) and np.allclose(bound.std(1.0), math.sqrt(8))


def test_dp_fedggc_splits_the_noise():
    """Groups of 1 and 4 coordinates, C_g = 1: sigma^2 = (1 + 2) * (1, 1/2) = 3 and 1.5, of energy 9 instead of 10."""
    even = build("dp-fedggc", sizes=(1, 4), bound=math.sqrt(2), variant="published").bound({}, None)
    split = build("dp-fedggc", sizes=(1, 4), bound=math.sqrt(2)).bound({}, None)
    assert np.allclose(even.std(1.0) ** 2, 2) and np.allclose(split.std(1.0) ** 2, [3] + [1.5] * 4)
    for bound, energy in ((even, 10), (split, 9)):
        std = bound.std(1.0)
        assert 1 / std[0] ** 2 + 1 / std[1] ** 2 == pytest.approx(1.0)  # both spend a multiplier of 1
        assert np.sum(std**2) == pytest.approx(energy)


def test_noise_gamma():
    """A release of two local epochs, gamma = 1/2: the bound falls to a quarter."""
    options = {"gamma": 0.5}
    rule = build("noise-gamma", bound=10.0, options=options)
    first = rule.bound(rule.init(), None)
    second = rule.bound(rule.observe(rule.init(), seen(first, epochs=2)), None)
    assert (first, second) == (Flat(10.0), Flat(2.5))
    assert np.allclose(clipped_sum(second), [1.5, 2 + 1]) and second.std(2.0) == 5.0
    # With Laplace noise: clipped in L1 (|A|_1 = 7), or as published in L2, which leaves an L1 norm of 3.5 for C = 2.5.
    certified = build("noise-gamma", bound=2.5, mechanism="laplace").bound({"epoch": 0}, None)
    assert certified == L1(2.5) and np.allclose(certified.clip(A), A * 2.5 / 7)
    published = build("noise-gamma", bound=2.5, mechanism="laplace", variant="published").bound({"epoch": 0}, None)
    assert np.allclose(published.clip(A), A / 2) and np.abs(published.clip(A)).sum() > published.size
    assert not published.honest and published.scale(4.0) == certified.scale(4.0) == 10.0


def test_automatic():
    rule = build("automatic", bound=2.0, options={"gamma": 1.0})
    bound = rule.bound(rule.init(), None)
    assert bound == Automatic(2.0, 1.0)
    assert np.allclose(clipped_sum(bound), A * 2 / 6 + B * 2 / 2)
    assert build("automatic").bound({}, None) == Automatic(1.0, 0.01)


def test_adaclip_published():
    """Begun as flat clipping to 2: b = (2, 2), A/b = (1.5, 2) of norm 2.5 is cut to (0.6, 0.8), B/b = (0, 0.5).

    Mean of w: (0.3, 0.65), and g = (0.6, 1.3). Without noise: a = 0.01 g, s^2 = 0.9 * 2 + 0.1 g^2 (s_0 = 2/sqrt(2)).
    """
    rule = build("adaclip", sizes=(2,), bound=2.0, variant="published")
    bound = rule.bound(rule.init(), None)
    assert isinstance(bound, Coordinates) and np.allclose(bound.scale, 2) and np.allclose(bound.mean, 0)
    mean = bound.decode(clipped_sum(bound) / 2)
    assert np.allclose(mean, [0.6, 1.3])
    state = rule.observe(rule.init(), seen(bound, mean=mean))
    assert np.allclose(state["mean"], [0.006, 0.013])
    assert np.allclose(np.square(state["spread"]), [1.8 + 0.036, 1.8 + 0.169])
    # Noise of std 0.5 in w is 1 in g: 0.36 - 1 < 0 is clamped to h1, 1.69 - 1 counts.
    state = rule.observe(rule.init(), seen(bound, mean=mean, noise=0.5))
    assert np.allclose(np.square(state["spread"]), [1.8, 1.8 + 0.069])


def test_adaclip_certified():
    """Without noise the spreads are those above, at the energy of flat clipping: sum b^2 = 2 * 2^2."""
    rule = build("adaclip", sizes=(2,), bound=2.0)
    bound = rule.bound(rule.init(), None)
    assert np.allclose(bound.scale, 2) and np.allclose(bound.mean, 0)
    mean = bound.decode(clipped_sum(bound) / 2)
    after = rule.bound(rule.observe(rule.init(), seen(bound, mean=mean)), None)
    assert np.allclose(after.mean, 0.01 * mean)
    assert (after.scale[1] / after.scale[0]) ** 2 == pytest.approx(math.sqrt((1.8 + 0.169) / (1.8 + 0.036)))
    assert np.sum(after.scale**2) == pytest.approx(8)
    # If noise explains all of it, it stays flat clipping about 0.
    noisy = rule.bound(rule.observe(rule.init(), seen(bound, mean=mean, noise=2.0)), None)
    assert np.allclose(noisy.scale, 2) and np.allclose(noisy.mean, 0)
