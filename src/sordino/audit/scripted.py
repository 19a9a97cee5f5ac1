"""Clients that do as they are told, on a tiny federation: the part of `worlds` that stands where the data is.

In the client unit an update is a given vector, in the example unit the gradient of a record is the record itself. All
else that clients do, clipping, answering and adding noise, is inherited from the real ones. Where the script says `trains`, the
target's update is not given either: it is what the real client makes of the target's records, masks and personal models included.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from sordino.audit.script import TARGET, TENSORS, direction
from sordino.clients.personal import PersonalModels
from sordino.clients.site import Site
from sordino.privacy.bounds import Bound
from sordino.rules.query import Query, is_raw
from sordino.schemes.client import ClientUpdate
from sordino.schemes.epochs import EpochUpdates
from sordino.schemes.request import Reply, Request

if TYPE_CHECKING:
    from sordino.audit.worlds import Stage
    from sordino.gradients.per_example import PerExample
    from sordino.privacy.client_budgets import ClientBudgets
    from sordino.privacy.events import Event


@dataclass(frozen=True)
class SentMessage:
    """What one item of work sent in a scripted world."""

    item: int
    value: np.ndarray
    answer: np.ndarray | None
    answer_only: bool


class QuietSite(Site):
    """No layer draws here, and seeding takes long. One client at a time can be its own neighbour."""

    neighbour = False

    def seed_layers(self, t: int, item: int) -> None:
        pass

    def layer_seed(self, t: int, item: int, step: int = 0) -> int:
        return 0

    def forget(self) -> None:
        """A new run: nobody has a personal model."""
        self.lives = {False: PersonalModels(), True: PersonalModels()}
        self.become(False)

    def become(self, neighbour: bool) -> None:
        """The target with its own records and personal model, or the unit that is in its place in the other world."""
        self.neighbour, self.personal = neighbour, self.lives[neighbour]

    def client(self, k: int) -> tuple[Tensor, Tensor]:
        """In the other world what was large in each tensor is small, and the other way round: so the masks differ."""
        x, y = super().client(k)
        if not self.neighbour or k != TARGET:
            return x, y
        parts = x.view(len(x), TENSORS, -1)
        return -parts.roll(parts.shape[2] // 2, 2).flatten(1), y


def scripted(kind: type[ClientUpdate]) -> Callable[[QuietSite, np.ndarray, Stage], ClientUpdate]:
    """Clients whose updates are given; all else that clients do is what `kind` does."""

    class Scripted(kind):  # type: ignore[valid-type, misc]
        site: QuietSite

        def __init__(self, site: QuietSite, theta: np.ndarray, stage: Stage) -> None:
            super().__init__(site, theta, stage.terms)
            self.stage = stage
            self.messages: list[SentMessage] = []
            self._bound: Bound | None = None
            self._made: dict[tuple[int, bool, bytes], tuple[np.ndarray, np.ndarray]] = {}
            self.added = np.zeros(0)  # by the target to the sum of this round, if it trains; the observer knows it

        def update(self, t: int, item: int) -> np.ndarray:
            if item == TARGET and self.stage.script.trains:
                nothing = self.site.neighbour and not self.stage.replaces  # all it gives under zero-out
                return np.zeros(self.theta.size) if nothing else self._real(t)
            if item == TARGET:
                assert self._bound is not None
                if self._mute(item):
                    return np.zeros(self.theta.size)
                return self.stage.vector(t, self._bound, self.stage.present)
            length = 0.0 if self.stage.script.quiet else 0.5 * self.plan.bound
            return length * direction(self.theta.size, target=False)

        def query(self, request: Request, item: int) -> Reply:
            self._bound = request.bound
            reply = super().query(self._heard(request, item), item)
            self.messages.append(SentMessage(item, np.zeros(0), _told(request, reply), True))
            return reply

        def contribute(self, request: Request, item: int, out: np.ndarray) -> Reply:
            self._bound = request.bound
            before = out.copy()
            if item == TARGET and self.stage.script.trains:
                reply = self._trained(request, out)
            else:
                reply = super().contribute(self._heard(request, item), item, out)
            sent = request.grid.decode(out - before)
            self.messages.append(SentMessage(item, sent, _told(request, reply), False))
            return reply

        def _trained(self, request: Request, out: np.ndarray) -> Reply:
            """What the real client contributes; and, noted without noise, what it is in this world and in the other."""
            bare, (here, there) = dataclasses.replace(request, multiplier=None), np.zeros((2, out.size), np.int64)
            for neighbour, codes in ((False, here), (True, there)):
                self.site.become(neighbour)
                super().contribute(bare, TARGET, codes)
            self.added = request.grid.decode(here) - request.grid.decode(there)
            self.site.become(not self.stage.present)
            return super().contribute(request, TARGET, out)

        def _real(self, t: int) -> np.ndarray:
            """The update that the real client trains. Runs that begin alike train alike, so the first round's is kept."""
            key, models = (t, self.site.neighbour, self.theta.tobytes()), self.site.personal
            if key in self._made:
                update, trained = self._made[key]
                models.save(TARGET, t, trained)
                return update
            update = super().update(t, TARGET)
            own = models.load(TARGET, t + 1)
            if own is not None and t == 1:
                self._made[key] = update, own
            return update

        def _mute(self, item: int) -> bool:
            """Under zero-out a missing client takes part and gives nothing but its share of the noise."""
            return item == TARGET and not self.stage.present and not self.stage.replaces

        def _heard(self, request: Request, item: int) -> Request:
            if request.query is None or is_raw(request.query) or not self._mute(item):
                return request
            return dataclasses.replace(request, query=Silent(request.query))

    return Scripted


def by_epoch(site: Site, theta: np.ndarray, stage: Stage) -> EpochUpdates:
    """Clients that release after every local epoch, and whose updates are given."""

    class Scripted(EpochUpdates):
        acting = TARGET

        def contribute(self, request: Request, item: int, out: np.ndarray) -> Reply:
            self.acting, self.round = item, request.round
            return super().contribute(request, item, out)

        def update(self, start: np.ndarray, item: int, bound: Bound, batches: np.random.Generator) -> np.ndarray:
            if item != TARGET:
                length = 0.0 if stage.script.quiet else 0.5 * self.plan.bound
                return length * direction(self.theta.size, target=False)
            if not stage.present and not stage.replaces:
                return np.zeros(self.theta.size)
            return stage.vector(self.round, bound, stage.present)

    return Scripted(site, theta, stage.rule, stage.terms)


def _told(request: Request, reply: Reply) -> np.ndarray | None:
    """An answer as numbers."""
    if reply.answer is None or request.query_grid is None:
        return reply.answer
    return request.query_grid.decode(reply.answer)


class Silent:
    """The answer of a client that gives nothing."""

    def __init__(self, query: Query) -> None:
        self.query, self.share, self.norm = query, query.share, query.norm

    def encode(self, norms: np.ndarray, bound: float) -> np.ndarray:
        return np.zeros_like(self.query.encode(norms, bound))


class Without:
    """Real per-example gradients. The target's gradient is left out where the target is missing."""

    draws = False  # the scripted model has no layer that draws at random

    def __init__(self, per_example: PerExample, stage: Stage) -> None:
        self.per_example, self.stage = per_example, stage

    def norms(self, x: Tensor, y: Tensor, seed: int | None = None) -> np.ndarray:
        return self.per_example.norms(*self._seen(x, y))

    def clipped_sum(self, x: Tensor, y: Tensor, bound: Bound, seed: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        return self.per_example.clipped_sum(*self._seen(x, y), bound)

    def _seen(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if self.stage.present:
            return x, y
        if self.stage.replaces:
            script = self.stage.script
            return torch.where((y == 1)[:, None], -x * (script.other_length / script.length), x), y
        return x[y != 1], y[y != 1]


class NoLedger:
    """Grants everything that the clients' own budgets allow. The files of a run are not tested here."""

    def __init__(self, spending: ClientBudgets | None = None) -> None:
        self.spending = spending

    def resume(self, *_: object, **__: object) -> None:
        return None

    def granted(self, round: int) -> None:
        return None

    def request(
        self, event: Event, round: int, clients: ArrayLike | None = None, costs: ArrayLike | None = None
    ) -> None:
        if self.spending is not None:
            assert clients is not None and costs is not None  # a ledger with clients' budgets is told of both
            self.spending.charge(clients, costs)
