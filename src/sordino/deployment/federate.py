"""A run across machines, from the first greeting to the statement; a round is the same as on one machine (`schemes.round`)."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from sordino.data.check import Pair
from sordino.data.dataset import Normalise
from sordino.data.schema import Schema
from sordino.deployment.greeting import greet
from sordino.engines import EngineOptions, Setup, Started
from sordino.engines.flower import wire
from sordino.engines.flower.engine import Patience, Remote, RemoteWork, ask_prelude, ask_test
from sordino.engines.flower.holder_run import terms_of
from sordino.engines.flower.part import Facts, Part
from sordino.engines.flower.policy import Refused
from sordino.engines.flower.transport import SecureChannel
from sordino.engines.flower.wire import Message
from sordino.errors import BadInput
from sordino.files import write_atomically
from sordino.plan import Plan
from sordino.preparation import Released
from sordino.privacy.ledger import Ledger
from sordino.schemes import held_out, prelude
from sordino.training import Progress, Result, train

log = logging.getLogger("sordino.server")
KEPT = "deployment.json"


def federate(
    post: SecureChannel,
    plan: Plan,
    out: Path,
    *,
    classes: int,
    test: Pair | None = None,
    normalise: Normalise | None = None,
    schema: Schema | None = None,
    certificates: Mapping[str, str] | None = None,
    authority: str | None = None,
    patience: Patience | None = None,
    resume: bool = False,
    simulated: bool = False,
    options: EngineOptions | None = None,
    on_round: Callable[[Progress], None] | None = None,
) -> Result:
    """Train as `plan` says with the clients behind `post`; with `resume` the run in `out` goes on where it was."""
    from sordino import recipes
    from sordino.models import build

    patience = patience or Patience()
    if plan.scheme.report_length and options is not None and options.checkpoint_every != 1:
        raise BadInput("clients that keep their own accounts go back one round at most; use checkpoint_every 1.")
    if plan.metanet is not None:
        raise BadInput(
            f"metanet {plan.metanet!r} is a file of this machine, and clients have the package's; leave it out."
        )
    if resume:
        kept = json.loads((out / KEPT).read_text())
        post.run, facts, plan = kept["run"], Facts.from_json(kept["facts"]), Plan.from_json(kept["plan"])
    else:
        post.run = os.urandom(8).hex()
        facts = greet(post, plan, classes, normalise, schema, patience)
        plan = plan.replace(task=facts.task)
        facts = facts.holding_out(plan)
        if plan.model == "auto":
            tokens = facts.normalise is not None and facts.normalise.tokens
            told = recipes.PublicFacts(sum(facts.sizes), facts.clients, facts.shape, facts.classes, tokens)
            plan = plan.replace(model=recipes.network_of(plan, told))
        kept = {"run": post.run, "facts": facts.to_json(), "plan": plan.to_json(), "names": post.names}
        out.mkdir(parents=True, exist_ok=True)
        if (out / "ledger.jsonl").exists():
            raise BadInput(f"{out} holds a run already; resume it, or give another folder.")
        write_atomically(out / KEPT, json.dumps(kept).encode(), durable=True)
    if facts.clients != plan.clients or kept["names"] != post.names:
        raise BadInput(
            f"the plan is for {plan.clients} clients and there are {len(post.names)} nodes; make them agree."
        )
    enrolment = {
        "plan": plan.to_json(),
        "facts": facts.to_json(),
        "names": post.names,
        "certificates": dict(certificates or {}),
    }

    stages = None if plan.preparation is None else plan.preparation.stages(facts.shape)
    terms, released = terms_of(plan, facts), list[np.ndarray]()  # what the prelude released, when it is over

    def put(kind: str, clients: Sequence[int]) -> dict[int, Message]:
        told = Message(kind, {}, wire.released_arrays(released)) if kind == "prepare" else Message(kind, enrolment)
        said = post.ask({k: told for k in clients}, patience.deadline)
        refused = {post.names[k]: p.head.get("said") or p.head.get("class") for k, p in post.problems.items()}
        if refused:
            raise Refused(" ".join(f"{name} refuses: {why}" for name, why in refused.items()))
        return said

    def enrol(clients: Sequence[int]) -> None:
        for k in put("enrol", clients):
            log.info("%s is enrolled", post.names[k])
        if stages is not None and len(released) == len(terms.prelude):
            put("prepare", clients)

    def put_prelude(theta: np.ndarray, survivors: int, known: Released) -> Remote:
        return Remote(post, terms, facts, None, theta, patience, enrol, simulated, survivors, known)

    def start(setup: Setup) -> Started:
        from sordino.clients.site import Site
        from sordino.engines.scoring import Scoring

        if stages is not None:
            released[:] = prelude.read(out)[0]
            put("prepare", post.present())
        site = Site(setup.model, setup.federation, plan, setup.loss, setup.draws)
        theta = site.flat.vector().cpu().numpy()
        current = theta.copy()
        scoring = Scoring(site, current)
        engine = Remote(post, setup.terms, facts, scoring, current, patience, enrol, simulated)
        return Started(engine, RemoteWork(), theta)

    if not resume:
        put("propose", post.present())  # before anyone has set a budget aside
    enrol(post.present())
    federation = Part.seen_by_server(facts, test)
    model = build(plan.model, facts.shape if stages is None else stages.shape, facts.classes, plan.seed)
    again = resume and (out / "ledger.jsonl").exists()
    ask = None if stages is None else ask_prelude(put_prelude, terms, stages)
    measure = None if terms.held_out is None else held_out.measure_for(terms, federation)
    result = train(
        model,
        federation,
        plan,
        out=out,
        resume=again,
        options=options,
        on_round=on_round,
        start=start,
        ask=ask,
        test=None if measure is None else ask_test(put_prelude, terms, measure.length),
    )
    _close(post, result, out, authority)
    return result


def _close(post: SecureChannel, result: Result, out: Path, authority: str | None) -> None:
    """Tell every holder how the run ended, and keep what each of them signs."""
    with Ledger.read(out / "ledger.jsonl") as ledger:
        head = ledger.head["hash"]
    told = {
        "statement": result.statement.text(),
        "rounds": result.statement.rounds,
        "epsilon": result.epsilon if result.terms.proven else 0.0,
        "ledger_head": head,
    }
    said = post.ask({k: Message("done", told) for k in post.present()}, 30.0)
    signed = [said[k].head["attestation"] for k in sorted(said) if "attestation" in said[k].head]
    if signed:
        write_atomically(out / "attestations.json", json.dumps(signed, indent=2) + "\n", durable=True)
    if authority is not None:
        write_atomically(out / "ca.crt", authority, durable=True)
