"""The round of a method whose clients set their own noise: budgets of the round are granted, errands run, reports read.

    cohort    who is drawn, without looking at data
    budgets   each client's part of what is left of its budget, at most twice its even share; charged and on disk
    errands   every client spends its round's budget step by step and sends its released move, its state and what it spent
    model     a server step with the mean of the moves, divided by a public number
    state     a bound for clients that begin, and how far the model moved

What a client does not spend stays its own; a round's budget whose report never came counts as spent. Of what single clients have spent only the largest and the mean share are ever told.

After a crash a seeded simulation runs a round again under the grant that stands, to the same bits. With secure noise the round is
lost: its clients' budgets of the round, new and left over, count as spent, since they may have been.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import numpy as np

from sordino.federation.server import Arrays
from sordino.privacy import events
from sordino.privacy.ledger import Grant
from sordino.privacy.release import require_released
from sordino.schemes.fedmap import allocation
from sordino.schemes.fedmap.budgets import Budgets
from sordino.schemes.fedmap.client import ClientState, ClientTask, Report
from sordino.schemes.fedmap.metanet.features import LENGTH
from sordino.schemes.local import GRID
from sordino.schemes.request import CONTRIBUTE, Request
from sordino.schemes.round import Round, RoundMetrics, RoundResult, TrainState
from sordino.schemes.terms import Terms


class FedMapRound(Round):
    """Rounds under budgets of the clients' own."""

    terms: Budgets

    def run(self, model: TrainState) -> RoundResult:
        t = model.round + 1
        cohort = self.draws.cohort(t)
        accounts = unpack(model.clients)
        errands = self._grant_round_budgets(t, cohort, accounts)
        self.engine.theta[:] = model.theta
        state = {**model.rule, "order": self.terms.order}
        request = Request(round=t, phase=CONTRIBUTE, grid=GRID, bound=None, state=state, released=True)
        aggregate = self.engine.run(request, errands)
        total = require_released(aggregate.total, "what local clients send").decode()
        reports = cast(tuple[Report, ...], require_released(aggregate.reports, "the report of a local client"))
        mean = total / self.terms.denominator(cohort)
        theta, optimizer = self.step(model.round + 1, model, mean)
        heard = {report.client: report.own for report in reports}
        missing = [errand for errand in errands if errand.client not in heard]
        accounts |= {e.client: replace(e.own, unspent=0.0, spent=e.own.spent + e.round_budget) for e in missing} | heard
        bounds = [math.log(report.own.bound) for report in reports if report.bounds]
        bound = math.exp(float(np.mean(bounds))) if bounds else model.rule["bound"]
        rule = {
            "bound": bound,
            "moved": float(np.linalg.norm(theta - model.theta)),
            "used": _range([*model.rule.get("used", ()), *(z for report in reports for z in report.multipliers)]),
        }
        facts = self._told(reports, mean, bound, accounts)
        return RoundResult(TrainState(t, theta, optimizer, rule, pack(accounts)), facts)

    def share(self, model: TrainState) -> float:
        """The largest part of any client's budget that is spent."""
        spent = model.clients["sums"][:, -1].max() if model.clients else 0.0
        return min(1.0, float(spent) / self.terms.spending.budget)

    def close(self, model: TrainState) -> Terms:
        return replace(self.terms, used=tuple(model.rule.get("used", ())))

    # ---- grants ------------------------------------------------------------------------------------------------------

    def _grant_round_budgets(self, t: int, cohort: np.ndarray, accounts: dict[int, ClientState]) -> list[ClientTask]:
        """Charge what this round may cost each client, and make the errands. On disk before any data is touched."""
        standing = self.ledger.granted(t)
        if standing is not None:
            ids, grants = _granted(standing)
            self.ledger.resume(t, secure=False)
        else:
            asked = {int(k): self._asks(int(k), accounts) for k in cohort}
            ids = np.array([k for k, (amount, _) in asked.items() if amount > 0], np.int64)
            grants = np.array([asked[k][1] for k in ids.tolist()], float)
            self.ledger.request(charged_event(grants, self.terms.order), t, ids, grants)
        granted = dict(zip(ids.tolist(), grants.tolist()))
        errands = []
        for k in cohort.tolist():
            own, turns = accounts.get(k) or ClientState.blank(), int(self.terms.turns[k])
            made = allocation.task(k, own, granted.get(k, 0.0), self.terms.budget, turns)
            accounts[k] = made.own
            if k in granted:
                errands.append(made)
        return errands

    def _asks(self, k: int, accounts: dict[int, ClientState]) -> tuple[float, float]:
        """(round's budget, new grant) of a client."""
        return allocation.round_budget_and_grant(
            accounts.get(k) or ClientState.blank(), self.terms.budget, int(self.terms.turns[k])
        )

    def _lose(self, model: TrainState) -> TrainState:
        """What the lost round was granted, and what was left over from earlier ones, counts as spent."""
        t = model.round + 1
        standing = self.ledger.granted(t)
        assert standing is not None
        granted = dict(zip(*(column.tolist() for column in _granted(standing))))
        accounts = unpack(model.clients)
        for k in self.draws.cohort(t).tolist():
            own = accounts.get(k) or ClientState.blank()
            accounts[k] = allocation.lost(own, granted[k]) if k in granted else replace(own, turns=own.turns + 1)
        return replace(model, round=t, clients=pack(accounts))

    def _told(
        self, reports: tuple[Report, ...], mean: np.ndarray, bound: float, accounts: dict[int, ClientState]
    ) -> RoundMetrics:
        used = [z for report in reports for z in report.multipliers]
        return RoundMetrics(
            cohort=len(reports),
            bound=bound,
            multiplier=math.exp(float(np.mean(np.log(used)))) if used else 0.0,
            noise=None,
            moved=float(np.linalg.norm(mean)),
            extra={"spent_mean": sum(own.spent for own in accounts.values()) / self.plan.clients / self.terms.budget},
        )


def _granted(standing: Grant) -> tuple[np.ndarray, np.ndarray]:
    """Whom a grant is for, and how much each."""
    assert standing.clients is not None and standing.costs is not None
    return standing.clients, np.array(np.broadcast_to(standing.costs, standing.clients.shape))


def _range(values: list[float]) -> list[float]:
    return [min(values), max(values)] if values else []


def charged_event(grants: np.ndarray, order: int) -> events.Event:
    """The largest budget of a round as a Gaussian that costs as much at the committed order: what stands in the ledger for it."""
    most = float(grants.max(initial=0.0))
    return events.gaussian(math.sqrt(order / (2 * most))) if most > 0 else events.nothing()


# --- accounts as arrays, for a checkpoint -----------------------------------------------------------------------------


def pack(accounts: dict[int, ClientState]) -> Arrays:
    """Every client that was ever drawn, in ascending order."""
    if not accounts:
        return {}
    ids = sorted(accounts)
    owns = [accounts[k] for k in ids]
    width = max(own.net.size for own in owns)
    features = max(own.rows.shape[1] for own in owns)
    net, rows = np.zeros((len(ids), width), np.float32), np.zeros((len(ids), LENGTH, features), np.float32)
    for i, own in enumerate(owns):
        net[i, : own.net.size] = own.net
        rows[i, : len(own.rows)] = own.rows
    counts = [[own.net.size > 0, len(own.rows), own.turns] for own in owns]
    sums = [[own.bound, own.unspent, own.granted, own.spent] for own in owns]
    return {
        "ids": np.array(ids, np.int64),
        "net": net,
        "rows": rows,
        "counts": np.array(counts, np.int64),
        "sums": np.array(sums, np.float64),
    }


def unpack(arrays: Arrays) -> dict[int, ClientState]:
    accounts = {}
    for i, k in enumerate(arrays.get("ids", np.zeros(0, np.int64)).tolist()):
        tuned, seen, turns = arrays["counts"][i].tolist()
        net = arrays["net"][i] if tuned else np.zeros(0, np.float32)
        bound, unspent, granted, spent = arrays["sums"][i].tolist()
        accounts[k] = ClientState(net, arrays["rows"][i, :seen], bound, unspent, granted, spent, turns)
    return accounts
