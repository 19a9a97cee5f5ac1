from __future__ import annotations

import pytest


@pytest.fixture
def root(tmp_path, monkeypatch):
    """An empty data folder, and no files of the system's beside it."""
    from dataclasses import replace

    from sordino.data import canonical, sets

    monkeypatch.setenv("SORDINO_DATA", str(tmp_path / "data"))
    fashion = canonical.find_idx("fashion-mnist", canonical.FASHION, ("FashionMNIST/raw", "fashion_mnist"))
    monkeypatch.setitem(sets.ENTRIES, "fashion-mnist", replace(sets.ENTRIES["fashion-mnist"], find=fashion))
    return tmp_path / "data"
