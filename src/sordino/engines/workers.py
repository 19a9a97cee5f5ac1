"""Clients in resident worker processes, one thread each, sharing the data and the model's vector.

Workers are forked once and inherit the data without a copy. A round costs one small message each way: the model goes out and
the sums come back through shared memory. Items are handed out largest first, from a common counter, so that no worker waits
long for another. Items whose clients wait between the two phases of a round stay with the worker that has their update.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import signal
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, cast

import numpy as np
import torch

from sordino import errors
from sordino.engines import EngineOptions
from sordino.engines.allocator import keep_memory
from sordino.engines.scoring import Scoring
from sordino.errors import SordinoError
from sordino.schemes.aggregate import Aggregate, aggregate
from sordino.schemes.request import CONTRIBUTE, QUERY, Request, Work, work_on

SCORE = "score"


Job = tuple[Request | str, Sequence[object], Sequence[int]]  # what to do, with which items, in which order


class ClientFailed(SordinoError):
    """A client's work raised an error; the sentence names the client's item and the error, the cause holds the traceback."""


@dataclass(frozen=True)
class Failure:
    """What a worker sends instead of replies."""

    kind: str
    said: str
    trace: str

    def error(self) -> SordinoError:
        """An error of ours stays what it is; any other is named as a client's."""
        kind = getattr(errors, self.kind, None)
        if isinstance(kind, type) and issubclass(kind, SordinoError):
            return kind(self.said)
        return ClientFailed(f"{self.kind} in a client's work: {self.said}")


def shared(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Zeros in memory that forked processes share."""
    count = int(np.prod(shape))
    memory = mmap.mmap(-1, max(1, count * np.dtype(dtype).itemsize))
    return np.frombuffer(memory, dtype, count).reshape(shape)


class Workers:
    """Resident processes. Build it before anything in this process has used several torch threads."""

    simulated = True
    clients_keep_state = False

    def __init__(self, work: Work[Any], scoring: Scoring, theta: np.ndarray, options: EngineOptions) -> None:
        self.work, self.scoring, self.theta, self.count = work, scoring, theta, options.count
        count = self.count
        context = multiprocessing.get_context("fork")
        self._codes = shared((count, theta.size), np.int64)
        self._next = context.Value("q", 0)
        self._pipes: list[Connection] = []
        self._processes = []
        for rank in range(count):
            here, there = context.Pipe()
            process = context.Process(target=self._serve, args=(rank, there), daemon=True)
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)

    # ---- in this process -------------------------------------------------------------------------------------------------

    def run(self, request: Request, items: Sequence[object]) -> Aggregate:
        order = sorted(range(len(items)), key=lambda i: -self.work.weight(items[i]))
        replies = self._all((request, items, order))
        codes = self._codes.sum(axis=0) if request.phase == CONTRIBUTE else np.zeros(0, np.int64)
        return aggregate(request, codes, replies)

    def evaluate(self) -> tuple[float, float] | None:
        pieces = self.scoring.pieces()
        return self.scoring.summary([score for _, score in sorted(self._all((SCORE, pieces, range(len(pieces)))))])

    def _all(self, job: Job) -> list[tuple[int, Any]]:
        self._next.value = 0
        for pipe in self._pipes:
            pipe.send(job)
        replies = [self._reply(rank) for rank in range(self.count)]
        for reply in replies:
            if isinstance(reply, Failure):
                raise reply.error() from RuntimeError(reply.trace)
        return [pair for reply in replies for pair in reply]

    def _reply(self, rank: int) -> Any:
        try:
            return self._pipes[rank].recv()
        except (EOFError, ConnectionResetError):
            self._processes[rank].join(1)
            code = self._processes[rank].exitcode
            raise ClientFailed(
                f"worker {rank} died (exit code {code}), most likely because memory ran out; use fewer workers, or a smaller batch."
            ) from None

    def close(self) -> None:
        for pipe in self._pipes:
            try:
                pipe.send(None)
                pipe.close()
            except OSError:
                pass
        for process in self._processes:
            process.join(2)
            if process.is_alive():
                process.kill()
        self._pipes, self._processes = [], []

    # ---- in a worker -----------------------------------------------------------------------------------------------------

    def _serve(self, rank: int, pipe: Connection) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which closes us
        for other in self._pipes:
            other.close()
        torch.set_num_threads(1)
        keep_memory()
        waiting: dict[int, list[int]] = {}  # round -> items that this worker was asked about
        while True:
            try:
                job = pipe.recv()
            except (EOFError, OSError):
                job = None
            if job is None:
                os._exit(0)
            try:
                pipe.send(self._work(rank, job, waiting))
            except Exception as error:  # noqa: BLE001 - whatever a client's code raises goes to the parent, with its traceback
                pipe.send(Failure(type(error).__name__, str(error), traceback.format_exc()))

    def _work(self, rank: int, job: Job, waiting: dict[int, list[int]]) -> Sequence[tuple[int, object]]:
        request, items, order = job
        if isinstance(request, str):
            return [(i, self.scoring.score(cast(int, items[i]))) for i in self._taken(order)]
        out = self._codes[rank]
        out[:] = 0
        again = request.phase == CONTRIBUTE and request.round in waiting
        mine = waiting[request.round] if again else self._taken(order)
        done = [(i, work_on(self.work, request, items[i], out)) for i in mine]
        waiting.clear()
        if request.phase == QUERY:
            waiting[request.round] = [i for i, _ in done]
        return done

    def _taken(self, order: Sequence[int]) -> Iterator[int]:
        """Take items off the common list until it is empty."""
        while True:
            with self._next.get_lock():
                place = self._next.value
                self._next.value += 1
            if place >= len(order):
                return
            yield order[place]
