"""The charts of a run, from its metrics. A chart without data is left out."""

from __future__ import annotations

from dataclasses import dataclass

from sordino.report.chart import Chart, Reference
from sordino.report.downsample import Point
from sordino.report.numbers import number, percent, plain
from sordino.report.reading import Run

MEASURED = "Measured on a public test set."


@dataclass(frozen=True)
class Figure:
    """A chart, its latest value and what to make of it."""

    chart: Chart
    latest: str
    note: str


def figures(run: Run) -> list[Figure]:
    """The charts of a run: accuracy or loss, bound, noise, and budget spent."""
    made = [_accuracy(run), _bound(run), _noise(run), _spent(run)]
    if None in made:
        made.insert(1, _loss(run))
    return [figure for figure in made if figure is not None]


def noise_to_signal(run: Run) -> tuple[Point, ...]:
    """Expected length of the noise in a step over the length of the noisy step, where both are known."""
    noise, moved = dict(run.points("noise")), dict(run.points("moved"))
    return tuple((at, noise[at] / moved[at]) for at in noise if noise[at] > 0 and moved.get(at, 0) > 0)


def spending(run: Run) -> tuple[tuple[Point, ...], bool]:
    """The share of the budget after each round, and whether it is exact.

    Rounds may state it themselves. If not, it follows from the multipliers: k of n equal releases are k/n of the
    budget; with unequal ones a round counts as 1/multiplier^2, which is exact for unsampled Gaussians and close
    otherwise.
    """
    stated = run.points("spent")
    if stated:
        return tuple((at, min(1.0, share)) for at, share in stated), True
    multipliers = run.points("multiplier")
    if not multipliers or len(multipliers) != len(run.metrics) or min(z for _, z in multipliers) <= 0:
        return (), True
    costs = [z**-2 for _, z in multipliers]
    end = _end(run)
    total, so_far, points = sum(costs), 0.0, []
    for (at, _), cost in zip(multipliers, costs):
        so_far += cost
        points.append((at, min(1.0, end * so_far / total)))
    return tuple(points), max(costs) <= min(costs) * (1 + 1e-9)


def _percent_tick(value: float, decimals: int) -> str:
    return percent(value, max(0, decimals - 2))


def _end(run: Run) -> float:
    """The share that was spent in the end."""
    stated = number((run.statement or {}).get("spent"))
    if stated is not None:
        return min(1.0, stated)
    planned = number(run.said("rounds_planned")) or number(run.plan.get("rounds"))
    return min(1.0, run.metrics[-1]["round"] / planned) if planned else 1.0


def _accuracy(run: Run) -> Figure | None:
    points = run.points("accuracy")
    if not points:
        return None
    low = min(y for _, y in points)
    chart = Chart(
        "accuracy",
        "Test accuracy",
        points,
        show=percent,
        tick=_percent_tick,
        span=(0.0, 1.0) if low < 0.6 else (0.6, 1.0) if low < 0.9 else (0.9, 1.0),
    )
    return Figure(chart, percent(points[-1][1]), MEASURED)


def _loss(run: Run) -> Figure | None:
    points = run.points("loss")
    if not points:
        return None
    return Figure(Chart("loss", "Test loss", points, show=_short), _short(points[-1][1]), MEASURED)


def _bound(run: Run) -> Figure | None:
    points = run.points("bound")
    if not points:
        return None
    fixed = len({y for _, y in points}) == 1
    note = "Each contribution is clipped to this length before it is summed"
    if fixed:
        note += "; it is the same in every round"
    elif number((run.statement or {}).get("epsilon")) is not None:
        note += "; it is set from released values only"
    chart = Chart("bound", "Clipping bound", points, show=_short, may_log=True)
    return Figure(chart, _short(points[-1][1]), note + ".")


def _noise(run: Run) -> Figure | None:
    points = noise_to_signal(run)
    if not points:
        return None
    chart = Chart(
        "noise",
        "Noise in each step",
        points,
        show=_short,
        may_log=True,
        reference=Reference(1.0, "all noise"),
    )
    note = "Expected length of the noise over the length of the noisy step. Near 1, a step is mostly noise."
    return Figure(chart, _short(points[-1][1]), note)


def _spent(run: Run) -> Figure | None:
    points, exact = spending(run)
    proven = number((run.statement or {}).get("epsilon"))
    if not points or proven is None:
        return None
    chart = Chart(
        "spent",
        "Budget spent",
        points,
        show=percent,
        tick=_percent_tick,
        span=(0.0, 1.0),
    )
    note = "Share of the budget that had been granted. A round is charged before it runs."
    if not exact:
        note += " Estimated within the run from the noise of each round; the end is exact."
    return Figure(chart, percent(points[-1][1], 0), note)


def _short(value: float) -> str:
    return plain(value, 3)
