"""Canaries in real runs: found where they are, in the strength that the proof speaks of, and harmless to everything else."""

from __future__ import annotations

import json
import math
import stat

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sordino import EngineOptions, Federation, Plan, train  # noqa: E402
from sordino.audit import canary_clients  # noqa: E402
from sordino.audit.measure import audit  # noqa: E402

HERE = EngineOptions(engine="in-process")
WIDTH = 500


def population(clients=4, zero=True):
    """Records without features have no gradients: nothing but canaries and noise is released."""
    rng = np.random.Generator(np.random.PCG64(0))

    def points(n):
        return (np.zeros if zero else rng.standard_normal)((n, WIDTH)).astype(np.float32), np.arange(n) % 4

    return Federation.from_arrays([points(12) for _ in range(clients)], test=points(200), classes=4, name="toy")


def plan(**settings):
    base = {
        "data": "toy", "clients": 4, "method": "dp-fedavg", "unit": "client", "observer": "public", "sampling": "none",
        "multiplier": 2.0, "rounds": 4, "batch_size": 12, "lr": 0.1, "bound": 0.5, "canaries": 120,
    }  # fmt: skip
    return Plan(**(base | settings))


def run(out, zero=True, options=HERE, **settings):
    p = plan(**settings)
    torch.manual_seed(0)
    return train(torch.nn.Linear(WIDTH, 4, bias=False), population(p.clients, zero), p, out=out, options=options)


def kept(out):
    found = json.loads((out / "canaries.json").read_text())
    return found, np.array(found["coins"], bool)


EVERYWHERE = [
    {},
    {"canary": "steady"},
    {"observer": "secagg-server", "sampling": "fixed"},
    {"observer": "server", "sampling": "fixed"},
    {"unit": "example"},
    {"unit": "example", "observer": "secagg-server", "method": "dp-fedamvc"},
    {"unit": "example", "method": "adaclip"},
    {"method": "automatic"},
    {"unit": "example", "observer": "server", "rounds": 4, "local_epochs": 1, "clients": 2},
]


@pytest.mark.parametrize("settings", EVERYWHERE, ids=lambda s: "-".join(map(str, s.values())) or "plain")
def test_canaries_show_in_the_strength_that_the_proof_speaks_of(settings, tmp_path):
    """Four releases at z = 2 are one Gaussian of mu = 1: scores 1 apart, standard normal where nothing was put in."""
    run(tmp_path / "run", **settings)
    found, coins = kept(tmp_path / "run")
    scores = canary_clients.scores(np.array(found["cosines"]), found["block"])
    error = math.sqrt(1 / 60)
    assert abs(scores[~coins].mean()) < 3.5 * error and 0.7 < scores[~coins].std() < 1.3
    assert abs(scores[coins].mean() - 1.0) < 3.5 * error and 0.7 < scores[coins].std() < 1.3
    ratio = np.array(found["scores"]["all-rounds"])
    assert abs(ratio[coins].mean() - 0.5) < 3.5 * error and abs(ratio[~coins].mean() + 0.5) < 3.5 * error


@pytest.mark.parametrize(
    "settings",
    [
        {"sampling": "poisson", "cohort": 2, "multiplier": 0.5},
        {"sampling": "fixed", "cohort": 2, "multiplier": 0.5},
        {"unit": "example", "observer": "secagg-server", "sampling": "poisson", "batch_size": 24, "multiplier": 0.5},
        {"unit": "example", "observer": "server", "sampling": "poisson", "batch_size": 6, "multiplier": 0.5},
        {"mechanism": "laplace", "multiplier": 1.0},
        {"unit": "example", "method": "dp-fedggc"},
        {"relation": "replace-one"},
    ],
    ids=lambda s: "-".join(map(str, s.values())),
)
def test_the_audit_finds_something_and_no_more_than_is_proven(settings, tmp_path):
    result = run(tmp_path / "run", **settings)
    found = audit(tmp_path / "run")
    assert 0.2 < found["epsilon_lower"] < result.epsilon == found["epsilon_proven"]
    assert found["one_run"] <= found["epsilon_lower"] <= found["largest_provable"]
    assert not found["contradicted"]
    assert json.loads((tmp_path / "run" / "audit.json").read_text()) == found


def test_steady_canaries_show_in_the_final_model_too(tmp_path):
    run(tmp_path / "run", canary="steady", multiplier=0.5)
    views = audit(tmp_path / "run")["views"]
    assert views["final-model"]["epsilon_lower"] > 1.0


@pytest.mark.parametrize("kind", ["mislabelled", "random"])
def test_canary_records_are_learnt_by_heart_when_there_is_hardly_noise(kind, tmp_path):
    result = run(
        tmp_path / "run", zero=False, unit="example", canary=kind, multiplier=0.2, rounds=25, lr=1.0, bound=1.0
    )
    found = audit(tmp_path / "run")
    assert list(found["views"]) == ["final-model"] and found["kind"] == kind
    assert 1.0 < found["epsilon_lower"] < result.epsilon


def test_a_noise_that_is_too_small_is_found_out(tmp_path, monkeypatch):
    """The statement speaks of z = 2; the noise that is drawn is a quarter of it."""
    from sordino.privacy import mechanisms

    spread = mechanisms._spread
    monkeypatch.setattr(mechanisms, "_spread", lambda bound, z, length: spread(bound, z, length) / 4)
    result = run(tmp_path / "run", canaries=400)
    found = audit(tmp_path / "run")
    assert found["epsilon_lower"] > result.epsilon and found["contradicted"]


# ---- what must not change --------------------------------------------------------------------------------------------


def test_the_account_is_that_of_a_run_without_canaries(tmp_path):
    for i, settings in enumerate(
        [{}, {"unit": "example"}, {"observer": "secagg-server", "sampling": "fixed", "cohort": 2}]
    ):
        one = run(tmp_path / f"with{i}", **settings)
        other = run(tmp_path / f"without{i}", canaries=0, **settings)
        assert one.terms.total == other.terms.total and one.epsilon == other.epsilon
        assert one.terms.denominator(np.arange(2)) == other.terms.denominator(np.arange(2))


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "quantile"},
        {"method": "adact", "unit": "example", "multiplier": 0.1},
        {"method": "dp-fedagnc", "unit": "example"},
        {"method": "quantile", "observer": "secagg-server", "sampling": "fixed"},
        {"method": "quantile", "unit": "example", "observer": "server", "sampling": "none"},
    ],
    ids=lambda s: "-".join(map(str, s.values())),
)
def test_canaries_do_not_lead_the_bound_astray(settings, tmp_path):
    """Every real norm is 0, and every canary's is huge: the bounds of a run with them are those of one without."""
    one, other = run(tmp_path / "with", **settings), run(tmp_path / "without", canaries=0, **settings)
    assert [row["bound"] for row in one.metrics] == [row["bound"] for row in other.metrics]
    assert {row["bound"] for row in one.metrics} != {one.plan.bound}, "the bound moves"


def test_secrets_are_for_the_owner_only(tmp_path):
    run(tmp_path / "run")
    assert stat.S_IMODE((tmp_path / "run" / "canaries.json").stat().st_mode) == 0o600
    for file in (tmp_path / "run" / "checkpoint").glob("canaries-*"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_resumed_run_has_the_same_canaries_and_the_same_scores(tmp_path):
    whole = run(tmp_path / "whole", zero=False, rounds=5)

    class Cut(Exception):
        pass

    def cut(progress):
        if progress.round == 3:
            raise Cut

    p, federation = plan(rounds=5), population(zero=False)
    torch.manual_seed(0)
    with pytest.raises(Cut):
        train(torch.nn.Linear(WIDTH, 4, bias=False), federation, p, out=tmp_path / "cut", options=HERE, on_round=cut)
    torch.manual_seed(0)
    resumed = train(
        torch.nn.Linear(WIDTH, 4, bias=False), federation, p, out=tmp_path / "cut", resume=True, options=HERE
    )
    assert torch.equal(whole.model.weight, resumed.model.weight)
    assert kept(tmp_path / "whole")[0] == kept(tmp_path / "cut")[0]
    assert len(list((tmp_path / "cut" / "checkpoint").glob("canaries-*"))) == 1


def test_workers_give_the_same_scores(tmp_path):
    for name, speed in (("one", HERE), ("two", EngineOptions(engine="workers", workers=2))):
        run(tmp_path / name, zero=False, options=speed, unit="example", observer="secagg-server", method="adact")
    assert kept(tmp_path / "one")[0] == kept(tmp_path / "two")[0]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"canaries": 3000}, "a coordinate each"),
        ({"canary": "random"}, "for the example unit pooled"),
        ({"unit": "example", "canary": "mislabelled", "canaries": 300}, "as many public test examples"),
        ({"method": "fedavg", "multiplier": None}, "no bound for canaries"),
        ({"canary": "yellow"}, "canary must be one of"),
    ],
)
def test_canaries_that_do_not_fit_are_refused(settings, sentence, tmp_path):
    with pytest.raises(Exception, match=sentence):
        run(tmp_path / "run", **settings)
