"""What a run is bound to: its plan, the code and files that the plan names, and its population.

A run that is resumed must be the run that began. The ledger carries the plan's digest; the checkpoint folder carries a
salted digest of the population: sizes, labels and records. It is a function of private data, so it stays in the run's
own folder, and without the salt it could be checked against guesses.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from sordino import own_code
from sordino.errors import BadInput
from sordino.files import write_atomically

if TYPE_CHECKING:
    from sordino.federation.population import Federation
    from sordino.plan import Plan

NAME = "population.json"


def plan_digest(plan: Plan) -> str:
    """The plan, the content of a file that it names, and the source of code that it names."""
    parts = [plan.digest().encode()]
    if plan.metanet is not None:
        parts.append(Path(plan.metanet).read_bytes())
    parts += [
        own_code.source_digest(name).encode() for name in (plan.method, plan.model) if own_code.is_reference(name)
    ]
    return plan.digest() if len(parts) == 1 else hashlib.sha256(b"".join(parts)).hexdigest()


def bind(folder: Path, federation: Federation, resume: bool) -> bytes:
    """Write the population's digest, or, where a run goes on, hold the population against it. The salt."""
    path = folder / NAME
    if not resume:
        salt = os.urandom(16)
        kept = {"salt": salt.hex(), "digest": _salted(federation, salt)}
        write_atomically(path, json.dumps(kept), private=True, durable=True)
        return salt
    try:
        kept = json.loads(path.read_text())
        salt = bytes.fromhex(kept["salt"])
        same = hmac.compare_digest(kept["digest"], _salted(federation, bytes.fromhex(kept["salt"])))
    except (OSError, ValueError, KeyError) as error:
        raise BadInput(f"{path} cannot be read ({error}); restore it, or start a new run.") from None
    if not same:
        raise BadInput(
            f"the data is not the data that the run in {folder.parent} began with (other clients, sizes or records); "
            "restore it, or start a new run."
        )
    return salt


def commitment(federation: Federation, k: int, salt: bytes) -> str:
    """Client k's records, hidden by the salt: who has both can show what was trained on, and who has neither learns nothing."""
    return hmac.new(salt, f"{k}:{federation.fingerprint_of(k)}".encode(), hashlib.sha256).hexdigest()


def mark(folder: Path) -> str:
    """Tells one run from all others; nothing about the population follows from it, since the salt stays in `folder`."""
    path = folder / NAME
    return hashlib.sha256(b"sordino run" + path.read_bytes()).hexdigest() if path.exists() else ""


def _salted(federation: Federation, salt: bytes) -> str:
    return hashlib.sha256(salt + federation.fingerprint().encode()).hexdigest()
