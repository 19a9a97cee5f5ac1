"""The game that an attack plays: what its threat model lets it reach, and nothing else.

An attack declares its `reach`; a game refuses whatever was not declared, so what `sordino attacks` prints about an
attack's knowledge is what it had. No game ever hands out whether a judged record is a member.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import numpy as np

from sordino.attacks.model_probe import Observation
from sordino.attacks.target import References, Shadows, Target
from sordino.errors import NotPrivate
from sordino.privacy.randomness import SERVER, stream

if TYPE_CHECKING:
    from torch import nn


class Reach(StrEnum):
    """What an attacker can get hold of."""

    QUERIES = "queries"  # the final model's answers
    KNOWN = "known"  # records of its own, with membership
    ROUNDS = "rounds"  # the models of several rounds
    WEIGHTS = "weights"  # what is inside the models that it sees
    UPDATES = "updates"  # what single clients send
    TAMPER = "tamper"  # it takes part in training
    SHADOWS = "shadows"  # data like the target's, and the plan, to train models of its own


@dataclass(frozen=True, eq=False)
class Guess:
    """One score for each judged record (higher: member), and the threshold that the attacker itself would use."""

    scores: np.ndarray
    threshold: float
    notes: tuple[str, ...] = ()


class Attack(Protocol):
    """Every attack: what it reaches, and its scores."""

    @property
    def reach(self) -> frozenset[Reach]:
        """What the attack can get hold of; a game refuses the rest."""

    def guess(self, game: Game) -> Guess:
        """Play."""


def on_trial(inside: np.ndarray) -> np.ndarray | None:
    """Records by which the attacker may try itself on its first reference model: some other model lacks them.

    None if those are all on one side, as with a single pair of models.
    """
    some = np.flatnonzero((~inside[1:]).any(0))
    sides = inside[0, some]
    return some if sides.any() and not sides.all() else None


class Game:
    """One attack's view of a target."""

    def __init__(self, target: Target, reach: frozenset[Reach]) -> None:
        self._target, self.reach = target, reach
        self._own, self.judged = target.cast.own, target.cast.judged
        self.labels, self.population_labels = target.labels, target.cast.population_labels
        self.plan, self.classes = target.plan, target.cast.federation.classes
        self.task = target.cast.federation.task

    def _need(self, *reach: Reach) -> None:
        for one in reach:
            if one not in self.reach:
                raise NotPrivate(f"this attack does not declare that it reaches {one}; add it to its reach.")

    def rng(self, purpose: str) -> np.random.Generator:
        """Chance of the attack's own, which follows from the seed of the attacked run."""
        return stream(self._target.seed, 0, SERVER, f"attack-{purpose}")

    # ---- what can be reached -----------------------------------------------------------------------------------------

    @property
    def own(self) -> np.ndarray:
        """Numbers of the attacked records that the attacker knows."""
        self._need(Reach.KNOWN)
        return self._own

    @property
    def own_members(self) -> np.ndarray:
        """Whether each of them is a member."""
        self._need(Reach.KNOWN)
        return self._target.cast.member[self._own]

    @property
    def inputs(self) -> np.ndarray:
        """The attacked records themselves, as model input."""
        return self._target.inputs

    @property
    def population_inputs(self) -> np.ndarray:
        """Records that the attacked run never saw: the attacker's own sample of the population."""
        return self._target.population_inputs

    def outputs(self) -> np.ndarray:
        """Logits of the final model on the attacked records."""
        self._need(Reach.QUERIES)
        target = self._target
        return target.cached("outputs", lambda: target.lens.logits(target.theta, target.inputs))

    def population_outputs(self) -> np.ndarray:
        """What the model answers about the population records. This takes queries."""
        self._need(Reach.QUERIES)
        target = self._target
        return target.cached("population", lambda: target.lens.logits(target.theta, target.population_inputs))

    def watch(self, count: int, deep: bool = False, server: bool = False, active: float = 0.0) -> list[Observation]:
        """Sights of the attacked records in several rounds."""
        self._need(Reach.ROUNDS)
        if deep:
            self._need(Reach.WEIGHTS)
        if server:
            self._need(Reach.UPDATES)
        if active:
            self._need(Reach.TAMPER)
        return self._target.watch(count, deep, server, active)

    def references(self, count: int) -> References:
        """Models trained with and without each judged record. This takes the attacker's own training."""
        self._need(Reach.SHADOWS)
        return self._target.references(count)

    def shadows(self, count: int) -> Shadows:
        """Models trained on splits of the population records. This takes the attacker's own training."""
        self._need(Reach.SHADOWS)
        return self._target.shadows(count)

    def make(self, outputs: int, seed: int) -> nn.Module:
        """A network like the target's with another number of outputs, for what the attacker learns itself."""
        from sordino.models import build, names

        shape = self._target.cast.federation.input_shape
        usual = "lenet" if len(shape) == 3 and min(shape[1:]) >= 28 else "linear"
        return build(self.plan.model if self.plan.model in names() else usual, shape, outputs, seed)
