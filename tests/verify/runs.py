"""Small finished runs for the tests of verification, and hands that tamper with them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from populations import toy
from sordino import EngineOptions, Plan, train
from sordino.verify import Verdict, check, manifest

HERE = EngineOptions(engine="in-process", evaluate_every=100)

BASE = {
    "data": "toy", "clients": 12, "cohort": 6, "method": "quantile", "unit": "client", "observer": "public",
    "multiplier": 1.0, "rounds": 5, "batch_size": 8, "lr": 0.3,
}  # fmt: skip

SCHEMES = {
    "client, public": {},
    "client, public, fixed size": {"sampling": "fixed"},
    "client, public, laplace": {"mechanism": "laplace", "method": "dp-fedavg"},
    "client, secagg": {"observer": "secagg-server", "sampling": "fixed"},
    "client, server": {"observer": "server", "sampling": "fixed"},
    "client, server, replace-one": {"observer": "server", "sampling": "fixed", "relation": "replace-one"},
    "example, pooled public": {"unit": "example", "cohort": None, "method": "dp-fedavg", "batch_size": 40},
    "example, pooled secagg": {"unit": "example", "cohort": None, "observer": "secagg-server", "method": "adact", "batch_size": 40},
    "example, local": {"unit": "example", "observer": "server", "batch_size": 10},
    "calibrated": {"multiplier": None, "epsilon": 5.0},
    "no privacy": {"method": "fedavg", "multiplier": None},
    "published": {"method": "adact", "variant": "published", "multiplier": None, "epsilon": 4.0},
    "fedmap": {"method": "fedmap", "unit": "example", "observer": "server", "multiplier": None, "epsilon": 4.0, "batch_size": 10},
    "fedmap, secagg": {"method": "fedmap", "unit": "example", "observer": "secagg-server", "multiplier": None, "epsilon": 4.0, "batch_size": 10},
    "fedmap, published": {"method": "fedmap", "variant": "published", "unit": "example", "observer": "server", "multiplier": None, "epsilon": 4.0, "batch_size": 10},
}  # fmt: skip


def finish(model, folder: Path, **settings) -> Path:
    """Train, and leave what training leaves."""
    train(model, toy(), Plan(**(BASE | settings)), out=folder, options=HERE)
    manifest.write(folder)
    return folder


def failed(folder: Path, **more) -> dict[str, str]:
    """The sentences of the checks that failed, by name."""
    return {one.name: one.said for one in check(folder, **more).checks if one.ok is False}


def said(verdict: Verdict, name: str) -> str:
    (found,) = (one.said for one in verdict.checks if one.name == name)
    return found


def edit_statement(folder: Path, **changes) -> None:
    """A hand that also knows the manifest and the signed page: only the content can give it away."""
    file = folder / "statement.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    manifest.write(folder)


def reseal(folder: Path, change) -> None:
    """Rewrite the whole ledger with right hashes: `change(rows)` gives the rows without prev and hash."""
    file = folder / "ledger.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows = change([{k: v for k, v in row.items() if k not in ("prev", "hash")} for row in rows])
    before, lines = "0" * 32, []
    for number, row in enumerate(rows):
        body = json.dumps({**row, "seq": number, "prev": before}, separators=(",", ":"))[:-1]
        before = hashlib.blake2b(body.encode(), digest_size=16).hexdigest()
        lines.append(f'{body},"hash":"{before}"}}\n')
    file.write_text("".join(lines))
    (folder / "checkpoint" / "state.safetensors").unlink(missing_ok=True)  # it saw the older lines
    manifest.write(folder)
