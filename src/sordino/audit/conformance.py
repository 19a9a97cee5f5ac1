"""The library audits itself: certified methods must hold, planted bugs must be caught, printed claims must fall.

Every row plays two neighbouring worlds many times (`worlds`), lets an attack be chosen on half of the runs
(`thresholds`) and holds the lower bound that the other half gives against the epsilon that is proven, or claimed:

    certified    every case (`cases`); a bound above the proven epsilon is a failure. The confidence of each row is such
                 that all of them together err with a probability of at most 1 - `CONFIDENCE`
    mutation     every bug (`mutations`), at `CONFIDENCE` each; caught if the bound exceeds what the broken code proves
    published    methods whose printed epsilon does not hold (`cases.PUBLISHED`); refuted if the bound exceeds the claim
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from sordino.audit import thresholds
from sordino.audit.cases import PUBLISHED, Case, certified
from sordino.audit.conformance_table import CONFIDENCE, Row, SeedsRow, SeedsSummary, Summary, summary
from sordino.audit.statistics import NAMES, statistics
from sordino.errors import BadInput, NotPrivate, whole
from sordino.machine import cores

if TYPE_CHECKING:
    from sordino.audit.mutations import Mutation
    from sordino.audit.worlds import Stage

# Runs of each world per row.
RUNS = {"certified": 400, "mutation": 600, "published": 200}
RUNS_SMALL = {"certified": 100, "mutation": 400, "published": 300}


T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """One row to be worked out, in whatever process."""

    kind: str
    given: Case | None  # None: that of the bug, which cannot be sent to another process
    runs: int
    confidence: float
    seed: int
    bug: int | None = None  # which of the mutations

    @property
    def case(self) -> Case:
        """What is played: a case, or that of a planted bug."""
        return self.given if self.given is not None else _bug(self.bug or 0).case

    def __call__(self) -> Row:
        started = time.perf_counter()
        case = self.case
        stage = case.stage()
        without, with_it = play(stage, case.statistics, self.runs, self.seed)
        spent, claimed = stage.terms.spent, stage.terms.claimed
        outcome = thresholds.split(without, with_it, spent.delta, self.confidence, gdp=spent.accountant == "gdp")
        lower = outcome.epsilon
        if self.kind == "published":
            good = claimed is not None and lower > claimed
        else:
            good = (lower > spent.epsilon) == (self.kind == "mutation")
        return Row(
            kind=self.kind,
            name=case.name if self.bug is None else _bug(self.bug).name,
            epsilon_proven=spent.epsilon,
            epsilon_claimed=claimed,
            epsilon_lower=lower,
            confidence=self.confidence,
            delta=spent.delta,
            runs=self.runs,
            statistic=NAMES[case.statistics[outcome.attack.statistic]],
            ok=good,
            refused=self.bug is not None and _refused(self.bug),
            seconds=time.perf_counter() - started,
        )


def play(stage: Stage, kept: Sequence[int], runs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Statistics [runs, statistics] of the world without the target, and of the one with it."""
    rate, laplace = stage.rate, stage.plan.mechanism == "laplace"
    # Seeds are 32 bits of the row's and a number for each run of either world: no two runs share their noise.
    worlds = []
    for present in (False, True):
        first = (seed << 32) + (1 << 31) * present
        rows = [statistics(stage.play(present, first + i), rate, laplace) for i in range(runs)]
        worlds.append(np.array(rows)[:, kept])
    return worlds[0], worlds[1]


def conformance(
    small: bool = False, seed: int = 0, workers: int = 0, on_row: Callable[[Row, int, int], None] | None = None
) -> Summary:
    """The whole suite as plain data; `on_row(row, done, of)` is told of each row as it is finished."""
    started = time.perf_counter()
    todo = tasks(small, seed)
    rows = []
    for row in _each(todo, workers):
        rows.append(row)
        if on_row is not None:
            on_row(row, len(rows), len(todo))
    return {**summary(rows), "small": small, "seed": seed, "seconds": time.perf_counter() - started}


def tasks(small: bool, seed: int) -> list[Task]:
    """Every certified case, every planted bug and every published claim, with the runs that each gets."""
    from sordino.audit.mutations import MUTATIONS

    runs = RUNS_SMALL if small else RUNS
    cases = certified(small)
    sure = 1 - (1 - CONFIDENCE) / len(cases)
    found = [Task("certified", case, runs["certified"], sure, seed) for case in cases]
    for i, bug in enumerate(MUTATIONS):
        found.append(Task("mutation", None, bug.effort * runs["mutation"], CONFIDENCE, seed, i))
    return found + [Task("published", case, runs["published"], CONFIDENCE, seed) for case in PUBLISHED]


def over_seeds(
    seeds: Sequence[int], runs: int, small: bool = False, workers: int = 0, on_row: Callable[..., None] | None = None
) -> SeedsSummary:
    """The certified cases again and again: each seed by itself, and all runs of a case together.

    The confidence is shared out among all cases and seeds, so that one false alarm anywhere among them has a
    probability of at most 1 - `CONFIDENCE`; likewise for the pooled runs.
    """
    whole(least=8, runs=runs)
    cases = certified(small)
    todo = [_Seeds(case, tuple(seeds), runs, len(cases)) for case in cases]
    rows = []
    for row in _each(todo, workers):
        rows.append(row)
        if on_row is not None:
            on_row(row, len(rows), len(todo))
    return {
        "cases": len(cases),
        "seeds": len(seeds),
        "runs": runs,
        "failed": [row["name"] for row in rows if row["failures"] or not row["ok"]],
        "confidence": CONFIDENCE,
        "rows": rows,
    }


@dataclass(frozen=True)
class _Seeds:
    case: Case
    seeds: tuple[int, ...]
    runs: int
    cases: int

    def __call__(self) -> SeedsRow:
        worlds: list[tuple[np.ndarray, np.ndarray]] = []
        failures = 0
        single = 1 - (1 - CONFIDENCE) / (self.cases * len(self.seeds))
        stage = self.case.stage()
        spent = stage.terms.spent
        gdp = spent.accountant == "gdp"
        for seed in self.seeds:
            without, with_it = play(stage, self.case.statistics, self.runs, seed)
            failures += thresholds.split(without, with_it, spent.delta, single, gdp).epsilon > spent.epsilon
            worlds.append((without, with_it))
        pooled = [np.concatenate([world[i] for world in worlds]) for i in (0, 1)]
        sure = 1 - (1 - CONFIDENCE) / self.cases
        lower = thresholds.split(pooled[0], pooled[1], spent.delta, sure, gdp).epsilon
        return {
            "name": self.case.name,
            "epsilon_proven": spent.epsilon,
            "epsilon_lower": lower,
            "failures": int(failures),
            "runs": self.runs * len(self.seeds),
            "ok": lower <= spent.epsilon,
        }


# ---- work ------------------------------------------------------------------------------------------------------------


def _bug(index: int) -> Mutation:
    from sordino.audit.mutations import MUTATIONS

    return MUTATIONS[index]


def _refused(bug: int) -> bool:
    """Whether the library's own checks stop the bug, when they are left in place."""
    try:
        _bug(bug).armed.stage().play(True, 0)
    except (NotPrivate, BadInput):
        return True
    return False


def _each(todo: Sequence[Callable[[], T]], workers: int) -> Iterator[T]:
    """Work on the tasks in as many processes as asked for (0: one per core); results in order."""
    from sordino.clients.threads import one_thread

    count = min(workers or cores(), len(todo))
    with one_thread():
        if count <= 1:
            yield from (task() for task in todo)
            return
        import multiprocessing

        from sordino.audit import mutations  # noqa: F401 - imported once, before the fork

        with multiprocessing.get_context("fork").Pool(count) as pool:
            yield from pool.imap(_call, todo)


def _call(task: Callable[[], T]) -> T:
    return task()
