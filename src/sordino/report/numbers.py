"""Numbers as people read them. A proven epsilon is rounded up and a measured one down, so neither says too much."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal


def number(value: object) -> float | None:
    """A finite number, or None for anything else (a missing key, "inf", NaN, a word)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        value = float(value)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def at_most(value: float) -> str:
    """An upper bound in four digits, rounded up.

    >>> at_most(3.99912), at_most(4.0), at_most(0.123412)
    ('4.0', '4.0', '0.1235')
    """
    return _digits(value, ROUND_CEILING)


def at_least(value: float) -> str:
    """A lower bound in four digits, rounded down.

    >>> at_least(1.99999), at_least(2)
    ('1.999', '2.0')
    """
    return _digits(value, ROUND_FLOOR)


def plain(value: float, digits: int = 4) -> str:
    """Any number, short, exponents without padding.

    >>> plain(1e-5), plain(0.5), plain(1234567.0), plain(12345)
    ('1e-5', '0.5', '1.235e6', '12345')
    """
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    mantissa, e, exponent = f"{value:.{digits}g}".partition("e")
    return mantissa + (f"e{int(exponent)}" if e else "")


def percent(value: float, digits: int = 1) -> str:
    """A share as a percentage."""
    return f"{100 * value:.{digits}f}%"


def _digits(value: float, rounding: str) -> str:
    if value == 0:
        return "0.0"
    exact = Decimal(repr(value))  # as printed: 0.1 is 0.1
    rounded = exact.quantize(Decimal(1).scaleb(exact.adjusted() - 3), rounding).normalize()
    if not -4 <= rounded.adjusted() < 6:
        return plain(float(rounded))
    shown = f"{rounded:f}"
    return shown if "." in shown else shown + ".0"
