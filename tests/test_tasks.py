"""Other tasks than classification, models with several inputs, tied weights, losses of one's own."""

from __future__ import annotations

import json

import numpy as np
import pytest

from populations import toy
from sordino import Federation, Plan, train
from sordino.engines import EngineOptions
from sordino.errors import BadInput
from sordino.federation.checkpoint import load_weights

torch = pytest.importorskip("torch")
nn = torch.nn
HERE = EngineOptions("in-process")
POOLED = {"method": "dp-fedavg", "unit": "example", "observer": "secagg-server", "lr": 0.05, "server_optimizer": "adam"}


def rng():
    return np.random.Generator(np.random.PCG64(0))


def plan(**changes):
    return Plan(**{**POOLED, "epsilon": 20.0, "rounds": 40, "batch_size": 60, **changes})


def test_regression_learns_and_reports_its_loss(tmp_path):
    x = rng().normal(size=(600, 3)).astype(np.float32)
    y = x @ np.array([1.0, -1.0, 0.5])
    pairs = [(x[:200], y[:200]), (x[200:400], y[200:400])]
    federation = Federation.from_arrays(pairs, test=(x[400:], y[400:]), task="regression")
    assert federation.classes == 1 and federation[0][1].shape == (200, 1)
    model = nn.Linear(3, 1)
    result = train(model, federation, plan(), out=tmp_path / "run", options=HERE)
    assert result.accuracy is None and result.metrics[-1]["loss"] < 0.1  # 1.1 without a model
    assert result.plan.task == "regression"


def test_several_labels_at_once(tmp_path):
    x = rng().normal(size=(900, 4)).astype(np.float32)
    y = (x[:, :2] > 0).astype(int)
    federation = Federation.from_arrays([(x[:600], y[:600])], test=(x[600:], y[600:]), task="multi-label")
    result = train(nn.Linear(4, 2), federation, plan(lr=0.1), out=tmp_path / "run", options=HERE)
    assert result.accuracy > 0.85
    with pytest.raises(BadInput, match="client 0 has labels other than 0 and 1"):
        Federation.from_arrays([(x, y * 2)], task="multi-label")


class Tied(nn.Module):
    """The same matrix encodes and decodes."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 5)
        self.second = nn.Linear(5, 5)
        self.head = nn.Linear(5, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.head(self.second(torch.tanh(self.first(x))))


@pytest.mark.parametrize("unit", ["example", "client"])
def test_tied_weights_are_trained_saved_and_loaded(unit, tmp_path):
    settings = plan(rounds=2) if unit == "example" else plan(rounds=2, unit="client", sampling="fixed")
    result = train(Tied(), toy(clients=4), settings, out=tmp_path / "run", options=HERE)
    again = Tied()
    load_weights(again, tmp_path / "run" / "model.safetensors")
    assert again.second.weight is again.first.weight
    for name, value in result.model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


def test_gradients_of_tied_weights_are_those_of_one_example_at_a_time():
    from sordino.gradients.flat import Flat
    from sordino.gradients.per_example import PerExample, cross_entropy

    x, y = torch.randn(8, 5), torch.arange(8) % 3
    torch.manual_seed(0)
    flat = Flat(Tied())
    auto, loop = PerExample(flat, cross_entropy), PerExample(flat, cross_entropy, mode="loop")
    assert np.allclose(auto.norms(x, y), loop.norms(x, y), rtol=1e-4)


class Two(nn.Module):
    """Takes a dictionary, as models for text do, and gives an object with logits."""

    def __init__(self):
        super().__init__()
        self.embed, self.dense, self.head = nn.Embedding(11, 4), nn.Linear(2, 4), nn.Linear(4, 3)

    def forward(self, input_ids, numbers):
        seen = self.embed(input_ids).mean(1) + self.dense(numbers)
        return {"logits": self.head(torch.tanh(seen))}


@pytest.mark.parametrize("unit", ["example", "client"])
def test_a_model_that_takes_a_dictionary(unit, tmp_path):
    draw = rng()

    def clients(n):
        ids = draw.integers(0, 11, size=(n, 6))
        return {"input_ids": ids, "numbers": draw.normal(size=(n, 2)).astype(np.float32)}, ids[:, 0] % 3

    federation = Federation.from_arrays([clients(30), clients(40)], test=clients(50), classes=3)
    settings = plan(rounds=2) if unit == "example" else plan(rounds=2, unit="client", sampling="fixed")
    model = Two()
    result = train(model, federation, settings, out=tmp_path / "run", options=HERE)
    assert result.model is model and 0 <= result.accuracy <= 1
    load_weights(Two(), tmp_path / "run" / "model.safetensors")  # under the user's own names
    with pytest.raises(BadInput, match="the fields of client 1 are not those of client 0"):
        Federation.from_arrays(
            [clients(5), ({"input_ids": np.zeros((2, 3), int), "numbers": np.zeros((2, 2))}, [0, 1])]
        )


def test_a_tuple_is_taken_by_place(tmp_path):
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(5, 2)

        def forward(self, a, b):
            return self.head(torch.cat([a, b], 1))

    x = (rng().normal(size=(20, 2)), rng().normal(size=(20, 3)))
    federation = Federation.from_arrays([(x, np.arange(20) % 2)])
    assert train(Both(), federation, plan(rounds=1), out=tmp_path / "run", options=HERE).rounds == 1


class Unsaved(nn.Linear):
    """Has something in its state that no file of weights can hold."""

    def state_dict(self, *args, **kwargs):
        return {**super().state_dict(*args, **kwargs), "note": _Note()}


class _Note:
    def detach(self):
        return self

    def clone(self):
        raise BadInput("a note is not a tensor.")


def test_what_cannot_be_saved_costs_nothing(tmp_path):
    with pytest.raises((BadInput, AttributeError, TypeError)):  # whatever it raises, it comes before any grant
        train(Unsaved(5, 3), toy(clients=3), plan(rounds=2), out=tmp_path / "run", options=HERE)
    assert not (tmp_path / "run" / "ledger.jsonl").exists()


class Blind(nn.Linear):
    """Fails while it is evaluated on more examples than it was tried on."""

    def forward(self, x):
        if not self.training and len(x) > 10:
            raise BadInput("too many examples at once.")
        return super().forward(x)


def test_an_evaluation_that_fails_costs_nothing(tmp_path):
    with pytest.raises(BadInput, match="too many examples"):
        train(Blind(5, 3), toy(clients=3), plan(rounds=2), out=tmp_path / "run", options=HERE)
    assert not (tmp_path / "run" / "ledger.jsonl").exists()


def test_the_statement_is_written_before_callbacks_that_fail(tmp_path):
    from sordino import Callback

    class Failing(Callback):
        def on_end(self, run):
            raise RuntimeError("at the worst moment")

    with pytest.raises(RuntimeError):
        train(
            nn.Linear(5, 3), toy(clients=3), plan(rounds=2), out=tmp_path / "run", options=HERE, callbacks=[Failing()]
        )
    said = json.loads((tmp_path / "run" / "statement.json").read_text())
    assert said["rounds"] == 2 and "PROVEN" in (tmp_path / "run" / "statement.txt").read_text()


def test_a_loss_of_ones_own_gives_one_number_per_example(tmp_path):
    def smooth(out, y):
        return nn.functional.cross_entropy(out, y, reduction="none", label_smoothing=0.1)

    result = train(nn.Linear(5, 3), toy(clients=3), plan(rounds=2), out=tmp_path / "run", options=HERE, loss=smooth)
    assert result.rounds == 2
    for settings in (plan(), plan(unit="client", sampling="fixed")):
        with pytest.raises(BadInput, match="one number per example: leave its mean or sum out"):
            train(
                nn.Linear(5, 3), toy(clients=3), settings, out=tmp_path / "no", options=HERE, loss=nn.CrossEntropyLoss()
            )
    with pytest.raises(BadInput, match="the loss does not take the model's outputs"):
        train(nn.Linear(5, 3), toy(clients=3), plan(), out=tmp_path / "no", options=HERE, loss=lambda out: out.sum(1))
    assert not (tmp_path / "no").exists()


def test_batch_norm_is_named_whatever_else_fails(tmp_path):
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    with pytest.raises(BadInput, match="layer '1' is BatchNorm1d, which mixes examples"):
        train(model, toy(clients=3), plan(), out=tmp_path / "no", options=HERE)


@pytest.mark.parametrize("task", ["regression", "multi-label"])
def test_canary_records_have_labels_of_every_task(task, tmp_path):
    """Hardly any noise, and more weights than records: the canaries that were put in are learnt by heart and found."""
    from sordino.audit.measure import audit

    x = rng().uniform(-1, 1, size=(200, 400)).astype(np.float32)
    y = x @ rng().normal(size=(400, 1)) / 5 if task == "regression" else (x[:, :2] > 0).astype(int)
    federation = Federation.from_arrays([(x[:30], y[:30]), (x[30:60], y[30:60])], test=(x[60:], y[60:]), task=task)
    wanted = plan(epsilon=None, multiplier=0.05, rounds=25, sampling="none", canaries=100, canary="mislabelled")
    train(nn.Linear(400, y.shape[1]), federation, wanted, out=tmp_path / "run", options=HERE)
    found = audit(tmp_path / "run")["views"]["final-model"]
    assert found["guesses"] >= 40 and found["correct"] > 0.85 * found["guesses"]
    short = Federation.from_arrays([(x[:30], y[:30])], task=task)
    train(nn.Linear(400, y.shape[1]), short, wanted.replace(canary="random", rounds=1), out=tmp_path / "other")
