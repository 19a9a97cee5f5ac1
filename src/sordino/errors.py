"""What a user is told when something is wrong: one sentence that names the value and the remedy.

Each error carries the exit code that the command line uses for it. Nothing here is caught and swallowed: the command line
prints the sentence, and a traceback only under ``--debug``.
"""

from __future__ import annotations

import math
from collections.abc import Collection


class SordinoError(Exception):
    """Base of every error that a user can put right."""

    exit_code = 2


class BadInput(SordinoError, ValueError):
    """A value that cannot be used; the sentence names it and says what would do."""


class BudgetRefused(SordinoError):
    """A round that would take the spending past the budget; nothing was released."""

    exit_code = 3


class SordinoWarning(UserWarning):
    """Something that a run goes on in spite of; the command line prints the sentence."""


class NotPrivate(SordinoError, TypeError):
    """A raw value was about to leave through something that is not one of the two doors."""


def positive(**values: float) -> None:
    """Refuse anything but finite numbers above zero: ``positive(epsilon=epsilon)``."""
    for name, value in values.items():
        if not (_is_number(value) and math.isfinite(value) and value > 0):
            raise BadInput(f"{name} must be a number above 0, not {value!r}.")


def at_least(least: float, **values: float) -> None:
    """Refuse anything but finite numbers from `least` up."""
    for name, value in values.items():
        if not (_is_number(value) and math.isfinite(value) and value >= least):
            raise BadInput(f"{name} must be at least {least}, not {value!r}.")


def between(low: float, high: float, **values: float) -> None:
    """Refuse anything outside the open interval (low, high)."""
    for name, value in values.items():
        if not (_is_number(value) and low < value < high):
            raise BadInput(f"{name} must lie between {low} and {high} (both excluded), not {value!r}.")


def rate(**values: float) -> None:
    """Refuse anything outside (0, 1]."""
    for name, value in values.items():
        if not (_is_number(value) and 0 < value <= 1):
            raise BadInput(f"{name} must be above 0 and at most 1, not {value!r}.")


def whole(least: int = 1, **values: int) -> None:
    """Refuse anything but whole numbers from `least` up."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise BadInput(f"{name} must be a whole number of at least {least}, not {value!r}.")


def one_of(choices: Collection[object], **values: object) -> None:
    """Refuse anything that is not among `choices`, and name them."""
    for name, value in values.items():
        if value not in choices:
            raise BadInput(f"{name} must be one of {', '.join(map(str, choices))}, not {value!r}.")


def in_short(error: Exception) -> str:
    """What another library's error says, for use in a sentence: its first line, and the second if the first announces it."""
    lines = [line.strip() for line in str(error.args[0] if error.args else error).splitlines() if line.strip()]
    return " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1]).rstrip(".")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
