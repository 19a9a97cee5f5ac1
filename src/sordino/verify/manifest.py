"""`manifest.json`: what training left in the run folder, by hash, written at the end of the run.

It shows which file was changed afterwards. It guards against accidents and careless hands; against someone who rewrites
the whole folder only the signatures of the data holders help (`attestations`).
"""

from __future__ import annotations

import datetime
import hashlib
import json
from pathlib import Path

from sordino import evaluation, record
from sordino.files import write_atomically
from sordino.plain import Json
from sordino.verify import chain
from sordino.verify.verdict import Broken, Check

NAME = "manifest.json"
FORMAT = "sordino-manifest-1"
FILES = ("plan.toml", "model.safetensors", "statement.json", "statement.txt")
PRELUDE = "prelude.safetensors"
HELD_OUT, HELD_OUT_LEDGER = "held_out.json", "held_out.jsonl"
ALSO = (record.NAME, record.SCHEMA, evaluation.NAME, PRELUDE, HELD_OUT, HELD_OUT_LEDGER)  # where a run has them


def write(folder: Path) -> None:
    """Hash what the run left in `folder`; atomically, and on disk when this returns."""
    folder = Path(folder)
    ledger = chain.read(folder / "ledger.jsonl")
    made = {
        "format": FORMAT,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "files": {name: digest(folder / name) for name in (*FILES, *ALSO) if (folder / name).is_file()},
        "ledger": {"lines": len(ledger.hashes), "head": ledger.head},
        "software": record.software(),
    }
    write_atomically(folder / NAME, json.dumps(made, indent=2) + "\n", durable=True)


def digest(file: Path) -> str:
    """SHA-256 of a file, without holding all of it in memory."""
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def compare(folder: Path, ledger: chain.Chain | None) -> list[Check]:
    """Each file, and the ledger's last line, against the manifest."""
    try:
        held = _read(folder / NAME)
    except Broken as error:
        return [Check("manifest", False, str(error))]
    named = (*FILES, *(name for name in ALSO if name in held["files"] or (folder / name).exists()))
    checks = [_file(folder / name, held["files"].get(name)) for name in named]
    head, lines = held["ledger"].get("head"), held["ledger"].get("lines")
    if ledger is not None and head == ledger.head and lines == len(ledger.hashes):
        checks.append(Check("ledger head", True, f"ledger.jsonl ends where it ended after training, at line {lines}."))
    elif ledger is not None:
        said = f"ledger.jsonl has {len(ledger.hashes)} lines and {NAME} knows {lines} that end otherwise: the end was changed."
        checks.append(Check("ledger head", False, said))
    return checks


def _file(file: Path, wanted: object) -> Check:
    if not file.is_file():
        return Check(file.name, False, f"{file.name} is missing; bring back the file of this run.")
    if wanted is None:
        return Check(file.name, False, f"{file.name} is not in {NAME}: it was not there at the end of training.")
    if digest(file) != wanted:
        return Check(file.name, False, f"{file.name} was changed after training: its hash is not the one in {NAME}.")
    return Check(file.name, True, f"{file.name} is as training left it.")


def _read(file: Path) -> Json:
    try:
        held = json.loads(file.read_text())
    except FileNotFoundError:
        raise Broken(f"{NAME} is missing, so nothing shows whether files were changed after training.") from None
    except (OSError, ValueError, RecursionError):
        raise Broken(f"{NAME} cannot be read; bring back the file of this run.") from None
    if not isinstance(held, dict) or held.get("format") != FORMAT:
        raise Broken(f"{NAME} is not of the format {FORMAT}.")
    if not isinstance(held.get("files"), dict) or not isinstance(held.get("ledger"), dict):
        raise Broken(f"{NAME} names no files or no ledger.")
    return held
