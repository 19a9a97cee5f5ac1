from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.errors import BadInput
from sordino.plan import Plan
from sordino.privacy.vocabulary import Observer, Unit


def test_a_plan_survives_toml(tmp_path):
    plan = Plan(epsilon=2.0, method="quantile", options={"target": 0.4}, unit="client", observer="public", cohort=4)
    path = tmp_path / "plan.toml"
    path.write_text(plan.to_toml())
    assert Plan.load(path) == plan
    assert Plan.load(path).digest() == plan.digest()


def test_words_are_taken_as_strings_and_typed():
    plan = Plan(epsilon=1.0, unit="client", observer="server")
    assert plan.unit is Unit.CLIENT and plan.observer is Observer.SERVER


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"epsilon": 0}, "epsilon must be a number above 0, not 0"),
        ({"epsilon": float("nan")}, "not nan"),
        ({"epsilon": 1, "delta": 1.0}, "delta must lie between 0 and 1"),
        ({"epsilon": 1, "unit": "user"}, "unit must be one of client, example, not 'user'"),
        ({"epsilon": 1, "method": "dp-magic"}, "method 'dp-magic' is not known"),
        ({"epsilon": 1, "cohort": 99}, "cohort 99 is larger than the 10 clients"),
        ({"epsilon": 1, "cohort": 5}, "every client takes part in every round"),
        ({"epsilon": 1, "rounds": 0}, "rounds must be a whole number of at least 1"),
        ({"epsilon": 1, "rounds": 2.5}, "rounds must be a whole number"),
        ({"epsilon": 1, "rounds": 10**9}, "rounds 1,000,000,000 is more than 1,000,000"),
        ({"multiplier": 1e12}, "multiplier 1e+12 is more than 1e+06"),
        ({"epsilon": 1, "seed": 2**63}, "does not fit into 63 bits"),
        ({}, "give epsilon (a budget) or multiplier"),
        ({"epsilon": 1, "sampling": "fixed"}, "sampling fixed is not offered for the example unit"),
        ({"epsilon": 1, "unit": "client", "cohort": 3, "sampling": "none"}, "sampling none means that all 10 clients"),
        ({"epsilon": 1, "unit": "client", "observer": "secagg-server", "cohort": 3}, "use sampling fixed"),
        (
            {
                "epsilon": 1,
                "unit": "client",
                "observer": "public",
                "sampling": "fixed",
                "cohort": 3,
                "relation": "add-remove",
            },
            "replace-one",
        ),
        ({"epsilon": 1, "optimizer": "adam"}, "set server_optimizer"),
        ({"epsilon": 1, "weights": "size"}, "weights size is for the client unit"),
    ],
)
def test_what_does_not_fit_is_one_sentence(settings, part):
    with pytest.raises(BadInput) as refused:
        Plan(**settings)
    assert part in str(refused.value)
    assert "\n" not in str(refused.value)


def test_unknown_settings_are_named():
    with pytest.raises(BadInput, match="no setting 'epsilom'"):
        Plan.from_json({"epsilom": 1.0})


@given(st.floats(), st.floats(), st.integers(-5, 5))
def test_no_number_slips_through(epsilon, delta, rounds):
    ok = 0 < epsilon < float("inf") and 0 < delta < 1 and rounds >= 1
    if ok:
        Plan(epsilon=epsilon, delta=delta, rounds=rounds)
    else:
        with pytest.raises(BadInput):
            Plan(epsilon=epsilon, delta=delta, rounds=rounds)


def test_the_digest_follows_every_setting():
    base = Plan(epsilon=1.0)
    assert base.digest() != base.replace(seed=1).digest()
    assert base.digest() != base.replace(options={"tau": 0.5}).digest()


def test_a_setting_that_is_not_given_leaves_the_digest_alone():
    """A later version may have more settings: runs of this one must still be verified then."""
    import hashlib
    import json

    plan = Plan(epsilon=4.0)
    written = {name: value for name, value in plan.to_json().items() if value is not None}
    assert "schema" not in written and "epsilon" in written
    assert plan.digest() == hashlib.sha256(json.dumps(written, sort_keys=True).encode()).hexdigest()
    assert plan.digest() != plan.replace(schema="s.toml").digest()
