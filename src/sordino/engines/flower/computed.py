"""What a holder's work gave, and how it leaves: in clear, or as the parts that one mask covers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sordino.engines.flower.wire import Message
from sordino.rules.query import is_raw
from sordino.schemes.fedmap import messages
from sordino.schemes.fedmap.client import Report
from sordino.schemes.fedmap.published import RawReport
from sordino.schemes.request import QUERY, Request


@dataclass(frozen=True)
class Computed:
    """Nothing of it has left yet."""

    codes: np.ndarray
    answer: np.ndarray | None
    noise: float
    answer_noise: float
    report: object = None

    @property
    def evidence(self) -> dict[str, object]:
        """How much noise was added."""
        return {"noise": self.noise, "answer_noise": self.answer_noise}

    def in_clear(self, request: Request) -> Message:
        """What a server that sees every message gets."""
        head: dict[str, object] = self.evidence
        arrays = {} if request.phase == QUERY else {"codes": self.codes}
        if isinstance(self.report, (Report, RawReport)):
            head["report"], more = messages.report_to_plain(self.report)
            arrays |= more
        elif request.released:
            head["state"] = self.report
        elif self.answer is not None:
            arrays["answer"] = self.answer
        return Message("given", head, arrays)

    def to_mask(self, request: Request, clients: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Contribution, answer and report, for one mask. Exact norms, which only plans without a proof ask for, go beside it."""
        if isinstance(self.report, Report):  # nothing else of the report leaves
            return np.concatenate([self.codes, self.report.tally(request.grid, clients)]), {}
        if self.answer is None:
            return self.codes, {}
        if is_raw(request.query):
            return self.codes, {"answer": np.asarray(self.answer, np.float64)}
        return np.concatenate([self.codes, self.answer]), {}
