"""What controllers are shown, and how their outputs are read."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.errors import BadInput
from sordino.schemes.fedmap.metanet import features
from sordino.schemes.fedmap.metanet.features import (
    CERTIFIED,
    NAMES,
    PUBLISHED,
    Look,
    carried,
    raw_row,
    read,
    stack,
    usable,
)

ANY = st.floats(allow_nan=True, allow_infinity=True)


def test_a_look_by_hand():
    row = Look(within=0.75, change=-0.5, noise=0.25, signal=0.1, drift=10.0, progress=0.25, spent=0.5).row()
    assert row == pytest.approx([0.5, -0.5, 0.5, -1.0, 1.0, -0.5, 0.25])
    assert len(row) == len(NAMES[CERTIFIED])


def test_before_the_first_step_there_is_nothing_to_trust():
    within, _, trust, signal, *_ = Look(drift=1.0).row()
    assert within == 0 and trust == 0 and signal == 0


def test_raw_statistics_are_taken_as_decades():
    assert raw_row(100.0, 10.0, 0.01, 1.0) == pytest.approx([2, 1, -2, 0])
    assert raw_row(math.nan, math.inf, 0.0, -1.0) == [-6, 6, -6, -6]


@given(ANY, ANY, ANY, ANY)
def test_no_look_is_wild(within, noise, signal, drift):
    if math.isnan(within) or math.isnan(noise):
        return
    row = Look(within=within, noise=min(abs(noise), 1e150), signal=signal, drift=drift).row()
    assert np.isfinite(row).all() and np.abs(row).max() <= 3


@given(ANY, ANY, st.floats(1e-6, 1e6), st.floats(0.3, 100))
def test_whatever_comes_out_is_near_the_even_multiplier_or_refused(first, second, bound, even):
    proposed, multiplier = read(CERTIFIED, [first, second], bound, even)
    if math.isnan(first) or math.isnan(second):
        with pytest.raises(BadInput, match="MetaNet proposed"):
            usable(proposed, multiplier)
    else:
        usable(proposed, multiplier)
        assert bound / math.e * 0.999 <= proposed <= bound * math.e * 1.001
        assert even / 2 * 0.999 <= multiplier <= even * 2 * 1.001


@given(ANY, ANY)
def test_published_outputs_are_usable_or_refused_in_one_sentence(first, second):
    bound, sigma = read(PUBLISHED, [first, second])
    try:
        carried(bound, sigma)
    except BadInput as error:
        assert "\n" not in str(error) and "C = " in str(error) and "lower sigma_scale" in str(error)
    else:
        assert 1e-12 <= bound <= 1e12 and 1e-12 <= sigma <= 1e12


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 0.0, -1.0, 1e300, 1e-300, None])
def test_unusable_proposals_name_the_value_and_the_remedy(bad):
    for pair in ((bad, 1.0), (1.0, bad)):
        with pytest.raises(BadInput) as caught:
            usable(*pair)
        assert repr(bad) in str(caught.value) and "pretrain" in str(caught.value)


def test_sequences_are_padded_at_the_far_end():
    steps, valid = stack([[[1.0, 2.0], [3.0, 4.0]], [[float(i), 0.0] for i in range(9)]], 2)
    assert steps.shape == (2, features.LENGTH, 2)
    assert steps[0, :2].tolist() == [[3, 4], [1, 2]] and not steps[0, 2:].any()
    assert steps[1, :, 0].tolist() == [8, 7, 6, 5, 4]
    assert valid.tolist() == [[True, True, False, False, False], [True] * 5]
