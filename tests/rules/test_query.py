"""What units say about their norms, and what it costs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.errors import BadInput
from sordino.privacy import accounting, events
from sordino.privacy.vocabulary import Relation
from sordino.rules.query import Answer, BoundedValue, CentredBit, HistogramBin, RawBit, RawNorm, is_raw, split

QUERIES = (CentredBit(), HistogramBin.log_spaced(1e-3, 1e3, 7), BoundedValue(2.0))
NORM = st.one_of(st.floats(0, 1e6), st.just(math.inf), st.just(math.nan), st.just(1.0))
SHARE = st.floats(1e-4, 0.45)


def test_two_units_by_hand():
    norms = np.array([0.5, 3.0])
    assert CentredBit().encode(norms, 1.0).tolist() == [0.0]  # one within, one not
    assert CentredBit().encode(norms, 3.0).tolist() == [1.0]  # the bound itself is within
    assert HistogramBin((1.0, 2.0)).encode(norms, 1.0).tolist() == [1.0, 0.0, 1.0]
    assert BoundedValue(2.0).encode(norms, 1.0).tolist() == [0.25 + 1.0]
    assert RawNorm().encode(norms, 1.0).tolist() == [0.5, 3.0]
    assert RawBit().encode(norms, 3.0).tolist() == [1.0, 0.0]
    assert Answer(np.array([6.0]), 4, 2.0).mean.tolist() == [1.5] and Answer(np.array([6.0]), 4, 2.0).noise == 0.5


@given(st.lists(NORM, max_size=6), NORM, st.floats(1e-3, 1e3))
def test_one_unit_moves_an_answer_by_its_norm_at_most(others, norm, bound):
    for query in QUERIES:
        without, with_it = (query.encode(np.array(norms, float), bound) for norms in (others, [*others, norm]))
        assert np.linalg.norm(with_it - without) <= query.norm * (1 + 1e-9)


def test_the_norm_of_a_query_is_reached():
    """Half the claimed sensitivity would not do."""
    for query in QUERIES:
        nobody = query.encode(np.empty(0), 1.0)
        assert np.linalg.norm(query.encode(np.array([1e5]), 1.0) - nobody) == pytest.approx(query.norm)


@given(st.floats(0.3, 50), SHARE, SHARE)
def test_however_it_is_split_the_round_is_one_event_of_its_multiplier(z, first, second):
    pre_clip, with_sum = HistogramBin((1.0, 2.0), first), CentredBit(second)
    z_sum, (std_pre, std_with) = split(z, pre_clip, with_sum)
    parts = (z_sum, std_pre / pre_clip.norm, std_with / with_sum.norm)
    assert sum(p**-2 for p in parts) ** -0.5 == pytest.approx(z, rel=1e-12)
    assert events.joint(*parts).noise_multiplier == pytest.approx(z, rel=1e-12)


@pytest.mark.parametrize("rate", [0.1, 1.0])
@pytest.mark.parametrize("shares", [(0.01, 0.3), (0.4, 0.5), (0.05, 0.05)])
def test_the_accounted_epsilon_is_that_of_the_single_event(rate, shares):
    pre_clip, with_sum = HistogramBin((1.0, 2.0), shares[0]), CentredBit(shares[1])
    z_sum, (std_pre, std_with) = split(1.5, pre_clip, with_sum)
    joint = events.joint(z_sum, std_pre / pre_clip.norm, std_with / with_sum.norm)

    def epsilon(event):
        sampled = event if rate == 1 else events.poisson(rate, event)
        return accounting.epsilon(events.repeated(sampled, 20), 1e-5, Relation.ADD_REMOVE).epsilon

    assert epsilon(joint) == pytest.approx(epsilon(events.gaussian(1.5)), rel=1e-6)
    # Leaving the questions out of the account would understate it.
    assert epsilon(events.gaussian(z_sum)) < 0.995 * epsilon(joint)


def test_andrew_by_their_formula():
    """Theorem 1: z_sum = (z^-2 - (2 sigma_b)^-2)^(-1/2), with sigma_b = m/20 for m = 100 and z = 1: 1.005."""
    z_sum, (std,) = split(1.0, CentredBit((10 * 1.0 / 100) ** 2))
    assert std == pytest.approx(5.0)
    assert z_sum == pytest.approx((1 - (2 * 5.0) ** -2) ** -0.5) == pytest.approx(1.005, abs=1e-4)


def test_raw_answers_take_no_share():
    assert is_raw(RawNorm()) and is_raw(RawBit()) and not is_raw(CentredBit()) and not is_raw(None)
    assert split(2.0, RawNorm(), None) == (2.0, [None, None])


def test_what_cannot_be_is_refused():
    with pytest.raises(BadInput, match="share of 1.1"):
        split(1.0, CentredBit(0.6), BoundedValue(2.0, 0.5))
    for wrong in (0.0, 1.0, -1, math.nan):
        with pytest.raises(BadInput, match="share"):
            CentredBit(wrong)
    with pytest.raises(BadInput, match="increasing"):
        HistogramBin((2.0, 1.0))
    with pytest.raises(BadInput, match="cap"):
        BoundedValue(0.0)
