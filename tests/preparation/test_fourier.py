"""Tables as columns and cosines: unit length, one record one row, the same bits everywhere, and a line that cannot tell rings apart."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[1] / "engines" / "flower"))

from hall import Hall  # noqa: E402

from sordino import BadInput, EngineOptions, Plan, train  # noqa: E402
from sordino.federation.population import Federation  # noqa: E402
from sordino.models import build  # noqa: E402
from sordino.preparation import Fourier, Products, preparation_from  # noqa: E402
from sordino.preparation.fourier import COLUMN_STEP, FARTHEST, directions, directions_digest  # noqa: E402
from sordino.privacy import products  # noqa: E402
from sordino.schemes import prelude  # noqa: E402
from sordino.verify.checking import check  # noqa: E402

PLAIN = {"kind": "fourier", "share": 0.3, "dense": 12, "singles": 6, "pairs": 6}
FLAT = {**PLAIN, "covariances": 2, "covariance": 0.6}
COLUMNS, NUMBERS = 4, 4 + 24


def rings(records: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inside or outside of a circle, in two columns of units of their own; two more tell nothing."""
    drawn = np.random.Generator(np.random.PCG64(seed))
    y = np.arange(records) % 2
    angle, radius = drawn.uniform(0, 2 * np.pi, records), np.where(y, 2.0, 0.7) + 0.2 * drawn.standard_normal(records)
    told = np.stack([40 * radius * np.cos(angle) + 100, 0.02 * radius * np.sin(angle)], axis=1)
    return np.concatenate([told, drawn.standard_normal((records, 2))], axis=1).astype(np.float32), y


def table() -> Federation:
    (x, y), (test_x, test_y) = rings(600, 0), rings(300, 1)
    return Federation.from_arrays(
        [(x[k::3], y[k::3]) for k in range(3)], test=(test_x, test_y), classes=2, name="rings"
    )


def plan(**settings) -> Plan:
    base = {"data": "rings", "clients": 3, "model": "head", "method": "dp-fedavg", "epsilon": 8.0, "rounds": 60,
            "batch_size": 120, "bound": 0.3, "lr": 1.0, "server_optimizer": "momentum", "prepare": FLAT}  # fmt: skip
    return Plan(**(base | settings))


def head(wanted: Plan):
    return build("head", wanted.preparation.stages((COLUMNS,)).shape, 2)


def told(stages, x: np.ndarray) -> list[np.ndarray]:
    """What would be released without noise."""
    found: list[np.ndarray] = []
    for step in range(len(stages.settings.statistics)):
        total = np.zeros(stages.length(step))
        for block in stages.contributions(step, x, found):
            total += products.total(block.rows) if isinstance(block, Products) else block.sum(axis=0)
        found.append(stages.decode(step, total / len(x), 0.01))
    return found


def test_cosines_tell_apart_what_no_line_does_and_the_run_is_verified(tmp_path):
    accuracy = {}
    for name, prepare in (("line", {"kind": "standard", "share": 0.1}), ("cosines", FLAT)):
        wanted = plan(prepare=prepare)
        result = train(head(wanted), table(), wanted, out=tmp_path / name)
        accuracy[name] = result.accuracy
        assert result.epsilon <= 8.0
        assert all(one.ok is not False for one in check(tmp_path / name).checks)
    assert accuracy["line"] < 0.65 and accuracy["cosines"] > 0.9, accuracy
    said = (tmp_path / "cosines" / "statement.txt").read_text()
    assert said.count("covariance of columns and cosines") == 2 and "which range each scaled column lies" in said


def test_across_machines_rows_and_model_have_the_same_bits(tmp_path):
    wanted, federation = plan(rounds=4), table()
    wanted = wanted.replace(prepare=wanted.preparation.pinned((COLUMNS,)).to_json())
    here = train(head(wanted), federation, wanted, out=tmp_path / "a", options=EngineOptions(isolate_clients=True))
    hall = Hall(federation, tmp_path / "holders")
    there = hall.train(wanted, tmp_path / "b")
    hall.close()
    assert torch.equal(here.model.out.weight, there.model.out.weight) and here.accuracy == there.accuracy


def test_what_the_model_takes_is_of_unit_length_with_a_small_constant(tmp_path):
    wanted, federation = plan(rounds=1), table()
    train(head(wanted), federation, wanted, out=tmp_path / "run")
    rows = prelude.model_input(tmp_path / "run", wanted, (COLUMNS,))(federation.raw(0)[0])
    assert rows.shape[1:] == (32,)  # 28, a constant, and zeros to 2 x 16
    assert np.allclose(np.linalg.norm(rows[:, :NUMBERS], axis=1), 1, atol=1e-5)
    assert (rows[:, NUMBERS] == np.float32(0.3)).all() and (rows[:, NUMBERS + 1 :] == 0).all()


def test_cosines_by_hand():
    """Two columns on one scale, one cosine of both: cos(a asinh(x) + b asinh(y) + phase), beside the columns themselves."""
    made = Fourier(dense=1, singles=0, pairs=0, scaling=0.0)
    turns, phases = directions(made, 2)
    x = np.array([[1.0, -2.0]], np.float32)
    seen = np.round(np.arcsinh(x.astype(float)) / COLUMN_STEP) * COLUMN_STEP
    wave = np.cos(seen[0, 0] * turns[0, 0] + seen[0, 1] * turns[1, 0] + phases[0]) * np.sqrt(2)
    row = np.array([*(seen[0] / np.sqrt(2)), wave])
    (found,) = made.stages((2,)).contributions(0, x, [])
    assert np.allclose(found[0], row / np.linalg.norm(row), atol=1e-6)


def test_singles_turn_with_one_column_pairs_with_two_and_dense_ones_with_all():
    made = Fourier(dense=30, singles=20, pairs=10, frequency=2.0)
    turns, _ = directions(made, 50)
    seen = (turns != 0).sum(axis=0)
    assert (seen[:30] == 50).all() and (seen[30:50] == 1).all() and (seen[50:] == 2).all()
    assert np.sqrt((turns[:, :30] ** 2).sum(axis=0)).mean() == pytest.approx(2.0, rel=0.1)
    assert (directions(made, 1)[0] != 0).all()  # one column alone


@pytest.mark.parametrize("prepare", [PLAIN, FLAT])
def test_a_row_follows_from_its_record_alone_to_the_last_bit(prepare):
    """Contributions too: neighbours differ in one of them and in nothing else."""
    stages, x = preparation_from(prepare).stages((COLUMNS,)), rings(300, 2)[0]
    released = told(stages, x)
    whole, mean = stages.apply(x, released), stages._rows(x, released)
    for some in (slice(0, 1), slice(1, None), slice(13, 77), slice(None, None, 2), slice(None, None, -1)):
        assert np.array_equal(stages.apply(x[some], released), whole[some])
        assert np.array_equal(stages._rows(x[some], released), mean[some])


@pytest.mark.parametrize("columns", [300, 2048, 100_000])
def test_products_of_columns_and_directions_come_out_exact_in_any_order(columns):
    """Why rows do not depend on how a library multiplies: steps of a column times steps of a direction are whole numbers below 2^53."""
    drawn = np.random.Generator(np.random.PCG64(0))
    turns, _ = directions(Fourier(dense=12, singles=0, pairs=0, frequency=1.7), columns)
    seen = np.round(drawn.uniform(-FARTHEST, FARTHEST, (50, columns)) / COLUMN_STEP) * COLUMN_STEP
    seen[0] = (FARTHEST - COLUMN_STEP) * np.sign(turns[:, 0])  # a record that was made to add up as far as it can
    whole = seen @ turns
    for order in (np.arange(columns)[::-1], drawn.permutation(columns)):
        assert np.array_equal(seen[:, order] @ turns[order], whole)
        assert np.array_equal(np.cumsum(seen[:1, order].T * turns[order], axis=0)[-1], whole[0])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45])
def test_no_number_of_a_record_makes_a_row_longer_than_one(value):
    stages, x = preparation_from(FLAT).stages((COLUMNS,)), rings(60, 3)[0]
    released = told(stages, x)
    x = x.copy()
    x[0] = value
    x[1, 2] = value
    rows = stages.apply(x, released)
    assert np.isfinite(rows).all() and (np.linalg.norm(rows[:, :NUMBERS], axis=1) < 1 + 1e-5).all()
    for step in range(len(stages.settings.statistics)):
        for block in stages.contributions(step, x, released[:step]):
            plain = block.rows if isinstance(block, Products) else block
            assert len(block) == len(x) and np.isfinite(plain).all()


@pytest.mark.parametrize("seed", range(4))
def test_under_a_server_that_lies_a_record_still_changes_no_other_row(seed):
    """A mean that drowns every row, and a matrix along which such rows cancel: what is left must not be rounding, which depends on neighbours."""
    draws = np.random.Generator(np.random.PCG64(seed))
    stages, x = preparation_from({**FLAT, "scaling": 0.0}).stages((COLUMNS,)), rings(996, seed)[0]
    cancels = np.zeros((NUMBERS, NUMBERS))
    cancels[:, :2] = draws.standard_normal((NUMBERS, 2))
    cancels -= cancels.mean(axis=0)
    for size in (1e30, 1e300, 1e-300):
        lie = [np.full(NUMBERS, size), cancels.ravel(), (size * cancels).ravel()]
        for told_so_far in (lie[:2], lie):
            whole = stages.apply(x, told_so_far)
            for some in (slice(1, None), slice(3, 501), slice(7, 8)):
                assert np.array_equal(stages.apply(x[some], told_so_far), whole[some], equal_nan=True)


def test_a_server_that_makes_up_what_was_released_gets_contributions_of_length_one_at_most():
    stages, x = preparation_from(FLAT).stages((COLUMNS,)), rings(60, 4)[0]
    right = told(stages, x)
    for k, size in ((0, 1e300), (1, 0.0), (1, 1e300), (2, 1e300), (3, 1e300), (3, 0.0)):
        lie = [np.full_like(value, size) if k == n else value for n, value in enumerate(right)]
        for step in range(k + 1, 5):
            for block in stages.contributions(step, x, lie[:step]):
                for row in block.rows if isinstance(block, Products) else block:
                    longest = products.total(row[None]) if isinstance(block, Products) else row
                    assert np.linalg.norm(longest) <= 1 + 1e-12
    with pytest.raises(BadInput, match="does not fit"):
        list(stages.contributions(3, x, [*right[:2], right[2][:3]]))


def test_a_plan_that_names_other_directions_is_refused(tmp_path):
    made = preparation_from(FLAT).pinned((COLUMNS,))
    assert made.digest == directions_digest(*directions(made, COLUMNS)) and preparation_from(made.to_json()) == made
    assert replace(made, seed=1).pinned((COLUMNS,)).digest != made.digest
    wrong = plan(prepare={**FLAT, "digest": "0" * 32})
    with pytest.raises(BadInput, match="another version"):
        train(head(wrong), table(), wrong, out=tmp_path / "wrong")


def test_shares_of_scale_mean_and_covariances_add_up_to_the_whole():
    made = preparation_from(FLAT)
    assert [one.part for one in made.statistics] == pytest.approx([0.12, 0.08, 0.2, 0.3, 0.3])
    public = preparation_from({**FLAT, "low": [0] * 4, "high": [1] * 4})
    assert [one.part for one in public.statistics] == pytest.approx([0.2, 0.2, 0.3, 0.3])
    without = preparation_from({**FLAT, "scaling": 0.0})
    assert [one.part for one in without.statistics] == pytest.approx([0.4, 0.3, 0.3])


@pytest.mark.parametrize("wrong", [
    {"dense": 0, "singles": 0, "pairs": 0}, {"dense": -1}, {"dense": 2.5}, {"pairs": 100_000}, {"frequency": 0.0},
    {"frequency": float("nan")}, {"frequency": float("inf")}, {"bias": 0.0}, {"share": 2.0}, {"scaling": 1.0}, {"covariances": 2}, {"covariance": 0.5},
    {"covariances": 2, "covariance": 0.9, "scaling": 0.2}, {"scaling": 0.0, "columns": [0]}, {"low": [0.0]}, {"columns": [1, 1]},
    {"seed": -1},
])  # fmt: skip
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(BadInput):
        preparation_from({"kind": "fourier"} | wrong)


@pytest.mark.parametrize("shape", [(3, 12, 12), (1, 500)])
def test_pictures_and_signals_are_refused_in_a_sentence(shape):
    with pytest.raises(BadInput, match="for tables"):
        preparation_from(PLAIN).stages(shape)


def test_defaults_survive_plain_data():
    assert preparation_from(Fourier().to_json()) == Fourier()
