"""C of another version is never called."""

from __future__ import annotations

import warnings

import pytest

from sordino import native

LIBRARIES = [native.library, native.passes]


@pytest.fixture(params=LIBRARIES, ids=["kernels", "passes"])
def library(request):
    request.param.cache_clear()
    yield request.param
    request.param.cache_clear()


def test_what_was_made_of_another_source_is_refused_with_a_sentence(monkeypatch, library):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if library() is None:
            pytest.skip("it was not built here")
    library.cache_clear()
    monkeypatch.setattr(native.zlib, "crc32", lambda _: 1)
    with pytest.warns(UserWarning, match="of another version and are not used; install Sordino again"):
        assert library() is None


def test_they_can_be_turned_off(monkeypatch, library):
    monkeypatch.setenv("SORDINO_NATIVE", "0")
    assert library() is None
