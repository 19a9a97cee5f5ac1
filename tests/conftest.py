"""Small populations that every test of training can use."""

from __future__ import annotations

import pytest

from populations import toy
from sordino.federation.population import Federation


@pytest.fixture
def federation() -> Federation:
    return toy()


@pytest.fixture
def linear():
    """A maker of equal linear models."""
    torch = pytest.importorskip("torch")

    def make(features: int = 5, classes: int = 3):
        model = torch.nn.Linear(features, classes)
        with torch.no_grad():
            model.weight.copy_(torch.linspace(-0.5, 0.5, features * classes).view(classes, features))
            model.bias.zero_()
        return model

    return make


@pytest.fixture(scope="module")
def one_thread():
    """As in the engines: results do not depend on how many cores there are."""
    from sordino.clients.threads import one_thread as alone

    with alone():
        yield


@pytest.fixture
def paid(monkeypatch):
    """What every client of FedMAP truly pays, step by step."""
    from fedmap_runs import watch_steps

    return watch_steps(monkeypatch)
