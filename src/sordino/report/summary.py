"""What a run ends with on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
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


def summary(result: Finished, beside: Mapping[str, float | None] | None = None) -> str:
    """The statement, the accuracy, what it is to be held against, and where everything lies."""
    lines = [result.statement.text(), ""]
    if result.accuracy is not None:
        lines.append(f"Accuracy   {result.accuracy:.1%} on the public test set, after {result.rounds} rounds")
        lines += held_against(result.accuracy, beside or {})
    lines += [f"Report     {result.folder / 'report.html'}", f"Run        {result.folder}"]
    return "\n".join(lines)


def held_against(accuracy: float, beside: Mapping[str, float | None]) -> list[str]:
    """The majority class, and the same network without privacy."""
    lines = []
    if (least := beside.get("majority")) is not None:
        lines.append(f"           {least:.1%} is what always saying the most frequent class gets")
    if (most := beside.get("without_privacy")) is not None:
        lines.append(f"           {most:.1%} without privacy: it costs {100 * (most - accuracy):.1f} points")
    return lines
