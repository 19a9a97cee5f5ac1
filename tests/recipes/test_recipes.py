"""Settings from public facts: what is chosen, why, and that nothing else decides."""

from __future__ import annotations

import pytest

from sordino.plan import Plan
from sordino.recipes import PublicFacts, complete, network_of, resolve

DIGITS = PublicFacts(1437, 10, (1, 8, 8), 10)
TABLE = PublicFacts(25_000, 100, (12,), 3)
SIGNALS = PublicFacts(3601, 10, (1, 500), 2)
WAYS = [{}, {"unit": "client"}, {"observer": "server"}, {"method": "fedavg"}, {"variant": "published"}]


@pytest.mark.parametrize(
    ("facts", "epsilon", "model"),
    [
        (DIGITS, 4.0, "std-linear"),  # 5,748 records times epsilon
        (PublicFacts(60_000, 10, (1, 8, 8), 10), 1.0, "std-mlp"),
        (PublicFacts(60_000, 10, (1, 28, 28), 10), 1.0, "std-cnn"),
        (PublicFacts(3601, 10, (1, 500), 2), 4.0, "std-cnn-1d"),
        (PublicFacts(3601, 10, (1, 10), 2), 4.0, "std-linear"),  # too short to slide over
        (PublicFacts(800, 10, (12,), 2), 4.0, "wide-fourier"),
        (TABLE, 1.0, "wide-fourier"),
        (PublicFacts(800, 10, (80,), 80, tokens=True), 4.0, "char-lstm"),
        (PublicFacts(800, 10, (80,), 90, tokens=True, positions=True), 4.0, "char-lstm-all"),
    ],
)
def test_the_network_follows_the_shape(facts, epsilon, model):
    plan, choices = resolve({"epsilon": epsilon, "recipe": "none"}, facts)
    assert plan.model == model
    assert next(c for c in choices if c.name == "model").reason.startswith("for ")


def test_numbers_by_hand():
    plan, _ = resolve({"epsilon": 4.0, "recipe": "none"}, DIGITS)
    assert (plan.rounds, plan.batch_size) == (240, 40 * 1437 // 240)
    assert (plan.lr, plan.steps, plan.lr_schedule) == (0.05, "scaled", "decay")  # 0.4 / sqrt(64) = 0.05
    plan, _ = resolve({"epsilon": 4.0, "recipe": "none"}, PublicFacts(60_000, 10, (1, 28, 28), 10))
    assert plan.rounds == 480 and plan.batch_size == 2500  # 240 sqrt(240,000 / 60,000) = 480; 20 passes
    assert plan.lr == 0.018  # 0.4 / sqrt(512): the first dense layer


@pytest.mark.parametrize("way", WAYS)
def test_every_choice_has_a_reason_and_giving_it_changes_nothing(way):
    settings, choices = complete(way, TABLE)
    for choice in choices:
        assert choice.reason and "\n" not in str(choice)
        again, _ = complete({**way, choice.name: choice.value}, TABLE)
        assert again == settings, choice.name


OTHER = {
    "epsilon": 4.0, "rounds": 7, "batch_size": 33, "lr": 0.123, "server_lr": 0.123, "local_epochs": 3, "steps": "mean",
    "lr_schedule": "constant", "bound": 3.0, "delta": 1e-6, "seed": 5, "server_momentum": 0.5, "sampling": "none",
}  # fmt: skip


@pytest.mark.parametrize("facts", [TABLE, DIGITS, PublicFacts(400, 3, (30,), 2)])
@pytest.mark.parametrize("way", [{}, {"unit": "client"}, {"observer": "server"}])
@pytest.mark.parametrize("name", OTHER)
def test_giving_one_option_changes_no_other(way, name, facts):
    if name == "sampling" and way:
        pytest.skip("sampling none is a way of its own there")
    usual = Plan.from_json(complete(way, facts)[0]).to_json()
    other = Plan.from_json(complete({**way, name: OTHER[name]}, facts)[0]).to_json()
    assert {key for key in usual if usual[key] != other[key]} <= {name} | ({"prepare"} if name == "delta" else set())


@pytest.mark.parametrize("name", ["epsilon", "rounds", "batch_size", "lr", "bound", "seed", "server_momentum"])
def test_giving_one_option_changes_no_other_where_features_are_taken(name):
    usual = Plan.from_json(complete({}, SIGNALS, pin=False)[0]).to_json()
    other = Plan.from_json(complete({name: OTHER[name]}, SIGNALS, pin=False)[0]).to_json()
    assert usual["model"] == "head" and {key for key in usual if usual[key] != other[key]} <= {name}


@pytest.mark.parametrize("given", [{"prepare": "none"}, {"observer": "server"}, {"multiplier": 2.0}, {"mechanism": "laplace", "method": "dp-fedavg"},
                                   {"variant": "published"}, {"method": "dp-fedddc"}])  # fmt: skip
def test_what_features_cannot_keep_is_said_to_leave_them_out(given):
    _, choices = complete(given, SIGNALS)
    (model,) = [c for c in choices if c.name == "model"]
    assert model.value == "std-cnn-1d" and f"since {next(iter(given))} was given" in model.reason


@pytest.mark.parametrize("facts", [DIGITS, SIGNALS, TABLE, PublicFacts(300, 3, (30,), 2)])
@pytest.mark.parametrize("method", ["adact", "quantile", "dp-fedacn", "geyer", "dp-fedavg"])
def test_a_method_that_is_given_changes_the_rule_and_nothing_else(facts, method):
    """Steps go along mean / bound, so that rates suit every rule."""
    usual = Plan.from_json(complete({}, facts, pin=False)[0]).to_json()
    other = Plan.from_json(complete({"method": method}, facts, pin=False)[0]).to_json()
    assert usual["model"] == "head" and {key for key in usual if usual[key] != other[key]} <= {"method"}


def test_bounds_follow_the_norms_where_a_round_can_hear_them():
    for records, name in ((999, "dp-fedavg"), (1_000, "adact")):
        assert resolve({"epsilon": 4.0}, PublicFacts(records, 10, (20,), 2), pin=False)[0].method == name


def test_an_option_of_the_default_rule_is_for_the_rule_that_has_it():
    few = PublicFacts(300, 3, (30,), 2)
    assert complete({}, few)[0]["method"] == "dp-fedavg"
    settings, _ = complete({"options": {"tau": 0.8}}, few)
    assert settings.get("method", "adact") == "adact" and settings["model"] != "head"
    assert complete({"options": {"tau": 0.8}, "method": "adact"}, few)[0]["model"] == "head"


def test_cosines_of_a_table_by_hand():
    """5,000 records at epsilon 4 and 16 columns: 800 cosines of frequency 1; scale 5%, mean 1%, covariances 20% of the budget."""
    plan, choices = resolve({"epsilon": 4.0}, PublicFacts(5_000, 10, (16,), 3))
    made = plan.preparation
    assert made.kind == "fourier" and (made.dense, made.singles, made.pairs, made.frequency) == (320, 240, 240, 1.0)
    assert made.share == pytest.approx(0.26) and made.share * made.scaling == pytest.approx(0.05, rel=0.01)
    assert made.share * made.covariance == pytest.approx(0.2, rel=0.01) and made.covariances == 4 and made.digest
    assert (plan.model, plan.method, plan.rounds, plan.batch_size, plan.bound) == ("head", "adact", 400, 500, 0.3)
    assert any("--recipe none" in c.reason for c in choices)
    few = resolve({"epsilon": 4.0}, PublicFacts(500, 10, (4,), 3))[0].preparation
    assert (few.dense, few.singles, few.pairs, few.frequency) == (80, 60, 60, 2.0)
    scaled = resolve({"epsilon": 4.0}, PublicFacts(5_000, 10, (16,), 3, unscaled=0))[0].preparation
    assert scaled.scaling == 0 and scaled.share == pytest.approx(0.21)


@pytest.mark.parametrize("given", [{"task": "regression"}, {"recipe": "none"}, {"epsilon": 60.0}])
def test_tables_without_classes_or_with_a_large_budget_keep_a_network(given):
    assert resolve({"epsilon": 4.0, **given}, PublicFacts(5_000, 10, (16,), 3))[0].model == "wide-fourier"


def test_tables_of_whole_clients_take_the_mean_of_iterates_where_clients_can_tell():
    """Clients times epsilon from 100 for each class on; noise that is correlated over rounds never tells."""
    given = {"epsilon": 4.0, "unit": "client", "observer": "public"}
    told = {
        classes: resolve(given, PublicFacts(6_000, 300, (4,), classes))[0] for classes in (6, 12, 13)
    }  # 1,200 clients times epsilon
    assert {classes: plan.average for classes, plan in told.items()} == {6: "settled", 12: "settled", 13: "none"}
    assert all(plan.model == "head" for plan in told.values())
    banded = resolve({**given, "method": "dp-bandmf", "cohort": 30}, PublicFacts(6_000, 300, (4,), 6))[0]
    assert banded.average == "none" and banded.method == "dp-bandmf"


def test_whole_clients_by_hand():
    """One release at epsilon 4 has the multiplier 1.081 (650 parameters, 100 clients): noise that is left, 0.2757 of the signal."""
    given = {"unit": "client", "epsilon": 4.0, "recipe": "none"}
    plan, choices = resolve(given, PublicFacts(1437, 100, (1, 8, 8), 10))
    assert (plan.model, plan.method, plan.server_optimizer) == ("std-linear", "dp-fedavg", "momentum")
    assert plan.rounds == 86  # 40 x 0.2757^-0.6
    assert (plan.batch_size, plan.local_epochs, plan.lr, plan.bound) == (15, 10, 0.062, 0.05)  # 0.1 x 0.062 x sqrt(64)
    assert plan.server_lr == pytest.approx(0.3 * 0.1 * 100 * 3**0.5 / (1.081 * 86), rel=0.01)
    assert "86 rounds of 100 clients" in next(c for c in choices if c.name == "server_lr").reason
    quiet, _ = resolve(given, PublicFacts(8_000, 3_000, (1, 8, 8), 10))
    assert (quiet.rounds, quiet.local_epochs) == (120, 1)


def test_pictures_and_signals_of_clients_take_features_whatever_the_method():
    for given in ({}, {"method": "quantile"}, {"observer": "public"}):
        settings, choices = complete({"unit": "client", **given}, PublicFacts(3601, 300, (1, 500), 2), pin=False)
        assert (
            settings["model"] == "head" and settings["prepare"]["kind"] == "features" and settings["local_epochs"] == 1
        )
        assert settings["method"] == given.get("method", "dp-fedavg")
        assert any("of the budget finds the mean of the features" in c.reason for c in choices)


def test_in_the_client_unit_it_is_clients_that_teach_parameters():
    plan, choices = resolve({"unit": "client", "epsilon": 4.0, "recipe": "none"}, PublicFacts(60_000, 100, (12,), 3))
    assert (
        plan.model == "table-linear"
        and "100 clients at epsilon 4" in next(c for c in choices if c.name == "model").reason
    )


def test_in_the_client_unit_enough_clients_teach_more_than_a_linear_model():
    given = {"unit": "client", "recipe": "none"}
    plan, choices = resolve({**given, "epsilon": 4.0}, PublicFacts(6_000, 300, (12,), 3))
    assert plan.model == "wide-fourier"
    assert "0.16 times the signal" in next(c for c in choices if c.name == "model").reason
    assert resolve({**given, "epsilon": 1.0}, PublicFacts(6_000, 300, (12,), 3))[0].model == "table-linear"


def test_tables_of_clients_take_cosines_and_a_linear_head():
    """Where clients are many enough for covariances to be heard."""
    plan, choices = resolve({"unit": "client", "epsilon": 4.0}, PublicFacts(6_000, 300, (12,), 3))
    assert (plan.model, plan.preparation.kind, plan.preparation.covariances) == ("head", "fourier", 4)
    assert any("in which range each scaled column lies" in c.reason for c in choices)
    plan, choices = resolve({"unit": "client", "epsilon": 4.0}, PublicFacts(6_000, 30, (12,), 3))
    assert (plan.model, plan.preparation.kind) == ("table-linear", "standard")
    assert any("so few clients cannot be asked" in c.reason for c in choices)


def test_small_pictures_of_few_clients_keep_a_linear_model():
    for clients, epsilon, model in ((100, 1.0, "std-linear"), (100, 8.0, "head"), (300, 4.0, "head")):
        facts = PublicFacts(1437, clients, (1, 8, 8), 10)
        assert complete({"unit": "client", "epsilon": epsilon}, facts, pin=False)[0]["model"] == model


def test_a_rate_says_which_optimiser_it_is_for():
    given = {"epsilon": 4.0, "recipe": "none"}
    _, choices = resolve({"server_optimizer": "momentum", **given}, TABLE)
    assert any(c.name == "lr" and "for momentum" in c.reason for c in choices)
    same, _ = resolve({"server_optimizer": "adam", **given}, TABLE)
    assert same == resolve(given, TABLE)[0]


def test_columns_of_a_table_are_scaled_out_of_the_budget_unless_a_schema_does():
    plan, choices = resolve({"epsilon": 1.0, "recipe": "none"}, TABLE)
    assert plan.prepare["kind"] == "standard" and any(c.name == "prepare" for c in choices)
    for given in (
        {"schema": "schema.toml"},
        {"prepare": "none"},
        {"method": "fedavg", "epsilon": None},
        {"variant": "published"},
    ):
        assert not resolve({"epsilon": 1.0, "recipe": "none", **given}, TABLE)[0].prepare
    for given in ({"unit": "client"}, {"observer": "server"}):  # fewer units, or more noise, need more of the budget
        some = PublicFacts(5_000, 100, (12,), 3)
        assert resolve({"epsilon": 1.0, "recipe": "none", **given}, some)[0].prepare["share"] > 0.05
        assert resolve({"epsilon": 1.0, "recipe": "none"}, some)[0].prepare["share"] == 0.05
    few, choices = resolve(
        {"epsilon": 1.0, "recipe": "none"}, PublicFacts(400, 10, (30,), 2)
    )  # they need more of the budget to hear it
    assert few.prepare == {"kind": "standard", "share": 0.2, "cut": 5.0} != plan.prepare
    assert "20% of the budget" in next(c for c in choices if c.name == "prepare").reason
    assert not resolve({"epsilon": 4.0, "recipe": "none"}, DIGITS)[0].prepare


def test_published_variants_step_as_printed():
    plan, _ = resolve({"variant": "published", "epsilon": 4.0}, TABLE)
    assert (plan.steps, plan.lr_schedule) == ("mean", "constant")


def test_without_a_budget_four_is_taken_and_said():
    _, choices = resolve({}, TABLE)
    assert choices[0].name == "epsilon" and choices[0].value == 4.0
    assert all(c.name != "epsilon" for c in resolve({"multiplier": 2.0}, TABLE)[1])


def test_facts_are_those_of_the_population():
    from sordino.federation.population import Federation

    assert PublicFacts.of(Federation.from_dataset("digits", "iid", 10)) == DIGITS


def test_texts_are_no_tables():
    texts = PublicFacts(8_000, 100, (80,), 80, tokens=True)
    plan, choices = resolve({"epsilon": 4.0}, texts)
    assert (plan.model, plan.rounds) == ("char-lstm", 240) and not plan.prepare
    assert "inputs" in next(c for c in choices if c.name == "lr").reason


def test_large_tables_take_more_and_shorter_steps_and_wide_ones_shorter_ones():
    def chosen(records: int, columns: int, classes: int = 3) -> tuple[int, float]:
        plan, choices = resolve({"epsilon": 4.0, "recipe": "none"}, PublicFacts(records, 10, (columns,), classes))
        assert f"{columns:,} columns" in next(c for c in choices if c.name == "lr").reason
        return plan.rounds, plan.lr

    assert chosen(2_999, 10) == (360, 0.035) and chosen(3_000, 10) == (720, 0.025)
    assert chosen(2_999, 64)[1] == 0.025 and chosen(2_999, 900)[1] == 0.0067
    # clients as units: twice as long as a small table of records
    units, _ = resolve({"epsilon": 4.0, "unit": "client", "recipe": "none"}, PublicFacts(5_000, 300, (16,), 2))
    assert (units.model, units.rounds, units.server_lr) == ("wide-fourier", 60, 0.049)
    # few columns: up to twice as long, on large tables of two classes only
    assert chosen(2_999, 4, 2)[1] == 0.025 and chosen(3_000, 4, 2)[1] == chosen(3_000, 1, 2)[1] == 0.049
    assert chosen(3_000, 4)[1] == chosen(3_000, 4, 1)[1] == 0.025
    # two classes: shorter, on small tables only
    assert chosen(2_999, 16, 2)[1] == 0.025 and chosen(3_000, 16, 2)[1] == 0.025


def test_a_plan_that_leaves_the_network_open_gets_the_recipe_s_in_both_units():
    """Few clients as units teach no cosines, for the command and for a plan of one's own."""
    table = PublicFacts(5_000, 30, (20,), 3)
    for unit in ("client", "example"):
        chosen, _ = resolve({"epsilon": 4.0, "unit": unit, "recipe": "none"}, table)
        own = Plan(clients=30, epsilon=4.0, unit=unit, prepare=chosen.prepare)
        assert network_of(own, table) == chosen.model == ("table-linear" if unit == "client" else "wide-fourier")
        assert network_of(own.replace(model="mlp"), table) == "mlp"
        usual, _ = resolve({"epsilon": 4.0, "unit": unit}, table)
        assert network_of(own.replace(prepare=usual.prepare), table) == usual.model
        assert usual.model == ("table-linear" if unit == "client" else "head")


def test_features_of_signals_take_longer_steps_than_those_of_pictures_in_the_client_unit():
    def rate(shape: tuple[int, ...]) -> tuple[float, str]:
        settings, choices = complete({"epsilon": 4.0, "unit": "client"}, PublicFacts(3_000, 300, shape, 10), pin=False)
        assert settings["model"] == "head"
        return settings["server_lr"], next(c for c in choices if c.name == "server_lr").reason

    (pictures, of_pictures), (signals, of_signals) = rate((1, 28, 28)), rate((1, 96))
    assert "is then 1.2" in of_pictures and "is then 1.7" in of_signals and signals > pictures
