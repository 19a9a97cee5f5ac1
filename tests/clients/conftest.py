from __future__ import annotations

import pytest

from sordino.engines import inprocess


@pytest.fixture(scope="module")
def one_thread():
    """As in the engines: results do not depend on how many cores there are."""
    with inprocess.one_thread():
        yield
