"""Integer samplers have the law they claim, and the fast comparison never disagrees with the exact one."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy import special, stats

from sordino.errors import BadInput
from sordino.privacy import samplers
from sordino.privacy.randomness import SecureSource, stream

N = 40_000
SOURCES = {"stream": lambda: stream(5, 6, 7, "noise"), "secure": SecureSource}
SIGMAS = [0.3, 1.0, 2.7, 40.0, 1e4]


def gaussian_pmf(k, sigma):
    reach = np.arange(-math.ceil(12 * sigma) - 3, math.ceil(12 * sigma) + 4)
    return np.exp(-(k**2) / (2 * sigma**2)) / np.exp(-(reach**2) / (2 * sigma**2)).sum()


def laplace_pmf(k, t):
    return np.exp(-np.abs(k) / t) * math.tanh(1 / (2 * t))


def skellam_pmf(k, sigma):
    return special.ive(np.abs(k), sigma**2)


def poisson_pmf(k, rate):
    return stats.poisson.pmf(k, rate)


def fit(draws, pmf, low, high, cells=60):
    """The p-value of a chi-square test over cells of whole numbers from low to high and the two tails."""
    k = np.arange(low, high + 1)
    edges = np.unique(np.linspace(low, high + 1, cells).astype(np.int64))
    expected = np.array([pmf(k[(k >= a) & (k < b)]).sum() for a, b in zip(edges, edges[1:])])
    counts = np.histogram(draws, edges.astype(float) - 0.5)[0]
    outside = max(1 - expected.sum(), 0.0)
    keep = expected * len(draws) > 5
    observed = np.append(counts[keep], len(draws) - counts[keep].sum())
    wanted = np.append(expected[keep], outside + expected[~keep].sum()) * len(draws)
    if wanted[-1] < 1e-9:
        assert observed[-1] == 0
        observed, wanted = observed[:-1], wanted[:-1]
    return stats.chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("law", ["gaussian", "skellam"])
def test_laws_both_ways(law, sigma, source):
    draw, pmf = (
        (samplers.discrete_gaussian, gaussian_pmf)
        if law == "gaussian"
        else (lambda s, n, src: samplers.skellam(s * s, n, src), skellam_pmf)
    )
    draws = draw(sigma, N, SOURCES[source]())
    assert draws.dtype == np.int64 and draws.shape == (N,)
    reach = math.ceil(4 * sigma)
    assert fit(draws, lambda k: pmf(k, sigma), -reach, reach) > 1e-6
    assert fit(draws, lambda k: pmf(k, sigma * 2 / 3), -reach, reach) < 1e-9
    assert fit(draws, lambda k: pmf(k, sigma * 3 / 2), -reach, reach) < 1e-9


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("rate", [0.01, 0.9, 1.0, 7.3, 300.0, 1e6])
def test_poisson(rate, source):
    draws = samplers.poisson(rate, N, SOURCES[source]())
    low, high = max(0, math.floor(rate - 4 * math.sqrt(rate))), math.ceil(rate + 4 * math.sqrt(rate)) + 1
    assert draws.min() >= 0
    assert fit(draws, lambda k: poisson_pmf(k, rate), low, high) > 1e-6
    for wrong in (rate - math.sqrt(rate) / 4, rate + math.sqrt(rate) / 4):
        assert wrong <= 0 or fit(draws, lambda k: poisson_pmf(k, wrong), low, high) < 1e-9  # noqa: B023


@pytest.mark.parametrize("t", [1, 5, 1000])
def test_discrete_laplace(t):
    draws = samplers.discrete_laplace(t, N, SecureSource())
    assert fit(draws, lambda k: laplace_pmf(k, t), -6 * t, 6 * t) > 1e-6
    assert fit(draws, lambda k: laplace_pmf(k, 1.5 * t), -6 * t, 6 * t) < 1e-9


@pytest.mark.parametrize("sigma", [1e6, samplers.MOST])
def test_large_deviations_look_normal(sigma):
    draws = samplers.discrete_gaussian(sigma, N, SecureSource())
    assert stats.kstest(draws, stats.norm(scale=sigma).cdf).pvalue > 1e-6
    assert stats.kstest(draws, stats.norm(scale=sigma * 2 / 3).cdf).pvalue < 1e-9
    assert abs(np.mean(draws % 2) - 0.5) < 5 / math.sqrt(4 * N)  # down to the last bit


def test_large_skellam_looks_normal():
    draws = samplers.skellam(2.0**41, N, stream(1, 1, 1, "noise"))
    assert stats.kstest(draws, stats.norm(scale=2.0**20.5).cdf).pvalue > 1e-6
    assert stats.kstest(draws, stats.norm(scale=2.0**20.5 * 1.5).cdf).pvalue < 1e-9


@pytest.mark.parametrize(
    "draw, parameter",
    [(samplers.discrete_gaussian, s) for s in (0.2, 1.0, 3.7, 1234.5, 1e6)]
    + [(samplers.poisson, r) for r in (0.3, 4.0, 55.5, 3e4)]
    + [(samplers.discrete_laplace, t) for t in (1, 17, 10**6)],
)
def test_the_fast_comparison_agrees_with_the_exact_one(monkeypatch, draw, parameter):
    """With a margin that covers everything, each draw is settled in exact arithmetic; the same bits, the same draws."""
    fast = draw(parameter, 150, stream(3, 3, 3, "noise"))
    reject = samplers._reject
    monkeypatch.setattr(samplers, "_reject", lambda *settings: reject(*settings[:-1], 2.0))  # the last is the margin
    monkeypatch.setattr(samplers, "_LOG_MARGIN", 2.0)
    calls = []
    below = samplers._Uniform.below
    monkeypatch.setattr(samplers._Uniform, "below", lambda self, law: calls.append(1) or below(self, law))
    slow = draw(parameter, 150, stream(3, 3, 3, "noise"))
    assert np.array_equal(fast, slow)
    assert len(calls) > 300  # the exact path did run


@pytest.mark.parametrize("rate", [2.0**-30, 0.5, 0.999, 1.0, 2.0, 3.999, 17.2, 1e3, 1e6, 2.0**40])
def test_proposals_cover_the_poisson(monkeypatch, rate):
    """A rejection sampler is right only if no acceptance probability exceeds 1, and fast only if some are near it."""
    seen = []
    monkeypatch.setattr(samplers, "_reject", lambda *settings: seen.extend(settings) or 0)
    samplers.poisson(rate, 1, None)
    t, _, _, accept, _, _ = seen
    k = np.unique(np.linspace(-30 * t, 30 * t, 200_001).astype(np.int64)).astype(float)
    chance = accept(k[k >= -math.floor(rate)])
    assert 0.99 < chance.max() <= 1.0


def test_words_too_short_are_extended():
    """Geometric draws from the deepest tail, where the first 64 bits say next to nothing."""

    class Tail:
        def integers(self, low, high, size, dtype, endpoint):
            return np.full(size, 7, dtype=dtype)

    g = samplers._geometric(10, 3, Tail())
    u = Fraction(sum(7 << 64 * i for i in range(3)), 1 << 192)
    assert np.array_equal(g, np.full(3, math.floor(-10 * (math.log(u.numerator) - math.log(u.denominator)))))


def test_intervals_enclose_the_truth():
    with localcontext() as context:
        context.prec = 120
        for x in (Fraction(-1, 3), Fraction(-123456, 789), Fraction(5, 7), Fraction(0)):
            truth = Fraction((Decimal(x.numerator) / Decimal(x.denominator)).exp())
            for digits in (20, 40, 80):
                low, high = samplers._exp(x, digits)
                assert low <= truth <= high and high - low <= truth * Fraction(10**5, 10**digits)
    rate, mode = 12.75, 12
    for k in (-12, -3, 0, 1, 30):
        steps = [Fraction(rate) / i for i in range(13, 13 + k)] + [i / Fraction(rate) for i in range(13 + k, 13)]
        low, high = samplers._poisson_ratio(mode, k, rate, 30)
        assert low <= math.prod(steps, start=Fraction(1)) <= high


def test_log_poisson_is_sharp():
    for rate in (0.3, 5.0, 80.0, 1e5):
        k = np.unique(np.clip(np.linspace(rate - 9 * math.sqrt(rate), rate + 9 * math.sqrt(rate), 40).round(), 0, None))
        assert samplers._log_poisson(k, rate) == pytest.approx(stats.poisson.logpmf(k, rate), rel=1e-9, abs=1e-9)
    assert samplers._log_poisson(np.array([-1.0]), 3.0)[0] == -math.inf


def test_skellam_is_closed_under_sums():
    parts = [samplers.skellam(3.0, N, stream(8, 0, k, "noise")) for k in range(4)]
    assert fit(sum(parts), lambda k: skellam_pmf(k, math.sqrt(12)), -14, 14) > 1e-6


def test_nothing_asked_nothing_drawn():
    assert samplers.discrete_gaussian(1.0, 0, SecureSource()).size == samplers.skellam(1.0, 0, SecureSource()).size == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda s: samplers.discrete_gaussian(0.0, 1, s),
        lambda s: samplers.discrete_gaussian(2.0**31, 1, s),
        lambda s: samplers.discrete_gaussian(math.nan, 1, s),
        lambda s: samplers.discrete_gaussian(1.0, -1, s),
        lambda s: samplers.poisson(-1.0, 1, s),
        lambda s: samplers.poisson(2.0**41, 1, s),
        lambda s: samplers.skellam(math.inf, 1, s),
        lambda s: samplers.discrete_laplace(0, 1, s),
        lambda s: samplers.discrete_laplace(2**31, 1, s),
    ],
)
def test_bad_parameters(call):
    with pytest.raises(BadInput):
        call(SecureSource())
