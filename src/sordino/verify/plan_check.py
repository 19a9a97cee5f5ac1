"""The plan in the folder against the plan that the ledger is bound to, and what follows from the plan."""

from __future__ import annotations

import hashlib
from pathlib import Path

from sordino.errors import SordinoError
from sordino.federation import sampling
from sordino.plan import Plan
from sordino.verify import chain
from sordino.verify.chain import Chain
from sordino.verify.manifest import HELD_OUT, HELD_OUT_LEDGER, PRELUDE
from sordino.verify.verdict import Broken, Check

_MOST_ROUNDS, _MOST_CLIENTS = 10**6, 10**8  # a file may name any number


def load(folder: Path) -> Plan:
    """The plan of a run; one that cannot be used breaks the check."""
    try:
        return Plan.load(folder / "plan.toml")
    except SordinoError as error:
        raise Broken(f"plan.toml cannot be used: {str(error).rstrip('.')}.") from None


def bound(plan: Plan, ledger: Chain) -> Check:
    """Whether the ledger was made for this plan."""
    wanted, name = ledger.header["plan"], "plan digest"
    digest = plan.digest()
    if plan.metanet is not None:
        try:
            digest = hashlib.sha256(digest.encode() + Path(plan.metanet).read_bytes()).hexdigest()
        except OSError:
            said = f"the ledger is bound to the content of {plan.metanet}, which is not on this machine."
            return Check(name, None, said)
    if digest == wanted:
        return Check(name, True, f"ledger.jsonl was made for the plan in plan.toml ({digest[:12]}).")
    said = f"plan.toml is not the plan that ledger.jsonl was made for ({digest[:12]} instead of {wanted[:12]})."
    return Check(name, False, said)


def exposures(plan: Plan, ledger: Chain) -> tuple[int | None, Check | None]:
    """In how many rounds the busiest unit takes part; None: in all of them.

    An observer who sees who takes part gives no amplification, and a unit is charged for its own rounds only. Cohorts
    are drawn without looking at data, so the plan says how many rounds that is; the ledger must not say fewer.
    """
    told = ledger.about.get("exposures")
    if not plan.scheme.cohort_seen or ledger.header.get("spending") is not None:
        drawn = plan.scheme.exposures(settled(plan, ledger)) if plan.scheme.separation > 1 else settled(plan, ledger)
    elif plan.rounds > _MOST_ROUNDS or plan.clients > _MOST_CLIENTS:
        return None, None  # drawing so many would never end: all rounds count
    else:
        rounds = min(settled(plan, ledger), plan.rounds)
        drawn = sampling.participations(plan, max(1, rounds))
    if told is None:
        return drawn, None
    name = "exposures"
    if isinstance(told, bool) or not isinstance(told, int) or told < 1:
        return None, Check(
            name, False, f"the header of ledger.jsonl says exposures {told!r}, which is no number of rounds."
        )
    if told < drawn:
        said = f"ledger.jsonl says that no unit takes part in more than {told} rounds, and by plan.toml one takes part in {drawn}."
        return None, Check(name, False, said)
    return told, Check(name, True, f"the busiest unit takes part in {told} rounds, as plan.toml says.")


def prelude(plan: Plan, ledger: Chain, folder: Path) -> Check | None:
    """The statistics that the plan asks for before round 1 were granted once each, and nothing else was; None: there are none."""
    name, wanted = "prelude", _statistics(plan)
    if not wanted and not ledger.prelude:
        return None
    steps = [(grant.get("step", 0), grant["attempt"]) for grant in ledger.prelude]
    if (
        steps != [(step, 1) for step in range(len(steps))]
        or len(steps) > wanted
        or ledger.rounds
        and len(steps) < wanted
    ):
        said = f"plan.toml asks for {wanted} statistics before round 1, and ledger.jsonl grants {len(steps)} releases for them."
        return Check(name, False, said)
    kinds = {grant["event"].get("kind") for grant in ledger.prelude}
    if not kinds <= {"gaussian", "nonprivate"}:
        return Check(
            name, False, f"ledger.jsonl grants a statistic before round 1 as {', '.join(sorted(map(str, kinds)))}."
        )
    if ledger.rounds and not (folder / PRELUDE).is_file():
        return Check(name, False, f"{PRELUDE} is missing: the model takes input that nobody can make without it.")
    return Check(name, True, f"{len(steps)} statistics were granted before round 1, as plan.toml asks.")


def held_out(plan: Plan, ledger: Chain, folder: Path) -> tuple[Chain | None, Check | None]:
    """The ledger of the test on held-out records: of the same plan, with one release at most; None: nothing is held out."""
    name, path = "held-out share", folder / HELD_OUT_LEDGER
    if plan.holdout is None and not path.exists():
        return None, None
    if plan.holdout is None:
        return None, Check(
            name, False, f"{HELD_OUT_LEDGER} grants a test on held-out records, and plan.toml holds none out."
        )
    aside = chain.read(path)
    wrong = None
    if aside.header["plan"] != ledger.header["plan"] or aside.about != ledger.about:
        wrong = f"{HELD_OUT_LEDGER} was not made for the plan of ledger.jsonl."
    elif [(grant["round"], grant["attempt"]) for grant in aside.grants] not in ([], [(0, 1)]):
        wrong = f"{HELD_OUT_LEDGER} grants {len(aside.grants)} releases, and the held-out records are tested on once."
    elif (folder / HELD_OUT).is_file() and not aside.grants:
        wrong = f"{HELD_OUT} holds figures that {HELD_OUT_LEDGER} does not grant."
    if wrong is not None:
        return aside, Check(name, False, wrong)
    made = "once, as plan.toml asks" if aside.grants else "not at all"
    return aside, Check(name, True, f"{plan.holdout:.4g} of the records are held out, and were tested on {made}.")


def _statistics(plan: Plan) -> int:
    return 0 if plan.preparation is None else len(plan.preparation.statistics)


def settled(plan: Plan, ledger: Chain) -> int:
    """The rounds that the budget allows: all of the schedule but the prelude, or those that were granted."""
    schedule = (ledger.header.get("filter") or {}).get("schedule")
    if isinstance(schedule, list):
        all_runs = (run[1] for run in schedule if isinstance(run, list) and len(run) == 2 and isinstance(run[1], int))
        return sum(all_runs) - _statistics(plan)
    return len(ledger.rounds)
