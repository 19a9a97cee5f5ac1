"""What a run ends with on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sordino.evaluation import Figures
    from sordino.noisy_figures import NoisyFigures
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
    @property
    def evaluation(self) -> Figures | None: ...
    @property
    def held_out(self) -> NoisyFigures | None: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...


def summary(result: Finished, beside: Mapping[str, float] | None = None) -> str:
    """The statement, the accuracy, what it is to be held against, and where everything lies."""
    lines = [result.statement.text(), ""]
    if result.accuracy is not None:
        lines.append(f"Accuracy   {result.accuracy:.1%} on the public test set, after {result.rounds} rounds")
    if result.evaluation is not None:
        lines += figures(result.evaluation)
    if result.held_out is not None:
        lines += held_out(result.held_out)
    lines += [f"Warning    {sentence}" for sentence in result.warnings]
    if result.accuracy is not None:
        lines += price(result.accuracy, beside or {})
    lines += [f"Report     {result.folder / 'report.html'}", f"Run        {result.folder}"]
    return "\n".join(lines)


def price(accuracy: float, beside: Mapping[str, float]) -> list[str]:
    """The same network without privacy, where it was trained too."""
    most = beside.get("without_privacy")
    if most is None:
        return []
    costs = f"privacy costs {100 * (most - accuracy):.1f} points. No epsilon covers this figure"
    return [f"The price  {most:.1%} without privacy: {costs}"]


def held_out(found: NoisyFigures) -> list[str]:
    """The figures on held-out records, with the noise that is in them."""
    low, high = found.interval
    where = f"on {found.tested:,} held-out {found.unit if found.unit == 'client' else 'record'}s, with noise"
    if found.accuracy is None:
        naming = f"naming the middle: {found.mae_of_middle:.4g}"
        return [f"Held out   off by {found.mae:.4g} {where} (95%: {low:.4g} to {high:.4g}); {naming}"]
    guess = "" if found.majority is None else f"; always naming {found.majority_class}: about {found.majority:.1%}"
    said = [f"Held out   {found.accuracy:.1%} {where} (95%: {low:.1%} to {high:.1%}){guess}"]
    if found.between is not None:
        sd = "lost in the noise" if found.between.sd is None else f"{found.between.sd:.1%}"
        least = "" if found.between.lowest is None else f", lowest {found.between.lowest:.1%}"
        said.append(f"Clients    standard deviation of their accuracies {sd}{least}, with noise")
    return said


def figures(found: Figures) -> list[str]:
    """What stands beside the accuracy: what a guess would reach."""
    if found.rmse is not None:
        return [
            f"Error      {found.rmse:.4g} (root mean square) on the public test set; always naming the mean: {found.rmse_of_mean:.4g}"
        ]
    balanced = "" if found.balanced_accuracy is None else f"; balanced {found.balanced_accuracy:.1%}"
    return [f"A guess    {found.majority:.1%} by always naming the most frequent class{balanced}"]
