"""What a verification found: a list of checks, each ok, failed, or beyond what can be followed."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass

WIDTH = 100


class Broken(Exception):
    """A file that is not what it should be; the sentence names the file and what is wrong."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. `ok` None: it cannot be followed, and `said` says why."""

    name: str
    ok: bool | None
    said: str

    def to_json(self) -> dict[str, object]:
        """One check as `sordino verify --json` prints it."""
        return {"name": self.name, "ok": self.ok, "said": self.said}


@dataclass(frozen=True)
class Verdict:
    """All checks of one run, and both epsilons."""

    run: str
    checks: tuple[Check, ...]
    epsilon_printed: float | None = None  # infinite: the run says that it is not private
    epsilon_recomputed: float | None = None
    accountant: str | None = None  # of dp-accounting: gaussian, pld, rdp

    @property
    def ok(self) -> bool:
        """Whether nothing disagrees."""
        return all(check.ok is not False for check in self.checks)

    def to_json(self) -> dict[str, object]:
        """What `sordino verify --json` prints."""
        return {
            "run": self.run,
            "ok": self.ok,
            "checks": [check.to_json() for check in self.checks],
            "epsilon_printed": _plain(self.epsilon_printed),
            "epsilon_recomputed": _plain(self.epsilon_recomputed),
            "accountant": self.accountant,
        }

    def text(self) -> str:
        """A short table for people."""
        width = max(len(check.name) for check in self.checks) + 2
        lines = []
        for check in self.checks:
            state = {True: "ok", False: "FAILED", None: "not followed"}[check.ok]
            head = f"{check.name:<{width}}{state:<14}"
            lines += textwrap.wrap(
                check.said, WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False
            )
        return "\n".join([*lines, "", self.line])

    @property
    def line(self) -> str:
        """The result in one line."""
        failed = [check for check in self.checks if check.ok is False]
        if failed:
            more = f" ({len(failed)} checks failed)" if len(failed) > 1 else ""
            return f"Not verified: {failed[0].said}{more}"
        open_ = [check.name for check in self.checks if check.ok is None]
        beyond = f"; not followed: {', '.join(open_)}" if open_ else ""
        return f"Verified: {self._epsilon()}, {len(self.checks) - len(open_)} checks agree{beyond}."

    def _epsilon(self) -> str:
        if self.epsilon_printed is not None and math.isinf(self.epsilon_printed):
            return "the run says that it is not private"
        if self.epsilon_printed is None:
            return "no epsilon is printed"
        if self.epsilon_recomputed is None:
            return f"epsilon {self.epsilon_printed:.6g} is printed and was not recomputed"
        return f"epsilon {self.epsilon_printed:.6g} is printed, dp-accounting gives {self.epsilon_recomputed:.6g}"


def _plain(value: float | None) -> float | str | None:
    return "inf" if value is not None and math.isinf(value) else value
