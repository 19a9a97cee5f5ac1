"""What plans release, against events written out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from sordino.errors import BadInput, BudgetRefused
from sordino.federation import sampling
from sordino.federation.sampling import public_cohort as draw
from sordino.federation.sizes import PublicSizes
from sordino.plan import Plan
from sordino.privacy import accounting, events
from sordino.privacy.vocabulary import Relation
from sordino.schemes import settle

TEN = PublicSizes(10, np.full(10, 100))
HUNDRED = PublicSizes(100, np.full(100, 60))


def terms(public=HUNDRED, **settings):
    base = {"clients": public.clients, "method": "dp-fedavg", "rounds": 20, "multiplier": 2.0}
    return settle(Plan(**(base | settings)), public)


def test_client_unit_towards_the_public_is_amplified_by_secret_coins():
    t = terms(unit="client", observer="public", cohort=10)
    assert t.total == events.repeated(events.poisson(0.1, events.gaussian(2.0)), 20)
    assert t.relation is Relation.ZERO_OUT  # how many clients there are is public: the rate follows from it


def test_fixed_size_cohorts_are_replace_one():
    t = terms(unit="client", observer="public", cohort=10, sampling="fixed")
    assert t.total == events.repeated(events.without_replacement(100, 10, events.gaussian(2.0)), 20)
    assert t.relation is Relation.REPLACE_ONE


@pytest.mark.parametrize("observer", ["secagg-server", "server"])
def test_a_server_that_sees_who_takes_part_gets_no_amplification(observer):
    t = terms(unit="client", observer=observer, cohort=10, sampling="fixed")
    counts = np.bincount(np.concatenate([draw(t.plan, r) for r in range(1, 21)]), minlength=100)
    assert t.total == events.repeated(events.gaussian(2.0), int(counts.max()))
    assert t.relation is Relation.ZERO_OUT
    assert counts.max() < 20


def test_pooled_examples_are_drawn_from_all_records():
    t = terms(unit="example", observer="public", batch_size=60)
    assert t.total == events.repeated(events.poisson(60 / 6000, events.gaussian(2.0)), 20)
    assert t.units == 60 and t.denominator(np.arange(3)) == 60


def test_local_examples_are_charged_for_every_step():
    t = terms(unit="example", observer="server", batch_size=15, local_epochs=2)
    step = events.poisson(15 / 60, events.gaussian(2.0))
    assert t.total == events.repeated(events.repeated(step, 8), 20)


def test_the_client_that_is_charged_most_is_reported():
    sizes = np.array([20, 50, 400])
    t = settle(
        Plan(clients=3, method="dp-fedavg", observer="server", batch_size=10, rounds=3, multiplier=1.0),
        PublicSizes(3, sizes),
    )
    each = []
    for n in sizes:
        step = events.poisson(10 / n, events.gaussian(1.0))
        each.append(
            accounting.epsilon(events.repeated(step, 3 * int(np.ceil(n / 10))), 1e-5, Relation.ADD_REMOVE).epsilon
        )
    assert t.spent.epsilon >= max(each) * 0.999


def test_epsilon_is_calibrated_to_the_private_side():
    t = terms(unit="client", observer="public", cohort=10, multiplier=None, epsilon=2.0)
    assert 0.98 * 2.0 < t.spent.epsilon <= 2.0


def test_with_both_given_only_the_rounds_that_fit_are_settled():
    t = terms(unit="client", observer="public", cohort=10, epsilon=1.0, multiplier=2.0, rounds=500)
    assert 0 < t.rounds < 500
    assert t.spent.epsilon <= 1.0
    one_more = events.repeated(events.poisson(0.1, events.gaussian(2.0)), t.rounds + 1)
    assert accounting.epsilon(one_more, 1e-5, Relation.ADD_REMOVE).epsilon > 1.0


def test_a_round_that_alone_exceeds_the_budget_is_refused():
    with pytest.raises(BudgetRefused, match="one round at multiplier 0.3 costs epsilon"):
        terms(unit="client", observer="public", cohort=10, epsilon=0.5, multiplier=0.3)


def test_denominators_are_public_and_ignore_who_came():
    t = terms(unit="client", observer="public", cohort=10)
    assert t.denominator(np.arange(3)) == t.denominator(np.empty(0, int)) == 10
    capped = terms(unit="client", observer="public", cohort=10, weights="size", weight_cap=120)
    assert capped.denominator(np.arange(3)) == pytest.approx(0.1 * 100 * 60 / 120)


def test_weights_by_size_need_a_public_cap():
    with pytest.raises(BadInput, match="weight_cap"):
        terms(unit="client", observer="public", cohort=10, weights="size")


def test_a_plan_for_other_clients_is_refused():
    with pytest.raises(BadInput, match="the plan is for 7 clients and the data has 10"):
        settle(Plan(clients=7, epsilon=1.0), TEN)


def test_fedavg_has_no_epsilon():
    t = settle(Plan(method="fedavg", clients=10, unit="client", observer="public"), TEN)
    assert t.spent.epsilon == float("inf") and t.reasons


def test_who_takes_part_is_worked_out_once_while_noise_is_calibrated(monkeypatch):
    drawn = []
    monkeypatch.setattr(sampling, "public_cohort", lambda plan, round: drawn.append(round) or draw(plan, round))
    terms(unit="client", observer="server", cohort=10, multiplier=None, epsilon=4.0)
    assert drawn == list(range(1, 21))
