"""Integer samplers have the law they claim, and the fast comparison never disagrees with the exact one."""

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from sordino.errors import BadInput
from sordino.privacy import samplers
from sordino.privacy.randomness import SecureSource, stream

N = 40_000
SOURCES = {"stream": lambda: stream(5, 6, 7, "noise"), "secure": SecureSource}
SCALES = [0.3, 1.0, 2.7, 15.9, 40.0, 1e4]
GAUSSIANS, GAUSSIAN_SUM = [1540359740925, 1145242336694, 1159895945399], 48609365246479
LAPLACES, LAPLACE_SUM = [-1995779068161, -1351524180261, -1361377245092], 78981430236411


def gaussian_pmf(k, sigma):
    reach = np.arange(-math.ceil(12 * sigma) - 3, math.ceil(12 * sigma) + 4)
    return np.exp(-(k**2) / (2 * sigma**2)) / np.exp(-(reach**2) / (2 * sigma**2)).sum()


def laplace_pmf(k, scale):
    """Of a Laplace variate that is rounded: differences of its distribution function."""
    return stats.laplace.cdf((k + 0.5) / scale) - stats.laplace.cdf((k - 0.5) / scale)


DRAWS = {"gaussian": (samplers.discrete_gaussian, gaussian_pmf), "laplace": (samplers.rounded_laplace, laplace_pmf)}


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
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("law", DRAWS)
def test_laws_both_ways(law, scale, source):
    draw, pmf = DRAWS[law]
    draws = draw(scale, N, SOURCES[source]())
    assert draws.dtype == np.int64 and draws.shape == (N,)
    reach = math.ceil((4 if law == "gaussian" else 7) * scale)
    assert fit(draws, lambda k: pmf(k, scale), -reach, reach) > 1e-6
    assert fit(draws, lambda k: pmf(k, scale * 2 / 3), -reach, reach) < 1e-9
    assert fit(draws, lambda k: pmf(k, scale * 3 / 2), -reach, reach) < 1e-9


@pytest.mark.parametrize("law", DRAWS)
def test_short_draws_have_the_law_too(law):
    """Below the length that is worth a table."""
    draw, pmf = DRAWS[law]
    source = stream(9, 9, 9, "noise")
    draws = np.concatenate([draw(20.0, 100, source) for _ in range(200)])
    assert fit(draws, lambda k: pmf(k, 20.0), -140, 140) > 1e-6
    assert fit(draws, lambda k: pmf(k, 24.0), -140, 140) < 1e-9


@pytest.mark.parametrize("law, scale", [("gaussian", 2.0**e) for e in (20, 40, 57)] + [("laplace", 2.0**55)])
def test_large_draws_look_real_and_are_uniform_in_the_low_bits(law, scale):
    draws = DRAWS[law][0](scale, N, SecureSource())
    real = {"gaussian": stats.norm, "laplace": stats.laplace}[law]
    assert stats.kstest(draws / scale, real().cdf).pvalue > 1e-6
    assert stats.kstest(draws / scale, real(scale=2 / 3).cdf).pvalue < 1e-9
    assert stats.kstest(draws / scale, real(scale=3 / 2).cdf).pvalue < 1e-9
    assert stats.chisquare(np.bincount(draws & 15, minlength=16)).pvalue > 1e-6
    assert stats.chisquare(np.bincount((draws >> 8) & 15, minlength=16)).pvalue > 1e-6


def by_hand(law, word, j, digits=60):
    """One attempt as the text at the head of `samplers` has it, cell by cell, with 60 digits: y, or None."""
    with localcontext() as context:
        context.prec = digits

        def f(y):
            x = law.exponent(y)
            return (-Decimal(x.numerator) / Decimal(x.denominator)).exp()

        cells = samplers._Cells(law)
        w = 1 << cells.bits
        at, start = Decimal(word) / (1 << 64) * Decimal(cells.most), Decimal(0)
        for m in itertools.count():
            height = f(m * w)
            if height < Decimal("1e-40"):  # U lies beyond all cells
                return None
            for c in (m, -m - 1):
                if at < start + height:
                    return c * w + j if at < start + f(c * w + j) else None
                start += height


@pytest.mark.parametrize("law", [samplers._Gaussian(s) for s in (0.4, 3.7, 1234.5, 2.0**40 * 1.3)]
                         + [samplers._TwoSided(s) for s in (0.4, 17.0, 2.0**50 * 1.7)])  # fmt: skip
def test_all_three_ways_agree_with_the_slow_one(law):
    """The table, the comparison in double precision and the exact one: the same bits, the same integers."""
    words = stream(3, 3, 3, "noise").integers(0, (1 << 64) - 1, size=60, dtype=np.uint64, endpoint=True)
    words[:4] = 0, 1, 1 << 63, (1 << 64) - 1
    cells = samplers._Cells(law)
    j = (words[::-1] & np.uint64((1 << cells.bits) - 1)).view(np.int64)
    slow = [by_hand(law, int(a), int(b)) for a, b in zip(words, j)]
    assert [cells._settle(int(a), int(b), None) for a, b in zip(words, j)] == slow
    y, keep = cells._decide(words, j, None)
    assert [int(a) if b else None for a, b in zip(y, keep)] == slow
    sure = cells._guide[words >> np.uint64(64 - samplers._GUIDE)]
    assert (sure != samplers._UNSURE).any()
    for first, low, expected in zip(sure, j, slow):
        assert first == samplers._UNSURE or first + low == expected


@pytest.mark.parametrize("law", DRAWS)
@pytest.mark.parametrize("scale", [0.2, 3.7, 2.0**40])
def test_the_fast_draws_are_the_exact_ones(monkeypatch, law, scale):
    """With a margin that covers everything, each draw is settled in exact arithmetic."""
    draw = DRAWS[law][0]
    fast, blocks = draw(scale, 150, stream(3, 3, 3, "noise")), draw(scale, 20_000, stream(3, 3, 3, "noise"))
    monkeypatch.setattr(samplers, "_LONG", 10**9)
    assert np.array_equal(blocks, draw(scale, 20_000, stream(3, 3, 3, "noise")))  # without a table
    calls = []
    settle = samplers._Cells._settle
    monkeypatch.setattr(samplers, "_MARGIN", 1e9)
    monkeypatch.setattr(samplers._Cells, "_settle", lambda *given: calls.append(1) or settle(*given))
    assert np.array_equal(fast, draw(scale, 150, stream(3, 3, 3, "noise")))
    assert len(calls) >= 150  # the exact path did run


def test_bits_are_those_of_the_first_release():
    """A seed means the same noise on every machine; a change here would make every recorded seed mean another run."""
    draws = samplers.discrete_gaussian(1e12, 5000, stream(0, 0, 0, "noise"))
    assert draws[:3].tolist() == GAUSSIANS and int(draws.sum()) == GAUSSIAN_SUM
    draws = samplers.rounded_laplace(1e12, 5000, stream(0, 0, 0, "noise"))
    assert draws[:3].tolist() == LAPLACES and int(draws.sum()) == LAPLACE_SUM


def test_a_draw_that_64_bits_do_not_decide_gets_more():
    """U lies so near to the end of the first cell that only later bits can tell."""
    cells = samplers._Cells(samplers._Gaussian(2.0**20))
    edge = Fraction(1) / Fraction(cells.most) * 2**64  # where the first cell, of height 1, ends
    asked = []

    class Later:
        def __init__(self, word):
            self.word, self.bit_generator = word, self

        def random_raw(self, size):
            asked.append(size)
            return np.full(size, self.word, dtype=np.uint64)

    word = math.floor(edge)
    below, above = (cells._find(Fraction(word * 2**64 + more, 2**128) * Fraction(cells.most),
                                Fraction(word * 2**64 + more + 1, 2**128) * Fraction(cells.most), 0, 60)
                    for more in (0, 2**64 - 1))  # fmt: skip
    assert (below, above) == (0, -(1 << cells.bits))  # in cell 0 both are kept; in cell -1 the height is 1 as well
    assert cells._settle(word, 0, Later(0)) == below and cells._settle(word, 0, Later(2**64 - 1)) == above
    assert asked == [1, 1]


@pytest.mark.parametrize("law", [samplers._Gaussian, samplers._TwoSided])
@pytest.mark.parametrize("scale", [2.0**-30, 0.3, 1.0, 15.99, 16.0, 31.9, 2.0**30 * 1.1, 2.0**55])
def test_the_envelope_covers_the_law(law, scale):
    """A rejection sampler is right only if M is at least the sum of all heights, and fast only if it is not much more."""
    cells = samplers._Cells(law(scale))
    total = cells.starts[-2]
    assert total + 1e-9 < cells.most <= total + 1.5
    y = np.unique(np.linspace(-12 * scale, 12 * scale, 10_001).astype(np.int64))
    cell = y >> cells.bits
    height = law(scale).chance(np.where(cell < 0, ~cell, cell) << cells.bits)
    assert (law(scale).chance(y) <= height).all()
    assert cells.core.size < 3000  # as the margin takes for granted


def test_intervals_enclose_the_truth():
    with localcontext() as context:
        context.prec = 120
        for x in (Fraction(-1, 3), Fraction(-123456, 789), Fraction(5, 7), Fraction(0)):
            truth = Fraction((Decimal(x.numerator) / Decimal(x.denominator)).exp())
            for digits in (20, 40, 80):
                low, high = samplers._exp(x, digits)
                assert low <= truth <= high and high - low <= truth * Fraction(10**5, 10**digits)


def test_nothing_asked_nothing_drawn():
    for draw, _ in DRAWS.values():
        assert draw(1.0, 0, SecureSource()).size == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda s: samplers.discrete_gaussian(0.0, 1, s),
        lambda s: samplers.discrete_gaussian(2.0**58, 1, s),
        lambda s: samplers.discrete_gaussian(math.nan, 1, s),
        lambda s: samplers.discrete_gaussian(1.0, -1, s),
        lambda s: samplers.rounded_laplace(-1.0, 1, s),
        lambda s: samplers.rounded_laplace(2.0**56, 1, s),
        lambda s: samplers.rounded_laplace(2.0**-31, 1, s),
    ],
)
def test_bad_parameters(call):
    with pytest.raises(BadInput):
        call(SecureSource())
