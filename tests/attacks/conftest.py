"""Runs on the population that can only be learnt by heart, trained once."""

from __future__ import annotations

from pathlib import Path

import pytest

from attacks.by_heart import SPEED, make, plan, population, private_plan
from sordino import EngineOptions, Federation


@pytest.fixture(scope="session")
def heart(tmp_path_factory) -> tuple[Path, Federation]:
    """A run folder without privacy, and its population."""
    from sordino import train

    out, federation = tmp_path_factory.mktemp("runs") / "open", population()
    train(
        make(0), federation, plan(), out=out, options=EngineOptions("in-process", checkpoint_every=1000, keep_models=2)
    )
    return out, federation


@pytest.fixture(scope="session")
def guarded(tmp_path_factory) -> Path:
    """The same population under epsilon 4, example unit."""
    from sordino import train

    out = tmp_path_factory.mktemp("runs") / "private"
    train(make(0), population(), private_plan(), out=out, options=SPEED)
    return out


@pytest.fixture(scope="session")
def target(heart):
    """The open run as a target."""
    from sordino.attacks.opening import Settings, open_run

    out, federation = heart
    return open_run(out, make, federation, Settings(workers=2), lambda *told: None).target
