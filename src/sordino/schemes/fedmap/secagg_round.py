"""FedMAP's round towards a server that sees sums only: every client keeps its own account, and messages are added up under masks.

    cohort    who is drawn; one too small for a sum to hide its members is nobody (`sampling`)
    grant     the ledger charges each client the most that its round budgets can have spent by now; public, and on disk
    errands   every client reckons its own budget of a round, spends it step by step, and keeps its account and its network
    sum       of the released moves and of the reports (`SummedReport`); on one grid of integers, so that no bit depends on
              where clients run
    model     a server step with the mean of the moves, divided by a public number

Nothing of the guarantee rests on this: what a client sends carries its full noise, step by step, and is paid for out of its own
budget, exactly as towards the observer `server`. Sums are post-processing.

In one process this plays the clients too: what they keep is in the checkpoint under `clients`. Across machines it lies with
them, and there is nothing to keep here. A round that is lost is told to them (`lost`): what their budgets held counts as spent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from sordino.errors import NotPrivate
from sordino.privacy.release import require_released
from sordino.schemes.fedmap import allocation
from sordino.schemes.fedmap.client import ClientState, ClientTask, Report, SummedReport
from sordino.schemes.fedmap.rounds import FedMapRound, charged_event, pack, unpack
from sordino.schemes.fedmap.scheme import REPORT_LENGTH
from sordino.schemes.local import GRID
from sordino.schemes.request import CONTRIBUTE, Request
from sordino.schemes.round import Context, RoundMetrics, RoundResult, TrainState
from sordino.schemes.terms import Terms


class FedMapSecAggRound(FedMapRound):
    """Rounds of which the server is told sums."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._taken: tuple[int, np.ndarray] = (0, np.zeros(self.plan.clients, np.int64))

    def run(self, model: TrainState) -> RoundResult:
        t = model.round + 1
        cohort = self.draws.cohort(t)
        self._charge(t, cohort)
        self.engine.theta[:] = model.theta
        accounts = unpack(model.clients)
        items: Sequence[object] = self.work.items(t, cohort) if self._elsewhere else self._errands(t, cohort, accounts)
        public = {key: model.rule[key] for key in ("bound", "moved")}
        state = {**public, "order": self.terms.order, "lost": model.rule.get("lost", [])}
        request = Request(round=t, phase=CONTRIBUTE, grid=GRID, bound=None, state=state, released=True)
        aggregate = self.engine.run(request, items)
        total = require_released(aggregate.total, "what local clients send").decode()
        tally = self._tally(require_released(aggregate.reports, "the sum of reports"), accounts)
        mean = total / self.terms.denominator(cohort)
        theta, optimizer = self.step(model.round + 1, model, mean)
        spent = model.rule.get("spent", 0.0) + tally.spent
        rule = model.rule | {
            "bound": math.exp(tally.log_bound / tally.began) if tally.began else model.rule["bound"],
            "moved": float(np.linalg.norm(theta - model.theta)),
            "spent": spent,
        }
        facts = RoundMetrics(
            cohort=aggregate.contributors,
            bound=rule["bound"],
            multiplier=math.exp(tally.log_multiplier / tally.steps) if tally.steps else 0.0,
            noise=None,
            moved=float(np.linalg.norm(mean)),
            extra={"spent_mean": spent / self.plan.clients},
        )
        return RoundResult(TrainState(t, theta, optimizer, rule, pack(accounts)), facts)

    def share(self, model: TrainState) -> float:
        """The largest part of any client's budget that is charged; what is spent of it only the clients know."""
        return float(self._charged(model.round).max(initial=0.0))

    def close(self, model: TrainState) -> Terms:
        return self.terms

    def _lose(self, model: TrainState) -> TrainState:
        t, accounts = model.round + 1, unpack(model.clients)
        if not self._elsewhere:
            for k in self.draws.cohort(t).tolist():
                accounts[k] = allocation.lost(accounts.get(k) or ClientState.blank(), self._asks(k, accounts)[1])
        rule = model.rule | {"lost": [*model.rule.get("lost", []), t]}
        return replace(model, round=t, rule=rule, clients=pack(accounts))

    # ---- what is charged -------------------------------------------------------------------------------------------------

    def _charge(self, t: int, cohort: np.ndarray) -> None:
        """On disk before any data is touched."""
        if self.ledger.granted(t) is not None:
            self.ledger.resume(t, secure=False)
            return
        before = self._charged(t - 1)
        costs = (self._charged(t) - before)[cohort] * self.terms.budget
        self.ledger.request(charged_event(costs, self.terms.order), t, cohort, costs)

    def _charged(self, t: int) -> np.ndarray:
        """The share of each client's budget that is charged after round t."""
        return allocation.most_granted(self._turns_until(t), self.terms.turns)

    def _turns_until(self, t: int) -> np.ndarray:
        """How many of the first t rounds each client is drawn for."""
        at, counts = self._taken if self._taken[0] <= t else (0, np.zeros(self.plan.clients, np.int64))
        counts = counts.copy()
        for round in range(at + 1, t + 1):
            counts[self.draws.cohort(round)] += 1
        self._taken = (t, counts)
        return counts

    # ---- clients that are played here ------------------------------------------------------------------------------------

    @property
    def _elsewhere(self) -> bool:
        """Whether clients keep their accounts themselves."""
        return self.engine.clients_keep_state

    def _errands(self, t: int, cohort: np.ndarray, accounts: dict[int, ClientState]) -> list[ClientTask]:
        errands, most = [], self._charged(t) * self.terms.budget
        for k in cohort.tolist():
            made = allocation.next_task(
                k, accounts.get(k) or ClientState.blank(), self.terms.budget, int(self.terms.turns[k])
            )
            if made.own.spent + made.round_budget > most[k] * (1 + 1e-9):
                raise NotPrivate("a client's round budgets add up to more than it is charged; report this.")
            accounts[k] = made.own
            errands.append(made)
        return errands

    def _tally(self, answers: tuple[object, ...], accounts: dict[int, ClientState]) -> SummedReport:
        """Integers are added, here as under masks."""
        codes = np.zeros(REPORT_LENGTH, np.int64)
        for answer in answers:
            if isinstance(answer, Report):
                accounts[answer.client] = answer.own
                answer = answer.tally(GRID, self.plan.clients)
            codes += cast(np.ndarray, answer)
        return SummedReport.of(codes, GRID)
