"""From a run folder to its `report.html`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from sordino.errors import BadInput
from sordino.files import write_atomically
from sordino.report.page import page
from sordino.report.reading import COMPARISON, Run
from sordino.report.verdict import judge


def compared(folder: Path, beside: Mapping[str, float]) -> None:
    """Keep what the accuracy is to be held against, and draw the report again."""
    write_atomically(folder / COMPARISON, json.dumps(beside, indent=2) + "\n")
    write_report(folder)


def write_report(folder: str | Path, out: str | Path | None = None) -> Path:
    """Draw the report of the run in `folder`, by default as its `report.html`, from the files of that folder alone."""
    run = Run.read(folder)
    target = Path(folder) / "report.html" if out is None else Path(out)
    if target.is_dir():
        raise BadInput(f"{str(target)!r} is a folder; give a file, such as {str(target / 'report.html')!r}.")
    try:
        write_atomically(target, page(run, judge(run)))
    except OSError as error:
        raise BadInput(f"{str(target)!r} cannot be written ({error.strerror}); use --out for another.") from error
    return target
