"""AdaCliP where the spread differs between coordinates, with and without noise to drown it."""

from __future__ import annotations

import numpy as np
import pytest
from stage import build

from sordino.privacy.randomness import SERVER, stream
from sordino.rules.adaclip import shrink
from sordino.rules.base import RoundOutput


def error(name, variant, spread, units, z, rounds=60, seed=0):
    """Mean squared error of the means of the last 20 rounds; and the size of the noise, flat clipping being 1."""
    d, source = spread.size, stream(seed, 0, SERVER, "units")
    centre = 0.3 * spread * source.standard_normal(d)
    bound = float(np.linalg.norm(spread))
    rule = build(name, sizes=(d,), units=units, variant=variant, bound=bound)
    state, errors = rule.init(), []
    for t in range(1, rounds + 1):
        drawn = centre + spread * source.standard_normal((units, d))
        limit = rule.bound(state, None)
        total = sum(limit.clip(v) for v in drawn) + limit.std(z) * source.standard_normal(d)
        mean = limit.decode(total / units)
        errors.append(np.sum((mean - centre) ** 2))
        state = rule.observe(state, RoundOutput(t, limit, None, mean, limit.std(z) / units))
    size = np.sqrt(np.mean(limit.scale**2)) / bound if name == "adaclip" else 1.0
    return np.mean(errors[-20:]), size


STEEP = np.where(np.arange(200) < 10, 10.0, 0.1)


def test_where_there_is_a_signal_certified_helps_and_printed_collapses():
    flat, _ = error("dp-fedavg", "certified", STEEP, 500, 0.5)
    certified, held = error("adaclip", "certified", STEEP, 500, 0.5)
    _, collapsed = error("adaclip", "published", STEEP, 500, 0.5)
    assert certified < 0.7 * flat and held == pytest.approx(1.0)
    assert collapsed < 0.1  # a tenth of the bound it began with: all is clipped away


@pytest.mark.parametrize("spread", [np.ones(400), np.repeat(STEEP, 2)])
def test_drowned_in_noise_certified_is_flat_clipping(spread):
    flat, _ = error("dp-fedavg", "certified", spread, 10, 6.0)
    certified, held = error("adaclip", "certified", spread, 10, 6.0)
    assert certified == pytest.approx(flat, rel=0.1) and held == pytest.approx(1.0)


def test_shrinking():
    assert (shrink(0.0, 4.0), shrink(1.0, 4.0), shrink(9.0, 4.0), shrink(0.0, 0.0)) == (1.0, 0.75, 0.0, 0.0)
