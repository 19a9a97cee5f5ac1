"""Defaults that suit: what a short command comes to."""

from __future__ import annotations

import pytest

from sordino.assembly import complete, plan_for, population
from sordino.errors import BadInput
from sordino.federation.population import Federation
from sordino.plan import Plan


def resolved(**given) -> Plan:
    return Plan.from_json(complete(given))


@pytest.mark.parametrize(
    "way",
    [{"method": "fedmap"}, {"method": "dp-fedavg", "observer": "server"}, {"method": "fedmap", "variant": "published"}],
)
def test_clients_that_take_steps_of_their_own_are_averaged(way):
    """What suits pooled gradients (Adam at the server, a step of lr) would move a mean of models by 1 in every coordinate."""
    plan = resolved(**way)
    assert plan.scheme.name == "local" and (plan.server_optimizer, plan.server_lr, plan.bound) == ("sgd", 1.0, 1.0)
    assert plan.batch_size <= 64 and plan.lr < 1


def test_fedmap_under_secure_aggregation_works_as_without():
    one, other = resolved(method="fedmap"), resolved(method="fedmap", observer="secagg-server")
    assert other.replace(observer="server", sampling=one.sampling) == one


def test_what_is_given_wins_over_the_method_and_the_method_over_the_facts():
    printed = {"method": "fedmap", "variant": "published"}
    assert resolved(**printed).lr == 0.01 and resolved(**printed, lr=0.3).lr == 0.3


def test_weights_of_controllers_are_for_methods_that_have_some():
    with pytest.raises(BadInput, match="dp-fedavg has no controllers"):
        resolved(method="dp-fedavg", metanet="mine.safetensors")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["hold", "lam", "tune"])
def test_options_are_numbers(name, value):
    with pytest.raises(BadInput, match=f"option {name} of method fedmap must be a number"):
        resolved(method="fedmap", options={name: value})


def test_a_folder_does_not_hide_a_data_set_of_the_same_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    assert population(resolved()).name == "digits"
    with pytest.raises(BadInput, match="has no client files"):
        population(resolved(data="./digits"))


def test_natural_clients_are_all_taken_unless_fewer_are_asked_for():
    try:
        schools = Federation.from_dataset("chem97", "natural").clients
    except ValueError:
        pytest.skip("chem97 is not here: sordino data get chem97")
    assert resolved(data="chem97", partition="natural").clients == schools > 2000
    assert resolved(data="chem97", partition="natural", clients=3).clients == 3


def test_data_with_natural_clients_is_dealt_out_by_them():
    """A track section is a client, and so is a role; a plan may ask for something else."""
    assert resolved(data="rail-simulated").partition == "natural" and resolved(data="rail-simulated").clients == 10
    assert resolved(data="rail-simulated", partition="dirichlet").partition == "dirichlet"
    assert resolved(data="mnist").partition == resolved().partition == "dirichlet"


def test_a_published_run_is_set_as_its_paper_and_says_where_not():
    made = resolved(method="adact", variant="published")
    assert (made.unit, made.observer, made.sampling, made.local_epochs) == ("client", "server", "fixed", 4)
    assert made.method_spec.departures(made) == ()
    other = resolved(method="adact", variant="published", unit="example")
    assert (other.unit, other.observer) == ("example", "secagg-server")
    said = other.method_spec.departures(other)
    assert said[0] == "unit is example; the paper has client." and len(said) == 2
    assert not any("update" in reason for reason in other.method_spec.reasons_in(other))
    assert resolved(method="adact").method_spec.departures(resolved(method="adact")) == ()


def test_a_plan_made_in_python_is_that_of_the_command_line():
    federation = Federation.from_dataset("digits", "dirichlet", 10, 1.0, 0)
    assert plan_for(federation, epsilon=2.0) == resolved(epsilon=2.0)
    assert plan_for(federation, unit="client", epsilon=2.0) == resolved(unit="client", epsilon=2.0)


def test_a_rate_follows_the_network_that_is_trained():
    from torch import nn

    federation = Federation.from_dataset("digits", "iid", 5)
    wide = nn.Sequential(nn.Flatten(), nn.Linear(64, 1600), nn.Tanh(), nn.Linear(1600, 10))
    plan = plan_for(federation, wide, epsilon=2.0)
    assert plan.lr == 0.01 and plan.model == "auto" and plan_for(federation, epsilon=2.0, recipe="none").lr == 0.05


def test_data_that_is_elsewhere_leaves_the_network_open():
    settings = complete({"data": "wards", "epsilon": 1.0, "clients": 3})
    assert "model" not in settings and Plan.from_json(settings).model == "auto"
