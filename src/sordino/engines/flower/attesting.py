"""What a data holder signs at the end of a run: the plan, the epsilon of its own terms, and the ledger that it is bound to."""

from __future__ import annotations

import json
from collections.abc import Mapping

from sordino.engines.flower.pki import Own

FIELDS = ("name", "certificate", "plan", "ledger_head", "rounds", "epsilon", "delta")


def attest(own: Own, plan: str, ledger_head: str, rounds: int, epsilon: float, delta: float) -> dict[str, object]:
    """What one data holder signs at the end of a run. An infinite epsilon is written as "inf"."""
    signed: dict[str, object] = {
        "name": own.name,
        "certificate": own.certificate,
        "plan": plan,
        "ledger_head": ledger_head,
        "rounds": rounds,
        "epsilon": "inf" if epsilon == float("inf") else epsilon,
        "delta": delta,
    }
    return signed | {"signature": own.sign(canonical(signed)).hex()}


def canonical(attestation: Mapping[str, object]) -> bytes:
    """The bytes that are signed."""
    fields = {key: attestation[key] for key in FIELDS}
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()
