"""Options that are numbers, read after parsing: a bad one gets a sentence instead of argparse's usage."""

from __future__ import annotations

import argparse
import math
from enum import StrEnum
from typing import TypeVar

from sordino.errors import BadInput

E = TypeVar("E", bound=StrEnum)


def number(args: argparse.Namespace, name: str) -> float | None:
    """An option as a number; None if it was left out."""
    text = vars(args)[name]
    try:
        return None if text is None else float(text)
    except ValueError:
        raise BadInput(f"--{name.replace('_', '-')} must be a number, not {text!r}.") from None


def count(args: argparse.Namespace, name: str) -> int | None:
    """An option as a whole number; ``1e6`` will do. None if it was left out."""
    text = vars(args)[name]
    if isinstance(text, int) or text is not None and text.strip().lstrip("+-").isdecimal():
        return int(text)  # not by way of a float, which rounds beyond 2^53
    value = number(args, name)
    if value is None:
        return None
    if not math.isfinite(value) or value != int(value):
        raise BadInput(f"--{name.replace('_', '-')} must be a whole number, not {text!r}.")
    return int(value)


def word(args: argparse.Namespace, name: str, kind: type[E]) -> E | None:
    """An option as one of the words of `kind`; None if it was left out."""
    text = vars(args)[name]
    if text is None:
        return None
    if text not in list(kind):
        raise BadInput(f"--{name.replace('_', '-')} must be one of {', '.join(kind)}, not {text!r}.")
    return kind(text)


def plain(value: object) -> object:
    """For JSON: infinity as a string, words as strings."""
    return "inf" if isinstance(value, float) and math.isinf(value) else value
