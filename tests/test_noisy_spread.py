"""How far clients lie apart, with noise: two clients with numbers worked out by hand, and runs that release and charge it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from sordino import BadInput
from sordino.noisy_figures import HALF, Measure
from sordino.noisy_spread import Spreading


def test_records_by_hand():
    """Client 0 has one of two right, client 1 two of two: accuracies 0.5 and 1, deviation 0.25."""
    measure = Measure("classification", ("no", "yes"), None, Spreading("example", (2, 2)))
    wrong = measure.contributions(np.array([[2.0, 1.0], [3.0, 0.0]]), np.array([0, 1]), 0)
    right = measure.contributions(np.array([[2.0, 1.0], [0.0, 1.0]]), np.array([0, 1]), 1)
    assert wrong.shape == (2, 1 + 4 + 2) and np.allclose(wrong[:, 5:], np.array([[1, 0], [-1, 0]]) * HALF)
    assert np.allclose(right[:, 5:], np.array([[0, 1], [0, 1]]) * HALF)
    rows = np.concatenate([wrong, right])
    assert np.allclose(np.linalg.norm(rows, axis=1), 1.0)  # still one contribution of length 1
    found = measure.read(rows.mean(0), 0.0, 4, "example")
    assert found.accuracy == pytest.approx(0.75)
    apart = found.between
    assert (
        apart.each == pytest.approx((0.5, 1.0))
        and apart.sd == pytest.approx(0.25)
        and apart.mean == pytest.approx(0.75)
    )
    assert apart.lowest == pytest.approx(0.5) and apart.tenth == pytest.approx(0.55)


def test_clients_by_hand():
    """The same clients where each is one unit: m is 0 and 1, the mean of m^2 a half."""
    measure = Measure("classification", ("no", "yes"), None, Spreading("client", (2, 2)))
    sent = []
    for y_hat in ([[2.0, 1.0], [3.0, 0.0]], [[2.0, 1.0], [0.0, 1.0]]):
        rows = measure.contributions(np.array(y_hat), np.array([0, 1]), 0)
        sent.append(rows.mean(0))
    assert [one[-1] for one in sent] == pytest.approx([-HALF, HALF])  # 2 m^2 - 1
    assert max(np.linalg.norm(one) for one in sent) <= 1 + 1e-12
    found = measure.read(np.mean(sent, axis=0), 0.0, 2, "client")
    assert found.between.mean == pytest.approx(0.75) and found.between.sd == pytest.approx(0.25)
    assert found.between.each == () and found.between.lowest is None  # moments tell no single client


@pytest.mark.parametrize("unit", ["example", "client"])
def test_the_noise_is_as_large_as_said_and_does_not_pass_for_a_difference(unit):
    """Clients that are all alike: over many draws the deviation that remains is around nothing, not around the noise."""
    sizes, rng = (40, 50, 60, 70), np.random.default_rng(0)
    measure = Measure("classification", ("a", "b"), None, Spreading(unit, sizes))
    right = {k: np.tile([1.0, 1.0, 1.0, 0.0], 20)[:n] for k, n in enumerate(sizes)}
    rows = [
        measure.contributions(
            np.stack([r, 1 - r], 1), np.zeros(len(r), int), k
        )  # class 0 has the larger score if right
        for k, r in right.items()
    ]
    tested = sum(sizes) if unit == "example" else len(sizes)
    total = np.concatenate(rows).sum(0) if unit == "example" else np.sum([r.mean(0) for r in rows], axis=0)
    z = 1.5 if unit == "example" else 0.02
    found = [
        measure.read((total + z * rng.standard_normal(len(total))) / tested, z / tested, tested, unit).between
        for _ in range(400)
    ]
    if unit == "example":
        each = np.array([one.each for one in found])
        stated = z / (2 * HALF * np.array(sizes))
        assert found[0].noise == pytest.approx(stated.max())
        assert np.allclose(each.std(0), stated, rtol=0.15)
        assert not np.allclose(each.std(0), stated * 2 / 3, rtol=0.15)
    true = np.std([r.mean() for r in right.values()])
    variances = np.array([0.0 if one.sd is None else one.sd**2 for one in found])
    assert abs(np.median(variances) - true**2) < 3 * found[0].noise ** (2 if unit == "example" else 1)
    # some draws leave nothing, which is said and not rounded up
    assert any(one.sd is None for one in found)


def test_no_record_and_no_client_adds_more_than_one():
    rng = np.random.default_rng(1)
    for unit in ("example", "client"):
        for task, names in (("classification", "abc"), ("multi-label", "abc")):
            measure = Measure(task, tuple(names), None, Spreading(unit, (5, 5, 5)))
            for scale in (1.0, 1e30, np.nan, np.inf):
                scores = rng.standard_normal((5, 3)) * scale
                y = rng.integers(0, 3, 5) if task == "classification" else rng.integers(0, 2, (5, 3)).astype(float)
                rows = measure.contributions(scores, y, 2)
                assert rows.shape[1] == measure.length and np.isfinite(rows).all()
                assert np.linalg.norm(rows, axis=1).max() <= 1 + 1e-12


def test_what_cannot_be_compared_is_refused():
    from sordino import Plan
    from sordino.data.schema import Scale

    with pytest.raises(BadInput, match="fairness noisy compares clients on records that are held out"):
        Plan(data="digits", clients=3, epsilon=4.0, fairness="noisy")
    with pytest.raises(BadInput, match="fairness must be one of public, noisy"):
        Plan(data="digits", clients=3, epsilon=4.0, fairness="loud")
    with pytest.raises(BadInput, match="regression has none"):
        Measure("regression", (), Scale(range=(0.0, 1.0)), Spreading("example", (3, 3)))


@pytest.mark.parametrize("unit", ["example", "client"])
def test_a_run_releases_it_once_charges_it_and_says_so(unit, tmp_path):
    pytest.importorskip("torch")
    from sordino import EngineOptions, Plan, train
    from sordino.assembly import population
    from sordino.models import build
    from sordino.verify.checking import check

    more = {"sampling": "none"} if unit == "client" else {}
    plan = Plan(data="digits", clients=5, unit=unit, method="dp-fedavg", epsilon=8.0, rounds=3, model="linear", test="holdout=0.3",
                fairness="noisy", **more)  # fmt: skip
    federation = population(plan)
    model = build("linear", federation.input_shape, federation.classes)
    result = train(model, federation, plan, out=tmp_path / "run", options=EngineOptions("in-process"))
    apart = result.held_out.between
    assert apart is not None and apart.clients == 5 and result.epsilon <= 8.0
    kept = json.loads((tmp_path / "run" / "held_out.json").read_text())
    assert kept["figures"]["between"]["mean"] == pytest.approx(apart.mean)
    text = (tmp_path / "run" / "statement.txt").read_text()
    assert ("the accuracy of every client" in text) == (unit == "example")
    if unit == "example":
        assert len(apart.each) == 5
        # what was said of the noise is what the multiplier of the release makes of it
        most = result.terms.held_out * math.sqrt(2) / 2 / min(result.terms.public.held_out)
        assert apart.noise == pytest.approx(most)
    assert "Standard deviation of the clients" in (tmp_path / "run" / "report.html").read_text()
    assert check(tmp_path / "run").ok
