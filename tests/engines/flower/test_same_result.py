"""One plan, one result: in this process and with clients elsewhere, every method gives the same model to 1e-6."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hall import Hall, toy
from safetensors.numpy import load_file

from sordino import EngineOptions, Federation, Plan, train
from sordino.assembly import complete
from sordino.methods import METHODS
from sordino.models import build

HERE = EngineOptions(engine="in-process")
WAYS = {
    "client, central": {"unit": "client", "observer": "public", "sampling": "poisson", "cohort": 3},
    "client, shares": {"unit": "client", "observer": "secagg-server", "sampling": "fixed", "cohort": 3},
    "client, shares of everyone": {"unit": "client", "observer": "secagg-server", "sampling": "none"},
    "client, local noise": {"unit": "client", "observer": "server", "sampling": "fixed", "cohort": 3},
    "example, pooled central": {"unit": "example", "observer": "public", "batch_size": 30},
    "example, pooled shares": {"unit": "example", "observer": "secagg-server", "batch_size": 30},
    "example, local": {"unit": "example", "observer": "server", "batch_size": 10},
}
QUICK = ("client, shares of everyone", "example, pooled shares")
ALSO = (
    ("fedmap", "example, local"),
    ("adact", "client, central"),
    ("quantile", "client, local noise"),
    ("adact", "example, local"),
)


def cases():
    for name, method in METHODS.items():
        for variant in method.variants:
            for way, settings in WAYS.items():
                if settings["unit"] in method.units and settings["observer"] in method.towards(variant):
                    quick = variant == method.variants[0] and way in QUICK or (name, way) in ALSO
                    marks = () if quick else pytest.mark.slow
                    yield pytest.param(name, str(variant), settings, id=f"{name}, {variant}, {way}", marks=marks)
    by_epoch = WAYS["client, local noise"] | {"local_epochs": 2}
    yield pytest.param("noise-gamma", "certified", by_epoch, id="noise-gamma, certified, client, by epoch")
    laplace = by_epoch | {"mechanism": "laplace"}
    yield pytest.param("noise-gamma", "published", laplace, id="noise-gamma, published, client, by epoch")
    yield pytest.param("dp-fedacn", "published", by_epoch, id="dp-fedacn, published, client, sums of gradients")


def plan(method, variant, settings):
    given = {"data": "toy", "clients": 5, "method": method, "variant": variant, "rounds": 3, "batch_size": 8, "lr": 0.3}
    private = {"multiplier": 0.5} if METHODS[method].private else {}
    if METHODS[method].scheme is not None:  # its clients set the multiplier
        private = {"epsilon": 20.0}
    return Plan.from_json(complete(given | private | {"model": "linear"} | settings))


def test_every_method_is_tried_for_every_unit_and_observer_that_it_knows():
    tried = {(p.values[0], p.values[1], p.values[2]["unit"], p.values[2]["observer"]) for p in cases()}
    for name, method in METHODS.items():
        ways = {
            (name, str(v), str(u), str(o)) for v in method.variants for u in method.units for o in method.towards(v)
        }
        assert ways and ways <= tried


@pytest.mark.parametrize(("method", "variant", "settings"), cases())
def test_the_same_model(method, variant, settings, tmp_path):
    p = plan(method, variant, settings)
    federation = toy(clients=5)
    model = build("linear", federation.input_shape, federation.classes, p.seed)
    here = train(model, federation, p, out=tmp_path / "here", options=HERE)
    hall = Hall(federation, tmp_path / "holders")
    there = hall.train(p, tmp_path / "there")
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("here", "there"))
    assert any(np.abs(v).max() > 1e-3 for v in a.values()), "nothing was learnt at all"
    for key in a:
        np.testing.assert_allclose(a[key], b[key], atol=1e-6)
    assert there.accuracy == pytest.approx(here.accuracy, abs=0.01)
    for ours, theirs in zip(there.metrics, here.metrics, strict=True):
        assert ours["bound"] == (None if theirs["bound"] is None else pytest.approx(theirs["bound"], rel=1e-6))
    if here.terms.proven:
        assert here.epsilon == there.epsilon
    hall.close()


@pytest.mark.parametrize("method", ["adact", "quantile", "dp-fedavg"])
def test_silos_come_to_the_very_same_bits(method, tmp_path):
    """Also with a network in which rounding would show, and grow from round to round."""
    digits = Federation.from_dataset("digits", "dirichlet", clients=3, alpha=1.0, seed=0)
    pairs = [(np.kron(x, np.ones((1, 1, 2, 2), x.dtype)), y) for x, y in map(digits.raw, range(3))]
    federation = Federation.from_arrays(pairs, test=pairs[0], classes=10, name="digits of 16 by 16")
    given = {"data": federation.name, "clients": 3, "method": method, "unit": "example", "observer": "secagg-server"}
    p = Plan.from_json(complete({**given, "epsilon": 4.0, "rounds": 8, "batch_size": 256, "model": "cnn-tanh"}))
    model = build(p.model, federation.input_shape, federation.classes, p.seed)
    train(model, federation, p, out=tmp_path / "here", options=HERE)
    hall = Hall(federation, tmp_path / "holders")
    hall.train(p, tmp_path / "there")
    hall.close()
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("here", "there"))
    for key in a:
        np.testing.assert_array_equal(a[key], b[key])


@pytest.mark.parametrize("observer", ["public", pytest.param("secagg-server", marks=pytest.mark.slow)])
def test_many_small_clients_come_to_the_same_bits_when_they_are_kept_apart(observer, tmp_path):
    """Batched together in one process their sums round differently, and over many rounds that grows."""
    digits = Federation.from_dataset("digits", "iid", clients=8, seed=0)
    pairs = [(np.kron(x, np.ones((1, 1, 2, 2), x.dtype)), y) for x, y in map(digits.raw, range(8))]
    federation = Federation.from_arrays(pairs, test=pairs[0], classes=10, name="digits of 16 by 16")
    given = {"data": federation.name, "clients": 8, "method": "dp-fedavg", "unit": "example", "observer": observer}
    rest = {"multiplier": 0.01, "rounds": 24, "batch_size": 128, "lr": 8.0, "model": "cnn-tanh"}
    p = Plan.from_json(complete(given | rest))
    ways = {"here": EngineOptions(engine="in-process", isolate_clients=True), "mixed": HERE}
    for name, speed in ways.items():
        model = build(p.model, federation.input_shape, federation.classes, p.seed)
        train(model, federation, p, out=tmp_path / name, options=speed)
    hall = Hall(federation, tmp_path / "holders")
    hall.train(p, tmp_path / "there")
    hall.close()
    here, mixed, there = (load_file(tmp_path / name / "model.safetensors") for name in ("here", "mixed", "there"))
    for key in there:
        np.testing.assert_array_equal(here[key], there[key])
    assert max(np.abs(mixed[key] - there[key]).max() for key in there) > 1e-6, "there was nothing to keep apart"


def pictures(clients: int = 3) -> Federation:
    digits = Federation.from_dataset("digits", "dirichlet", clients=clients, alpha=1.0, seed=0)
    pairs = [(np.kron(x, np.ones((1, 1, 2, 2), x.dtype))[:40], y[:40]) for x, y in map(digits.raw, range(clients))]
    return Federation.from_arrays(pairs, test=pairs[0], classes=10, name="digits of 16 by 16")


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "dp-fedavg", "defence": "soteria", "options": {"soteria_records": 4}},
        {"method": "dp-fedavg", "defence": "censor", "options": {"censor_trials": 3}},
        {"method": "adact", "personal": "fc2"},
        {"method": "fed-dpa", "observer": "server", "sampling": "fixed"},
        {"method": "fed-dpa"},
        {"method": "fed-dpa", "observer": "public"},
    ],
    ids=["soteria", "censor", "own layers", "fed-dpa, every message", "fed-dpa, sums", "fed-dpa, models"],
)
def test_defences_and_personal_models_at_holders(settings, tmp_path):
    """The same model, and what a client keeps for itself lies at the holder and nowhere else."""
    federation = pictures()
    given = {"data": federation.name, "clients": 3, "unit": "client", "observer": "secagg-server", "sampling": "none"}
    rest = {"multiplier": 0.1, "rounds": 3, "batch_size": 20, "lr": 0.05, "local_epochs": 1, "model": "cnn-tanh"}
    p = Plan.from_json(complete(given | rest | settings))
    model = build(p.model, federation.input_shape, federation.classes, p.seed)
    train(model, federation, p, out=tmp_path / "here", options=HERE)
    hall = Hall(federation, tmp_path / "holders")
    hall.train(p, tmp_path / "there")
    hall.close()
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("here", "there"))
    for key in a:
        np.testing.assert_array_equal(a[key], b[key])
    figures = [json.loads(path.read_text()) for path in (tmp_path / "holders").rglob("own_figures.json")]
    assert len(figures) == 3 and all(0 <= own["shared"] <= 1 and own["records"] == 40 for own in figures)
    kept = {path.name for path in (tmp_path / "holders").rglob("round-*.safetensors")}
    if "defence" in settings:
        assert not kept and not any("personal" in own for own in figures)
        return
    assert all(0 <= own["personal"] <= 1 for own in figures)
    assert kept == {f"round-{t:06d}.safetensors" for t in (1, 2, 3)}
    assert not list((tmp_path / "there").rglob("*personal*"))
    for k in range(3):
        (ready,) = (tmp_path / "holders" / f"n{k}").rglob("personal.safetensors")
        assert ready.stat().st_mode & 0o077 == 0 and load_file(ready).keys() == a.keys()
        (mine,) = (tmp_path / "holders" / f"n{k}").rglob("personal")
        assert mine.stat().st_mode & 0o077 == 0 and [f.name for f in mine.iterdir()] == [f"client-{k:06d}"]
        for t in (1, 2, 3):
            file = f"client-{k:06d}/round-{t:06d}.safetensors"
            here = tmp_path / "here" / "checkpoint" / "personal" / file
            if here.exists():
                np.testing.assert_array_equal(load_file(here)["values"], load_file(mine / file)["values"])
