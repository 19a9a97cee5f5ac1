"""The statement against the ledger, the plan, the checkpoint and the page that people sign."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path

from sordino.plan import Plan
from sordino.verify.chain import Chain, Row
from sordino.verify.epsilon import number
from sordino.verify.recompute import Leaf, leaves
from sordino.verify.verdict import Broken, Check


def read_statement(folder: Path) -> Row:
    """The statement of a run; a missing or malformed one breaks the check."""
    try:
        found = json.loads((folder / "statement.json").read_text())
    except FileNotFoundError:
        raise Broken("statement.json is missing: the run has not ended, or the file was taken out.") from None
    except (OSError, ValueError, RecursionError):
        raise Broken("statement.json cannot be read; bring back the file of this run.") from None
    if not isinstance(found, dict):
        raise Broken("statement.json does not hold an object; bring back the file of this run.")
    return found


def promise(statement: Row, ledger: Chain, plan: Plan | None) -> Check:
    """Unit, relation, observer and delta are the same everywhere."""
    name, about, wrong = "promise", ledger.about, []
    for key in ("unit", "relation", "observer"):
        if statement.get(key) != about.get(key):
            wrong.append(f"statement.json says {key} {statement.get(key)!r} and ledger.jsonl {about.get(key)!r}")
    budget = ledger.header.get("spending") or ledger.header.get("filter") or {}
    for key in ("delta", "relation"):
        if key in budget and budget[key] != statement.get(key):
            wrong.append(
                f"statement.json says {key} {statement.get(key)!r} and the budget in ledger.jsonl {budget[key]!r}"
            )
    for key in ("method", "variant", "unit", "observer", "delta", "relation", "secure", "defence"):
        planned = getattr(plan, key, None)
        if planned is not None and statement.get(key) != planned:
            wrong.append(f"statement.json says {key} {statement.get(key)!r} and plan.toml {str(planned)!r}")
    if wrong:
        return Check(name, False, "; ".join(dict.fromkeys(wrong)) + ".")
    said = f"{about['unit']} unit, {about['relation']}, towards {about['observer']}, delta {statement['delta']:g}: the same in plan, ledger and statement."
    return Check(name, True, said)


def rounds(statement: Row, ledger: Chain, plan: Plan | None) -> Check:
    """Every round that is claimed was granted, and lost rounds are told."""
    name, claimed, lost = "rounds", statement.get("rounds"), statement.get("lost", 0)
    if not all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in (claimed, lost)):
        return Check(name, False, f"statement.json claims {claimed!r} rounds and {lost!r} lost ones.")
    granted = len(ledger.rounds)
    if lost != len(ledger.lost):
        return Check(name, False, f"statement.json tells {lost} lost rounds and ledger.jsonl {len(ledger.lost)}.")
    if int(claimed) + lost != granted:  # type: ignore[arg-type]
        said = f"statement.json claims {claimed} rounds and {lost} lost ones, and ledger.jsonl grants {granted}."
        return Check(name, False, said)
    if plan is not None and granted > plan.rounds:
        return Check(name, False, f"ledger.jsonl grants {granted} rounds and plan.toml asks for {plan.rounds}.")
    also = f", {lost} of them lost" if lost else ""
    return Check(name, True, f"{granted} rounds were granted{also}; the statement claims {claimed}.")


def schedule(statement: Row, ledger: Chain) -> Check:
    """A proof for a schedule that was fixed beforehand holds if grants follow the schedule."""
    name, kept = "schedule", ledger.header.get("filter") or {}
    if statement.get("epsilon") == "inf":
        return Check(name, True, "no epsilon is claimed, so no schedule has to be kept.")
    spending = ledger.header.get("spending")
    if spending is not None:
        if number(spending.get("epsilon")) != number(statement.get("epsilon")):
            said = f"statement.json says epsilon {statement.get('epsilon')!r}, and ledger.jsonl gives each client {spending.get('epsilon')!r}."
            return Check(name, False, said)
        return Check(name, True, "each client has a budget of its own, fixed before round one.")
    if kept.get("kind") != "schedule" or not isinstance(kept.get("schedule"), list):
        if kept.get("kind") in ("rdp", "gdp"):
            return Check(name, True, "a filter granted each round; there is no schedule to keep.")
        return Check(name, False, "statement.json claims an epsilon, and ledger.jsonl was kept without a budget.")
    if number(kept.get("epsilon")) != number(statement.get("epsilon")):
        said = f"statement.json says epsilon {statement.get('epsilon')!r}, and ledger.jsonl was opened for {kept.get('epsilon')!r}."
        return Check(name, False, said)
    settled = [row for run in kept["schedule"] if _is_run(run) for row in [run[0]] * min(run[1], len(ledger.grants))]
    if len(settled) < len(ledger.grants):
        said = f"ledger.jsonl grants {len(ledger.grants)} releases, and its schedule has {len(settled)}."
        return Check(name, False, said)
    for grant, row in zip(ledger.grants, settled):
        if grant["event"] != row and not _no_costlier(leaves(grant["event"]), leaves(row)):
            said = f"line {grant['seq'] + 1} of ledger.jsonl grants another release than the schedule that was fixed before round one."
            return Check(name, False, said)
    return Check(name, True, f"{len(ledger.grants)} grants follow the schedule that was fixed before round one.")


def _is_run(run: object) -> bool:
    return (
        isinstance(run, list) and len(run) == 2 and isinstance(run[0], dict) and isinstance(run[1], int) and run[1] > 0
    )


def _no_costlier(made: Counter[Leaf] | None, settled: Counter[Leaf] | None) -> bool:
    """The settled release with more noise: everything else is the same."""
    if made is None or settled is None or len(made) != 1 or len(settled) != 1 or made.total() != settled.total():
        return False
    (one,), (other,) = made, settled
    same = (one.noise, one.sampling, one.rate, one.counts) == (other.noise, other.sampling, other.rate, other.counts)
    return same and one.multiplier >= other.multiplier


def signed_page(folder: Path, statement: Row) -> Check:
    """`statement.txt` prints the epsilon of `statement.json`, rounded up in the fourth digit, or says NOT PRIVATE."""
    name, epsilon = "signed page", number(statement.get("epsilon"))
    try:
        text = " ".join((folder / "statement.txt").read_text().split())
    except (OSError, ValueError):
        return Check(name, False, "statement.txt is missing or cannot be read; bring back the file of this run.")
    found = re.search(r"\bPROVEN: epsilon (\S+), delta (\S+), for", text)
    private = epsilon is not None and math.isfinite(epsilon)
    if private != (found is not None) or private == ("NOT PRIVATE" in text):
        return Check(name, False, "statement.txt does not give the verdict of statement.json.")
    if found is None:
        why = bool(statement.get("reasons"))
        said = (
            "statement.txt says that the run is not private, and why." if why else "statement.json gives no reason why."
        )
        return Check(name, why, said)
    for word, key in zip(found.groups(), ("epsilon", "delta")):
        exact, shown = number(statement.get(key)), _float(word)
        if exact is None or shown is None or not exact * (1 - 1e-9) <= shown <= exact * 1.0011 + 1e-12:
            return Check(
                name, False, f"statement.txt prints {key} {word}, and statement.json says {statement.get(key)!r}."
            )
    return Check(name, True, "statement.txt prints the epsilon and delta of statement.json.")


def _float(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def checkpoint(folder: Path, ledger: Chain) -> Check | None:
    """The checkpoint saw a line of this ledger; None if there is no checkpoint."""
    name, file = "checkpoint", folder / "checkpoint" / "state.safetensors"
    if not file.is_file():
        return None
    try:
        with open(file, "rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length > file.stat().st_size:
                raise ValueError
            head = json.loads(json.loads(stream.read(length))["__metadata__"]["facts"])["ledger"]
        seq, seen = head["seq"], head["hash"]
        known = 0 <= seq < len(ledger.hashes) and ledger.hashes[seq] == seen
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return Check(name, False, f"checkpoint/{file.name} does not say which ledger it belongs to.")
    if known:
        return Check(name, True, f"the checkpoint was taken at line {seq + 1} of this ledger.")
    return Check(name, False, f"checkpoint/{file.name} saw line {seq + 1} of a ledger that is not this ledger.jsonl.")
