"""What the server accepts of a client in the clear: codes that fit the grid, no longer than the bound and its noise allow.

Nobody can tell an honest contribution from one that was made up within the bound. What is longer than that is refused here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sordino.engines.flower.part import Facts
from sordino.engines.flower.wire import MalformedMessage, Message
from sordino.privacy.vocabulary import Unit
from sordino.rules.query import answer_length, is_raw
from sordino.schemes.fedmap import messages
from sordino.schemes.request import HELD_OUT, PRELUDE, Reply, Request
from sordino.schemes.terms import Terms


@dataclass(frozen=True)
class Acceptance:
    """The check of every message that is not masked."""

    terms: Terms
    facts: Facts
    size: int  # coordinates of the model

    def read(self, request: Request, message: Message, length: int, k: int) -> tuple[np.ndarray, Reply]:
        """The codes and the reply of client k; `MalformedMessage` if they do not fit the request."""
        codes = message.array("codes", np.int64, length) if length else np.zeros(0, np.int64)
        if np.abs(codes.astype(np.float64)).max(initial=0.0) >= 2.0**62:
            raise MalformedMessage("a coordinate is beyond anything that the grid can hold.")
        most = self._longest(request, k)
        if most is not None and float(np.linalg.norm(request.grid.decode(codes))) > most:
            raise MalformedMessage("it is longer than the bound and its noise allow.")
        noise, answer_noise = evidence(message)
        if "report" in message.head:
            report = messages.report_from_plain(message.get("report", dict), message.arrays)
            return codes, Reply(report=report)
        if request.released:
            return codes, Reply(report=message.get("state", dict))
        if request.query is None:
            return codes, Reply(None, noise)
        if is_raw(request.query):
            answer = message.array("answer", np.float64)
            if not np.isfinite(answer).all():
                raise MalformedMessage("its answer is not finite.")
            return codes, Reply(answer, noise)
        return codes, Reply(message.array("answer", np.int64, answer_length(request.query)), noise, answer_noise)

    def _longest(self, request: Request, k: int) -> float | None:
        """How long an honest contribution can be; with noise, ten standard deviations beyond."""
        if request.bound is None:
            return None
        most = self._units(request, k) * request.bound.size * (1 + 1e-9)
        if request.multiplier is not None:
            std = np.broadcast_to(request.bound.std(request.multiplier), (self.size,))
            most += (float(np.linalg.norm(std)) + 10 * float(std.max())) / np.sqrt(request.survivors)
        return most

    def _units(self, request: Request, k: int) -> int:
        """How many contributions client k adds to this sum at most."""
        if request.phase not in (PRELUDE, HELD_OUT):
            return self.terms.scheme.units_held(self.facts.sizes[k])
        if self.terms.plan.unit == Unit.CLIENT:
            return 1
        return (self.facts.held_out if request.phase == HELD_OUT else self.facts.sizes)[k]


def evidence(message: Message) -> tuple[float, float]:
    """The noise that a client says it added: public numbers, since the request asked for them."""
    return float(message.head.get("noise", 0.0)), float(message.head.get("answer_noise", 0.0))
