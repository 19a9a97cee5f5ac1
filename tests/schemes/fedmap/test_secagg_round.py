"""FedMAP towards a server that sees sums only: the model and the accounting of the observer `server`, and less in the open."""

from __future__ import annotations

import json
from collections import defaultdict

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import fedmap_runs  # noqa: E402
from fedmap_runs import crashing, spent  # noqa: E402
from sordino.engines import EngineOptions  # noqa: E402
from sordino.errors import BadInput, NotPrivate  # noqa: E402
from sordino.federation import sampling  # noqa: E402
from sordino.plan import Plan  # noqa: E402
from sordino.privacy import rdp  # noqa: E402
from sordino.privacy.ledger import Ledger  # noqa: E402
from sordino.privacy.vocabulary import Noise  # noqa: E402
from sordino.schemes.fedmap.client import ControlledSteps  # noqa: E402
from sordino.schemes.fedmap.rounds import unpack  # noqa: E402
from sordino.schemes.fedmap.secagg_round import FedMapSecAggRound  # noqa: E402


def plan(**changes):
    base = {"data": "toy", "clients": 12, "cohort": 5, "method": "fedmap", "observer": "secagg-server", "epsilon": 2.0}
    return Plan(**(base | {"rounds": 8, "batch_size": 10, "lr": 0.5} | changes))


def run(linear, folder, wanted=None, **more):
    return fedmap_runs.run(linear, folder, wanted or plan(), **more)


def weights(result):
    return np.concatenate([p.detach().numpy().ravel() for p in result.model.parameters()])


@pytest.mark.parametrize("settings", [{}, {"cohort": 12}, {"server_optimizer": "adam", "server_lr": 0.1}])
def test_the_model_is_that_of_the_observer_server(linear, tmp_path, settings):
    """Where no cohort is too small to meet: same noise, same budgets, same model."""
    assert min(len(sampling.public_cohort(plan(observer="server", **settings), t)) for t in range(1, 9)) >= 2
    clear = run(linear, tmp_path / "clear", plan(observer="server", **settings))
    sealed = run(linear, tmp_path / "sealed", plan(**settings))
    assert np.abs(weights(clear)).max() > 0.01
    np.testing.assert_allclose(weights(sealed), weights(clear), atol=1e-6)
    assert sealed.accuracy == clear.accuracy and sealed.epsilon == clear.epsilon == 2.0
    assert sealed.terms.order == clear.terms.order and sealed.terms.multiplier == clear.terms.multiplier
    for key in ("bound", "multiplier", "spent_mean"):
        assert [row[key] for row in sealed.metrics] == pytest.approx([row[key] for row in clear.metrics], rel=1e-6)


def test_every_budget_is_approached_and_none_is_passed(linear, tmp_path, paid):
    result = run(linear, tmp_path / "run")
    true = spent(paid, result.terms.order)
    assert max(true.values()) <= rdp.budget(2.0, 1e-5, result.terms.order)
    assert np.median([cost / result.terms.budget for cost in true.values()]) > 0.9


def test_what_is_charged_is_public_and_covers_what_is_granted(linear, tmp_path, monkeypatch):
    """The ledger would be the same for any other records; budgets are never beyond it, and it is on disk first."""
    real, seen = ControlledSteps.contribute, []

    def give(self, request, item, out):
        granted = defaultdict(float)
        for grant in Ledger.read(tmp_path / "run" / "ledger.jsonl").grants:
            for k, cost in zip(grant.clients.tolist(), np.broadcast_to(grant.costs, grant.clients.shape)):
                granted[k] += cost
        seen.append(item.own.spent + item.round_budget <= granted[item.client] * (1 + 1e-9))
        return real(self, request, item, out)

    monkeypatch.setattr(ControlledSteps, "contribute", give)
    run(linear, tmp_path / "run")
    assert len(seen) > 10 and all(seen)
    monkeypatch.setattr(ControlledSteps, "contribute", real)
    run(linear, tmp_path / "other", plan(lr=0.01, bound=3.0))
    costs = [
        [np.broadcast_to(g.costs, g.clients.shape).tolist() for g in Ledger.read(tmp_path / name / "ledger.jsonl")]
        for name in ("run", "other")
    ]
    assert costs[0] == costs[1]


def test_budgets_beyond_the_charge_are_refused(linear, tmp_path, monkeypatch):
    monkeypatch.setattr("sordino.schemes.fedmap.allocation.GENEROUS", 2.5)
    with pytest.raises(NotPrivate, match="add up to more than it is charged"):
        run(linear, tmp_path / "run")


def test_workers_and_one_process_agree_to_the_bit(linear, tmp_path):
    one = run(linear, tmp_path / "one")
    two = run(linear, tmp_path / "two", options=EngineOptions("workers", 2, evaluate_every=100))
    assert np.array_equal(weights(one), weights(two))
    assert [row["bound"] for row in one.metrics] == [row["bound"] for row in two.metrics]


def test_the_statement_says_that_aggregation_earns_nothing(linear, tmp_path):
    result = run(linear, tmp_path / "run")
    text = " ".join(result.statement.text().split())
    assert "PROVEN: epsilon 2, delta 1e-05" in text and "sees only sums over a cohort" in text
    assert "The proof does not depend on secure aggregation: each message carries its full noise" in text
    assert (
        "Secure aggregation hides single messages in addition" in text
        and "nothing is assumed of secure aggregation" in text
    )
    assert "Each client sets its multiplier for each step and tells it to nobody" in text
    assert "at most 100% of it was spent" in text and "each client adds it in full" in text
    told = json.loads((tmp_path / "run" / "statement.json").read_text())
    assert told["observer"] == "secagg-server" and told["noise"] == "local" and not isinstance(told["multiplier"], list)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "does not depend on secure aggregation" in page
    clear = run(linear, tmp_path / "clear", plan(observer="server")).statement.text()
    assert "hides single messages" not in " ".join(clear.split())


def test_shares_of_noise_still_rest_on_it(linear, tmp_path):
    """The sentence is for methods whose messages are private by themselves, and for no other."""
    result = run(linear, tmp_path / "run", plan(method="dp-fedavg", cohort=None, epsilon=None, multiplier=1.0))
    assert result.plan.scheme.noise == Noise.SHARES and "hides single messages" not in " ".join(
        result.statement.text().split()
    )


def test_a_seeded_run_goes_on_bit_for_bit(linear, tmp_path, monkeypatch):
    whole = run(linear, tmp_path / "whole")
    with crashing(monkeypatch, 17):
        run(linear, tmp_path / "cut")
    resumed = run(linear, tmp_path / "cut", resume=True)
    assert np.array_equal(weights(whole), weights(resumed))
    assert [row["spent_mean"] for row in whole.metrics] == [row["spent_mean"] for row in resumed.metrics]
    assert all(grant.attempt == 1 for grant in Ledger.read(tmp_path / "cut" / "ledger.jsonl"))


def test_under_secure_noise_a_round_cut_short_is_lost_and_its_budgets_are_spent(linear, tmp_path, monkeypatch, paid):
    wanted = plan(secure=True)
    with crashing(monkeypatch, 1, round=3):
        run(linear, tmp_path / "run", wanted)
    kept, lose = [], FedMapSecAggRound._lose
    monkeypatch.setattr(
        FedMapSecAggRound, "_lose", lambda self, model: kept.append((model, after := lose(self, model))) or after
    )
    result = run(linear, tmp_path / "run", wanted, resume=True)
    assert result.statement.lost == 1 and result.rounds == 7
    ((before, after),) = kept
    old, new = unpack(before.clients), unpack(after.clients)
    for k in sampling.public_cohort(wanted, 3).tolist():
        assert new[k].unspent == 0 and new[k].spent == pytest.approx(new[k].granted) and new[k].spent > 0
        assert k not in old or new[k].spent > old[k].spent
    assert after.rule["lost"] == [3]
    assert max(spent(paid, result.terms.order).values()) <= rdp.budget(2.0, 1e-5, result.terms.order)


def test_a_cohort_of_one_does_not_meet(linear, tmp_path, monkeypatch):
    """Its sum would be that client's message. Draws ignore the data, so that this is public and known beforehand."""
    wanted = plan(cohort=2, rounds=12)
    open_ = wanted.replace(observer="server")
    sizes = [len(sampling.public_cohort(open_, t)) for t in range(1, 13)]
    assert 1 in sizes and max(sizes) >= 2
    for t, size in enumerate(sizes, 1):
        assert len(sampling.public_cohort(wanted, t)) == (size if size >= 2 else 0)
        assert len(sampling.public_cohort(wanted.replace(survivors=2), t)) == (size if size >= 2 else 0)
    seen, real = defaultdict(int), ControlledSteps.contribute

    def give(self, request, item, out):
        seen[request.round] += 1
        return real(self, request, item, out)

    monkeypatch.setattr(ControlledSteps, "contribute", give)
    result = run(linear, tmp_path / "run", wanted)
    assert result.rounds == 12 and dict(seen) == {t: n for t, n in enumerate(sizes, 1) if n >= 2}
    assert result.terms.turns.sum() == sum(n for n in sizes if n >= 2)


def test_what_is_offered():
    wanted = plan()
    assert wanted.scheme.masked and wanted.scheme.name == "local" and wanted.scheme.noise == Noise.LOCAL
    assert not plan(observer="server").scheme.masked and plan(survivors=4).scheme.min_cohort == 4
    with pytest.raises(BadInput, match="fedmap as published does not run towards observer secagg-server; use server"):
        plan(variant="published")
    with pytest.raises(BadInput, match="use server or secagg-server"):
        plan(observer="public")
    with pytest.raises(BadInput, match="survivors of at least 2"):
        plan(survivors=1)
    with pytest.raises(BadInput, match="more than the 5 clients"):
        plan(survivors=6)
    with pytest.raises(BadInput, match="survivors 2 is among how many"):
        plan(observer="server", survivors=2)


def test_the_kind_of_round(linear):
    assert plan().scheme.masked and plan().scheme.noise == "local" and plan().scheme.survivors == 2
    assert not plan(observer="server").scheme.masked and plan(observer="server").scheme.survivors == 1
