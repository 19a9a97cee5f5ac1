"""What a published run says of itself: every sentence is true of that run, and what is not of the paper is told."""

from __future__ import annotations

import pytest

from sordino.assembly import complete
from sordino.methods import METHODS
from sordino.plan import Plan


def plan(method, **settings):
    base = {"variant": "published", "clients": 10, "cohort": 5, "rounds": 3, "epsilon": 8.0}
    if method == "fedavg":
        del base["epsilon"]
    return Plan(**(base | {"method": method} | settings))


def said(method, **settings):
    made = plan(method, **settings)
    return made.method_spec.departures(made), made.method_spec.reasons_in(made)


PAPERS = {"unit": "client", "observer": "server", "sampling": "fixed"}


def test_settings_of_whole_clients_are_not_held_against_records():
    departures, reasons = said("adact", unit="example", observer="public", sampling="poisson", cohort=10)
    assert departures == ("unit is example; the paper has client.", "observer is public; the paper has server.")
    assert not any("update" in reason or "client" in reason for reason in reasons[:3])


def test_how_clients_are_drawn_is_no_departure_where_all_take_part():
    every = {"local_epochs": 4, "unit": "client", "observer": "server", "cohort": 10}
    assert said("adact", sampling="poisson", **every)[0] == ()
    assert said("adact", sampling="poisson", **every | {"cohort": 5})[0] == (
        "sampling is poisson; the paper has fixed.",
    )
    fedmap = {"unit": "example", "observer": "server", "local_epochs": 3, "batch_size": 64, "lr": 0.01}
    assert not any(d.startswith("sampling") for d in said("fedmap", cohort=10, sampling="poisson", **fedmap)[0])


def test_simulated_data_is_a_departure_and_recordings_are_none():
    every = {"local_epochs": 5, "unit": "client", "observer": "server", "cohort": 10}
    (simulated,) = said("adact", data="rail-simulated", **every)[0]
    assert "simulated" in simulated and "not public" in simulated
    assert said("adact", data="rail", **every)[0] == ()
    certified = plan("adact", data="rail-simulated", **every | {"variant": "certified"})
    assert certified.method_spec.departures(certified) == ()  # no claim to be the paper's run


def test_other_noise_and_other_steps_are_told():
    departures, _ = said("dp-fedavg", unit="client", observer="public", mechanism="laplace", optimizer="adam")
    assert departures[1:] == ("optimizer is adam; the paper has sgd.", "mechanism is laplace; the paper has gaussian.")
    assert "after every local step" in departures[0]
    assert said("fedavg", unit="client", observer="public", sampling="fixed", weights="uniform")[0] == (
        "weights is uniform; the paper has size.",
    )


@pytest.mark.parametrize("method", ["dp-fedagnc", "dp-fedamvc", "dp-fedggc"])
def test_a_guess_names_whom_it_follows(method):
    departures, _ = said(method, unit="client", observer="public", sampling="fixed")
    assert departures == ("observer is public; DP-FedACN has server.",)


def test_noise_gamma_says_what_its_own_epsilon_is_worth():
    _, reasons = said("noise-gamma", **PAPERS, bound=0.1, epsilon=0.5)
    assert not any("classical formula" in reason for reason in reasons)
    _, reasons = said("noise-gamma", **PAPERS, bound=0.1, epsilon=5.0)
    assert "The classical formula for Gaussian noise holds for epsilon below 1 only, and is used for 5." in reasons
    _, reasons = said("noise-gamma", **PAPERS, bound=0.1, rounds=1, local_epochs=1)
    assert not any(reason.startswith("Nothing is composed") for reason in reasons)  # there is one release
    _, reasons = said("noise-gamma", **PAPERS, bound=0.1, rounds=1, local_epochs=2)
    assert reasons[0].endswith("every local epoch of every round makes one.")


def test_dp_fedacn_says_where_sigma_comes_from_and_which_delta_is_the_papers():
    _, reasons = said("dp-fedacn", **PAPERS, delta=0.001)
    assert "epsilon 8 at the plan's bound of 1" in reasons[0] and reasons[-1].startswith("Delta, 0.001,")
    _, reasons = said("dp-fedacn", **PAPERS, delta=1e-5, epsilon=None, multiplier=2.0)
    assert "multiplier 2 that was given" in reasons[0] and not any(reason.startswith("Delta") for reason in reasons)


def test_fed_dpa_says_only_what_this_run_does():
    setting = {
        "unit": "client",
        "observer": "public",
        "sampling": "fixed",
        "rounds": 15,
        "local_epochs": 2,
        "batch_size": 16,
    }
    setting |= {"optimizer": "adam", "lr": 1e-3, "bound": 0.5}
    departures, reasons = said("fed-dpa", **setting)
    assert len(reasons) == 2 and "fewer take part" in reasons[1]
    assert departures[0].startswith("Personal coordinates are not sent") and departures[1].startswith(
        "Updates are weighted alike"
    )
    assert len(departures) == 2
    assert len(said("fed-dpa", **setting, cohort=10)[1]) == 1 and len(said("fed-dpa", **setting, delta=0.1)[1]) == 3


def test_fedmap_without_its_network_and_with_it():
    setting = {
        "unit": "example",
        "observer": "server",
        "sampling": "fixed",
        "local_epochs": 3,
        "batch_size": 64,
        "lr": 0.01,
    }
    departures, with_network = said("fedmap", **setting)
    assert departures == METHODS["fedmap"].differs(plan("fedmap", **setting)) and "invented sequences" in departures[0]
    departures, without = said("fedmap", **setting, options={"sigma": 2.36}, bound=20.0)
    assert departures == ("No network: C and sigma are the same for every batch.",)
    assert set(without) < set(with_network) and any("chosen apart" in reason for reason in without)
    assert not any("seed 42" in reason for reason in with_network)
    assert any("seed 42" in reason for reason in said("fedmap", **setting, seed=42)[1])
    assert not any("seed 42" in reason for reason in said("fedmap", **setting, seed=42, secure=True)[1])
    everybody = said("fedmap", **setting, cohort=10)[1]
    assert not any("client sampling" in reason or "flipped a coin" in reason for reason in everybody)
    # With q = 1 the printed cost is that of a Gaussian, to the letter.
    assert any("expansion" in reason for reason in with_network) and not any("expansion" in r for r in everybody)
    for still in ({"tune": 0}, {"lam": 0}):
        assert not any("regulariser" in reason for reason in said("fedmap", **setting, options=still)[1])
    assert any("regulariser" in reason for reason in with_network)
    (untaught,) = said("fedmap", **setting, options={"pretrained": 0})[0]
    assert "start at random" in untaught and "taught on" not in untaught


@pytest.mark.parametrize("method", METHODS)
def test_a_short_command_runs_a_method_as_its_paper_does(method):
    """What nobody gave is the paper's where the paper says it: the recipes for certified runs have no say in it."""
    made = Plan.from_json(complete({"data": "digits", "clients": 4, "method": method, "variant": "published"}))
    assert made.method_spec.departures(made) == made.method_spec.differs(made)
    assert made.server_optimizer in ("sgd", "momentum") and (made.steps, made.lr_schedule) == ("mean", "constant")
    assert (made.server_optimizer == "momentum") == (method in ("dp-bandmf", "quantile"))
    if method in ("fedavg", "fedmap"):
        assert made.weights == "size"
    elif "weights" in made.method_spec.paper_setting:
        assert made.weights == "uniform"


@pytest.mark.parametrize("method", ["adact", "dp-fedacn", "noise-gamma", "fedmap", "dp-fedavg", "dp-fedddc", "fed-dpa"])
def test_other_steps_of_the_server_are_told(method):
    settings = {"data": "digits", "clients": 4, "method": method, "variant": "published"}
    other = {"server_optimizer": "momentum", "server_lr": 0.5, "lr_schedule": "decay"}
    made = Plan.from_json(complete(settings | other))
    told = made.method_spec.departures(made)
    whose = made.method_spec.source
    for name, paper in (("server_optimizer", "sgd"), ("server_lr", "1.0"), ("lr_schedule", "constant")):
        assert f"{name} is {other[name]}; {whose} has {paper}." in told
    if method != "fedmap":  # whose steps follow no bound of the plan
        scaled = Plan.from_json(complete(settings | {"steps": "scaled"}))
        assert f"steps is scaled; {whose} has mean." in scaled.method_spec.departures(scaled)


def test_steps_of_the_server_are_told_in_another_unit_too():
    settings = {"unit": "example", "observer": "public", "sampling": "poisson", "cohort": 10}
    departures, _ = said("adact", **settings, server_optimizer="adam", local_epochs=3)
    assert departures[2:] == ("server_optimizer is adam; the paper has sgd.",)


def test_what_no_paper_has_is_told():
    departures, _ = said("adact", **PAPERS, local_epochs=4, defence="soteria", personal="head", canaries=2)
    assert departures == (
        "defence is soteria; the paper has none.",
        "personal is head; the paper has none.",
        "canaries is 2; the paper has none.",
    )
    departures, _ = said("adact", **PAPERS, local_epochs=4, prepare="standard")
    assert departures == ("prepare is standard; the paper has none.",)
    certified = plan("adact", **PAPERS, variant="certified", defence="soteria")
    assert certified.method_spec.departures(certified) == ()


def test_a_guess_says_what_was_read_and_what_is_ours():
    guesses = {name: line.guess for name, line in METHODS.items() if line.guess}
    assert set(guesses) == {"dp-fedagnc", "dp-fedamvc", "dp-fedggc"}
    for guess in guesses.values():
        assert " read; DP-FedACN " in guess and guess.endswith("our guess.")
    assert "of the last round in one place and of the last batch in another" in guesses["dp-fedagnc"]
