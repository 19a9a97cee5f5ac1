"""What all runs on the same records have cost so far: a data account, kept beside the data.

A run is entered with the largest epsilon and delta that its plan can spend, on disk, before it touches a record; entries add
up (basic composition, which holds however later runs are chosen), exactly. A run that would take the sum past the limit is
refused, and a run that stops early gives nothing back. A run that is not private has no epsilon: under a limit it is refused.

Epsilons of different units and relations are added all the same. The sum is then not the epsilon of either; each run's
own statement says what its part means.

The file is JSON lines, each sealed with the hash of the one before, as in the ledger. It is locked for one entry at a time,
so that runs at the same time count each other.
"""

from __future__ import annotations

import fcntl
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from pathlib import Path
from typing import cast

from sordino.errors import BadInput, BudgetRefused, positive
from sordino.privacy import ledger_format as lines


@dataclass(frozen=True)
class Entry:
    """One run."""

    run: str
    epsilon: float | None  # None: not private
    delta: float
    about: str


@dataclass(frozen=True)
class Total:
    """What the account holds."""

    entries: tuple[Entry, ...] = ()
    limit: float | None = None

    @property
    def epsilon(self) -> float:
        """Of all runs, rounded up; infinite as soon as one was not private."""
        if any(entry.epsilon is None for entry in self.entries):
            return math.inf
        return round_up(sum((Fraction(entry.epsilon or 0.0) for entry in self.entries), Fraction(0)))

    @property
    def delta(self) -> float:
        """Of all runs, rounded up."""
        return round_up(sum((Fraction(entry.delta) for entry in self.entries), Fraction(0)))

    def sentence(self) -> str:
        """For a statement."""
        count = f"{len(self.entries)} run{'s' if len(self.entries) != 1 else ''}"
        room = "" if self.limit is None else f" The limit is epsilon {self.limit:g}."
        if math.isinf(self.epsilon):
            return f"All runs on these records, by their account: {count}, of which at least one was not private.{room}"
        return (
            f"All runs on these records, by their account: {count}, epsilon {_shown(self.epsilon)} and delta "
            f"{_shown(self.delta)} in all (by adding up).{room}"
        )


@dataclass
class _Open:
    fd: int
    total: Total = field(default_factory=Total)
    hash: str = lines.START
    count: int = 0


class DataAccount:
    """The account in one file. It is opened for each entry, and closed again."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def total(self) -> Total:
        """What all entered runs have cost together."""
        if not self.path.exists():
            return Total()
        with self._opened() as book:
            return book.total

    def enter(self, run: str, epsilon: float, delta: float, about: str = "") -> Total:
        """Charge a run, or refuse it; the same run again costs nothing. When this returns the entry is on disk."""
        private = math.isfinite(epsilon)
        entry = Entry(run, epsilon if private else None, delta if private else 0.0, about)
        with self._opened() as book:
            standing = next((one for one in book.total.entries if one.run == run), None)
            if standing is not None:
                if (standing.epsilon, standing.delta) != (entry.epsilon, entry.delta):
                    raise BadInput(f"this run is in {self.path} with another epsilon; a run cannot change its plan.")
                return book.total
            self._check(book.total, entry)
            row: dict[str, object] = {
                "kind": "run",
                "run": run,
                "epsilon": entry.epsilon,
                "delta": entry.delta,
                "about": about,
            }
            self._append(book, row)
            return Total((*book.total.entries, entry), book.total.limit)

    def set_limit(self, epsilon: float) -> Total:
        """The most that all runs together may spend from now on."""
        positive(limit=epsilon)
        with self._opened() as book:
            self._append(book, {"kind": "limit", "epsilon": float(epsilon)})
            return Total(book.total.entries, float(epsilon))

    def _check(self, total: Total, entry: Entry) -> None:
        if total.limit is None:
            return
        if entry.epsilon is None:
            raise BudgetRefused(
                f"this run is not private, and {self.path} limits all runs on these records to epsilon {total.limit:g}."
            )
        if Fraction(total.epsilon) + Fraction(entry.epsilon) > Fraction(total.limit) * Fraction(1 + 1e-9):
            raise BudgetRefused(
                f"epsilon {entry.epsilon:.4g} would come on top of {total.epsilon:.4g} of earlier runs on these records, and "
                f"{self.path} allows {total.limit:g} in all; ask for less."
            )

    @contextmanager
    def _opened(self) -> Iterator[_Open]:
        """The file, locked until the block ends; others wait for their turn."""
        try:
            fresh = not self.path.exists()
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise BadInput(
                f"the account {self.path} cannot be written ({error.strerror}); name another with --account."
            ) from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if fresh:
                lines.sync_folder(self.path.parent)
            yield self._replay(fd)
        finally:
            os.close(fd)

    def _replay(self, fd: int) -> _Open:
        book, entries, limit = _Open(fd), list[Entry](), None
        text = lines.read(fd)
        *whole, torn = text.split(b"\n")
        for number, line in enumerate(whole):
            row, digest = lines.unseal(line)
            if not row or row["prev"] != book.hash or row["hash"] != digest or row["seq"] != number:
                raise BadInput(
                    f"line {number + 1} of {self.path} was changed; restore the file, it holds what was spent."
                )
            if row["kind"] == "limit":
                limit = cast(float, row["epsilon"])
            else:
                entries.append(_entry(row))
            book.hash, book.count = digest, number + 1
        if torn:  # by a process that died before its run was told that it may begin
            os.ftruncate(fd, len(text) - len(torn))
        book.total = Total(tuple(entries), limit)
        return book

    def _append(self, book: _Open, row: dict[str, object]) -> None:
        line, _ = lines.seal({"seq": book.count, **row}, book.hash)
        with lines.told(self.path):
            lines.write(book.fd, line)


def _entry(row: dict[str, object]) -> Entry:
    spent = cast(float | None, row["epsilon"])
    return Entry(str(row["run"]), spent, cast(float, row["delta"]), str(row["about"]))


def beside(data: str | Path) -> Path:
    """Where the account of a file or a folder of records lies."""
    path = Path(data)
    return path / ".sordino-account.jsonl" if path.is_dir() else path.with_name(f"{path.name}.account.jsonl")


def round_up(total: Fraction) -> float:
    """The nearest double that is not below."""
    value = float(total)
    return value if Fraction(value) >= total else math.nextafter(value, math.inf)


def _shown(value: float) -> str:
    """Four digits, rounded up.

    >>> _shown(7.9991), _shown(2e-5), _shown(0.0)
    ('8', '2e-05', '0')
    """
    exact = Decimal(repr(value))
    return f"{float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 3), ROUND_CEILING)):.4g}" if exact else "0"
