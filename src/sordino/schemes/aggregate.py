"""What an engine gives back for a request: a sum of contributions, a sum of answers, and the evidence of noise in both.

Sums are fixed-point integers, so they depend neither on the engine, nor on the number of workers, nor on the order in
which clients finish. Evidence is what clients say they added (`Reply`), never what they were asked to add.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sordino.privacy.bounds import Flat
from sordino.privacy.mechanisms import Sum
from sordino.privacy.release import Private, Released
from sordino.rules.query import answer_length, is_raw
from sordino.schemes.request import Reply, Request


@dataclass(frozen=True)
class Aggregate:
    """A round's sums. `Released` only where clients send nothing but what their own mechanisms released."""

    total: Private[Sum] | Released[Sum]
    answer: Private[Sum] | None  # stamped with the bound that a query's norm is
    raw: Private[tuple[np.ndarray, ...]] | None  # exact answers in item order, for queries that nothing protects
    reports: Private[tuple[object, ...]] | Released[tuple[object, ...]]  # in item order
    contributors: int


class Engine(Protocol):
    """Runs requests on items; see `sordino.engines`."""

    theta: np.ndarray  # float32, the model that clients start from; written by the round, read by the clients
    simulated: bool  # whether clients are played on this machine
    clients_keep_state: bool  # whether clients keep their own accounts, where a method gives them such

    def run(self, request: Request, items: Sequence[object]) -> Aggregate:
        """Have every item worked on."""

    def evaluate(self) -> tuple[float, float] | None:
        """Accuracy and mean loss of `theta` on the public test set, if there is one."""

    def close(self) -> None:
        """Let go of processes and memory."""


def aggregate(request: Request, codes: np.ndarray, replies: Sequence[tuple[int, Reply]]) -> Aggregate:
    """From the summed codes and the replies by item number."""
    ordered = [reply for _, reply in sorted(replies, key=lambda pair: pair[0])]
    total = Sum(codes, request.grid, sum(reply.noise for reply in ordered))
    answers = [reply.answer for reply in ordered if reply.answer is not None]
    answer, raw = None, None
    if request.query is not None and is_raw(request.query):
        raw = Private(tuple(answers))
    elif request.query is not None and request.query_grid is not None:
        zero = np.zeros(answer_length(request.query), np.int64)
        noise = sum(reply.answer_noise for reply in ordered)
        codes_of_answers = np.asarray(sum(answers, start=zero), np.int64)
        summed = Sum(codes_of_answers, request.query_grid, noise)
        answer = Private(summed, bound=Flat(request.query.norm))
    reports = tuple(reply.report for reply in ordered if reply.report is not None)
    if request.released:
        how = "noise of each client's own, in full"
        return Aggregate(Released(total, how), answer, raw, Released(reports, how), len(ordered))
    return Aggregate(Private(total, bound=request.bound), answer, raw, Private(reports), len(ordered))
