"""What a data holder's records may be used for in all, over every run that anyone ever asks for.

Each run is reserved with the largest epsilon and delta that its plan can spend, on disk, before it may touch data; what
is reserved adds up (basic composition, which holds however later runs are chosen), and a run that would take the sum
past the policy is refused. Within a run its own ledger counts off the rounds. A run that stops early gives nothing back.

The file is JSON lines, each sealed with the hash of the one before, as in the ledger.
"""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from typing import TypedDict, cast

from sordino.engines.flower.policy import Policy, Refused
from sordino.errors import BadInput
from sordino.privacy import ledger_format as lines
from sordino.privacy.data_account import round_up


class _Row(TypedDict):
    """What a line says of a run."""

    run: str
    epsilon: float
    delta: float


class Allowance:
    """Open for one process at a time."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            lines.lock(self._fd, path)
            self._hash = lines.START
            self.runs: dict[str, tuple[float, float]] = {}  # the most that each may spend
            self._replay(lines.read(self._fd))
        except BaseException:
            os.close(self._fd)
            raise

    def _replay(self, text: bytes) -> None:
        *whole, torn = text.split(b"\n")
        for number, line in enumerate(whole):
            row, digest = lines.unseal(line)
            if not row or row["prev"] != self._hash or row["hash"] != digest or row["seq"] != number:
                raise BadInput(f"line {number} of {self.path} was changed; restore the file, it holds what was spent.")
            kept = cast(_Row, row)
            self.runs[kept["run"]] = (float(kept["epsilon"]), float(kept["delta"]))
            self._hash = digest
        if torn:  # by a process that died before the run was told that it may begin
            os.ftruncate(self._fd, len(text) - len(torn))

    @property
    def epsilon(self) -> float:
        """The epsilons of all reserved runs, added up and rounded up."""
        return round_up(sum((Fraction(e) for e, _ in self.runs.values()), Fraction(0)))

    @property
    def delta(self) -> float:
        """The deltas of all reserved runs, added up and rounded up."""
        return round_up(sum((Fraction(d) for _, d in self.runs.values()), Fraction(0)))

    def check(self, run: str, epsilon: float, delta: float, policy: Policy) -> bool:
        """Whether this run has its reservation already; refused if it has none and there is no room for one."""
        standing = self.runs.get(run)
        if standing is not None:
            if standing != (epsilon, delta):
                raise Refused("this run was reserved with another epsilon; a run cannot change its plan.")
            return True
        spent = Fraction(self.epsilon) + Fraction(epsilon)
        if (
            spent > Fraction(policy.epsilon) * Fraction(1 + 1e-9)
            or Fraction(self.delta) + Fraction(delta) > policy.delta
        ):
            raise Refused(
                f"epsilon {epsilon:.4g} and delta {delta:g} would come on top of {self.epsilon:.4g} and {self.delta:g} of "
                f"earlier runs, and {policy.epsilon:g} and {policy.delta:g} are allowed here in all."
            )
        return False

    def reserve(self, run: str, epsilon: float, delta: float, policy: Policy) -> None:
        """Set aside the most that this run can spend. A second call for the same run costs nothing."""
        if self.check(run, epsilon, delta, policy):
            return
        row = {"seq": len(self.runs), "kind": "reserve", "run": run, "epsilon": epsilon, "delta": delta}
        line, digest = lines.seal(row, self._hash)
        with lines.told(self.path):
            lines.write(self._fd, line)
        self._hash = digest
        self.runs[run] = (epsilon, delta)

    def close(self) -> None:
        """Let go of the file and its lock."""
        os.close(self._fd)
