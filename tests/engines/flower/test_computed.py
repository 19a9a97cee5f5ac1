"""What leaves of a holder's work: in clear to a server that sees messages, and under one mask else."""

from __future__ import annotations

import numpy as np

from sordino.engines.flower.computed import Computed
from sordino.privacy.mechanisms import FixedPoint
from sordino.rules.query import CentredBit, RawNorm
from sordino.schemes.request import CONTRIBUTE, QUERY, Request

CODES, ANSWER = np.array([4, -8], np.int64), np.array([3], np.int64)


def request(phase=CONTRIBUTE, query=None, **more):
    return Request(1, phase, FixedPoint(4.0), None, query=query, **more)


def test_in_clear_the_answer_goes_beside_the_codes_and_alone_where_only_norms_were_asked_for():
    made = Computed(CODES, ANSWER, 0.5, 0.25)
    told = made.in_clear(request(query=CentredBit()))
    assert told.head == {"noise": 0.5, "answer_noise": 0.25} and set(told.arrays) == {"codes", "answer"}
    assert set(made.in_clear(request(QUERY, CentredBit())).arrays) == {"answer"}


def test_what_is_released_already_tells_the_state_of_its_rule():
    made = Computed(CODES, None, 0.0, 0.0, {"bound": 2.0})
    assert made.in_clear(request(released=True)).head["state"] == {"bound": 2.0}


def test_one_mask_covers_contribution_and_answer():
    masked, beside = Computed(CODES, ANSWER, 0.0, 0.0).to_mask(request(query=CentredBit()), 10)
    assert masked.tolist() == [4, -8, 3] and masked.dtype == np.int64 and not beside
    assert Computed(CODES, None, 0.0, 0.0).to_mask(request(), 10)[0].tolist() == [4, -8]


def test_exact_norms_are_in_no_sum():
    masked, beside = Computed(CODES, np.array([1.5]), 0.0, 0.0).to_mask(request(query=RawNorm()), 10)
    assert masked.tolist() == [4, -8] and beside["answer"].tolist() == [1.5]
