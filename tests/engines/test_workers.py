"""Worker processes: the same sums as one process, errors told as they are, a death told by its code."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sordino.engines import EngineOptions  # noqa: E402
from sordino.engines.inprocess import InProcess  # noqa: E402
from sordino.engines.workers import ClientFailed, Failure, Workers, shared  # noqa: E402
from sordino.errors import BadInput, NotPrivate  # noqa: E402
from sordino.privacy.bounds import Flat  # noqa: E402
from sordino.privacy.mechanisms import FixedPoint  # noqa: E402
from sordino.privacy.release import _open  # noqa: E402
from sordino.schemes.request import CONTRIBUTE, Reply, Request  # noqa: E402


@dataclass
class Adding:
    """Item k adds k to every coordinate."""

    error: Exception | None = None
    dies: bool = False

    def items(self, round, cohort):
        return [int(k) for k in cohort]

    def weight(self, item):
        return item

    def assumptions(self):
        return ()

    def query(self, request, item):
        return Reply()

    def contribute(self, request, item, out):
        if self.dies:
            os._exit(9)
        if self.error is not None and item == 3:
            raise self.error
        out += item
        return Reply(noise=float(item), report=item)


class NoScoring:
    def pieces(self):
        return []

    def summary(self, scores):
        return None


REQUEST = Request(1, CONTRIBUTE, FixedPoint(1.0), Flat(1.0))


@pytest.fixture
def started():
    made = []

    def start(work, count=2):
        engine = Workers(work, NoScoring(), shared((4,), np.float32), EngineOptions("workers", count))
        made.append(engine)
        return engine

    yield start
    for engine in made:
        engine.close()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_sums_evidence_and_reports_are_those_of_one_process(started, count):
    work = Adding()
    items = work.items(1, np.arange(9))
    here = InProcess(work, None, np.zeros(4, np.float32)).run(REQUEST, items)
    there = started(work, count).run(REQUEST, items)
    assert _open(here.total).codes.tolist() == _open(there.total).codes.tolist() == [36] * 4
    assert _open(here.total).noise == _open(there.total).noise == 36.0
    assert _open(here.reports) == _open(there.reports) == tuple(range(9)) and there.contributors == 9


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (BadInput("one sentence."), BadInput, "one sentence."),
        (NotPrivate("a leak."), NotPrivate, "a leak."),
        (KeyError("x"), ClientFailed, "KeyError in a client's work: 'x'"),
    ],
)
def test_an_error_of_ours_stays_what_it_is_and_another_is_named(started, error, kind, said):
    engine = started(Adding(error))
    with pytest.raises(kind) as raised:
        engine.run(REQUEST, list(range(6)))
    assert type(raised.value) is kind and str(raised.value) == said and "Traceback" in str(raised.value.__cause__)


def test_a_worker_that_dies_is_told_by_its_code(started):
    with pytest.raises(ClientFailed, match="died \\(exit code 9\\)"):
        started(Adding(dies=True)).run(REQUEST, [1, 2])


def test_a_failure_of_unknown_kind_is_a_clients():
    assert isinstance(Failure("SystemError", "x", "").error(), ClientFailed)
