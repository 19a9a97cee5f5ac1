"""From the terms of a run and how it went to its privacy statement."""

from __future__ import annotations

import math

from sordino.privacy.assumptions import assumptions
from sordino.privacy.statement import Statement
from sordino.privacy.vocabulary import Unit
from sordino.schemes import held_out, prelude
from sordino.schemes.round import TrainState
from sordino.schemes.terms import Terms


def build_statement(
    terms: Terms,
    state: TrainState,
    stopped: str | None = None,
    share: float | None = None,
    lost: int = 0,
    simulated: bool = True,
    notes: tuple[str, ...] = (),
) -> Statement:
    """What is proven of the run that led to `state`. Its epsilon is that of all the rounds that were settled beforehand.

    `notes` are further assumptions, that the data or the model bring with them.
    """
    plan, scheme = terms.plan, terms.scheme
    sampling, q = scheme.proof_sampling(terms.public)
    sigma = plan.method_spec.sigma_in(plan, terms.multiplier)
    return Statement(
        method=plan.method,
        variant=plan.variant,
        unit=plan.unit,
        relation=terms.relation,
        observer=plan.observer,
        epsilon=terms.spent.epsilon,
        delta=plan.delta,
        accountant=terms.spent.accountant,
        sampling=sampling,
        rate=q,
        rounds=state.round - lost,
        noise=scheme.noise,
        simulated=simulated,
        secure=plan.secure,
        seed=None if plan.secure else plan.seed,
        notes=notes if terms.proven else (),
        prelude=_prelude(terms),
        held_out=held_out.words(terms),
        multiplier=(terms.multipliers or None) if sigma is None else None,
        sigma=sigma,
        rule=f"{plan.method} ({plan.method_spec.paper})",
        steps=scheme.steps(terms.public),
        separation=scheme.separation,
        epsilon_claimed=terms.claimed,
        reasons=terms.reasons,
        departures=plan.method_spec.departures(plan),
        guess=plan.method_spec.guess_in(plan),
        assumptions=_assumptions(terms, simulated) if terms.proven else (),
        budget=plan.epsilon if terms.proven and not plan.published else None,
        spent=share if terms.proven else None,
        rounds_planned=plan.rounds,
        stopped=stopped or "",
        lost=lost,
        personal=scheme.keeps_personal,
        defence=plan.defence,
        dimension=state.theta.size,
        noise_to_bound=noise_to_bound(terms, state.theta.size) if sigma is None else None,
    )


def _prelude(terms: Terms) -> tuple[str, ...]:
    """Each statistic of the prelude in a sentence."""
    preparation = terms.plan.preparation
    if preparation is None:
        return ()
    who = "client" if terms.plan.unit == Unit.CLIENT else "record"
    said = []
    for statistic, z in zip(preparation.statistics, terms.prelude):
        name = statistic.words[0].upper() + statistic.words[1:]
        how = f"multiplier {z:.4g}, every {who} once, no sampling" if z else "without noise"
        counted = "; its cost is part of the epsilon above" if terms.proven else ""
        said.append(f"{name}: one release, {how}{counted}.")
    if terms.scheme.divides_noise:
        needed = prelude.survivors(terms)
        said.append(
            f"The noise of these releases is divided among {needed} of the {terms.plan.clients} clients: at least so many must add "
            "their share and collude with no one."
        )
    return tuple(said)


def noise_to_bound(terms: Terms, dimension: int) -> float | None:
    """Length of the noise on the mean of one release, in bounds: z sqrt(d) / m; Laplace noise of scale z has the deviation sqrt(2) z."""
    if not terms.multiplier:
        return None
    std = terms.multiplier * (math.sqrt(2) if terms.plan.mechanism == "laplace" else 1.0)
    return std * math.sqrt(dimension) / terms.scheme.contributions(terms.public)


def _assumptions(terms: Terms, simulated: bool) -> tuple[str, ...]:
    plan, scheme = terms.plan, terms.scheme
    return assumptions(
        unit=plan.unit,
        relation=terms.relation,
        observer=plan.observer,
        sampling=scheme.proof_sampling(terms.public)[0],
        noise=scheme.noise,
        simulated=simulated,
        secure=plan.secure,
        survivors=terms.survivors,
        delta=plan.delta,
        population=terms.public.clients if plan.unit == Unit.CLIENT else terms.public.examples,
        held_out=terms.held_out is not None,
    )
