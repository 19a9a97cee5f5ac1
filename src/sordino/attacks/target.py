"""What is attacked: a trained model with its plan and data, and how to train or watch more like it.

A target can do whatever some attacker can; which part of it an attack may use is for `game` to say.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar, cast

import numpy as np

from sordino.attacks import replay as replays
from sordino.attacks import shadows as training
from sordino.attacks.model_probe import ModelProbe, Observation, joined
from sordino.attacks.protocol import AttackSplit
from sordino.attacks.shadows import Make, Say, quiet
from sordino.errors import BadInput
from sordino.machine import cores
from sordino.plan import Plan

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class References:
    """Reference models' answers. `inside[k, i]`: whether model k was trained on attacked record i."""

    inside: np.ndarray  # bool [k, attacked]
    logits: np.ndarray  # [k, attacked, classes]
    population: np.ndarray  # [k, population, classes]


@dataclass(frozen=True, eq=False)
class Shadows:
    """Shadow models' answers on the population that they were trained on half of."""

    inside: np.ndarray  # bool [k, population]
    logits: np.ndarray  # [k, population, classes]


@dataclass(eq=False)
class Target:
    """What is attacked: a trained model with its plan and data, and how to train more like it."""

    plan: Plan
    cast: AttackSplit
    make: Make
    theta: np.ndarray  # final weights, in the order of `gradients.flat`
    rounds: int  # that were run
    kept: Callable[[], dict[int, np.ndarray]] = dict  # the models of several rounds, if the run kept them
    folder: Path | None = None  # where models that the attacker trains are kept
    workers: int = 0
    seed: int = 0
    say: Say = quiet
    _cache: dict[Hashable, object] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.workers == 0:
            self.workers = cores()
        if not np.isfinite(self.theta).all():
            raise BadInput("the model's weights are not finite: training has diverged, and there is nothing to attack.")

    def cached(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value under this key, made on first use and then shared by all attacks."""
        if key not in self._cache:
            self._cache[key] = make()
        return cast(T, self._cache[key])

    @cached_property
    def lens(self) -> ModelProbe:
        """What computes outputs and gradients of the attacked model."""
        return ModelProbe(self.make(self.plan.seed))

    @cached_property
    def inputs(self) -> np.ndarray:
        """The judged records, ready for a model."""
        return self.cast.inputs()

    @cached_property
    def labels(self) -> np.ndarray:
        """The labels of the judged records, as a loss takes them."""
        return self.cast.federation.labels(self.cast.labels)

    @cached_property
    def population_inputs(self) -> np.ndarray:
        """The attacker's own records, ready for a model."""
        return self.cast.population_inputs()

    # ---- models that the attacker trains -----------------------------------------------------------------------------

    def references(self, count: int) -> References:
        """Models for every game on this target; more of them extend those that are there."""
        inside = training.reference_sides(self.cast, count, self.seed)
        jobs = training.reference_jobs(self.cast, inside, self.seed)
        thetas = self._train("reference", jobs)
        return References(
            inside,
            np.stack([self._answers(("reference", k, 0), theta, self.inputs) for k, theta in enumerate(thetas)]),
            np.stack(
                [self._answers(("reference", k, 1), theta, self.population_inputs) for k, theta in enumerate(thetas)]
            ),
        )

    def shadows(self, count: int) -> Shadows:
        """Shadow models on halves of the population, and their answers on all of it."""
        inside = training.shadow_sides(self.cast, count, self.seed)
        thetas = self._train("shadow", training.shadow_jobs(self.cast, inside, self.seed))
        answers = [self._answers(("shadow", k), theta, self.population_inputs) for k, theta in enumerate(thetas)]
        return Shadows(inside, np.stack(answers))

    def _answers(self, key: Hashable, theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        return self.cached(key, lambda: self.lens.logits(theta, x))

    def _train(self, kind: str, jobs: list[training.Job]) -> list[np.ndarray]:
        if self.folder is None:
            raise BadInput("a folder is needed to keep the models that the attacker trains; give one.")
        name = f"{kind}-{training.digest(self.plan, self.cast, kind, self.seed)}"
        return training.train_all(jobs, self.make, self.plan, self.folder / name, self.workers, self.say)

    # ---- models of several rounds ------------------------------------------------------------------------------------

    def watch(self, count: int, deep: bool, server: bool = False, active: float = 0.0) -> list[Observation]:
        """Up to `count` sights, evenly over the run: of released models, of clients' own, of a run tampered with."""
        key = ("watch", count, deep, server, active)
        return self.cached(key, lambda: self._watch(count, deep, server, active))

    def _watch(self, count: int, deep: bool, server: bool, active: float) -> list[Observation]:
        messages = server and replays.server_sees_messages(self.plan)
        if not messages and not active:
            models = self._released(count)
            befores = [self._first(), *(theta for _, theta in models)]
            return [self._look(theta, t, before, deep) for (t, theta), before in zip(models, befores)]
        if self.plan.secure:
            raise BadInput(
                "the noise of this run came from the secure source, so it cannot be replayed for this attack."
            )
        rounds = spread(range(1, self.rounds + 1), count)
        sights: dict[int, Observation] = {}
        parts: dict[int, dict[int, Observation]] = {}

        def sent(t: int, before: np.ndarray, client: int, theta: np.ndarray) -> None:
            mine = np.flatnonzero(self.cast.owner == client)
            if len(mine):
                parts.setdefault(t, {})[client] = self._look(theta, t, before, deep, mine)

        def seen(t: int, before: np.ndarray, theta: np.ndarray) -> None:
            whole = self._look(theta, t, before, deep)
            all_rows = np.arange(len(self.labels))
            local = [(np.flatnonzero(self.cast.owner == k), sight) for k, sight in parts.pop(t, {}).items()]
            # Of a client that was not drawn in this round only the released model tells.
            sights[t] = joined(len(self.labels), [(all_rows, whole), *local])

        tamper = None
        if active:
            start = max(2, self.rounds // 2)
            tamper = replays.Tamper(self._climb, server, active, start)
        replays.replay(
            self.make,
            self.cast.federation,
            self.plan,
            set(rounds),
            seen,
            sent if messages else None,
            tamper,
            self.workers,
            self.say,
        )
        return [sights[t] for t in rounds]

    def _climb(self, theta: np.ndarray) -> np.ndarray:
        return self.lens.gradient(theta, self.inputs, self.labels)

    def _look(
        self, theta: np.ndarray, t: int, before: np.ndarray, deep: bool, some: slice | np.ndarray = slice(None)
    ) -> Observation:
        return self.lens.look(theta, self.inputs[some], self.labels[some], t, before if deep else None)

    def _first(self) -> np.ndarray:
        """The model before round one, which everyone knows: it follows from the plan."""
        from sordino.gradients.flat import Flat

        return Flat(self.make(self.plan.seed)).vector().numpy()

    def _released(self, count: int) -> list[tuple[int, np.ndarray]]:
        """Kept models; where the run kept none it is replayed, and must end in the same model."""
        models = self.cached("kept", self.kept)
        if len(models) >= min(2, self.rounds):
            models = {**models, self.rounds: self.theta}
        else:
            models = self.cached(("released", count), lambda: self._replayed(count))
        return [(t, models[t]) for t in spread(sorted(models), count)]

    def _replayed(self, count: int) -> dict[int, np.ndarray]:
        refusal = "train again with --keep-models to attack the models of several rounds."
        if self.plan.secure:
            raise BadInput(f"this run kept no models of its rounds, and its secure noise cannot be repeated; {refusal}")
        every = max(1, self.rounds // count)
        models, final = replays.honest(
            self.make, self.cast.federation, self.plan, every, self.folder, self.workers, self.say
        )
        if not np.array_equal(final, self.theta):
            raise BadInput(
                f"a replay of this run ends in another model (code, data or threads have changed); {refusal}"
            )
        return {**models, self.rounds: final}


def spread(items: Sequence[T], count: int) -> list[T]:
    """At most `count` of them, evenly, the last one always among them.

    >>> spread([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 5)
    [2, 4, 6, 8, 10]
    """
    items = list(items)
    if len(items) <= count:
        return items
    places = np.floor(np.arange(1, count + 1) * len(items) / count).astype(int) - 1
    return [items[place] for place in places]
