"""The test on held-out records: one noisy sum after the last round, settled and charged with the rest of the plan.

    settle   one Gaussian event on every held-out unit, without sampling
    grant    in a ledger of its own, held_out.jsonl, on disk before a held-out record is touched; once
    ask      each record's contribution (`noisy_figures`) has length 1 at most; a client's is the mean of its records'
    noise    where the scheme has it: by the server, in shares, or in full by each client
    keep     the noisy sum is on disk before anything is made of it; a run that resumes takes it from there

What it costs. In the example unit a record is trained on or held out, and its place decides which: a held-out record is
exposed to this release and to nothing else, and a trained one to everything but this release, which sees of it only the
released model. So the run costs the larger of the two, and the noise of the test is what the whole budget allows. In the
client unit a client has records of both kinds: the test takes `budget_shares.TEST_SHARE` of the budget, and the rounds the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sordino.errors import BadInput, NotPrivate
from sordino.federation import binding
from sordino.federation.held_out import NOISY
from sordino.files import write_atomically
from sordino.noisy_figures import Measure
from sordino.noisy_spread import Spreading
from sordino.plain import Json
from sordino.privacy.bounds import Flat
from sordino.privacy.filter import Filter, NoBudget, ScheduleFilter
from sordino.privacy.ledger import Ledger
from sordino.privacy.mechanisms import FixedPoint
from sordino.privacy.vocabulary import Noise, Unit
from sordino.schemes import expected, prelude
from sordino.schemes.aggregate import Aggregate, aggregate
from sordino.schemes.request import HELD_OUT, Reply, Request
from sordino.schemes.terms import Terms

if TYPE_CHECKING:
    from torch import nn

    from sordino.clients.alone import Alone
    from sordino.federation.population import Federation
    from sordino.noisy_figures import NoisyFigures
    from sordino.plan import Plan

BOUND = Flat(1.0)
LEDGER, FILE = "held_out.jsonl", "held_out.json"
FORMAT = "sordino-held-out-1"
Test = Callable[[Request, np.ndarray], Aggregate]  # has every client test these weights on its held-out records


def measure_for(terms: Terms, federation: Federation) -> Measure:
    """What the plan's test measures: the same at the server and at every holder. Refused if nothing bounds it."""
    held, schema, spreading = terms.public.held_out, federation.schema, None
    if terms.plan.fairness == NOISY and held is not None:
        spreading = Spreading(str(terms.plan.unit), tuple(int(n) for n in held))
    return Measure(federation.task, federation.class_names, None if schema is None else schema.scale, spreading)


# ---- what is asked ---------------------------------------------------------------------------------------------------------


def request_for(terms: Terms) -> Request:
    """What every client is asked; a data holder makes the same request from its own terms."""
    z = terms.held_out
    if z is None:
        raise NotPrivate("the plan holds no records out.")
    by_clients = terms.scheme.noise != Noise.CENTRAL and terms.plan.private
    return Request(
        round=0,
        phase=HELD_OUT,
        grid=FixedPoint.for_bound(BOUND, terms.tested + 1, max(1000.0, z)),
        bound=BOUND,
        multiplier=z if by_clients else None,
        survivors=prelude.survivors(terms),
    )


def expected_request(terms: Terms, asked: Request) -> Request:
    """A data holder's own copy of the request, or `NotPrivate`."""
    if asked.bound != BOUND or asked.query is not None or asked.state:
        raise NotPrivate("a test is a sum of contributions of length 1, and nothing else is asked with it.")
    return expected.same(request_for(terms), asked)


def budget_filter(terms: Terms) -> Filter:
    """One release, and no second one."""
    if not terms.proven:
        return NoBudget("the run is not private")
    spent = terms.spent
    return ScheduleFilter([terms.held_out_event], spent.epsilon, terms.plan.delta, terms.relation, spent.accountant)


def open_ledger(folder: Path, terms: Terms, digest: str, begun: bool) -> Ledger:
    """The ledger of the test. A run that has begun has one: without it nobody knows whether the test was made."""
    path = folder / LEDGER
    if path.exists():
        return Ledger.open(path, digest)
    if begun:
        raise BadInput(f"{path} is missing, so whether the held-out records were used is not known; restore it.")
    return Ledger.create(path, digest, budget_filter(terms), terms.about())


def grant(terms: Terms, ledger: Ledger) -> bool:
    """On disk; False where the test was granted before, was cut short, and secure noise cannot be drawn twice."""
    event = terms.held_out_event
    if ledger.granted(0) is None:
        ledger.request(event, 0)
        return True
    if terms.plan.secure:
        return False
    ledger.resume(0, secure=False, event=event)
    return True


# ---- where the data is -----------------------------------------------------------------------------------------------------


def contribute(
    request: Request, plan: Plan, measure: Measure, model: Alone, client: int, x: np.ndarray, y: np.ndarray, out: np.ndarray
) -> Reply:  # fmt: skip
    """Add what one client's held-out records say of `model`, and its noise if it owes any, to `out`; the evidence of it."""
    rows = measure.contributions(model.scores(x), y, client)
    return prelude.add(request, plan, [rows], client, len(y), "held-out", out)


def here(federation: Federation, plan: Plan, measure: Measure, model: nn.Module) -> Test:
    """For simulations: every client's data is on this machine. `federation`: what is held out, as model input."""

    def ask(request: Request, theta: np.ndarray) -> Aggregate:
        from sordino.clients.alone import Alone
        from sordino.gradients.flat import Flat as FlatModel

        FlatModel(model).load(theta)
        alone = Alone(model)
        codes, replies = np.zeros(measure.length, np.int64), []
        for k in range(federation.clients):
            replies.append((k, contribute(request, plan, measure, alone, k, *federation[k], codes)))
        return aggregate(request, codes, replies)

    return ask


# ---- the release -----------------------------------------------------------------------------------------------------------


def play(
    terms: Terms, measure: Measure, ledger: Ledger, ask: Test, theta: np.ndarray, folder: Path
) -> NoisyFigures | None:
    """The figures, from `folder` or released now; None where the release was cut short and cannot be made again."""
    kept, z = load(folder, ledger), terms.held_out or 0.0
    if kept is not None:
        noisy, surplus, absent = np.array(kept["sum"], np.float64), float(kept["surplus"]), int(kept["absent"])
    elif grant(terms, ledger):
        said = ask(request_for(terms), theta)
        noisy, surplus = prelude.opened(terms, z, said.total, "held-out")
        absent = terms.plan.clients - said.contributors
    else:
        return None
    found = measure.read(noisy / terms.tested, z * surplus / terms.tested, terms.tested, str(terms.plan.unit))
    if absent:  # never divided by who is there
        gone = f"{absent} of {terms.plan.clients} clients did not answer: of what they hold out half counts as right."
        found = replace(found, warnings=(gone, *found.warnings))
    if kept is None:
        facts = {"sum": noisy.tolist(), "surplus": surplus, "absent": absent, "figures": found.to_json()}
        save(folder, facts, ledger)
    return found


def save(folder: Path, kept: Json, ledger: Ledger) -> None:
    """Bound to the ledger under whose grant it was released."""
    run = binding.mark(folder / "checkpoint")
    facts = {"format": FORMAT, "plan": ledger.plan_digest, "grant": ledger.head["hash"], "run": run}
    write_atomically(folder / FILE, json.dumps(facts | kept, indent=2, ensure_ascii=False) + "\n", durable=True)


def load(folder: Path, ledger: Ledger) -> Json | None:
    """What this run has released already; a file of another run is refused."""
    path = folder / FILE
    if not path.exists():
        return None
    wrong = BadInput(f"{path} does not belong to this run's {LEDGER}; bring back its own file, or start a new run.")
    try:
        kept = json.loads(path.read_text())
        mine = kept["plan"] == ledger.plan_digest and kept["run"] == binding.mark(folder / "checkpoint")
        finite = all(np.isfinite([*kept["sum"], kept["surplus"], kept["absent"]]))
    except (OSError, KeyError, TypeError, ValueError):
        raise wrong from None
    if not (mine and finite) or ledger.granted(0) is None:
        raise wrong
    return kept


def words(terms: Terms) -> tuple[str, ...]:
    """The test in the sentences of a statement."""
    z, plan = terms.held_out, terms.plan
    if z is None:
        return ()
    who = "client" if plan.unit == Unit.CLIENT else "record"
    what = f"{plan.holdout:.4g} of every client's records are held out: nothing is trained on them, and their places decide which they are."
    how = f"multiplier {z:.4g}, every tested {who} once, no sampling" if z else "without noise"
    said = [what, f"How good the model is on them: one release after the last round, {how}."]
    if plan.fairness == NOISY:
        apart = (
            "the accuracy of every client" if plan.unit == Unit.EXAMPLE else "how far the clients' accuracies lie apart"
        )
        said.append(f"The same release tells {apart}.")
    if terms.proven and plan.unit == Unit.EXAMPLE:
        said.append(
            "A held-out record is exposed to this release alone, and any other record to the rest: epsilon is the larger of both."
        )
    elif terms.proven:
        said.append("Its cost is part of the epsilon above, together with that of the rounds.")
    return tuple(said)
