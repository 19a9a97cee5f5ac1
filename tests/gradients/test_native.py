"""Kernels of another version are never called."""

from __future__ import annotations

import warnings

import pytest

from sordino import native


@pytest.fixture
def asked_again():
    native.library.cache_clear()
    yield
    native.library.cache_clear()


@pytest.mark.skipif(native.library() is None, reason="the native kernels were not built here")
def test_kernels_of_another_source_are_refused_with_a_sentence(monkeypatch, asked_again):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert native.library() is not None
    native.library.cache_clear()
    monkeypatch.setattr(native.zlib, "crc32", lambda _: 1)
    with pytest.warns(UserWarning, match="of another version and are not used; install Sordino again"):
        assert native.library() is None


def test_they_can_be_turned_off(monkeypatch, asked_again):
    monkeypatch.setenv("SORDINO_NATIVE", "0")
    assert native.library() is None
