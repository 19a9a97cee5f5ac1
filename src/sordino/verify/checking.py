"""All checks of one run folder, in order. What one file lacks does not stop the checks of the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sordino.errors import BadInput, SordinoError
from sordino.plan import Plan
from sordino.verify import attestations, chain, consistency, epsilon, manifest, plan_check
from sordino.verify.chain import Chain, Row
from sordino.verify.verdict import Broken, Check, Verdict

T = TypeVar("T")
_MARKS = ("plan.toml", "ledger.jsonl", "model.safetensors", "statement.json", "checkpoint")


def check(folder: str | Path, authority: str | Path | None = None, thorough: bool = True) -> Verdict:
    """Verify the run in `folder`. Only a folder that is no run is an error; everything else is a check that failed.

    `authority`: the certificate that signatures of data holders are checked against (default: `ca.crt` of the folder).
    `thorough` False leaves out what takes more than seconds: loss distributions of long uneven schedules.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise BadInput(f"there is no run folder {str(folder)!r}; give the folder that `sordino train` wrote.")
    if not any((folder / name).exists() for name in _MARKS):
        raise BadInput(
            f"{str(folder)!r} is not a run folder (it holds none of {', '.join(_MARKS)}); give that of a run."
        )
    trusted = None if authority is None else attestations.read_authority(Path(authority))
    made = _Checks()
    ledger = made.take("ledger", lambda: chain.read(folder / "ledger.jsonl"))
    if ledger is not None:
        made.add(Check("ledger", True, f"{len(ledger.hashes)} lines of ledger.jsonl follow from each other."))
    plan = made.take("plan", lambda: plan_check.load(folder))
    statement = made.take("statement", lambda: consistency.read_statement(folder))
    made.run("manifest", lambda: manifest.compare(folder, ledger))
    if ledger is None:
        return Verdict(str(folder), tuple(made.checks), _printed(statement))
    exposures, aside = None, None
    if plan is not None:
        made.run("plan digest", lambda: plan_check.bound(plan, ledger))
        found = made.take("exposures", lambda: plan_check.exposures(plan, ledger))
        exposures, said = found or (None, None)
        made.add(said)
        made.run("prelude", lambda: plan_check.prelude(plan, ledger, folder))
        aside, said = made.take("held-out share", lambda: plan_check.held_out(plan, ledger, folder)) or (None, None)
        made.add(said)
    made.run("checkpoint", lambda: consistency.checkpoint(folder, ledger))
    if statement is None:
        return Verdict(str(folder), tuple(made.checks))
    return _stated(folder, made, ledger, aside, plan, statement, exposures, trusted, thorough)


def after_training(folder: str | Path) -> str:
    """Write the manifest of a run that has just ended, check the run, and say the result in one line. Never raises."""
    try:
        manifest.write(Path(folder))
        return check(folder, thorough=False).line
    except Exception as error:  # noqa: BLE001 - the model is trained and stated; a failed check must not take it away
        return f"Not verified: the check came to no end ({type(error).__name__}: {error})."


def _stated(
    folder: Path,
    made: _Checks,
    ledger: Chain,
    aside: Chain | None,
    plan: Plan | None,
    statement: Row,
    exposures: int | None,
    authority: str | None,
    thorough: bool,
) -> Verdict:
    """What the statement claims."""
    made.run("promise", lambda: consistency.promise(statement, ledger, plan))
    made.run("rounds", lambda: consistency.rounds(statement, ledger, plan))
    made.run("schedule", lambda: consistency.schedule(statement, ledger))
    made.run("signed page", lambda: consistency.signed_page(folder, statement))
    made.run("signatures", lambda: attestations.compare(folder, statement, ledger, authority))
    opinion = made.take("epsilon", lambda: epsilon.judge(ledger, statement, exposures, thorough, aside))
    if opinion is None:
        return Verdict(str(folder), tuple(made.checks), _printed(statement))
    made.add(opinion.check)
    return Verdict(str(folder), tuple(made.checks), _printed(statement), opinion.epsilon, opinion.accountant)


class _Checks:
    """Checks as they are made. What raises counts as failed: an unreadable file must never pass."""

    def __init__(self) -> None:
        self.checks: list[Check] = []

    def add(self, found: Check | list[Check] | None) -> None:
        self.checks += found if isinstance(found, list) else [] if found is None else [found]

    def take(self, name: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except (Broken, SordinoError) as error:
            self.add(Check(name, False, str(error)))
        except Exception as error:  # noqa: BLE001 - whatever a hostile file provokes
            self.add(Check(name, False, f"the check of the {name} came to no end ({type(error).__name__}: {error})."))
        return None

    def run(self, name: str, make: Callable[[], Check | list[Check] | None]) -> None:
        self.add(self.take(name, make))


def _printed(statement: Row | None) -> float | None:
    return None if statement is None else epsilon.number(statement.get("epsilon"))
