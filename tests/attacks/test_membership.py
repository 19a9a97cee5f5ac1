"""Every attack against a model that has learnt by heart, and against one that has learnt nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attacks.by_heart import make, plan
from sordino import Plan
from sordino.attacks import networks
from sordino.attacks.game import Game, Reach
from sordino.attacks.membership.quantile import Quantile
from sordino.attacks.rows import Guarantee, play
from sordino.attacks.table import ATTACKS as EVERY
from sordino.attacks.table import entry
from sordino.attacks.target import Target
from sordino.gradients.flat import Flat

QUICK = {"lira": {"models": 4}, "lira-offline": {"models": 4}, "shadow-lr": {"shadows": 2}}
# What each reaches on 160 judged records, less about two standard errors.
REACHED = {"dt": 0.6, "dt-sorted": 0.6, "ml-leaks": 0.6}


@pytest.fixture(autouse=True)
def short_lessons(monkeypatch):
    """Few records need few epochs."""
    from sordino.attacks.membership import white_box

    monkeypatch.setattr(white_box, "LESSON", replace(white_box.LESSON, epochs=8))


ATTACKS = {name: one for name, one in EVERY.items() if one.kind == "membership"}


@pytest.mark.parametrize("name", ATTACKS)
def test_attacks_succeed_on_what_was_learnt_by_heart(name, target):
    row = play(target, entry(name), Guarantee(), **QUICK.get(name, {}))
    assert row["auc"] > REACHED.get(name, 0.65), row
    assert row["auc_ci"][0] < row["auc"] < row["auc_ci"][1] and row["asr"] > 0.52
    assert row["auc_ceiling"] == row["asr_ceiling"] == row["tpr_at_1pct_ceiling"] == 1.0
    assert row["unit_attacked"] == "example" and row["unit_protected"] == "none"


@pytest.fixture(scope="module")
def blank(target):
    """A target that was never trained: nothing can be told."""
    fresh = Flat(make(7)).vector().numpy()
    return Target(target.plan, target.cast, make, fresh, 2, lambda: {1: fresh, 2: fresh}, target.folder, 2)


@pytest.mark.parametrize("name", [n for n, e in ATTACKS.items() if e.view == "client" and not e.active])
def test_attacks_find_nothing_where_nothing_was_learnt(name, blank):
    row = play(blank, entry(name), Guarantee(), **QUICK.get(name, {}))
    assert row["auc_ci"][0] < 0.5 + 0.03 and 0.35 < row["auc"] < 0.65, row


@pytest.mark.parametrize("name", ["rf", "cs", "quantile", "rmia"])
def test_the_same_seed_gives_the_same_scores(name, target):
    attack = entry(name).build()
    a, b = (attack.guess(Game(replace(target, _cache={}), attack.reach)) for _ in range(2))
    assert np.array_equal(a.scores, b.scores) and a.threshold == b.threshold


def test_every_class_is_judged_by_a_regressor_without_it(target, monkeypatch):
    attack, game = Quantile(unseen=0.34), Game(target, Quantile.reach)
    asked = []
    monkeypatch.setattr(
        Quantile, "_scores", lambda _, __, unseen, rows: asked.append((unseen, rows)) or np.zeros(len(rows))
    )
    guess = attack.guess(game)
    assert len(asked) == 4 and len(guess.scores) == len(target.cast.judged)
    for unseen, rows in asked:
        assert set(target.labels[rows]) == set(unseen)
    assert np.array_equal(np.sort(np.concatenate([rows for _, rows in asked])), np.sort(target.cast.judged))


def test_a_regressor_never_learns_from_what_is_unseen(target, monkeypatch):
    from sordino.attacks.membership import quantile

    given, real = [], quantile.learn

    def spy(make, inputs, *rest, **more):
        given.append(inputs[0])
        return real(make, inputs, *rest, **more)

    monkeypatch.setattr(quantile, "learn", spy)
    game = Game(target, Quantile.reach)
    Quantile()._scores(game, np.array([1, 2]), game.judged[:5])
    keep = ~np.isin(game.population_labels, [1, 2])
    assert 0 < keep.sum() < len(keep) and np.array_equal(given[0], game.population_inputs[keep])


def test_quantiles_by_pinball_tell_as_much(target):
    row = play(target, replace(entry("quantile"), options={"loss": "pinball"}), Guarantee())
    assert row["auc"] > 0.65


def test_more_reference_models_extend_those_that_are_there(target):
    four, two = target.references(4), target.references(2)
    assert np.array_equal(four.logits[:2], two.logits) and np.array_equal(four.inside[:2], two.inside)
    assert four.population.shape == (4, len(target.cast.population), 4)


def test_a_model_without_dense_layers_has_no_white_box(target):
    import torch

    from sordino.attacks.model_probe import ModelProbe
    from sordino.errors import BadInput

    lens = ModelProbe(torch.nn.Sequential(torch.nn.Conv1d(1, 2, 3), torch.nn.Flatten()))
    with pytest.raises(BadInput, match="no dense layer"):
        theta = lens.flat.vector().numpy()
        lens.look(theta + 1, np.zeros((2, 1, 4), np.float32), np.zeros(2, int), 1, before=theta)


def test_a_diverged_model_is_refused(target):
    from sordino.errors import BadInput

    with pytest.raises(BadInput, match="diverged"):
        replace(target, theta=np.full_like(target.theta, np.nan))


def test_learning_keeps_the_best_epoch():
    rng = np.random.Generator(np.random.PCG64(0))
    x = rng.normal(size=(300, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.float32)
    lesson = networks.Lesson(lr=1e-2, epochs=20, batch=32)
    network = networks.learn(lambda: networks.perceptron(4, (16,)), [x], y, networks.member_loss, lesson, rng)
    assert ((networks.answer(network, [x])[:, 0] > 0) == y).mean() > 0.95


def test_plans_of_runs_under_attack_are_untouched(target, heart):
    recorded = Plan.load(heart[0] / "plan.toml")
    assert target.plan == recorded and Reach.QUERIES in entry("rf").build().reach
    names = ("data", "partition", "model", "classes")  # recorded as they were given: in Python
    assert recorded == plan().replace(**{name: getattr(recorded, name) for name in names})


def test_the_loss_gives_members_away_in_a_regression(tmp_path):
    """Few records of pure noise and a large network, without privacy: members are told apart; attacks on classes are refused."""
    import torch

    from sordino import EngineOptions, Federation, Plan, train
    from sordino.attacks.protocol import Protocol
    from sordino.attacks.runs import Settings, attack_run

    rng = np.random.Generator(np.random.PCG64(0))
    x, y = rng.normal(size=(240, 20)).astype(np.float32), rng.normal(size=240).astype(np.float32)
    federation = Federation.from_arrays(
        [(x[:60], y[:60]), (x[60:120], y[60:120])], (x[120:], y[120:]), task="regression"
    )

    def make(seed):
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))

    plan = Plan(method="fedavg", unit="client", observer="public", clients=2, rounds=15, local_epochs=5, batch_size=20,
                lr=0.01, optimizer="adam", task="regression")  # fmt: skip
    out = tmp_path / "run"
    train(make(0), federation, plan, out=out, options=EngineOptions("in-process"))
    settings = Settings(Protocol(records=60), references=2)
    table = attack_run(out, ["basic", "loss", "loss-calibrated"], settings, make=make, federation=federation)
    assert all(row["auc"] > 0.7 for row in table["results"]) and len(table["results"]) == 2
    assert "use loss or loss-calibrated" in table["refused"][0]["why"]
