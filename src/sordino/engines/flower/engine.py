"""The engine whose clients are elsewhere: the same requests as in one process, by message, and the same sums.

Who does not answer in time, or answers what does not fit, is lost to the round and nobody else is. Under the observer
`secagg-server` contributions and answers come masked and only their sum is opened (`secure`); else they come as they are,
and what is larger than the bound allows is refused. If fewer clients are left than the plan's noise is cut for, or than
`least`, the round is aborted and nothing is opened.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sordino.engines import Aborted
from sordino.engines.base import Aggregate, gathered
from sordino.engines.flower import wire
from sordino.engines.flower.part import Facts, answer_grid
from sordino.engines.flower.secure import SecureSums
from sordino.engines.flower.transport import SecureChannel
from sordino.engines.flower.wire import MalformedMessage, Message
from sordino.engines.scoring import Scoring
from sordino.errors import at_least, positive, whole
from sordino.plan import Plan
from sordino.privacy.vocabulary import Noise, Observer
from sordino.rules.query import is_raw
from sordino.schemes.fedmap import messages as errands
from sordino.schemes.fedmap.client import SUMMED_REPORT_LENGTH
from sordino.schemes.request import CONTRIBUTE, QUERY, Request

log = logging.getLogger("sordino.server")


@dataclass(frozen=True)
class Patience:
    """How long the server waits, and for whom."""

    deadline: float = 600.0  # seconds for one exchange; whoever takes longer is lost to the round
    wait: float = 600.0  # seconds for enough clients to be there
    least: int = 1  # min_cohort contributions in a round
    colluders: int = 0  # clients that may be in league with the server: further contributions that a secure sum needs

    def __post_init__(self) -> None:
        positive(deadline=self.deadline, wait=self.wait)
        whole(least=self.least)
        at_least(0, colluders=self.colluders)


class RemoteWork:
    """The server's view of clients' work: an item is a client, and what it does is its own business."""

    def items(self, round: int, cohort: np.ndarray) -> list[int]:
        return [int(k) for k in cohort]

    def weight(self, item: int) -> int:
        return 1

    def shares(self, items: Sequence[int]) -> int:
        return len(items)

    def ask(self, request: Request, item: int) -> np.ndarray:
        raise AssertionError("clients are elsewhere")

    def give(self, request: Request, item: int, out: np.ndarray) -> Any:
        raise AssertionError("clients are elsewhere")


class Remote:
    """An engine (see `engines.base`) over a `SecureChannel`."""

    simulated = False
    clients_keep = True  # their own accounts, where a method gives them such and sums are all that is told

    def __init__(
        self,
        post: SecureChannel,
        plan: Plan,
        facts: Facts,
        scoring: Scoring,
        theta: np.ndarray,
        patience: Patience,
        enrol: Callable[[Sequence[int]], Any],
    ) -> None:
        self.post, self.plan, self.facts, self.scoring, self.theta = post, plan, facts, scoring, theta
        self.patience, self._enrol = patience, enrol
        self._attempt, self._last = "", ("", 0)  # this try of a round; its last phase and round
        self._sums = SecureSums(post, patience, facts.clients)
        self._late: set[int] = set()  # who missed a deadline and has not been heard of since

    # ---- the engine ------------------------------------------------------------------------------

    def run(self, request: Request, items: Sequence[Any]) -> Aggregate:
        new = request.phase == QUERY or self._last != (QUERY, request.round)
        self._last = (request.phase, request.round)
        if new:
            self._attempt = os.urandom(8).hex()
        try:
            return self._run(request, {_client(item): item for item in items}, new)
        except Aborted as aborted:
            log.warning("round %d: %s", request.round, aborted)
            self._last = ("", 0)
            self.await_clients(len(items))
            raise

    def evaluate(self) -> tuple[float, float] | None:
        from sordino.engines.inprocess import one_thread

        with one_thread():
            return self.scoring.summary([self.scoring.score(start) for start in self.scoring.pieces()])

    def close(self) -> None:
        pass  # the post belongs to whoever opened it

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
        """The min_cohort contributions of a cohort that may be opened."""
        if self.plan.observer == Observer.SECAGG_SERVER and cohort > 1:
            return self._sums.threshold(cohort, self._survivors(cohort))
        return min(self.patience.least, cohort)

    def _survivors(self, cohort: int) -> int:
        if self.plan.sealed:
            return self.plan.min_cohort
        if not self.plan.private or self.plan.noise != Noise.SHARES:
            return 1
        return self.plan.survivors or cohort

    def _look_again(self) -> None:
        """Those who were late are greeted, and are back when they answer."""
        late = [k for k in self._late if k in self.post.present()]
        if late:
            back = self.post.ask({k: Message("hello") for k in late}, min(5.0, self.patience.deadline))
            self._late -= set(back)

    # ---- a phase ---------------------------------------------------------------------------------

    def _run(self, request: Request, cohort: dict[int, Any], new: bool) -> Aggregate:
        if not cohort:
            return gathered(request, np.zeros(self.theta.size if request.phase == CONTRIBUTE else 0, np.int64), [], 0)
        if new:
            self._look_again()
        present = set(self.post.present())
        there = [k for k in cohort if k in present and k not in self._late]
        self._enough(len(there), len(cohort))
        head, arrays = wire.request_to_plain(request)
        if new:
            arrays["theta"] = np.array(self.theta)
        parcel = Message("work", {"request": head, "attempt": self._attempt}, arrays)
        if self.plan.observer == Observer.SECAGG_SERVER:
            return self._secure(request, parcel, len(cohort), there)
        replies = self.ask({k: _with_errand(parcel, cohort[k]) for k in there})
        return self._clear(request, replies, len(cohort))

    def ask(self, parcels: Mapping[int, Message]) -> dict[int, Message]:
        """One exchange; clients that forgot the run are enrolled again and asked once more."""
        replies = self.post.ask(parcels, self.patience.deadline)
        strangers = [k for k, p in self.post.problems.items() if p.head.get("class") == "NotEnrolled"]
        silent = set(parcels) - set(replies) - set(self.post.problems)
        if strangers:
            self._enrol(strangers)
            replies |= self.post.ask({k: parcels[k] for k in strangers}, self.patience.deadline)
        self._late |= silent
        return replies

    def _enough(self, count: int, cohort: int) -> None:
        need = self._need(cohort)
        if count < need:
            raise Aborted(f"only {count} of {cohort} clients are left, and the sum needs {need}.")

    def _clear(self, request: Request, replies: dict[int, Message], cohort: int) -> Aggregate:
        codes = np.zeros(self.theta.size if request.phase == CONTRIBUTE else 0, np.int64)
        answers, shares = [], 0
        for k, reply in sorted(replies.items()):
            try:
                part, answer = self._read(request, reply, codes.size, k)
            except MalformedMessage as error:
                log.error("the contribution of %s was refused: %s", self.post.names[k], error)
                continue
            codes += part
            answers.append((k, answer))
            shares += 1
        self._enough(shares, cohort)
        return gathered(request, codes, answers, shares)

    def _read(self, request: Request, reply: Message, length: int, k: int) -> tuple[np.ndarray, Any]:
        codes = reply.array("codes", np.int64, length) if length else np.zeros(0, np.int64)
        if np.abs(codes.astype(np.float64)).max(initial=0.0) >= 2.0**62:
            raise MalformedMessage("a coordinate is beyond anything that the grid can hold.")
        most = self._longest(request, k)
        if most is not None and float(np.linalg.norm(request.grid.decode(codes))) > most:
            raise MalformedMessage("it is longer than the bound and its noise allow.")
        if "report" in reply.head:
            return codes, errands.report_from_plain(reply.get("report", dict), reply.arrays)
        if request.released:
            return codes, reply.get("state", dict)
        if request.query is None:
            return codes, None
        answer = reply.array("answer", np.float64)
        if not np.isfinite(answer).all() or not is_raw(request.query) and answer.size != _width(request):
            raise MalformedMessage("its answer is not finite, or of the wrong length.")
        return codes, answer

    def _longest(self, request: Request, k: int) -> float | None:
        """How long an honest contribution can be; with noise, ten standard deviations beyond."""
        if request.bound is None:
            return None
        units = self.facts.sizes[k] if self.plan.pooled else 1
        most = units * request.bound.size * (1 + 1e-9)
        if request.multiplier is not None:
            std = np.broadcast_to(request.bound.std(request.multiplier), (self.theta.size,))
            most += (float(np.linalg.norm(std)) + 10 * float(std.max())) / np.sqrt(request.survivors)
        return most

    def _secure(self, request: Request, parcel: Message, cohort: int, there: list[int]) -> Aggregate:
        width = 0 if request.query is None or is_raw(request.query) else _width(request)
        if self.plan.sealed:
            width = SUMMED_REPORT_LENGTH
        length = (self.theta.size if request.phase == CONTRIBUTE else 0) + width
        grid = None
        if width and not self.plan.sealed:
            assert request.query is not None
            grid = answer_grid(request.query, self.plan, self.facts)
        full = cohort == self.facts.clients
        opened = self._sums.run(self, parcel, there, length, self._survivors(cohort), full)
        codes, answers = opened.total[: length - width], []
        if self.plan.sealed:
            answers = [(0, np.array(opened.total[length - width :]))]
        elif grid is not None:
            answers = [(0, grid.decode(opened.total[length - width :]))]
        elif request.query is not None:
            answers = [(k, r.array("answer", np.float64)) for k, r in sorted(opened.replies.items())]
        return gathered(request, np.array(codes), answers, len(opened.replies))


def _client(item: Any) -> int:
    """An item is a client, or an errand for one."""
    return item if isinstance(item, int) else item.client


def _with_errand(parcel: Message, item: Any) -> Message:
    if isinstance(item, int):
        return parcel
    said, arrays = errands.errand_to_plain(item)
    return Message(parcel.kind, {**parcel.head, "errand": said}, {**parcel.arrays, **arrays})


def _width(request: Request) -> int:
    """The length of an answer."""
    assert request.query is not None
    return request.query.encode(np.zeros(0), 1.0).size
