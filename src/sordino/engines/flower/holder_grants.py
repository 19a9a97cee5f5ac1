"""What a data holder's own ledger grants: the statistics of the prelude, the tries of rounds, and the test on held-out records.

Nothing here trusts the server. What is charged follows from the holder's own terms, and is on disk before a record is touched.
"""

from __future__ import annotations

import math
from pathlib import Path

from sordino.engines.flower.account import Account
from sordino.engines.flower.policy import Refused
from sordino.errors import BadInput, NotPrivate
from sordino.federation.sampling import public_cohort
from sordino.privacy import events
from sordino.privacy.client_budgets import ClientBudgets
from sordino.privacy.ledger import Ledger
from sordino.schemes import held_out, prelude
from sordino.schemes.fedmap.budgets import Budgets
from sordino.schemes.fedmap.client import ClientTask
from sordino.schemes.request import Request
from sordino.schemes.terms import Terms


class HolderGrants:
    """The ledgers of one run at one holder, in the run's folder."""

    def __init__(self, folder: Path, terms: Terms, me: int) -> None:
        self.folder, self.terms, self.plan, self.me = folder, terms, terms.plan, me
        begun = (folder / "pending").exists()
        self.ledger = self._open(begun)
        digest = self.plan.digest()
        # Of the held-out records; None: there are none.
        self.aside = None if terms.held_out is None else held_out.open_ledger(folder, terms, digest, begun)
        self.account = Account(folder / "account", terms, me) if terms.scheme.report_length else None
        self.unspent = 0.0  # granted in earlier rounds and not spent (FedMAP)

    def close(self) -> None:
        """Close the ledgers of this run."""
        self.ledger.close()
        if self.aside is not None:
            self.aside.close()

    def _open(self, begun: bool) -> Ledger:
        path, digest, terms = self.folder / "ledger.jsonl", self.plan.digest(), self.terms
        if path.exists():
            return Ledger.open(path, digest)
        if begun:
            raise Refused("this run was begun here and its ledger is missing: what was spent is not known.")
        spending = None
        if isinstance(terms, Budgets):  # this client's own
            spending = ClientBudgets(1, terms.spent.epsilon, self.plan.delta, terms.order, terms.relation)
        return Ledger.create(path, digest, terms.scheme.filter_of(terms, self.me), terms.about(), spending)

    # ---- before and after the rounds ---------------------------------------------------------------

    def grant_statistic(self, asked: Request) -> Request:
        """Grant a statistic, or raise. It is granted once: with secure noise a second answer would tell more than the first."""
        try:
            request = prelude.expected_request(self.terms, asked)
        except (NotPrivate, BadInput) as wrong:
            raise Refused(str(wrong)) from None
        event = self.terms.prelude_event(request.step)
        if self.ledger.granted(0, request.step) is not None:
            if self.plan.secure:
                raise Refused(f"statistic {request.step + 1} was granted before, and the budget holds it once.")
            self.ledger.resume(0, False, event, step=request.step)
            return request
        self._charge_prelude(request.step)
        self.ledger.request(event, 0, step=request.step)
        return request

    def _charge_prelude(self, steps: int) -> None:
        """What came before was released without this client, and is charged to it all the same: the schedule has it."""
        for step in range(steps):
            if self.ledger.granted(0, step) is None:
                self.ledger.request(self.terms.prelude_event(step), 0, step=step)

    def grant_test(self, asked: Request) -> Request:
        """Grant the test, once, or raise: with secure noise a second answer would tell more than the first."""
        if self.aside is None:
            raise Refused("the plan holds no records out.")
        try:
            request = held_out.expected_request(self.terms, asked)
        except (NotPrivate, BadInput) as wrong:
            raise Refused(str(wrong)) from None
        if not held_out.grant(self.terms, self.aside):
            raise Refused("the test on the held-out records was granted before, and the budget holds it once.")
        return request

    # ---- rounds ------------------------------------------------------------------------------------

    def check_turn(self, t: int) -> None:
        """Refuse a round that this client does not take part in."""
        if isinstance(t, bool) or not 1 <= t <= self.plan.rounds:
            raise Refused(f"the plan has no round {t}.")
        if not self.terms.scheme.secret_cohort and self.me not in public_cohort(self.plan, t):
            raise Refused(f"this client is not in the cohort of round {t}.")
        if not self._my_turn(t):
            apart = self.terms.scheme.separation
            raise Refused(f"round {t} is not this client's turn: it takes part in one round of {apart} at most.")

    def _my_turn(self, t: int) -> bool:
        turn = self.terms.scheme.turn(t)
        return turn is None or self.me in turn

    def next_task(self, request: Request) -> ClientTask:
        """What this client may spend, where it reckons that itself; nothing is granted yet."""
        assert self.account is not None
        self.check_turn(request.round)
        return self.account.task(request.round, request.state.get("lost", []), self.ledger)

    def grant_round(self, t: int, task: ClientTask | None) -> None:
        """Grant a try of a round."""
        if task is not None and isinstance(self.terms, Budgets):
            self._round_budget(t, task, self.terms.order)
            return
        event, secure = self.terms.round_event(t), self.plan.secure
        if self.ledger.resume(t, secure, event) is not None:
            return
        if self.terms.proven:
            self._charge_prelude(len(self.terms.prelude))
        if self.terms.scheme.secret_cohort and self.terms.proven:
            # A client of a secret cohort is charged its sampled share in every round, drawn or not.
            for earlier in range(self.ledger.last.round + 1 if self.ledger.last else 1, t):
                if self._my_turn(earlier):
                    self.ledger.request(self.terms.round_event(earlier), earlier)
        self.ledger.request(event, t)

    def _round_budget(self, t: int, task: ClientTask, order: int) -> None:
        """Charge what the round's budget holds beyond what is left of earlier ones. A try that was cut short may have spent all."""
        standing = self.ledger.granted(t)
        if self.account is not None:
            self.account.begin(t, task)
            left = task.own.unspent
        else:
            left = 0.0 if standing is not None else self.unspent
        if standing is not None and not self.plan.secure:
            self.ledger.resume(t, False)
            return
        cost = max(0.0, task.round_budget - left)
        event = events.gaussian(math.sqrt(order / (2 * cost))) if cost > 0 else events.nothing()
        if standing is not None:
            self.ledger.resume(t, True, clients=[0], costs=[cost])
        else:
            self.ledger.request(event, t, [0], [cost])
        self.unspent = 0.0  # until the report says what is left
