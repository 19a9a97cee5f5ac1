"""What a run ends with on a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sordino.privacy.statement import Statement


class Finished(Protocol):
    """A finished run (`sordino.training.Result`)."""

    @property
    def statement(self) -> Statement: ...
    @property
    def folder(self) -> Path: ...
    @property
    def rounds(self) -> int: ...
    @property
    def accuracy(self) -> float | None: ...


def summary(result: Finished) -> str:
    """The statement, the accuracy, and where everything lies."""
    lines = [result.statement.text(), ""]
    if result.accuracy is not None:
        lines.append(f"Accuracy   {result.accuracy:.1%} on the public test set, after {result.rounds} rounds")
    lines += [f"Report     {result.folder / 'report.html'}", f"Run        {result.folder}"]
    return "\n".join(lines)
