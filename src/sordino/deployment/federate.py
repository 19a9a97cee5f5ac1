"""A run across machines, from the first greeting to the statement; all of the round is `federation.round`'s."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from sordino.data.check import Pair
from sordino.data.dataset import Normalise, usual
from sordino.engines import EngineOptions, Setup, Started
from sordino.engines.flower import wire
from sordino.engines.flower.engine import Patience, Remote, RemoteWork, ask_prelude
from sordino.engines.flower.holder import VERSION
from sordino.engines.flower.holder_run import terms_of
from sordino.engines.flower.part import Facts, Part
from sordino.engines.flower.policy import Refused
from sordino.engines.flower.transport import SecureChannel
from sordino.engines.flower.wire import MalformedMessage, Message
from sordino.errors import BadInput, SordinoError
from sordino.files import write_atomically
from sordino.plan import Plan
from sordino.preparation import Released
from sordino.privacy.ledger import Ledger
from sordino.schemes import prelude
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
    certificates: Mapping[str, str] | None = None,
    authority: str | None = None,
    patience: Patience | None = None,
    resume: bool = False,
    simulated: bool = False,
    options: EngineOptions | None = None,
    on_round: Callable[[Progress], None] | None = None,
) -> Result:
    """Train as `plan` says with the clients behind `post`; with `resume` the run in `out` goes on where it was."""
    from sordino.models import build, default_for

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
        facts = _greet(post, plan, classes, normalise, patience)
        plan = plan.replace(model=default_for(plan.data) if plan.model == "auto" else plan.model)
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
    result = train(
        model, federation, plan, out=out, resume=again, options=options, on_round=on_round, start=start, ask=ask
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


def _greet(post: SecureChannel, plan: Plan, classes: int, normalise: Normalise | None, patience: Patience) -> Facts:
    """Everybody must be there once, to say how many records it has."""
    limit = time.monotonic() + patience.wait
    said: dict[int, Message] = {}
    while len(said) < len(post.names):
        missing = [k for k in post.present() if k not in said]
        if missing:
            new = post.ask({k: Message("hello") for k in missing}, min(60.0, patience.deadline))
            for k, hello in new.items():
                said[k] = hello
                log.info("%s is there (%d of %d)", post.names[k], len(said), len(post.names))
        if len(said) < len(post.names):
            if time.monotonic() > limit:
                absent = ", ".join(name for k, name in enumerate(post.names) if k not in said)
                raise SordinoError(f"these clients did not come within {patience.wait:g} s: {absent}.")
            time.sleep(0.2)
    hellos = [said[k] for k in range(len(post.names))]
    try:
        shapes = {tuple(hello.get("shape", list)) for hello in hellos}
        types = {np.dtype(hello.get("type", str)) for hello in hellos}
        sizes = tuple(hello.get("records", int) for hello in hellos)
        versions = {hello.get("version", int) for hello in hellos}
    except (MalformedMessage, TypeError) as error:
        raise SordinoError(f"a client said what cannot be used: {error}") from None
    if versions != {VERSION} or len(shapes) != 1:
        raise BadInput(
            f"the clients' records have shapes {sorted(shapes)} under versions {sorted(versions)}: one is needed."
        )
    if normalise is None:
        ways = {json.dumps(None if w is None else w.to_json()) for w in map(usual, types)}
        if len(ways) != 1:
            raise BadInput(f"the clients' records are of types {', '.join(map(str, types))}; make them agree.")
        normalise = usual(types.pop())
    return Facts(plan.data, classes, shapes.pop(), sizes, normalise)
