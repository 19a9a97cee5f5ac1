"""Four data holders that a lying server talks to."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "engines" / "flower"))


@pytest.fixture
def hall(tmp_path):
    pytest.importorskip("torch")
    from hall import Hall, toy

    made = Hall(toy(clients=4), tmp_path / "holders")
    yield made
    made.close()
