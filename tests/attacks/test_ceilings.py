"""What a proof allows: closed forms, areas, and mechanisms that reach it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from sordino.attacks.ceilings import Ceiling, ceiling_for_record
from sordino.errors import BadInput
from sordino.privacy import gdp


def test_known_numbers():
    four = Ceiling(4.0, 0.0)
    assert four.auc == pytest.approx(0.98201, abs=1e-5)
    assert four.found_at(0.01) == pytest.approx(0.54598, abs=1e-5)
    assert four.found_at(0.001) == pytest.approx(0.054598, abs=1e-6)
    assert four.success_rate == pytest.approx(math.exp(4) / (1 + math.exp(4)))
    nothing = Ceiling(0.0, 0.0)
    assert (nothing.auc, nothing.success_rate, nothing.found_at(0.3)) == (0.5, 0.5, pytest.approx(0.3))


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, 4.0, 30.0, 800.0])
@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.05, 0.4])
def test_the_area_is_that_under_the_limit_and_the_corner_is_the_best_point(epsilon, delta):
    ceiling = Ceiling(epsilon, delta)
    grid = np.linspace(0, 1, 20_001)
    limit = np.array([ceiling.found_at(a) for a in grid])
    assert ceiling.auc == pytest.approx(
        np.trapezoid(limit, grid) if hasattr(np, "trapezoid") else np.trapz(limit, grid), abs=2e-4
    )
    assert ceiling.success_rate == pytest.approx(((limit + 1 - grid) / 2).max(), abs=1e-4)
    assert (np.diff(limit) >= -1e-12).all() and limit[-1] == pytest.approx(1.0)


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("delta", [1e-6, 1e-3, 0.1])
def test_no_gaussian_mechanism_is_above_the_ceiling_of_its_own_epsilon(mu, delta):
    ceiling = Ceiling(gdp.epsilon(delta, mu), delta)
    assert norm.cdf(mu / math.sqrt(2)) <= ceiling.auc
    for rate in (0.001, 0.01, 0.2, 0.9):
        assert norm.cdf(norm.ppf(rate) + mu) <= ceiling.found_at(rate) + 1e-9
    assert norm.cdf(mu / 2) <= ceiling.success_rate


def test_without_a_proof_everything_is_allowed():
    none = Ceiling(math.inf)
    assert (none.auc, none.success_rate, none.found_at(0.0), none.found_at(0.01)) == (1.0, 1.0, 1.0, 1.0)


def test_a_record_at_a_protected_client():
    assert ceiling_for_record(1.0, 1e-5, "example", "add-remove") == Ceiling(1.0, 1e-5)
    assert ceiling_for_record(1.0, 1e-5, "client", "replace-one") == Ceiling(1.0, 1e-5)
    twice = ceiling_for_record(1.0, 1e-5, "client", "zero-out")
    assert twice.epsilon == 2.0 and twice.delta == pytest.approx(1e-5 * (1 + math.e))
    assert ceiling_for_record(20.0, 1e-5, "client", "add-remove").auc == 1.0  # delta would exceed 1: nothing is left
    assert ceiling_for_record(math.inf, 1e-5, "client", "add-remove").auc == 1.0


@pytest.mark.parametrize(("epsilon", "delta"), [(-1.0, 0.0), (math.nan, 0.0), (1.0, 1.5)])
def test_no_ceiling_for_nonsense(epsilon, delta):
    with pytest.raises(BadInput):
        Ceiling(epsilon, delta)
