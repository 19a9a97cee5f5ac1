"""What a run folder says, read with care: a file may be missing, cut short or written by a later version."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from sordino.errors import BadInput
from sordino.plain import Json
from sordino.plan import read_toml
from sordino.report.downsample import Point
from sordino.report.numbers import number

COMPARISON = "comparison.json"
DRAWABLE = 1e100  # a run that has diverged further tells no more


@dataclass(frozen=True)
class Run:
    """The files of one run as plain data. None: the file is not there."""

    name: str
    plan: dict[str, object]
    plan_text: str
    statement: dict[str, object] | None = None
    metrics: tuple[Json, ...] = ()
    audit: dict[str, object] | None = None
    comparison: dict[str, object] | None = None  # the accuracy of the same network without privacy
    fairness: dict[str, object] | None = None
    attacks: tuple[dict[str, object], ...] = field(default=())
    refused: tuple[dict[str, object], ...] = field(default=())  # attacks that this run does not allow
    scored: Json | None = None  # figures on the public test set
    held_out: Json | None = None  # figures on held-out records, with noise
    inversion: dict[str, object] | None = None

    @classmethod
    def read(cls, folder: str | Path) -> Run:
        """Read a run folder, or refuse in one sentence what is none."""
        folder = Path(folder)
        if not folder.is_dir():
            raise BadInput(f"there is no run folder {str(folder)!r}; give the folder that `sordino train` wrote.")
        file = folder / "plan.toml"
        if not file.is_file():
            raise BadInput(f"{str(folder)!r} is not a run folder (it has no plan.toml); give the folder of a run.")
        attack = _object(folder / "attack.json")
        return cls(
            name=folder.resolve().name,
            plan=read_toml(file),
            plan_text=file.read_text(),
            statement=_object(folder / "statement.json"),
            metrics=tuple(_rows(folder / "metrics.jsonl")),
            audit=_object(folder / "audit.json"),
            comparison=_object(folder / COMPARISON),
            fairness=_object(folder / "fairness.json"),
            attacks=_objects(attack, "results"),
            refused=_objects(attack, "refused"),
            scored=_object(folder / "evaluation.json"),
            held_out=_figures(_object(folder / "held_out.json")),
            inversion=_object(folder / "inversion.json"),
        )

    def points(self, key: str) -> tuple[Point, ...]:
        """A column of the metrics over rounds, without the rounds that lack it (or a number that can be drawn)."""
        pairs = ((row["round"], number(row.get(key))) for row in self.metrics)
        return tuple((at, value) for at, value in pairs if value is not None and abs(value) < DRAWABLE)

    def said(self, key: str) -> object:
        """An entry of the statement, else of the plan, else None."""
        found = (self.statement or {}).get(key)
        return self.plan.get(key) if found is None else found

    def sentences(self, key: str) -> tuple[str, ...]:
        """A list of sentences in the statement; anything else counts as none."""
        found = (self.statement or {}).get(key)
        return tuple(str(item) for item in found) if isinstance(found, list) else ()

    @property
    def rounds(self) -> int:
        """Rounds that were run, as far as is recorded."""
        stated = (self.statement or {}).get("rounds")
        if isinstance(stated, int) and not isinstance(stated, bool):
            return stated
        return self.metrics[-1]["round"] if self.metrics else 0


def _object(file: Path) -> dict[str, object] | None:
    try:
        found = json.loads(file.read_text())
    except FileNotFoundError:
        return None
    except (ValueError, OSError, RecursionError) as error:
        raise BadInput(f"{str(file)!r} cannot be read ({error}); restore it, or take it out of the folder.") from None
    if isinstance(found, list) and file.name == "attack.json":
        return {"results": found}
    if not isinstance(found, dict):
        raise BadInput(f"{str(file)!r} does not hold a JSON object; restore it, or take it out of the folder.")
    return found


def _figures(found: Json | None) -> Json | None:
    inside = (found or {}).get("figures")
    return inside if isinstance(inside, dict) else None


def _rows(file: Path) -> list[Json]:
    """A row per round, in order. Lines that a crash cut short are left out; of a repeated round the last one counts."""
    try:
        lines = file.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    rows: dict[int, Json] = {}
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        at = row.get("round") if isinstance(row, dict) else None
        if isinstance(at, int) and not isinstance(at, bool):
            rows[at] = row
    return [rows[at] for at in sorted(rows)]


def _objects(found: dict[str, object] | None, key: str) -> tuple[dict[str, object], ...]:
    """The objects in a list of a file; anything else is left out."""
    rows = (found or {}).get(key)
    return tuple(row for row in rows if isinstance(row, dict)) if isinstance(rows, list) else ()
