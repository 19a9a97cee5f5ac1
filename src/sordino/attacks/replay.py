"""The run once more, with the attacker in the room: what is sent, or what becomes of a run when it tampers.

Every round is a function of the plan, so an honest replay gives the models of the run to the bit (unless its noise came from
the secure source). Nothing is charged: this is a simulation of what an attacker would have seen, on the owner's own
machine.

Active attackers follow Nasr et al. 2019: they climb the loss on the attacked records, and watch whose owner
update_cosines the model back. A server adds the climb to the model that it sends out; a client adds it to the sum, where it is
clipped like everyone else's contribution. The length of a climb is a multiple of the last honest move.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sordino.attacks.shadows import Make, Say, quiet
from sordino.errors import BadInput
from sordino.federation.population import Federation
from sordino.plan import Plan
from sordino.schemes.client import own_weight
from sordino.schemes.request import CONTRIBUTE, Request

if TYPE_CHECKING:
    from sordino.privacy.ledger import Ledger
    from sordino.schemes.aggregate import Aggregate, Engine

Watcher = Callable[[int, np.ndarray, np.ndarray], None]  # round, weights that it began with, of the released model
Sent = Callable[[int, np.ndarray, int, np.ndarray], None]  # round, weights that it began with, client, of its own model
Climb = Callable[[np.ndarray], np.ndarray]  # weights -> gradient of the loss on the attacked records


@dataclass(frozen=True)
class Tamper:
    """An active attacker: whether it is the server, how far it climbs, and from which round on."""

    climb: Climb
    server: bool
    strength: float = 1.0
    start: int = 1


class Uncharged:
    """In place of a ledger: a replay is charged to nobody."""

    def resume(self, *_: object, **__: object) -> None:
        """No round was granted before: a replay charges nothing."""
        return None

    def request(self, *_: object, **__: object) -> None:
        """Grant everything: what is replayed was charged when it was trained."""
        return None


def server_sees_messages(plan: Plan) -> bool:
    """Whether there are messages of single clients to be seen: not where sums are secure or pooled."""
    return plan.scheme.messages_visible


def honest(
    make: Make, federation: Federation, plan: Plan, every: int, folder: Path | None, workers: int = 0, say: Say = quiet
) -> tuple[dict[int, np.ndarray], np.ndarray]:
    """The run once more without an attacker, by training itself: models of every so many rounds, and the last."""
    from sordino.engines import EngineOptions
    from sordino.federation import checkpoint
    from sordino.gradients.flat import Flat
    from sordino.training import train

    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    options = EngineOptions(
        "auto", workers, evaluate_every=plan.rounds, checkpoint_every=plan.rounds, keep_models=every
    )
    seen = lambda progress: say("replay", progress.round, progress.rounds)  # noqa: E731
    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as scratch:
        out = Path(scratch) / "run"
        result = train(make(plan.seed), federation, plan, out=out, options=options, on_round=seen)
        return checkpoint.kept(out / "models"), Flat(result.model).vector().numpy()


def replay(
    make: Make,
    federation: Federation,
    plan: Plan,
    watch: Collection[int],
    seen: Watcher,
    sent: Sent | None = None,
    tamper: Tamper | None = None,
    workers: int = 0,
    say: Say = quiet,
) -> np.ndarray:
    """Run the plan's rounds again; call `seen` and `sent` in the rounds of `watch`. The final weights.

    Canaries are left out: nobody attacks them here.
    """
    from sordino.engines import EngineOptions, Setup, start_engine
    from sordino.federation.sampling import Draws
    from sordino.federation.sizes import PublicSizes
    from sordino.schemes import settle
    from sordino.schemes.round import Context
    from sordino.training import build_rule

    if plan.method_spec.scheme is not None:
        raise BadInput(f"no attacker can be put into a replay of method {plan.method}; attack what it released.")
    plan = plan.replace(canaries=0)
    terms = settle(plan, PublicSizes.of(federation, plan.scheme.uses_sizes))
    module = make(plan.seed)
    rule, draws = build_rule(terms, module), Draws(plan)
    options = EngineOptions("in-process") if sent is not None else EngineOptions("auto", workers)
    engine, work, theta = start_engine(Setup(module, federation, terms, rule, draws, options))
    tapped = engine if sent is None else cast("Engine", Tap(engine, work, set(watch), sent))
    ledger = cast("Ledger", Uncharged())
    try:
        rounds = terms.scheme.rounds(Context(terms, rule, tapped, work, ledger, draws))
        model = rounds.start(theta.copy())
        move = 0.0
        while model.round < terms.rounds:
            active = tamper if tamper is not None and model.round + 1 >= tamper.start and move > 0 else None
            before = model.theta
            if active is not None and active.server:
                model = replace(model, theta=before + _step(active, before, active.strength * move))
            sent_out = model.theta
            model, facts = rounds.run(model)
            if model.round in watch:
                # Before a client's own climb is added: it knows that part, and looks at how the others answer the last.
                seen(model.round, sent_out, model.theta)
            if active is not None and not active.server:
                room = active.strength * move
                if facts.bound is not None:  # clipped to the bound, and one contribution of many
                    room = min(room, facts.bound / terms.denominator(np.arange(plan.cohort_size)))
                model = replace(model, theta=model.theta + _step(active, before, room))
            else:
                move = facts.moved * rounds.optimizer.lr
            say("replay", model.round, terms.rounds)
        return model.theta
    finally:
        engine.close()


def _step(tamper: Tamper, theta: np.ndarray, length: float) -> np.ndarray:
    direction = tamper.climb(theta).astype(np.float64)
    norm = float(np.linalg.norm(direction))
    return (direction * (length / norm if norm > 0 else 0.0)).astype(np.float32)


class Tap:
    """An engine whose messages are read on the way: one client after another, in this process."""

    def __init__(self, engine: Engine, work: Any, watch: set[int], sent: Sent) -> None:
        self.engine, self.work, self.watch, self.sent = engine, work, watch, sent
        self.theta: np.ndarray = engine.theta

    def run(self, request: Request, items: Sequence[object]) -> Aggregate:
        if request.phase != CONTRIBUTE or request.round not in self.watch:
            return self.engine.run(request, items)
        import torch

        from sordino.clients.threads import one_thread
        from sordino.schemes.aggregate import aggregate

        start, replies = self.theta.copy(), []
        codes = np.zeros(start.size, np.int64)
        with one_thread(), torch.random.fork_rng(devices=[]):
            for i, item in enumerate(cast(Sequence[int], items)):
                message = np.zeros(start.size, np.int64)
                replies.append((i, self.work.contribute(request, item, message)))
                codes += message
                self.sent(request.round, start, int(item), self._local(start, request, item, message))
        return aggregate(request, codes, replies)

    def _local(self, start: np.ndarray, request: Request, client: int, message: np.ndarray) -> np.ndarray:
        """The model that the message tells of: the client's weight is public and divided out."""
        moved = request.grid.decode(message)
        if request.bound is not None:
            moved = request.bound.decode(moved)
        weight = own_weight(self.work.plan, self.work.site.federation.size(client))
        return (start + moved / weight).astype(np.float32)

    def evaluate(self) -> tuple[float, float] | None:
        return self.engine.evaluate()

    def close(self) -> None:
        self.engine.close()
