"""Defences in a plan: where they may stand, what the statement says, and the same result wherever clients run."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from safetensors.numpy import load_file  # noqa: E402
from torch import nn  # noqa: E402

from sordino import BadInput, EngineOptions, Plan, train  # noqa: E402
from sordino.clients.site import Site  # noqa: E402
from sordino.defences import DEFENCES  # noqa: E402
from sordino.federation.sampling import Draws  # noqa: E402
from sordino.federation.sizes import PublicSizes  # noqa: E402
from sordino.schemes import settle  # noqa: E402

BASE = {"data": "toy", "clients": 12, "rounds": 2, "batch_size": 8, "lr": 0.2}
CLIENT = {"method": "dp-fedavg", "unit": "client", "observer": "secagg-server", "sampling": "none", "multiplier": 0.5}


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3))


@pytest.mark.parametrize("defence", DEFENCES)
def test_the_epsilon_is_that_of_the_method_and_the_statement_says_heuristic(defence, federation, tmp_path):
    plain = train(network(), federation, Plan(**BASE, **CLIENT), out=tmp_path / "plain")
    result = train(network(), federation, Plan(**BASE, **CLIENT, defence=defence), out=tmp_path / "run")
    assert result.epsilon == plain.epsilon
    for text in ((tmp_path / "run" / "statement.txt").read_text(), (tmp_path / "run" / "report.html").read_text()):
        assert f"{defence}: heuristic: no guarantee" in " ".join(text.split())
    assert "heuristic" not in (tmp_path / "plain" / "statement.txt").read_text()
    assert result.statement.to_json()["defence"] == defence
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("plain", "run"))
    assert any(np.abs(a[k] - b[k]).max() > 1e-4 for k in a)


@pytest.mark.parametrize("defence", DEFENCES)
@pytest.mark.parametrize("method", ["dp-fedavg", "adact"])  # adact asks for norms first
def test_the_same_in_workers(defence, method, federation, tmp_path):
    plan = Plan(**BASE, **CLIENT | {"method": method}, defence=defence)
    for name, engine in (("one", "in-process"), ("two", "workers")):
        train(network(), federation, plan, out=tmp_path / name, options=EngineOptions(engine, workers=2))
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert all(np.array_equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize(
    "way",
    [
        {"method": "adact", "unit": "example", "observer": "secagg-server", "epsilon": 4.0},
        {"method": "dp-fedavg", "unit": "example", "observer": "server", "epsilon": 4.0},
        {"method": "fedmap", "unit": "example", "observer": "server", "epsilon": 4.0},
    ],
)
def test_refused_where_every_record_is_clipped_by_itself(way):
    with pytest.raises(BadInput, match="changes the whole update of a client.*use unit client, or method fedavg"):
        Plan(**BASE, **way, defence="censor")


def test_unknown_names_and_settings():
    with pytest.raises(BadInput, match="defence must be one of soteria, censor, not 'dust'"):
        Plan(**BASE, **CLIENT, defence="dust")
    with pytest.raises(BadInput, match="no option 'censor_trials'"):
        Plan(**BASE, **CLIENT, defence="soteria", options={"censor_trials": 3})
    with pytest.raises(BadInput, match="censor_trials"):
        Plan(**BASE, **CLIENT, defence="censor", options={"censor_trials": 0})
    kept = Plan(**BASE, **CLIENT, defence="censor", options={"censor_trials": 3})
    assert Plan.from_json(kept.to_json()) == kept


def test_draws_of_a_defence_follow_the_seed_only_in_a_rehearsal():
    open_plan, secret_plan = Plan(**BASE, **CLIENT), Plan(**BASE, **CLIENT, secure=True)
    draw = lambda draws: draws.secret(1, 0, "defence").random()  # noqa: E731
    assert draw(Draws(open_plan)) == draw(Draws(open_plan))
    assert draw(Draws(secret_plan)) != draw(Draws(secret_plan))
    assert draw(Draws(secret_plan, 5)) == draw(Draws(secret_plan, 5))  # a data holder's own key


def test_what_is_sent_is_still_clipped(federation):
    """A defence that makes the update a thousand times longer gains nothing: it stands before the clipping."""
    from sordino.privacy.bounds import Flat as FlatBound
    from sordino.schemes.client import ClientUpdate
    from sordino.schemes.clipped import request_for
    from sordino.schemes.request import CONTRIBUTE

    plan = Plan(**BASE, **CLIENT | {"observer": "public"}, defence="soteria")
    terms = settle(plan, PublicSizes.of(federation))
    site = Site(network(), federation, plan)
    work = ClientUpdate(site, site.flat.vector().numpy(), terms)
    work.defence = lambda update, own: update * 1000  # type: ignore[assignment]
    request = request_for(terms, 1, CONTRIBUTE, FlatBound(0.25), None, 0.0)
    out = np.zeros(site.flat.size, np.int64)
    work.contribute(request, 3, out)
    assert 0.24 < np.linalg.norm(request.grid.decode(out)) <= 0.25


@pytest.mark.parametrize(
    ("defence", "option", "said"),
    [
        ("soteria", "percentile", "defence soteria has soteria_percentile, soteria_offset, soteria_records"),
        (None, "censor_trials", "it belongs to defence censor, which the plan does not name"),
        (None, "other", "it has none.$"),
    ],
)
def test_an_option_that_is_not_there_is_told_where_it_belongs(defence, option, said):
    with pytest.raises(BadInput, match=said):
        Plan(data="toy", clients=2, method="dp-fedavg", unit="client", observer="public", sampling="none", multiplier=1.0,
             defence=defence, options={option: 3.0})  # fmt: skip
