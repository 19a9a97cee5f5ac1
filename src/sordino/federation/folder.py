"""The run folder: what a run leaves behind, and where a resumed run finds it.

plan.toml            the plan, to repeat it
ledger.jsonl         what was granted
metrics.jsonl        a line per round, released values only
model.safetensors    the final model
statement.json/.txt  what is proven
report.html          the same for people
checkpoint/          to go on from
checkpoint/personal/ what clients keep for themselves, in a simulation: private, readable by its owner alone
fairness.json        accuracy on each client's public test split, if there are such splits
models/              the released models of some rounds, if they were to be kept
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from sordino.errors import BadInput, SordinoError
from sordino.files import write_atomically
from sordino.plain import Json

if TYPE_CHECKING:
    from sordino.plan import Plan


class RunFolder:
    """Paths and small files of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.ledger, self.metrics = self.path / "ledger.jsonl", self.path / "metrics.jsonl"
        self.checkpoint = self.path / "checkpoint"
        self.personal = self.checkpoint / "personal"
        self.plan = self.path / "plan.toml"
        self.models = self.path / "models"
        self._lines: IO[str] | None = None
        self._lock: int | None = None

    @classmethod
    def create(cls, path: str | Path | None, plan: Plan) -> RunFolder:
        """A new run folder with its plan in it, under `runs/` if no path is given."""
        made = cls(path) if path is not None else cls(claim(plan))
        with told_when_full(made.path):
            made.checkpoint.mkdir(parents=True, exist_ok=True)
            made.hold()
            if made.ledger.exists():
                made.close()
                raise BadInput(
                    f"{made.path} holds a run already; use --resume to go on with it, or --out for another folder."
                )
            made.write("plan.toml", plan.to_toml())
        return made

    @classmethod
    def reopen(cls, path: str | Path) -> RunFolder:
        """The folder of a run that was begun."""
        made = cls(path)
        if not made.plan.exists():
            raise BadInput(f"{made.path} is not a run folder (it has no plan.toml); give the folder of a run.")
        return made

    def hold(self) -> None:
        """Keep other runs out of the folder for as long as this one is open; the system lets go if the process dies."""
        self._lock = os.open(self.checkpoint / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            self._lock = None
            raise BadInput(f"another run is writing into {self.path} now; give another folder (--out).") from None

    def write(self, name: str, text: str) -> Path:
        """Put a whole file into place. It is on disk when this returns."""
        write_atomically(self.path / name, text.encode(), durable=True)
        return self.path / name

    # ---- metrics ---------------------------------------------------------------------------------------------------------

    def start_metrics(self, rounds: int) -> list[Json]:
        """Open the metrics for appending after round `rounds`, dropping lines of rounds that will be run again."""
        kept = [row for row in read_metrics(self.metrics) if row["round"] <= rounds]
        with told_when_full(self.path):
            self.write("metrics.jsonl", "".join(json.dumps(row) + "\n" for row in kept))
            self._lines = open(self.metrics, "a")
        return kept

    def add_metrics(self, row: dict[str, object]) -> None:
        """Append one round's line to metrics.jsonl."""
        assert self._lines is not None
        self._lines.write(json.dumps(row) + "\n")
        self._lines.flush()

    def close(self) -> None:
        """Let go of the files and of the folder's lock."""
        if self._lines is not None:
            self._lines.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def read_metrics(path: Path) -> list[Json]:
    """The lines of a metrics file, up to one that a crash cut short."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break  # the line that a crash cut short; its round is run again
    return rows


@contextmanager
def told_when_full(path: Path) -> Iterator[None]:
    """Turn a full disk into one sentence about what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise SordinoError(
                f"the disk is full at {path}; make room and go on with sordino train --resume {path} (no grant is lost)."
            ) from error
        if error.errno in (errno.EACCES, errno.EROFS, errno.ENOTDIR, errno.EPERM):
            raise BadInput(f"{path} cannot be written ({error.strerror}); choose another folder with --out.") from error
        raise


def claim(plan: Plan) -> Path:
    """A new folder under runs/, after the data (the last part of a path) and the method. It is made: nobody else gets it."""
    data = Path(plan.data.strip("<>")).resolve()
    root, number = Path("runs"), 1
    stem = f"{data.name if data.is_dir() else data.stem}-{plan.method.replace(':', '-')}"
    with told_when_full(root):
        root.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                (root / f"{stem}-{number}").mkdir()
                return root / f"{stem}-{number}"
            except FileExistsError:
                number += 1
