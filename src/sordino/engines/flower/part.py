"""The federation as one place sees it: public facts about everyone, and the data of one client at most.

A data holder has its own records and knows only sizes of the others; the server has the public test set and no records.
To the rest of the library both look like any other `Federation`, so clients' work and scoring run unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from sordino.data.check import Pair, checked
from sordino.data.dataset import Normalise
from sordino.data.schema import CLASSIFICATION, Schema
from sordino.errors import BadInput, whole
from sordino.federation import held_out
from sordino.federation.population import Federation
from sordino.plain import Plain
from sordino.plan import Plan


@dataclass(frozen=True)
class Facts:
    """What is taken to be public about a federation."""

    name: str
    classes: int
    shape: tuple[int, ...]  # of one example
    sizes: tuple[int, ...]  # examples of each client, without those that are held out
    normalise: Normalise | None = None
    schema: Schema | None = None  # of tables: every holder reads its own through it
    task: str = CLASSIFICATION
    held_out: tuple[int, ...] = ()  # examples of each client that are tested on; empty: none are

    def __post_init__(self) -> None:
        whole(2 if self.task == CLASSIFICATION else 1, classes=self.classes)
        if self.schema is not None and (self.schema.outputs, self.schema.task) != (self.classes, self.task):
            raise BadInput("the schema of the federation and its classes or its task disagree.")
        whole(**{f"size of client {k}": n for k, n in enumerate(self.sizes)})
        if not self.sizes:
            raise BadInput("there are no clients: a federation needs at least one.")
        if self.held_out and len(self.held_out) != len(self.sizes):
            raise BadInput("how many records are held out is not told for each client.")
        whole(0, **{f"held-out records of client {k}": n for k, n in enumerate(self.held_out)})

    def holding_out(self, plan: Plan) -> Facts:
        """The same clients, with the share put aside that the plan tests on."""
        if plan.holdout is None:
            return replace(self, held_out=())
        whole_sizes = self._all
        held = tuple(held_out.count(plan.holdout, plan.seed, k, n) for k, n in enumerate(whole_sizes))
        if not any(held):
            raise BadInput(f"test {plan.test} of {sum(whole_sizes):,} records is no record; hold out more, or none.")
        return replace(self, sizes=tuple(n - h for n, h in zip(whole_sizes, held)), held_out=held)

    @property
    def _all(self) -> tuple[int, ...]:
        """Records that each client has, for either use."""
        return tuple(n + h for n, h in zip(self.sizes, self.held_out)) if self.held_out else self.sizes

    def check_held_out(self, plan: Plan) -> None:
        """Refuse facts that put other records aside than the plan says: everybody works it out alone."""
        if plan.holdout is None and self.held_out or self != self.holding_out(plan):
            raise BadInput("the numbers of held-out records are not those that follow from the plan.")

    @property
    def clients(self) -> int:
        """How many clients take part."""
        return len(self.sizes)

    def to_json(self) -> dict[str, object]:
        """The facts as the server sends them to every holder."""
        return {
            "name": self.name,
            "classes": self.classes,
            "shape": list(self.shape),
            "sizes": list(self.sizes),
            "normalise": None if self.normalise is None else self.normalise.to_json(),
            "schema": None if self.schema is None else self.schema.to_json(),
            "task": self.task,
            "held_out": list(self.held_out),
        }

    @classmethod
    def from_json(cls, plain: Plain) -> Facts:
        """The facts that a server sent."""
        normalise, schema = plain["normalise"], plain["schema"]
        return cls(
            str(plain["name"]),
            int(plain["classes"]),
            tuple(int(n) for n in plain["shape"]),
            tuple(int(n) for n in plain["sizes"]),
            None if normalise is None else Normalise.from_json(normalise),
            None if schema is None else Schema.from_json(schema),
            str(plain["task"]),
            tuple(int(n) for n in plain.get("held_out", ())),
        )


class Part(Federation):
    """Build one with `held` or `seen_by_server`."""

    def __init__(self, facts: Facts, x: np.ndarray, y: np.ndarray, own: int | None, test: Pair | None) -> None:
        # Everyone before the own client holds nothing here, and so does everyone after it.
        offsets = np.zeros(facts.clients + 1, np.int64)
        if own is not None:
            offsets[own + 1 :] = len(y)
        super().__init__(
            name=facts.name,
            clients=facts.clients,
            classes=facts.classes,
            x=x,
            y=y,
            offsets=offsets,
            test=test,
            normalise=facts.normalise,
            task=facts.task,
            schema=facts.schema,
        )
        self.facts, self.own = facts, own
        self.sizes = np.array(facts.sizes, np.int64)
        self.sizes.flags.writeable = False

    @classmethod
    def held(cls, facts: Facts, own: int, x: np.ndarray, y: np.ndarray, plan: Plan | None = None) -> Part:
        """Client `own`'s place. The `plan` says which records are held out, if some are."""
        gaps = facts.schema is not None and facts.schema.gaps
        x, y = checked(x, y, facts.classes, f"client {own}", facts.task, gaps)
        if facts.task == CLASSIFICATION and y.ndim > 1:
            raise BadInput(
                "labels at every position of a record are for runs on one machine; give one label per record."
            )
        if tuple(x.shape[1:]) != facts.shape:
            raise BadInput(f"the records here have shape {tuple(x.shape[1:])}, the federation's {facts.shape}.")
        if not 0 <= own < facts.clients or len(y) != facts._all[own]:
            raise BadInput(f"client {own} holds {len(y)} records, which is not what the federation was told.")
        if not facts.held_out:
            return cls(facts, x, y, own, None)
        assert plan is not None and plan.holdout is not None
        aside = held_out.places(plan.holdout, plan.seed, own, len(y))
        made = cls(facts, x[~aside], y[~aside], own, None)
        made.held_out = cls._tested(facts, x[aside], y[aside], own)
        return made

    @classmethod
    def _tested(cls, facts: Facts, x: np.ndarray, y: np.ndarray, own: int | None) -> Part:
        """What is held out of the clients' records."""
        made = cls(facts, x, y, own, None)
        made.sizes = np.array(facts.held_out, np.int64)
        return made

    @classmethod
    def seen_by_server(cls, facts: Facts, test: Pair | None) -> Part:
        """The server's place: nobody's records."""
        kind = np.int64 if facts.normalise is not None and facts.normalise.tokens else np.float32
        nothing = np.zeros((0, *facts.shape), kind), _blank(facts, 0)
        made = cls(facts, *nothing, None, test)
        if facts.held_out:
            made.held_out = cls._tested(facts, *nothing, None)
        return made

    def mapped(self, apply: Callable[[np.ndarray], np.ndarray]) -> Part:
        """Other model input; the facts that go with it have its shape."""
        made = super().mapped(apply)
        assert isinstance(made, Part)
        shape = tuple(apply(np.zeros((1, *self.facts.shape), self.x.dtype)).shape[1:])  # type: ignore[union-attr]
        made.facts = replace(self.facts, shape=shape, normalise=None)
        if made.x is None or not len(made.x):
            made.x = np.zeros((0, *shape), np.float32)
        return made

    @property
    def examples(self) -> int:
        """Of all clients together: rates are fractions of this."""
        assert self.sizes is not None
        return int(self.sizes.sum())

    def __getitem__(self, k: int) -> Pair:
        """The own client's records; for any other k one blank example, which is all that a look at shapes needs."""
        if k == self.own:
            return super().__getitem__(k)
        kind = np.int64 if self.normalise is not None and self.normalise.tokens else np.float32
        return np.zeros((1, *self.facts.shape), kind), _blank(self.facts, 1)


def _blank(facts: Facts, rows: int) -> np.ndarray:
    """Labels of nobody."""
    return np.zeros(rows, np.int64) if facts.task == CLASSIFICATION else np.zeros((rows, facts.classes), np.float32)
