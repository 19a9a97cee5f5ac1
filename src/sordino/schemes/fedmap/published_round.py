"""FedMAP's round as printed (algorithm 1): sigmas are collected in the clear, added up by a formula, and their worst sent to all.

What clients send goes through `disclose`, and the statement of such a run says `not private` with the reasons.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import numpy as np

from sordino.federation import sampling
from sordino.privacy import mechanisms
from sordino.privacy.release import disclose
from sordino.rules.base import State
from sordino.schemes.fedmap.budgets import PublishedTerms
from sordino.schemes.fedmap.client import ClientState, ClientTask
from sordino.schemes.fedmap.diagnostics import deviation, largest_claim, proxy
from sordino.schemes.fedmap.metanet.features import PUBLISHED
from sordino.schemes.fedmap.published import RawReport, typical
from sordino.schemes.fedmap.rounds import pack, unpack
from sordino.schemes.fedmap.rule import PrintedLedger
from sordino.schemes.fedmap.scheme import PUBLISHED_GRID
from sordino.schemes.request import CONTRIBUTE, Request
from sordino.schemes.round import Round, RoundMetrics, RoundResult, TrainState
from sordino.schemes.terms import Terms

REMEMBERED = ("deviation", "least_sigma", "rounds_seen")  # from round to round


class FedMapPublishedRound(Round):
    """Rounds under a ledger that proves nothing."""

    terms: PublishedTerms

    def run(self, model: TrainState) -> RoundResult:
        t = model.round + 1
        self._grant(t)
        cohort = self.draws.cohort(t)
        accounts, book = unpack(model.clients), self._book(model)
        blank = ClientState.blank(PUBLISHED)
        errands = [ClientTask(k, 0.0, 0.0, 1, accounts.get(k, blank)) for k in cohort.tolist()]
        self.engine.theta[:] = model.theta
        request = Request(round=t, phase=CONTRIBUTE, grid=PUBLISHED_GRID, bound=None, state=model.rule)
        aggregate = self.engine.run(request, errands)
        total, _ = mechanisms.without_noise(aggregate.total, "weights are exact numbers of examples")  # type: ignore[arg-type]
        told, _ = disclose(aggregate.reports, "each client's sigma and its controller's state are kept as they are")  # type: ignore[arg-type]
        reports = cast(tuple[RawReport, ...], told.value)
        mean = total.value / max(1, sum(report.weight for report in reports))
        theta, optimizer = self.step(model.round + 1, model, mean)
        accounts |= {report.client: replace(report.own, turns=report.own.turns + 1) for report in reports}
        if reports:
            who = np.array([report.client for report in reports])
            book.charge(who, np.array([report.sigma for report in reports]))
        # The client's loss has it as a constant, so that it changes nothing; it is broadcast all the same.
        rule = model.rule | {"moved": float(np.linalg.norm(theta - model.theta)), "eps_global": book.epsilon()}
        figures = self._diagnostics(t, reports, rule)
        rule |= {name: figures[name] for name in REMEMBERED if name in figures}
        facts = RoundMetrics(
            cohort=len(reports),
            bound=_typical([report.bound for report in reports]),
            multiplier=_typical([report.multiplier for report in reports]) or 0.0,
            noise=None,
            moved=float(np.linalg.norm(mean)),
            extra={"sigma": _typical([report.sigma for report in reports]) or 0.0, "eps_global": rule["eps_global"]}
            | figures,
        )
        return RoundResult(TrainState(t, theta, optimizer, rule, pack(accounts) | {"rho": book.rho}), facts)

    def _diagnostics(self, t: int, reports: tuple[RawReport, ...], before: State) -> dict[str, float]:
        """Equation 11 of the round's typical step, equation 13 over all rounds so far, and equation 10 from the least sigma so far."""
        bound, sigmas = _typical([report.bound for report in reports]), [report.sigma for report in reports]
        if bound is None:
            return {}
        here, rounds = proxy(bound, _typical(sigmas) or 0.0, self.plan.delta), before.get("rounds_seen", 0) + 1
        assert self.plan.epsilon is not None
        strayed = (rounds - 1) * before.get("deviation", 0.0) + deviation([here], self.plan.epsilon)
        least = min([before.get("least_sigma", math.inf), *sigmas])
        most = largest_claim(least, sampling.rate(self.plan), t, self.plan.delta)
        return {
            "proxy": here,
            "deviation": strayed / rounds,
            "least_sigma": least,
            "eps_most": most,
            "rounds_seen": rounds,
        }

    def close(self, model: TrainState) -> Terms:
        """eps_global of the last round is what the paper would print."""
        return replace(self.terms, said=self._book(model).epsilon())

    def _book(self, model: TrainState) -> PrintedLedger:
        book = PrintedLedger(self.plan.clients, sampling.rate(self.plan), self.plan.delta)
        if "rho" in model.clients:
            book.rho = model.clients["rho"].copy()
        return book


def _typical(values: list[float]) -> float | None:
    return typical(values) if values else None
