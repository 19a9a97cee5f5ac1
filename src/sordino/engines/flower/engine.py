"""The engine whose clients are on other machines: the same requests as in one process, by message, and the same sums.

A client that does not answer in time, or whose answer does not fit, is lost to the round; the others are not. Towards
the observer `secagg-server` contributions and answers come masked and only their sum is opened (`secure`); else they
come as they are, and what is longer than the bound allows is refused (`acceptance`). If fewer clients are left than the plan's noise
is cut for, or than `least`, the round is aborted and nothing is opened.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from sordino.engines import Aborted
from sordino.engines.flower import wire
from sordino.engines.flower.acceptance import Acceptance, evidence
from sordino.engines.flower.part import Facts
from sordino.engines.flower.secure import Opened, SecureSums
from sordino.engines.flower.transport import SecureChannel
from sordino.engines.flower.wire import Message
from sordino.engines.scoring import Scoring
from sordino.errors import BadInput, at_least, positive, whole
from sordino.preparation import Released, Stages
from sordino.privacy.vocabulary import Observer
from sordino.rules.query import answer_length, is_raw
from sordino.schemes.aggregate import Aggregate, aggregate
from sordino.schemes.fedmap import messages
from sordino.schemes.fedmap.client import ClientTask
from sordino.schemes.held_out import Test
from sordino.schemes.prelude import Ask
from sordino.schemes.request import PRELUDE, QUERY, Reply, Request
from sordino.schemes.terms import Terms

log = logging.getLogger("sordino.server")


@dataclass(frozen=True)
class Patience:
    """How long the server waits, and for whom."""

    deadline: float = 600.0  # seconds for one exchange; a client that takes longer is lost to the round
    wait: float = 600.0  # seconds for enough clients to be there
    least: int = 1  # fewest contributions in a round
    colluders: int = 0  # clients that may collude with the server: so many more contributions a secure sum needs

    def __post_init__(self) -> None:
        positive(deadline=self.deadline, wait=self.wait)
        whole(least=self.least)
        at_least(0, colluders=self.colluders)


class RemoteWork:
    """The server's view of clients' work: an item is a client, and what it does is its own business."""

    def items(self, t: int, cohort: np.ndarray) -> list[int]:
        return [int(k) for k in cohort]

    def weight(self, item: int) -> int:
        return 1

    def assumptions(self) -> tuple[str, ...]:
        return ("Every data holder's own machine computes as this software does.",)

    def query(self, request: Request, item: int) -> Reply:
        raise AssertionError("clients are on other machines")

    def contribute(self, request: Request, item: int, out: np.ndarray) -> Reply:
        raise AssertionError("clients are on other machines")


def ask_test(make: Callable[[np.ndarray, int, Released], Remote], terms: Terms, length: int) -> Test:
    """The test on held-out records, by clients on other machines: sums of `length` numbers come back."""

    def ask(request: Request, theta: np.ndarray) -> Aggregate:
        engine = make(np.zeros(length, np.float32), request.survivors, ())
        engine.tested = theta
        engine.await_clients(terms.plan.clients)
        return engine.run(request, range(terms.plan.clients))

    return ask


def ask_prelude(make: Callable[[np.ndarray, int, Released], Remote], terms: Terms, stages: Stages) -> Ask:
    """Statistics of the prelude, from clients on other machines. `make`: an engine for sums as long as the first argument."""

    def ask(request: Request, released: Released) -> Aggregate:
        engine = make(np.zeros(stages.length(request.step), np.float32), request.survivors, released)
        engine.await_clients(terms.plan.clients)
        return engine.run(request, range(terms.plan.clients))

    return ask


class Remote:
    """An engine (see `schemes.aggregate`) over a `SecureChannel`."""

    clients_keep_state = True  # their own accounts, where a method gives them such and sums are all that is told

    def __init__(
        self,
        post: SecureChannel,
        terms: Terms,
        facts: Facts,
        scoring: Scoring | None,
        theta: np.ndarray,
        patience: Patience,
        enrol: Callable[[Sequence[int]], None],
        simulated: bool = False,
        survivors: int | None = None,
        released: Sequence[np.ndarray] = (),
    ) -> None:
        """`theta` is what comes back in length; `survivors` and `released` are for the prelude (`ask_prelude`)."""
        self.post, self.terms, self.facts, self.scoring, self.theta = post, terms, facts, scoring, theta
        self.plan, self.scheme = terms.plan, terms.scheme
        self.survivors, self.released = terms.survivors if survivors is None else survivors, released
        self.patience, self._enrol, self.simulated = patience, enrol, simulated
        self.tested: np.ndarray | None = None  # the weights that clients test on held-out records
        self._attempt, self._last = "", ("", 0)  # this try of a round; its last phase and round
        self._sums = SecureSums(post, patience, facts.clients)
        self._accept = Acceptance(terms, facts, theta.size)
        self._late: set[int] = set()  # clients that missed a deadline and have not been heard of since

    # ---- the engine ------------------------------------------------------------------------------

    def run(self, request: Request, items: Sequence[object]) -> Aggregate:
        new = request.phase == QUERY or self._last != (QUERY, request.round)
        self._last = (request.phase, request.round)
        if new:
            self._attempt = os.urandom(8).hex()
        try:
            return self._run(request, {_client(item): item for item in cast(Sequence[int | ClientTask], items)}, new)
        except Aborted as aborted:
            log.warning("round %d: %s", request.round, aborted)
            self._last = ("", 0)
            self.await_clients(len(items))
            raise

    def evaluate(self) -> tuple[float, float] | None:
        return None if self.scoring is None else self.scoring.here()

    def close(self) -> None:
        """The channel belongs to the caller that opened it."""

    # ---- who is there ----------------------------------------------------------------------------

    def await_clients(self, wanted: int) -> None:
        """Until `wanted` clients are there, or at least enough and the patience is at its end."""
        need = min(wanted, self._need(wanted))
        limit = time.monotonic() + self.patience.wait
        short = time.monotonic() + min(self.patience.wait, 20.0)  # a little longer, for those who could still come
        told = -1
        while True:
            self._look_again()
            count = len(set(self.post.present()) - self._late)
            if count < need and count != told:
                log.info("waiting for clients: %d of %d are there, %d are needed", count, wanted, need)
                told = count
            if count >= wanted or count >= need and time.monotonic() > short:
                return
            if time.monotonic() > limit:
                raise Aborted(f"only {count} clients are there after {self.patience.wait:g} s; {need} are needed.")
            time.sleep(0.2)

    def _need(self, cohort: int) -> int:
        """The fewest contributions of a cohort that may be opened."""
        if self._masked and cohort > 1:
            return self._sums.threshold(cohort, self.survivors)
        return min(self.patience.least, cohort)

    @property
    def _masked(self) -> bool:
        return self.plan.observer == Observer.SECAGG_SERVER

    def _look_again(self) -> None:
        """Those who were late are greeted, and are back when they answer."""
        late = [k for k in self._late if k in self.post.present()]
        if late:
            back = self.post.ask({k: Message("hello") for k in late}, min(5.0, self.patience.deadline))
            self._late -= set(back)

    # ---- a phase ---------------------------------------------------------------------------------

    def _run(self, request: Request, cohort: dict[int, int | ClientTask], new: bool) -> Aggregate:
        if not cohort:
            return aggregate(request, np.zeros(self._length(request), np.int64), [])
        if new:
            self._look_again()
        present = set(self.post.present())
        there = [k for k in cohort if k in present and k not in self._late]
        self._enough(len(there), len(cohort))
        head, arrays = wire.request_to_plain(request)
        if request.phase == PRELUDE:
            arrays |= wire.released_arrays(self.released)
        elif new:
            arrays["theta"] = np.array(self.theta if self.tested is None else self.tested, np.float32)
        message = Message("work", {"request": head, "attempt": self._attempt}, arrays)
        if self._masked:
            return self._secure(request, message, len(cohort), there)
        replies = self.ask({k: _with_task(message, cohort[k]) for k in there})
        return self._clear(request, replies, len(cohort))

    def _length(self, request: Request) -> int:
        return 0 if request.phase == QUERY else self.theta.size

    def ask(self, outgoing: Mapping[int, Message]) -> dict[int, Message]:
        """One exchange; clients that forgot the run are enrolled again and asked once more."""
        replies = self.post.ask(outgoing, self.patience.deadline)
        strangers = [k for k, p in self.post.problems.items() if p.head.get("class") == "NotEnrolled"]
        silent = set(outgoing) - set(replies) - set(self.post.problems)
        if strangers:
            self._enrol(strangers)
            replies |= self.post.ask({k: outgoing[k] for k in strangers}, self.patience.deadline)
        self._late |= silent
        return replies

    def _enough(self, count: int, cohort: int) -> None:
        need = self._need(cohort)
        if count < need:
            raise Aborted(f"only {count} of {cohort} clients are left, and the sum needs {need}.")

    def _clear(self, request: Request, replies: dict[int, Message], cohort: int) -> Aggregate:
        codes = np.zeros(self._length(request), np.int64)
        read: list[tuple[int, Reply]] = []
        for k, message in sorted(replies.items()):
            try:
                part, reply = self._accept.read(request, message, codes.size, k)
            except BadInput as error:
                log.error("the contribution of %s was refused: %s", self.post.names[k], error)
                continue
            codes += part
            read.append((k, reply))
        self._enough(len(read), cohort)
        return aggregate(request, codes, read)

    def _secure(self, request: Request, message: Message, cohort: int, there: list[int]) -> Aggregate:
        """Contributions, answers and reports of one sum lie behind each other in one masked vector."""
        noisy = request.query is not None and not is_raw(request.query)
        answers = answer_length(request.query) if request.query is not None and noisy else 0
        length = self._length(request)
        about = wire.agreed_digest(self.plan, self.facts, request)
        full = cohort == self.facts.clients
        width = length + answers + self.scheme.report_length
        opened = self._sums.run(self, message, there, width, self.survivors, full, about)
        codes, answer = opened.total[:length], opened.total[length : length + answers]
        return aggregate(request, np.array(codes), self._replies(request, opened, answer if answers else None))

    def _replies(self, request: Request, opened: Opened, answer: np.ndarray | None) -> list[tuple[int, Reply]]:
        """The evidence of each contributor; what was summed under the mask goes with the first."""
        read = []
        report = np.array(opened.total[-self.scheme.report_length :]) if self.scheme.report_length else None
        for k, message in sorted(opened.replies.items()):
            noise, answer_noise = evidence(message)
            own = message.array("answer", np.float64) if request.query is not None and is_raw(request.query) else None
            summed = None if answer is None else np.array(answer)
            read.append((k, Reply(summed if own is None else own, noise, answer_noise, report)))
            answer, report = None, None
        return read


def _client(item: int | ClientTask) -> int:
    """An item is a client, or a task for one."""
    return item if isinstance(item, int) else item.client


def _with_task(message: Message, item: int | ClientTask) -> Message:
    if isinstance(item, int):
        return message
    said, arrays = messages.task_to_plain(item)
    return Message(message.kind, {**message.head, "task": said}, {**message.arrays, **arrays})
