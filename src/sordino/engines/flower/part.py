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
from sordino.federation.population import Federation
from sordino.plain import Plain


@dataclass(frozen=True)
class Facts:
    """What is taken to be public about a federation."""

    name: str
    classes: int
    shape: tuple[int, ...]  # of one example
    sizes: tuple[int, ...]  # examples of each client
    normalise: Normalise | None = None
    schema: Schema | None = None  # of tables: every holder reads its own through it
    task: str = CLASSIFICATION

    def __post_init__(self) -> None:
        whole(2 if self.task == CLASSIFICATION else 1, classes=self.classes)
        if self.schema is not None and (self.schema.outputs, self.schema.task) != (self.classes, self.task):
            raise BadInput("the schema of the federation and its classes or its task disagree.")
        whole(**{f"size of client {k}": n for k, n in enumerate(self.sizes)})
        if not self.sizes:
            raise BadInput("there are no clients: a federation needs at least one.")

    @property
    def clients(self) -> int:
        return len(self.sizes)

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "classes": self.classes,
            "shape": list(self.shape),
            "sizes": list(self.sizes),
            "normalise": None if self.normalise is None else self.normalise.to_json(),
            "schema": None if self.schema is None else self.schema.to_json(),
            "task": self.task,
        }

    @classmethod
    def from_json(cls, plain: Plain) -> Facts:
        normalise, schema = plain["normalise"], plain["schema"]
        return cls(
            str(plain["name"]),
            int(plain["classes"]),
            tuple(int(n) for n in plain["shape"]),
            tuple(int(n) for n in plain["sizes"]),
            None if normalise is None else Normalise.from_json(normalise),
            None if schema is None else Schema.from_json(schema),
            str(plain["task"]),
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
    def held(cls, facts: Facts, own: int, x: np.ndarray, y: np.ndarray) -> Part:
        """Client `own`'s place."""
        x, y = checked(x, y, facts.classes, f"client {own}", facts.task)
        if facts.task == CLASSIFICATION and y.ndim > 1:
            raise BadInput(
                "labels at every position of a record are for runs on one machine; give one label per record."
            )
        if tuple(x.shape[1:]) != facts.shape:
            raise BadInput(f"the records here have shape {tuple(x.shape[1:])}, the federation's {facts.shape}.")
        if not 0 <= own < facts.clients or len(y) != facts.sizes[own]:
            raise BadInput(f"client {own} holds {len(y)} records, which is not what the federation was told.")
        return cls(facts, x, y, own, None)

    @classmethod
    def seen_by_server(cls, facts: Facts, test: Pair | None) -> Part:
        """The server's place: nobody's records."""
        kind = np.int64 if facts.normalise is not None and facts.normalise.tokens else np.float32
        return cls(facts, np.zeros((0, *facts.shape), kind), _blank(facts, 0), None, test)

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
        return sum(self.facts.sizes)

    def __getitem__(self, k: int) -> Pair:
        """The own client's records; for any other k one blank example, which is all that a look at shapes needs."""
        if k == self.own:
            return super().__getitem__(k)
        kind = np.int64 if self.normalise is not None and self.normalise.tokens else np.float32
        return np.zeros((1, *self.facts.shape), kind), _blank(self.facts, 1)


def _blank(facts: Facts, rows: int) -> np.ndarray:
    """Labels of nobody."""
    return np.zeros(rows, np.int64) if facts.task == CLASSIFICATION else np.zeros((rows, facts.classes), np.float32)
