"""Labels at every position of a record: training under every scheme, accuracy over positions, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from sordino import Federation, Plan, train
from sordino.attacks.runs import attack_run
from sordino.engines import EngineOptions
from sordino.engines.flower.part import Facts, Part
from sordino.engines.scoring import judged, right
from sordino.errors import BadInput
from sordino.evaluation import evaluate
from sordino.federation.held_out import hold_out
from sordino.gradients.losses import cross_entropy, mean_cross_entropy
from sordino.inference.loading import load

torch = pytest.importorskip("torch")
nn = torch.nn
HERE = EngineOptions("in-process")
LENGTH, CLASSES = 6, 4


class Reader(nn.Module):
    """Scores of the next token at every position, or at the last."""

    def __init__(self, every: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.every = every
        self.embed, self.out = nn.Embedding(CLASSES, 5), nn.Linear(5, CLASSES)

    def forward(self, x):
        seen = self.embed(x)
        return self.out(seen if self.every else seen[:, -1])


def texts(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The next token is the last one plus 1, the other way round at one place of eight; short records end in no label."""
    rng = np.random.Generator(np.random.PCG64(seed))
    x = rng.integers(0, CLASSES, (n, LENGTH))
    y = (x + np.where(rng.random((n, LENGTH)) < 0.125, 3, 1)) % CLASSES
    y[rng.random(n) < 0.3, 4:] = -1
    return x, y


def federation() -> Federation:
    return Federation.from_arrays([texts(40, 1), texts(30, 2)], test=texts(60, 3), classes=CLASSES, name="texts")


SCHEMES = {
    "pooled": {"method": "dp-fedavg", "unit": "example", "observer": "secagg-server"},
    "local": {"method": "quantile", "unit": "example", "observer": "server"},
    "client": {"method": "adact", "unit": "client", "observer": "public"},
    "epochs": {"method": "noise-gamma", "unit": "client", "observer": "server", "variant": "published"},
    "gradient sum": {"method": "dp-fedacn", "unit": "client", "observer": "server", "sampling": "fixed", "variant": "published"},
    "fed-dpa": {"method": "fed-dpa", "unit": "client", "observer": "public"},
    "fedmap": {"method": "fedmap", "unit": "example", "observer": "server"},
    "censor": {"method": "dp-fedavg", "unit": "client", "observer": "server", "defence": "censor"},
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_trains_on_them(tmp_path, name):
    settings = {"rounds": 2, "batch_size": 10, "lr": 0.1, "multiplier": 0.5, **SCHEMES[name]}
    if settings["method"] in ("fedmap", "noise-gamma"):
        settings = {k: v for k, v in settings.items() if k != "multiplier"} | {"epsilon": 50.0}
    result = train(Reader(), federation(), Plan(**settings), out=tmp_path / "run", options=HERE)
    assert result.rounds == 2 and 0 <= result.accuracy <= 1
    assert result.evaluation.accuracy == pytest.approx(result.accuracy) and result.evaluation.examples == 60


def test_the_rule_is_learnt_and_accuracy_counts_positions(tmp_path):
    plan = Plan(method="fedavg", unit="client", observer="public", sampling="fixed", rounds=60, batch_size=10, lr=1.0)
    result = train(Reader(), federation(), plan, out=tmp_path / "run", options=HERE)
    assert result.accuracy > 0.8
    x, y = federation().test
    with torch.no_grad():
        scores = result.model(torch.from_numpy(x))
    known = y != -1
    by_hand = float((scores.argmax(-1).numpy() == y)[known].mean())
    assert result.accuracy == pytest.approx(by_hand) and sum(map(sum, result.evaluation.confusion)) == known.sum()
    assert judged(torch.from_numpy(y), "classification") == known.sum()
    assert right(scores, torch.from_numpy(y), "classification") == pytest.approx(by_hand * known.sum())
    assert load(tmp_path / "run", Reader()).predict(x[:3]).scores.shape == (3, CLASSES)  # of the last position
    with pytest.raises(BadInput, match="records of texts have one at every position"):
        attack_run(tmp_path / "run", ["basic"], make=lambda seed: Reader(), federation=federation())


def test_losses_by_hand():
    scores, y = torch.zeros(2, 3, 4), torch.tensor([[0, 1, -1], [2, -1, -1]])
    scores[0, 0, 0] = 2.0
    first = np.log(np.exp(2) + 3) - 2
    assert cross_entropy(scores, y).tolist() == pytest.approx([(first + np.log(4)) / 2, np.log(4)])
    assert float(mean_cross_entropy(scores, y)) == pytest.approx(float(cross_entropy(scores, y).mean()))
    scores[0, 2], scores[1, 1:] = 9.0, torch.nan  # nothing is asked there
    assert cross_entropy(torch.nan_to_num(scores), y).tolist() == pytest.approx([(first + np.log(4)) / 2, np.log(4)])
    flat, labels = torch.randn(5, 4), torch.tensor([0, 1, 2, 3, 0])
    assert float(mean_cross_entropy(flat, labels)) == pytest.approx(float(cross_entropy(flat, labels).mean()))


def test_figures_of_positions():
    scores = np.zeros((2, 3, 2))
    scores[0, :, 1] = 1.0
    found = evaluate(scores, np.array([[1, 1, -1], [0, 1, -1]]), "classification", ("a", "b"))
    assert found.accuracy == 0.75 and found.examples == 2 and found.confusion == ((1, 0), (1, 2))
    poor = evaluate(scores, np.array([[0, 1, -1], [1, 1, -1]]), "classification", ("a", "b"))
    assert poor.warnings == (
        "the model is right in 25.0% of the test positions, and always naming b would be in 75.0%.",
    )


def test_what_does_not_fit_is_refused_in_one_sentence(tmp_path):
    x, y = texts(10, 1)
    plan = Plan(method="dp-fedavg", multiplier=1.0, rounds=1)
    with pytest.raises(
        BadInput,
        match=r"outputs of shape \(4,\) and the data has 4 classes at each of 6 positions; give it outputs of shape \(6, 4\).",
    ):
        train(Reader(every=False), federation(), plan, out=tmp_path / "a")
    one = Federation.from_arrays([(x, y[:, 0])], test=(x, y[:, 0]), classes=CLASSES)
    with pytest.raises(BadInput, match=r"outputs of shape \(6, 4\) and the data has 4 classes; give it 4 outputs."):
        train(Reader(), one, plan, out=tmp_path / "b")
    with pytest.raises(BadInput, match="give one whole number per example, or one for each of its positions"):
        Federation.from_arrays([(x, y[:, :1])], classes=CLASSES)
    with pytest.raises(BadInput, match="has the label -2: labels must be numbered from 0"):
        Federation.from_arrays([(x, np.full_like(y, -2))], classes=CLASSES)
    with pytest.raises(BadInput, match="an example without any label"):
        Federation.from_arrays([(x, np.where(np.arange(10)[:, None] == 3, -1, np.maximum(y, 0)))], classes=CLASSES)
    facts = Facts("texts", CLASSES, (LENGTH,), (10,))
    with pytest.raises(BadInput, match="labels at every position of a record are for runs on one machine"):
        Part.held(facts, 0, x, y)
    with pytest.raises(BadInput, match="a held-out share is tested by the one class of a record"):
        hold_out(federation(), 0.1, 0)
    canaries = plan.replace(canaries=4, canary="mislabelled")
    with pytest.raises(BadInput, match="need data with one label per example"):
        train(Reader(), federation(), canaries, out=tmp_path / "c")
