"""The progress bar of training: round, accuracy, bound, budget spent, time left. Quiet when stderr is not a terminal."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sordino.plan import Plan
from sordino.training import Progress

Watch = Callable[[Progress], None]


@contextmanager
def bar(plan: Plan, quiet: bool, tensorboard: bool, out: Path | None) -> Iterator[Watch]:
    """A callback for `train` that shows how far it is."""
    with _scalars(tensorboard, out) as log:
        if quiet or not sys.stderr.isatty():
            yield log
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[said]}"),
            TimeRemainingColumn(),
        )
        with Bar(*columns, console=Console(stderr=True)) as shown:
            task = shown.add_task(f"{plan.method} on {plan.data}", total=plan.rounds, said="")
            said: dict[str, str] = {}

            def watch(p: Progress) -> None:
                log(p)
                said.update(_words(p))
                shown.update(task, completed=p.round, said="  ".join(said.values()))

            yield watch


def _words(p: Progress) -> dict[str, str]:
    words = {} if p.accuracy is None else {"accuracy": f"accuracy {p.accuracy:.1%}"}
    if p.bound is not None:
        words["bound"] = f"bound {p.bound:.3g}"
    if math.isfinite(p.epsilon):
        words["epsilon"] = f"budget {p.spent:.0%} of epsilon {p.epsilon:.3g}"
    else:
        words["epsilon"] = "not private"
    return words


@contextmanager
def _scalars(wanted: bool, out: Path | None) -> Iterator[Watch]:
    """TensorBoard scalars, released values only."""
    if not wanted or out is None:
        yield lambda p: None
        return
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(Path(out) / "tensorboard"))

    def log(p: Progress) -> None:
        for name, value in (("accuracy", p.accuracy), ("bound", p.bound), ("budget spent", p.spent)):
            if value is not None:
                writer.add_scalar(name, value, p.round)

    try:
        yield log
    finally:
        writer.close()
