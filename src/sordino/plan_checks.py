"""What a plan may say: numbers within their range, words that are known, and combinations that a proof covers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sordino import defences
from sordino.data.schema import CLASSIFICATION, TASKS
from sordino.errors import BadInput, at_least, between, one_of, positive, whole
from sordino.federation.averaging import AVERAGES
from sordino.federation.held_out import FAIRNESS, NOISY
from sordino.federation.server import SCHEDULES, STEPS
from sordino.schemes.base import RECORD_CANARIES

if TYPE_CHECKING:
    from sordino.plan import Plan

OPTIMIZERS = ("sgd", "momentum", "adam")
MECHANISMS = ("gaussian", "laplace")
PARTITIONS = ("iid", "dirichlet", "dirichlet-mix", "shards", "natural")
WEIGHTS = ("uniform", "size")
MOST_ROUNDS = 1_000_000  # more than anyone trains, and few enough to list
MOST_NOISE = 1e6  # as a multiplier: nothing of a model is left long before, and sums on the grid still have room
CANARIES = ("turning", "steady", *RECORD_CANARIES)


def check_numbers(plan: Plan) -> None:
    """Refuse numbers out of their range, and words that nobody knows."""
    whole(clients=plan.clients, cohort=plan.cohort_size, rounds=plan.rounds, local_epochs=plan.local_epochs)
    if plan.rounds > MOST_ROUNDS:
        raise BadInput(f"rounds {plan.rounds:,} is more than {MOST_ROUNDS:,}; ask for at most that many.")
    whole(batch_size=plan.batch_size)
    if plan.classes is not None:
        whole(2 if plan.task == CLASSIFICATION else 1, classes=plan.classes)
    whole(0, canaries=plan.canaries, seed=plan.seed)
    if plan.seed >= 2**63:
        raise BadInput(f"seed {plan.seed} does not fit into 63 bits; use a smaller number.")
    positive(alpha=plan.alpha, bound=plan.bound, lr=plan.lr, server_lr=plan.server_lr)
    at_least(0, momentum=plan.momentum, server_momentum=plan.server_momentum)
    between(0, 1, delta=plan.delta)
    if plan.epsilon is not None:
        positive(epsilon=plan.epsilon)
    if plan.multiplier is not None:
        positive(multiplier=plan.multiplier)
        if plan.multiplier > MOST_NOISE:
            raise BadInput(f"multiplier {plan.multiplier:g} is more than {MOST_NOISE:g}; ask for less noise.")
    if plan.weight_cap is not None:
        whole(weight_cap=plan.weight_cap)
    if plan.survivors is not None:
        whole(survivors=plan.survivors)
    one_of(PARTITIONS, partition=plan.partition)
    one_of(TASKS, task=plan.task)
    if plan.partition_seed is not None:
        whole(0, partition_seed=plan.partition_seed)
    one_of(MECHANISMS, mechanism=plan.mechanism)
    one_of(WEIGHTS, weights=plan.weights)
    one_of(CANARIES, canary=plan.canary)
    one_of(OPTIMIZERS, optimizer=plan.optimizer, server_optimizer=plan.server_optimizer)
    one_of(STEPS, steps=plan.steps)
    one_of(SCHEDULES, lr_schedule=plan.lr_schedule)
    one_of(AVERAGES, average=plan.average)
    one_of(FAIRNESS, fairness=plan.fairness)


def check_fit(plan: Plan) -> None:
    """Refuse combinations that no proof covers, rather than warn about them."""
    known = plan.method_spec
    if plan.unit not in known.units:
        raise BadInput(f"method {plan.method} does not run in the {plan.unit} unit; use {' or '.join(known.units)}.")
    offered = known.towards(plan.variant)
    if plan.observer not in offered:
        printed = " as published" if plan.observer in known.observers else ""
        raise BadInput(
            f"method {plan.method}{printed} does not run towards observer {plan.observer}; use {' or '.join(offered)}."
        )
    if plan.cohort_size > plan.clients:
        raise BadInput(
            f"cohort {plan.cohort_size} is larger than the {plan.clients} clients; ask for at most {plan.clients}."
        )
    known.check(plan)
    if known.private and plan.multiplier is None and plan.epsilon is None:
        raise BadInput("give epsilon (a budget) or multiplier (the noise); neither was given.")
    if not known.private and not (plan.multiplier is None and plan.epsilon is None):
        raise BadInput(
            f"method {plan.method} has no privacy: neither epsilon nor multiplier says anything; leave them out."
        )
    if plan.canaries and not known.private:
        raise BadInput(f"method {plan.method} has no bound for canaries to reach; use a private method, or canaries 0.")
    plan.scheme.check()
    if plan.preparation is not None:
        plan.scheme.check_prelude()
    if plan.holdout is not None:
        plan.scheme.check_held_out()
    elif plan.fairness == NOISY:
        raise BadInput(
            "fairness noisy compares clients on records that are held out, and the plan holds none out; say test "
            "holdout=0.1, or leave fairness out."
        )
    defences.build(plan)  # an unknown name, or a setting that it does not have
