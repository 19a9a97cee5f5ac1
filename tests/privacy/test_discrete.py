"""Integer encodings keep their bound, integer noise has its law, and the accounting is never below the truth."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import linalg, special, stats

from sordino.errors import BadInput, NotPrivate
from sordino.privacy import discrete as d
from sordino.privacy import events, rdp
from sordino.privacy import mechanisms as m
from sordino.privacy.randomness import SecureSource, stream
from sordino.privacy.release import _open
from sordino.privacy.vocabulary import Relation

LENGTH = 1 << 14
NOISES = [d.GAUSSIAN, d.SKELLAM]
RELEASE = {d.GAUSSIAN: d.discrete_gaussian, d.SKELLAM: d.skellam}


def encoding(noise=d.GAUSSIAN, **others):
    return d.Encoding(**{"bound": 1.0, "length": LENGTH, "scale": 0.25, "noise": noise, "beta": 0.5, **others})


def integers(one, released):
    """The integers behind a released vector that fills its dimension."""
    codes = d.hadamard(released.value * one._signs()) * one.scale
    assert np.abs(codes - codes.round()).max() < 1e-6
    return codes.round().astype(np.int64)


def both_ways(codes, noise, std):
    """Kolmogorov-Smirnov on the lattice: the largest gap between distribution functions over all integers."""
    reach = np.arange(-math.ceil(14 * std) - 2, math.ceil(14 * std) + 3)
    steps = np.searchsorted(np.sort(codes), reach, side="right") / codes.size

    def gap(s):
        pmf = np.exp(-(reach**2) / (2 * s * s)) if noise == d.GAUSSIAN else special.ive(np.abs(reach), s * s)
        return np.abs(np.cumsum(pmf) / pmf.sum() - steps).max()

    # On a lattice the test is conservative, so the limits of the continuous one do.
    limit = stats.kstwo.isf(1e-6, codes.size)
    assert gap(std) < limit
    assert gap(std * 2 / 3) > 2 * limit and gap(std * 3 / 2) > 2 * limit


@pytest.mark.parametrize("source", [lambda: stream(4, 0, -1, "noise"), SecureSource], ids=["stream", "secure"])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("multiplier", [0.05, 1.0])
def test_noise_by_the_server(noise, multiplier, source):
    one = encoding(noise)
    released, event = RELEASE[noise](d.nothing(one), one, multiplier, source())
    both_ways(integers(one, released), noise, multiplier * one.l2)
    assert event == d.event(one, multiplier) and noise in released.how


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("survivors, clients", [(4, 4), (4, 6), (1, 3)])
def test_noise_in_shares(noise, survivors, clients):
    one, z = encoding(noise, scale=1.0), 1.3
    draw = SecureSource()
    parts = [d.add_share(d.nothing(one), one, z, survivors, draw) for _ in range(clients)]
    released, event = d.open_noised(m.add(parts, d.nothing(one)), one, z, survivors)
    # Skellam shares add up to Skellam exactly, discrete Gaussian ones to something far closer than a test can tell.
    both_ways(integers(one, released), noise, z * one.l2 * math.sqrt(clients / survivors))
    assert event == d.event(one, z, survivors)
    with pytest.raises(NotPrivate, match="too few"):
        d.open_noised(m.add(parts[: survivors - 1], d.nothing(one)), one, z, survivors)


@pytest.mark.parametrize("noise", NOISES)
def test_sum_comes_back(noise):
    one = encoding(noise, bound=3.0, length=300, scale=2.0**16, seed=9, round=4)
    rng = stream(0, 0, 0, "test")
    updates = 0.1 * rng.standard_normal((20, 300))
    parts = [d.contribution(u, one, rng) for u in updates]
    released, _ = RELEASE[noise](m.add(parts, d.nothing(one)), one, 1e-4, rng)
    assert released.value.shape == (300,)
    assert released.value == pytest.approx(updates.sum(axis=0), abs=3e-3)


def test_only_the_encoding_that_clipped_opens_the_sum():
    one, draw = encoding(length=8), stream(0, 0, 0, "noise")
    for other in (encoding(length=8, bound=2.0), encoding(length=8, scale=0.5), encoding(length=8, seed=1)):
        with pytest.raises(NotPrivate):
            d.discrete_gaussian(d.nothing(one), other, 1.0, draw)
        with pytest.raises(NotPrivate):
            d.add_share(d.nothing(one), other, 1.0, 1, draw)
    with pytest.raises(NotPrivate, match="encoded for discrete-gaussian"):
        d.skellam(d.nothing(one), one, 1.0, draw)
    for z in (0.0, 0):
        with pytest.raises(NotPrivate):
            d.discrete_gaussian(d.nothing(one), one, z, draw)
    d.discrete_gaussian(d.nothing(one), encoding(length=8), 1.0, draw)  # equal is enough


@settings(max_examples=100, deadline=None)
@given(
    v=arrays(np.float64, 5, elements=st.floats(allow_nan=True, allow_infinity=True)),
    power=st.integers(-4, 20),
    beta=st.sampled_from([0.0, 0.5, 0.999]),
)
def test_encoded_norms_never_exceed_the_rounded_bound(v, power, beta):
    one = d.Encoding(1.0, 5, 2.0**power, beta=beta)
    codes = one.encode(v, stream(power, 0, 0, "test"))
    assert codes.dtype == np.int64 and codes.shape == (8,)
    assert int(codes @ codes) <= one.most and np.abs(codes).sum() <= one.l1 * (1 + 1e-12)
    assert math.sqrt(one.most) <= one.l2
    if not np.isfinite(v).all():
        # A bad update counts as zero, and zero is a whole number: rounding leaves it alone.
        assert not codes.any()


def test_rounded_bound_by_hand():
    one = d.Encoding(2.0, 16, 4.0, beta=math.exp(-0.5))  # c = 8, sqrt(d) = 4
    assert one.most == 64 + 4 + 8 + 2  # c^2 + d/4 + c + sqrt(d)/2, below (8 + 4)^2
    assert d.Encoding(2.0, 16, 4.0, beta=0.0).most == 144
    assert one.l1 == pytest.approx(min(4 * math.sqrt(78), 78))
    assert one.size == pytest.approx(math.sqrt(78) / 4)


def test_rounding_that_cannot_succeed_truncates():
    class High:
        def random(self, size):
            return np.full(size, 1 - 2.0**-53)  # always up

    one = d.Encoding(1.0, 1024, 0.5, beta=0.9)
    codes = one.encode(np.ones(1024), High())
    assert int(codes @ codes) <= one.most


def test_rounding_is_right_on_average():
    one = d.Encoding(1.0, 4, 4.0)
    v, draw = np.array([0.3, -0.2, 0.1, 0.4]), stream(2, 0, 0, "test")
    mean = np.mean([one.decode(one.encode(v, draw)) for _ in range(4000)], axis=0)
    assert mean == pytest.approx(v, abs=0.02)


@pytest.mark.parametrize("size", [1, 2, 8, 64])
def test_hadamard(size):
    v = stream(1, 0, size, "test").standard_normal(size)
    assert d.hadamard(v) == pytest.approx(linalg.hadamard(size) @ v / math.sqrt(size))
    assert d.hadamard(d.hadamard(v)) == pytest.approx(v)


def test_rotation_flattens_and_is_public():
    spike = np.zeros(1024)
    spike[7] = 1.0
    one, again, other = (d.Encoding(1.0, 1024, 1024.0, seed=s) for s in (3, 3, 4))
    codes = one.encode(spike, stream(0, 0, 0, "test"))
    assert np.abs(codes).max() <= 33  # 1024/sqrt(1024), rounded up or down
    assert np.array_equal(one._signs(), again._signs()) and not np.array_equal(one._signs(), other._signs())
    assert one.decode(codes) == pytest.approx(spike, abs=0.1)


def test_wrap():
    assert d.wrap(np.array([-129, -128, -1, 0, 127, 128, 300]), 8).tolist() == [127, -128, -1, 0, 127, -128, 44]
    for bad in (0, 63):
        with pytest.raises(BadInput):
            d.wrap(np.zeros(1, dtype=np.int64), bad)


@pytest.mark.parametrize("noise", NOISES)
def test_bits_suffice(noise):
    one = d.Encoding.for_bits(16, 0.5, 1000, 40, 1.0, noise=noise)
    assert d.Encoding(0.5, 1000, one.scale * 2, noise).l2 > 0  # a finer one exists ...
    draw = stream(6, 0, 0, "test")
    v = np.full(1000, 0.1)  # everybody agrees: the worst case
    total = m.add([d.contribution(v, one, draw) for _ in range(40)], d.nothing(one))
    noisy = _open(d.add_share(total, one, 1.0, 1, draw)).codes
    assert np.mean(d.wrap(noisy, 16) == noisy) > 0.999
    assert np.mean(d.wrap(4 * noisy, 16) == 4 * noisy) < 0.999  # ... but would not fit
    with pytest.raises(BadInput):
        d.Encoding.for_bits(4, 0.5, 1000, 10**6, 1.0)


# --- accounting -------------------------------------------------------------------------------------------------------


def divergence(logs, shift, order):
    """Renyi divergence between a law on a window of integers, given as logarithms, and its shift."""
    top, low = logs[shift:], logs[:-shift]
    inside = np.isfinite(top) & np.isfinite(low)
    terms = order * top[inside] + (1 - order) * low[inside]
    assert max(terms[0], terms[-1]) < terms.max() - 20  # the window is wide enough
    return special.logsumexp(terms) / (order - 1)


def dgauss(sigma, reach):
    k = np.arange(-reach, reach + 1)
    logs = -(k**2) / (2 * sigma**2)
    return logs - special.logsumexp(logs)


ORDERS = (1.2, 1.9, 2, 2.5, 3, 7.3, 16, 40)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shift", [1, 3])
@pytest.mark.parametrize("sigma", [0.8, 2.0, 9.0])
def test_discrete_gaussian_rdp_holds(sigma, shift, order):
    proven = d.ddg_rdp(order, shift, shift, sigma, 1, 1)
    true = divergence(dgauss(sigma, 600), shift, order)
    assert true <= proven * (1 + 1e-9)
    assert sigma < 2 or true > 0.99 * proven


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("sigma, summands", [(0.5, 2), (0.55, 5), (0.7, 3), (1.5, 4)])
def test_distributed_discrete_gaussian_rdp_holds(sigma, summands, order):
    one = dgauss(sigma, 80)
    total = one
    for _ in range(summands - 1):  # the law of the sum, in logarithms
        rows = np.full((one.size, total.size + one.size - 1), -np.inf)
        for i, log in enumerate(one):
            rows[i, i : i + total.size] = log + total
        total = special.logsumexp(rows, axis=0)
    proven = d.ddg_rdp(order, 1.0, 1.0, sigma, summands, 1)
    true = divergence(total, 1, order)
    assert true <= proven * (1 + 1e-9)
    assert sigma < 1 or true > 0.9 * proven


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shift", [1, 3])
@pytest.mark.parametrize("variance", [2.0, 10.0, 400.0])
def test_skellam_rdp_holds(variance, shift, order):
    reach = np.arange(-1200, 1201)
    proven = d.skellam_rdp(order, shift, shift, variance)
    with np.errstate(divide="ignore"):
        true = divergence(np.log(special.ive(np.abs(reach), variance)), shift, order)
    assert true <= proven * (1 + 1e-9)
    assert variance < 400 or order < 2 or true > 0.9 * proven


def test_skellam_rdp_by_hand():
    # a = 3, l2 = 2, l1 = 3, V = 50: 3*4/100 + min((5*4 + 18)/10^4, 9/100)
    assert d.skellam_rdp(3, 2.0, 3.0, 50.0) == pytest.approx(0.12 + 0.0038)
    # The scaled form with s = 10 is the same thing in integers.
    s, l2, l1, var = 10.0, 0.2, 0.3, 0.5
    scaled = 3 * l2**2 / (2 * var) + min((5 * s * l2**2 + 6 * l1) / (4 * s**3 * var**2), 3 * l1 / (2 * s * var))
    assert d.skellam_rdp(3, s * l2, s * l1, s * s * var) == pytest.approx(scaled, rel=1e-12)


def test_tau_by_hand():
    k = np.arange(1, 10)
    assert d.tau(0.6, 10) == pytest.approx(10 * np.exp(-2 * math.pi**2 * 0.36 * k / (k + 1)).sum())
    assert d.tau(0.6, 1) == 0.0 and d.tau(5.0, 1000) < 1e-100
    with pytest.raises(BadInput):
        d.tau(0.4, 3)


@pytest.mark.parametrize("survivors", [1, 3, 50])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("scale", [0.25, 4.0, 2.0**16])
def test_the_event_costs_what_the_formulas_say(noise, scale, survivors):
    one, z = encoding(noise, scale=scale), 1.1
    event = d.event(one, z, survivors)
    for order in (1.1, 1.5, 2, 2.5, 8, 8.3, 32, 200):
        if noise == d.SKELLAM:
            proven = d.skellam_rdp(order, one.l2, one.l1, (z * one.l2) ** 2)
        else:
            proven = d.ddg_rdp(order, one.l2, one.l1, z * one.l2 / math.sqrt(survivors), survivors, one.dimension)
        charged = rdp.cost(event, order)
        assert charged >= proven * (1 - 1e-12)
        assert charged <= 1.25 * proven or order < 8
    assert rdp.cost(event, 8.0, Relation.REPLACE_ONE) >= 4 * 8 / (2 * z * z) * (1 - 1e-9)


def test_a_fine_grid_costs_as_much_as_the_gaussian():
    one = encoding(scale=2.0**20)
    assert one.size == pytest.approx(1.0, rel=1e-3)
    for survivors in (1, 100):
        mine, gaussian = (rdp.curve(e) for e in (d.event(one, 2.0, survivors), events.gaussian(2.0)))
        assert mine == pytest.approx(gaussian, rel=1e-9)


@pytest.mark.parametrize(
    "build",
    [
        lambda: encoding(bound=0.0),
        lambda: encoding(length=0),
        lambda: encoding(scale=3.0),
        lambda: encoding(scale=2.0**31),
        lambda: encoding("cauchy"),
        lambda: encoding(beta=1.0),
        lambda: encoding(beta=-0.1),
        lambda: d.hadamard(np.ones(3)),
        lambda: d.ddg_rdp(1.0, 1.0, 1.0, 1.0, 1, 1),
        lambda: d.skellam_rdp(0.5, 1.0, 1.0, 1.0),
        lambda: d.skellam_rdp(2.0, 1.0, 1.0, 0.0),
        lambda: d.add_share(d.nothing(encoding()), encoding(), 1.0, 0, SecureSource()),
        lambda: d.event(encoding(scale=0.25), 1e-3, 10**6),
    ],
)
def test_bad_input(build):
    with pytest.raises(BadInput):
        build()
