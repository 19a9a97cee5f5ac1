"""Shamir's secret sharing (1979) over GF(2^16), for many secrets at once.

A secret element is the constant term of a random polynomial of degree threshold - 1; a share is the polynomial's value
at the member's own point. Any `threshold` shares restore it, fewer say nothing about it, whatever one can compute.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from sordino.errors import BadInput
from sordino.secagg.field import ORDER, multiply, quotients


def split(secret: bytes, threshold: int, points: Sequence[int]) -> list[bytes]:
    """One share, as long as the secret, for each of the points."""
    words, places = _words(secret), _places(points)
    if not 1 <= threshold <= len(places):
        raise BadInput(f"threshold must lie between 1 and the {len(places)} members, not {threshold!r}.")
    polynomials = np.frombuffer(os.urandom(2 * (threshold - 1) * words.size), "<u2").reshape(threshold - 1, words.size)
    shares = np.zeros((len(places), words.size), np.uint16)
    for coefficients in polynomials:  # Horner, highest power first
        shares = multiply(shares ^ coefficients, places[:, None])
    return [(share ^ words).astype("<u2").tobytes() for share in shares]


def combine(shares: Sequence[bytes], points: Sequence[int]) -> bytes:
    """The secret behind these shares (as many as the threshold): the value at 0, by Lagrange."""
    if len(shares) != len(points) or len({len(share) for share in shares}) != 1:
        raise BadInput("Give one share, all of the same length, for each point.")
    rows = np.stack([_words(share) for share in shares])
    terms = multiply(rows, _weights(tuple(points))[:, None])
    return np.bitwise_xor.reduce(terms, axis=0).astype("<u2").tobytes()


@lru_cache(maxsize=64)
def _weights(points: tuple[int, ...]) -> np.ndarray:
    """Lagrange's weights at 0: the product over the others of x_j / (x_j - x_i), where minus is exclusive or."""
    places = _places(points)
    others = ~np.eye(len(places), dtype=bool)
    above = np.broadcast_to(places, others.shape)
    return quotients(np.where(others, above, 1), np.where(others, above ^ places[:, None], 1))


def _words(secret: bytes) -> np.ndarray:
    if not secret or len(secret) % 2:
        raise BadInput(f"A secret or share has a whole number of 16-bit words, not {len(secret)} bytes.")
    return np.frombuffer(secret, "<u2").astype(np.uint16)


def _places(points: Sequence[int]) -> np.ndarray:
    if not points or len(set(points)) != len(points) or not all(1 <= p <= ORDER for p in points):
        raise BadInput(f"Points must differ and lie between 1 and {ORDER}.")
    return np.array(points, np.uint16)
