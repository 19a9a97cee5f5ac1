"""Signatures of data holders under the result: `attestations.json`, a list of

    {"name", "certificate" (PEM), "plan", "ledger_head", "rounds", "epsilon", "delta", "signature" (hex)}

A holder signs the canonical JSON (sorted keys, no blanks) of all fields but the signature, with the key of its node. `plan`
is the digest that the ledger is bound to, `ledger_head` the hash of the ledger's last line. Someone who rewrites the run
folder as a whole cannot sign for the holders, unless they also run the authority.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from sordino.engines.flower.attesting import FIELDS, attest, canonical
from sordino.errors import BadInput
from sordino.verify.chain import Chain, Row
from sordino.verify.epsilon import number
from sordino.verify.verdict import Broken, Check

if TYPE_CHECKING:
    from sordino.engines.flower.attesting import FIELDS, canonical

__all__ = ["FIELDS", "NAME", "attest", "canonical", "compare", "read_authority"]

NAME = "attestations.json"
_CHECK = "signatures"


def compare(folder: Path, statement: Row, ledger: Chain, authority: str | None = None) -> Check | None:
    """All signatures; None for a simulation, which has no data holders that could sign. `authority` is PEM."""
    if not (folder / NAME).exists():
        if statement.get("simulated") is False:
            return Check(_CHECK, None, f"there is no {NAME}: no data holder has signed this result.")
        return None
    try:
        trusted = authority
        if trusted is None and (folder / "ca.crt").is_file():
            trusted = read_authority(folder / "ca.crt")
        if trusted is None:
            said = f"there is no ca.crt to check {NAME} against; give --authority FILE."
            return Check(_CHECK, None, said)
        names = [_one(row, trusted, statement, ledger) for row in _rows(folder / NAME)]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise Broken(f"{NAME} holds two signatures of {', '.join(repeated)}.")
        missing = sorted(_expected(folder) - set(names))
    except Broken as error:
        return Check(_CHECK, False, str(error))
    mark = hashlib.sha256(trusted.encode()).hexdigest()[:16]
    source = "the given authority" if authority is not None else "the authority in the run folder, which you must know"
    said = f"signed by {', '.join(names)} under {source} ({mark})"
    if missing or not names:
        return Check(_CHECK, None, f"{said}; not signed by {', '.join(missing) or 'anyone'}.")
    return Check(_CHECK, True, f"{said}.")


def _one(row: Row, authority: str, statement: Row, ledger: Chain) -> str:
    """The name of a holder whose signature holds for this run."""
    from cryptography.x509.oid import ExtendedKeyUsageOID

    from sordino.engines.flower import pki

    name = row["name"]
    try:
        certified, public = pki.check(row["certificate"], authority, ExtendedKeyUsageOID.CLIENT_AUTH)
    except pki.Untrusted as error:
        raise Broken(f"the signature of {name!r} in {NAME} does not count: {str(error).rstrip('.')}.") from None
    if certified != name:
        raise Broken(f"{NAME} holds a signature in the name of {name!r} with the certificate of {certified!r}.")
    try:
        held = pki.verify(public, canonical(row), bytes.fromhex(row["signature"]))
    except ValueError:
        held = False
    if not held:
        raise Broken(f"the signature of {name!r} in {NAME} does not fit what stands above it.")
    if row["plan"] != ledger.header["plan"]:
        raise Broken(f"{name!r} signed for another plan than that of ledger.jsonl.")
    if row["ledger_head"] != ledger.head:
        raise Broken(f"{name!r} signed for another ledger: ledger.jsonl ends otherwise.")
    for key in ("epsilon", "delta"):
        if number(row[key]) is None or number(row[key]) != number(statement.get(key)):
            raise Broken(f"{name!r} signed for {key} {row[key]!r}, and statement.json says {statement.get(key)!r}.")
    if row["rounds"] != statement.get("rounds"):
        raise Broken(
            f"{name!r} signed for {row['rounds']!r} rounds, and statement.json says {statement.get('rounds')!r}."
        )
    return name


def _rows(file: Path) -> list[Row]:
    try:
        rows = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError):
        raise Broken(f"{NAME} cannot be read; bring back the file of this run.") from None
    wanted = {*FIELDS, "signature"}
    if not isinstance(rows, list) or not all(isinstance(row, dict) and set(row) == wanted for row in rows):
        raise Broken(f"{NAME} is not a list of objects with the fields {', '.join((*FIELDS, 'signature'))}.")
    for row in rows:
        if not all(isinstance(row[key], str) for key in ("name", "certificate", "plan", "ledger_head", "signature")):
            raise Broken(f"{NAME} holds a field of the wrong type.")
    return rows


def read_authority(file: Path) -> str:
    """The certificate of an authority, as PEM."""
    try:
        return file.read_text()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise BadInput(
            f"the authority {str(file)!r} cannot be read ({why}); give the ca.crt of the federation."
        ) from None


def _expected(folder: Path) -> set[str]:
    """The nodes of the deployment, where the server noted them."""
    try:
        names = json.loads((folder / "deployment.json").read_text())["names"]
    except (OSError, ValueError, KeyError, TypeError):
        return set()
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()
