"""What tests of the Flower engine have in common."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch):
    """Waiting for the disk is tested with the ledger; here it would be most of the time."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


def pytest_collection_modifyitems(items):
    """Slow tests run when they are asked for."""
    if not os.environ.get("SORDINO_SLOW_TESTS"):
        here = os.path.dirname(__file__)
        for item in items:
            if "slow" in item.keywords and str(item.path).startswith(here):
                item.add_marker(pytest.mark.skip(reason="set SORDINO_SLOW_TESTS=1 to run it"))
