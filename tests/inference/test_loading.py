"""A finished run in use."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

import sordino
from populations import toy
from sordino import Plan, train
from sordino.assembly import assemble
from sordino.cli.main import main
from sordino.engines import EngineOptions
from sordino.errors import BadInput

HERE = EngineOptions("in-process")
POOLED = {"method": "dp-fedavg", "epsilon": 8.0, "rounds": 15, "lr": 0.05, "server_optimizer": "adam", "batch_size": 64}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A table with words and a number on a scale of thousands, trained through a schema."""
    place = tmp_path_factory.mktemp("run")
    rng = np.random.Generator(np.random.PCG64(0))

    def table(name, n, user):
        size, sex = rng.normal(5000, 1000, n), rng.choice(["f", "m"], n)
        kind = np.where((size > 5000) ^ (rng.random(n) < 0.05), "big", "small")
        rows = [f"u{k % 4}," * user + f"{s:.0f},{x},{c}" for k, (s, x, c) in enumerate(zip(size, sex, kind))]
        (place / name).write_text("user," * user + "size,sex,kind\n" + "\n".join(rows) + "\n")

    table("train.csv", 400, True)
    table("test.csv", 100, False)
    (place / "schema.toml").write_text(
        'label = "kind"\nclasses = ["big", "small"]\nclient = "user"\n'
        '[features.size]\nmean = 5000\nstd = 1000\nmissing = "fill"\n[features.sex]\nvalues = ["f", "m"]\n'
    )
    files = {name: str(place / f"{name}.{end}") for name, end in (("test", "csv"), ("schema", "toml"))}
    model, federation, plan = assemble(Plan(data=str(place / "train.csv"), **files, **POOLED))
    result = train(model, federation, plan, out=place / "run", options=HERE)
    assert result.accuracy > 0.85
    return place


def test_predictions_are_those_of_the_model_that_was_trained(run):
    trained = sordino.load(run / "run")
    found = trained.predict(run / "test.csv")
    truth = [row["kind"] for row in csv.DictReader(io.StringIO((run / "test.csv").read_text()))]
    right = np.mean([a == b for a, b in zip(found.labels, truth)])
    figures = json.loads((run / "run" / "evaluation.json").read_text())
    assert right == pytest.approx(figures["accuracy"]) and found.outputs == ("big", "small")
    assert found.scores.sum(1) == pytest.approx(np.ones(100))


def test_new_data_has_no_labels_other_columns_and_gaps(run, tmp_path, capsys):
    (tmp_path / "new.csv").write_text("sex;id;size\nf;17;7000\nm;18;\n")
    assert main(["predict", str(run / "run"), "--data", str(tmp_path / "new.csv")]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 2 and rows[0]["prediction"] == "big" and 0.5 < float(rows[0]["big"]) <= 1
    (tmp_path / "bad.csv").write_text("sex,Size\nf,7000\n")
    assert main(["predict", str(run / "run"), "--data", str(tmp_path / "bad.csv")]) == 2
    assert "has no column 'size' (it has 'Size')" in capsys.readouterr().err
    assert main(["predict", str(run / "run"), "--data", str(tmp_path / "new.csv"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["examples"] == 2


def test_weights_say_what_they_are(run):
    from safetensors import safe_open

    with safe_open(run / "run" / "model.safetensors", "pt") as file:
        told = json.loads(file.metadata()["sordino"])
    assert told["classes"] == ["big", "small"] and told["features"] == ["size", "sex=f", "sex=m"]
    assert told["epsilon"] <= 8.0 and told["unit"] == "example"


def test_the_card_tells_use_data_guarantee_figures_and_limits(run, tmp_path, capsys):
    text = (run / "run" / "MODEL_CARD.md").read_text()
    for title in ("Intended use", "Training data", "Guarantee", "How good it is", "Limits"):
        assert f"## {title}" in text
    assert "PROVEN: epsilon 8" in text and "| big |" in text and "size, sex=f, sex=m" in text
    assert main(["export", str(run / "run"), "--card", str(tmp_path / "card.md")]) == 0
    assert (tmp_path / "card.md").read_text() == text
    assert main(["export", str(tmp_path)]) == 2 and "not a run folder" in capsys.readouterr().err


def test_a_module_that_was_handed_over_is_handed_over_again(linear, tmp_path):
    federation = toy(clients=3)
    result = train(linear(), federation, Plan(**POOLED), out=tmp_path / "run", options=HERE)
    with pytest.raises(BadInput, match="handed over in Python"):
        sordino.load(tmp_path / "run")
    found = sordino.load(tmp_path / "run", linear()).predict(federation.test[0])
    assert np.mean([int(label) == y for label, y in zip(found.labels, federation.test[1])]) == pytest.approx(
        result.accuracy
    )
    with pytest.raises(BadInput, match=r"shape \(4,\) and the model takes \(5,\)"):
        sordino.load(tmp_path / "run", linear()).predict(np.zeros((1, 4)))


def test_onnx_gives_the_same_scores(run, tmp_path):
    onnx, reference = pytest.importorskip("onnx"), pytest.importorskip("onnx.reference")
    from sordino.inference.export import to_onnx
    from sordino.inference.running import scores_of

    trained = sordino.load(run / "run")
    made, x = onnx.load(str(to_onnx(trained, tmp_path / "m.onnx"))), trained.inputs(run / "test.csv")
    onnx.checker.check_model(made)
    want = pytest.approx(scores_of(trained.module, x), abs=1e-5)
    assert reference.ReferenceEvaluator(made).run(None, {"x": x})[0] == want
    assert json.loads({one.key: one.value for one in made.metadata_props}["classes"]) == ["big", "small"]
    runtime = pytest.importorskip("onnxruntime", reason="pip install onnxruntime to run the file with it too")
    assert runtime.InferenceSession(tmp_path / "m.onnx").run(None, {"x": x})[0] == want


def test_private_statistics_scale_what_the_schema_does_not(run, tmp_path):
    schema = (run / "schema.toml").read_text().replace("mean = 5000\nstd = 1000", "as_is = true")
    (tmp_path / "schema.toml").write_text(schema)
    files = {"test": str(run / "test.csv"), "schema": str(tmp_path / "schema.toml")}
    model, federation, plan = assemble(Plan(data=str(run / "train.csv"), prepare="standard", **files, **POOLED))
    assert list(plan.prepare["columns"]) == [0]
    result = train(model, federation, plan, out=tmp_path / "run", options=HERE)
    found = sordino.load(tmp_path / "run").predict(run / "test.csv")
    truth = [row["kind"] for row in csv.DictReader(io.StringIO((run / "test.csv").read_text()))]
    assert (
        np.mean([a == b for a, b in zip(found.labels, truth)]) == pytest.approx(result.accuracy)
        and result.accuracy > 0.6
    )


def test_a_schema_is_as_good_as_scaling_by_hand(run, tmp_path):
    """The same constants give the same numbers, and so the same model to the last bit."""
    rows = list(csv.DictReader(io.StringIO((run / "train.csv").read_text())))
    tests = list(csv.DictReader(io.StringIO((run / "test.csv").read_text())))

    def arrays(rows):
        x = [[(float(r["size"]) - 5000) / 1000, r["sex"] == "f", r["sex"] == "m"] for r in rows]
        return np.array(x, np.float32), np.array([r["kind"] == "small" for r in rows], int)

    by_hand = [arrays([r for r in rows if r["user"] == f"u{k}"]) for k in range(4)]
    federation = sordino.Federation.from_arrays(by_hand, test=arrays(tests), classes=2)
    model, _, _ = assemble(Plan.load(run / "run" / "plan.toml"))
    result = train(model, federation, Plan(**POOLED), out=tmp_path / "run", options=HERE)
    scored = json.loads((run / "run" / "evaluation.json").read_text())
    assert result.accuracy == scored["accuracy"] and result.evaluation.confusion == tuple(
        map(tuple, scored["confusion"])
    )


def test_a_gap_becomes_the_private_mean_and_not_a_raw_zero(tmp_path):
    """Sizes lie around 5000: a missing one must count as an ordinary one, in training, in the test and in predictions."""
    rng = np.random.Generator(np.random.PCG64(3))
    size = rng.normal(5000, 1000, 600)
    rows = [
        f"u{k % 3},{'' if k % 10 == 0 else f'{s:.0f}'},{'big' if s > 5000 else 'small'}" for k, s in enumerate(size)
    ]
    (tmp_path / "t.csv").write_text("user,size,kind\n" + "\n".join(rows) + "\n")
    (tmp_path / "s.toml").write_text(
        'label = "kind"\nclasses = ["big", "small"]\nclient = "user"\n[features.size]\nas_is = true\nmissing = "fill"\n'
    )
    given = {"data": str(tmp_path / "t.csv"), "schema": str(tmp_path / "s.toml"), "test": "holdout=0.1"}
    model, federation, plan = assemble(Plan(**given, prepare="standard", model="linear", **POOLED))
    assert np.isnan(federation.raw(0)[0]).any() and np.isfinite(federation[0][0]).all()
    result = train(model, federation, plan, out=tmp_path / "run", options=HERE)
    trained = sordino.load(tmp_path / "run")
    (tmp_path / "new.csv").write_text("size\nNA\n5000\n9000\n0\n")
    gap, middle, large, zero = trained.inputs(tmp_path / "new.csv")[:, 0]
    assert gap == 0 and abs(middle) < 0.5 < large and zero < -1
    assert result.held_out.tested == pytest.approx(60, abs=3) and result.evaluation is None
    bare, everyone, raw = assemble(Plan(**given, model="linear", **POOLED))
    x = everyone[0][0][:, 0]
    assert raw.prepare == {} and (x == 0).any() and np.isfinite(x).all()  # as it is, a gap is 0
