"""From the terms of a run and how it went to its privacy statement."""

from __future__ import annotations

import math

from sordino.federation.sampling import rate
from sordino.privacy.statement import Statement, assumptions
from sordino.privacy.vocabulary import Noise, Observer, Sampling, Unit
from sordino.schemes.base import TrainState
from sordino.schemes.terms import Terms, local_steps


def state(
    terms: Terms,
    model: TrainState,
    stopped: str | None = None,
    share: float | None = None,
    lost: int = 0,
    simulated: bool = True,
) -> Statement:
    """What is proven of the run that led to `model`. Its epsilon is that of all the rounds that were settled beforehand."""
    plan = terms.plan
    sampling, q = _sampling(terms)
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
        rounds=model.round - lost,
        noise=plan.noise,
        simulated=simulated,
        secure=plan.secure,
        multiplier=terms.multipliers or None,
        rule=_rule(terms),
        steps=max(local_steps(plan, n) for n in terms.public.distinct()) if plan.local else 1,
        epsilon_claimed=terms.claimed,
        reasons=terms.reasons,
        assumptions=assumptions(**_circumstances(terms, simulated)) if terms.proven else (),
        budget=plan.epsilon if terms.proven and not plan.published else None,
        spent=share if terms.proven else None,
        rounds_planned=plan.rounds,
        stopped=stopped or "",
        lost=lost,
        dimension=model.theta.size,
        noise_to_bound=noise_to_bound(terms, model.theta.size),
    )


def noise_to_bound(terms: Terms, dimension: int) -> float | None:
    """Length of the noise on the mean, in bounds: z sqrt(d) / m, and more where every client adds its own."""
    if not terms.multiplier:
        return None
    surplus = math.sqrt(terms.plan.cohort_size) if terms.plan.noise == Noise.LOCAL else 1.0
    return terms.multiplier * math.sqrt(dimension) / terms.units * surplus


def _sampling(terms: Terms) -> tuple[Sampling, float | None]:
    """The sampling that the proof uses, which is none where the observer sees who takes part."""
    plan = terms.plan
    if plan.unit == Unit.EXAMPLE:
        q = (
            max(terms.record_rate(n) for n in terms.public.distinct())
            if plan.local
            else terms.record_rate(terms.public.examples)
        )
        return (Sampling.NONE, None) if q == 1 else (Sampling.POISSON, q)
    if plan.private and plan.observer != Observer.PUBLIC or plan.sampling == Sampling.NONE:
        return Sampling.NONE, None
    return plan.sampling, rate(plan)


def _rule(terms: Terms) -> str:
    return f"{terms.plan.method} ({terms.plan.method_spec.paper})"


def _circumstances(terms: Terms, simulated: bool) -> dict:
    plan = terms.plan
    return {
        "unit": plan.unit,
        "relation": terms.relation,
        "observer": plan.observer,
        "sampling": _sampling(terms)[0],
        "noise": plan.noise,
        "simulated": simulated,
        "discrete": not simulated and plan.secure and plan.noise == Noise.SHARES,
        "secure": plan.secure,
        "survivors": terms.survivors,
        "delta": plan.delta,
        "population": terms.public.clients if plan.unit == Unit.CLIENT else terms.public.examples,
    }
