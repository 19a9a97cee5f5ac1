"""Arithmetic in GF(2^16), on whole numpy arrays at once.

Elements are 16-bit words, polynomials over GF(2) modulo x^16 + x^12 + x^3 + x + 1; addition is exclusive or, and
multiplication goes through tables of powers and logarithms of the generator x. The field is large enough for 65535
members and makes a 32-byte secret 16 elements. Table look-ups are not of constant time: an attacker who can measure the caches
of the machine that holds a secret can see more than this protocol shows.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

ORDER = (1 << 16) - 1  # of the multiplicative group
_MODULUS = 0x1100B


@lru_cache(maxsize=1)
def _tables() -> tuple[np.ndarray, np.ndarray]:
    """(powers of x, twice over so that exponents need no reduction; logarithms, 0 for the 0 that has none)."""
    powers, logs = np.zeros(2 * ORDER, np.uint16), np.zeros(ORDER + 1, np.int32)
    element = 1
    for exponent in range(ORDER):
        powers[exponent] = element
        logs[element] = exponent
        element <<= 1
        if element > ORDER:
            element ^= _MODULUS
    powers[ORDER:] = powers[:ORDER]
    return powers, logs


def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The products, broadcast as numpy does."""
    powers, logs = _tables()
    a, b = np.asarray(a, np.uint16), np.asarray(b, np.uint16)
    return np.where((a == 0) | (b == 0), np.uint16(0), powers[logs[a] + logs[b]])


def quotients(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """For each row the product of a/b over its columns; no element may be zero."""
    powers, logs = _tables()
    return powers[(logs[a].astype(np.int64) - logs[b]).sum(axis=-1) % ORDER]
