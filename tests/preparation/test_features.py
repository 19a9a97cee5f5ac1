"""Features as part of a plan: one mean in the prelude, rows of unit length, the same bits at every holder."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[1] / "engines" / "flower"))

from hall import Hall  # noqa: E402

from sordino import BadInput, EngineOptions, Plan, train  # noqa: E402
from sordino.features import generator, kept  # noqa: E402
from sordino.federation.population import Federation  # noqa: E402
from sordino.models import build  # noqa: E402
from sordino.preparation import Features, preparation_from  # noqa: E402
from sordino.preparation.rows import shrunk  # noqa: E402
from sordino.privacy import products  # noqa: E402
from sordino.schemes import prelude  # noqa: E402
from sordino.verify.checking import check  # noqa: E402

SMALL = {"kind": "features", "blocks": [[12, 4, 1, 1.0, 2, 1, True]], "damped": 8, "pictures": 30}
SHAPE = (3, 12, 12)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SORDINO_FEATURES", str(tmp_path / "features"))
    kept.extractor_for.cache_clear()
    yield
    kept.extractor_for.cache_clear()


def pictures() -> Federation:
    """Two kinds: synthetic pictures as they are, and with their rows in disorder."""
    made = generator.images(130, SHAPE, seed=3)
    y = np.arange(130) % 2
    mixed = np.random.Generator(np.random.PCG64(0)).permutation(SHAPE[1])
    made[y == 1] = made[y == 1][:, :, mixed]
    clients = [(made[k:90:3], y[k:90:3]) for k in range(3)]
    return Federation.from_arrays(clients, test=(made[90:], y[90:]), classes=2, name="pictures")


def plan(**settings) -> Plan:
    base = {"data": "pictures", "clients": 3, "model": "head", "method": "dp-fedavg", "epsilon": 20.0, "rounds": 8,
            "batch_size": 60, "bound": 0.5, "lr": 4.0, "server_optimizer": "momentum", "prepare": SMALL}  # fmt: skip
    return Plan(**(base | settings))


FLAT = {**SMALL, "directions": 20, "covariances": 2, "covariance": 0.8, "share": 0.3}


def head(wanted: Plan):
    return build("head", wanted.preparation.stages(SHAPE).shape, 2)


@pytest.mark.parametrize("prepare", [SMALL, FLAT])
def test_across_machines_features_and_model_have_the_same_bits(prepare, tmp_path):
    wanted, federation = plan(prepare=prepare), pictures()
    here = train(head(wanted), federation, wanted, out=tmp_path / "a", options=EngineOptions(isolate_clients=True))
    hall = Hall(federation, tmp_path / "holders")
    there = hall.train(wanted, tmp_path / "b")
    hall.close()
    assert torch.equal(here.model.out.weight, there.model.out.weight) and here.accuracy == there.accuracy
    assert here.accuracy > 0.6
    assert all(one.ok is not False for one in check(tmp_path / "a").checks)


def test_what_the_model_takes_is_of_unit_length_with_a_small_constant(tmp_path):
    wanted, federation = plan(), pictures()
    train(head(wanted), federation, wanted, out=tmp_path / "run")
    rows = prelude.model_input(tmp_path / "run", wanted, SHAPE)(federation.raw(0)[0])
    assert (
        rows.shape[1:] == wanted.preparation.stages(SHAPE).shape == (112,)
    )  # 12 x 2 x 4, a constant, and zeros to 7 x 16
    assert np.allclose(np.linalg.norm(rows[:, :96], axis=1), 1, atol=1e-5)
    assert (rows[:, 96] == np.float32(0.3)).all() and (rows[:, 97:] == 0).all()


def test_a_plan_that_names_other_filters_is_refused(tmp_path):
    right = preparation_from(SMALL).pinned(SHAPE)
    wanted = plan(prepare=right.to_json())
    assert wanted.prepare["digest"] == right.digest and preparation_from(wanted.prepare) == right
    train(head(wanted), pictures(), wanted, out=tmp_path / "right")
    wrong = plan(prepare={**SMALL, "digest": "0" * 32})
    with pytest.raises(BadInput, match="another version"):
        train(head(wrong), pictures(), wrong, out=tmp_path / "wrong")
    assert plan().digest() != wanted.digest()


@pytest.mark.parametrize("shape", [(3, 3, 3), (12,), (12, 12, 3, 2)])
def test_pictures_that_have_no_features_are_refused_in_a_sentence(shape):
    with pytest.raises(BadInput):
        preparation_from(SMALL).stages(shape)


@pytest.mark.parametrize(
    "wrong",
    [{"blocks": [[1, 2]]}, {"blocks": [[0, 4, 1, 1.0, 2, 1, True]]}, {"bias": 0.0}, {"share": 2.0}, {"seed": -1}],
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(BadInput):
        preparation_from({"kind": "features"} | wrong)


def test_canaries_in_features_prove_no_more_than_epsilon(tmp_path):
    from sordino.audit.measure import audit

    wanted = plan(canaries=60, rounds=4)
    train(head(wanted), pictures(), wanted, out=tmp_path / "run")
    assert 0 <= audit(tmp_path / "run")["epsilon_lower"] <= 20.0


def test_defaults_survive_plain_data():
    assert preparation_from(Features().to_json()) == Features()


def test_a_mean_is_shrunk_as_far_as_its_noise_asks_for():
    mean = np.array([3.0, 4.0])  # of squared length 25
    assert shrunk(mean, 0.0) is not mean and np.array_equal(shrunk(mean, 0.0), mean)
    assert np.allclose(shrunk(mean, 2.5), mean / 2)  # 1 - 2 x 2.5^2 / 25
    assert not shrunk(mean, 4.0).any() and not shrunk(np.zeros(2), 1.0).any()


def test_shrinking_brings_a_noisy_mean_nearer_to_the_true_one():
    drawn = np.random.Generator(np.random.PCG64(0))
    true = drawn.standard_normal(3200) / np.sqrt(3200)  # of length about 1
    for noise in (0.005, 0.02, 0.05):
        heard = true + noise * drawn.standard_normal(3200)
        assert np.linalg.norm(shrunk(heard, noise) - true) < np.linalg.norm(heard - true)


# ---- shortened and flattened ---------------------------------------------------------------------------------------------


def test_short_rows_are_of_unit_length_with_a_small_constant(tmp_path):
    wanted, federation = plan(prepare=FLAT), pictures()
    result = train(head(wanted), federation, wanted, out=tmp_path / "run")
    rows = prelude.model_input(tmp_path / "run", wanted, SHAPE)(federation.raw(0)[0])
    assert rows.shape[1:] == wanted.preparation.stages(SHAPE).shape == (32,)  # 20, a constant, and zeros to 2 x 16
    assert np.allclose(np.linalg.norm(rows[:, :20], axis=1), 1, atol=1e-5)
    assert (rows[:, 20] == np.float32(0.3)).all() and (rows[:, 21:] == 0).all()
    said = (tmp_path / "run" / "statement.txt").read_text()
    assert said.count("covariance of the features along 20 public directions") == 2
    assert result.epsilon <= 20.0 and all(one.ok is not False for one in check(tmp_path / "run").checks)


def test_shares_of_mean_and_covariances_add_up_to_the_whole():
    made = preparation_from(FLAT)
    assert [one.part for one in made.statistics] == pytest.approx([0.2, 0.4, 0.4])
    assert preparation_from(made.to_json()) == made


@pytest.mark.parametrize("wrong", [
    {"covariances": 2},
    {"covariances": 2, "covariance": 0.5},
    {"covariances": 2, "directions": 20},
    {"covariances": 2, "directions": 20, "covariance": 1.0},
    {"directions": 20, "covariance": 0.5},
    {"directions": -1},
    {"directions": 2.5},
])  # fmt: skip
def test_settings_of_directions_that_make_no_sense_are_refused(wrong):
    with pytest.raises(BadInput):
        preparation_from({"kind": "features"} | wrong)


def test_more_directions_than_features_are_refused_in_a_sentence():
    with pytest.raises(BadInput, match="fewer than 96 directions"):
        preparation_from({**SMALL, "directions": 96}).stages(SHAPE)


def alike(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Signals that are nearly one signal, stretched by much; a small wave on it tells two kinds apart."""
    drawn = np.random.Generator(np.random.PCG64(seed))
    t, y = np.linspace(0, 1, 96), np.arange(900) % 2
    bend = drawn.standard_normal((900, 1))
    x = np.sin(2 * np.pi * (2 + bend) * t) + 0.02 * np.sin(2 * np.pi * (12 + 6 * y[:, None]) * t)
    return x[:, None].astype(np.float32), y


def test_flattening_teaches_what_one_direction_drowns(tmp_path):
    """The reason why covariances are asked for: records that differ little, beside much in which they differ."""
    x, y = alike(0)
    federation = Federation.from_arrays(
        [(x[k:600:3], y[k:600:3]) for k in range(3)], test=(x[600:], y[600:]), classes=2, name="alike"
    )
    few = {"kind": "features", "pictures": 200, "damped": 20, "directions": 60, "share": 0.02}
    flat = {**few, "share": 0.22, "covariances": 4, "covariance": 0.9}
    found = []
    for name, prepare in (("few", few), ("flat", flat)):
        wanted = plan(data="alike", prepare=prepare, epsilon=8.0, rounds=60, batch_size=60, lr=2.0, bound=0.3)
        model = build("head", wanted.preparation.stages((1, 96)).shape, 2)
        found.append(train(model, federation, wanted, out=tmp_path / name).accuracy)
    assert found[1] > found[0] + 0.05, found


def released(stages) -> list[np.ndarray]:
    rows = stages.contributions(0, pictures().raw(0)[0], ())
    return [np.mean(np.concatenate(list(rows)), axis=0), np.eye(20).ravel()]


def test_what_is_left_of_a_record_does_not_depend_on_what_stands_beside_it():
    stages = preparation_from(FLAT).stages(SHAPE)
    x = generator.images(90, SHAPE, seed=5)
    told = released(stages)
    whole = stages.apply(x, told)
    for rows in (slice(0, 1), slice(1, None), slice(13, 77), slice(None, None, 2)):
        assert np.array_equal(stages.apply(x[rows], told), whole[rows])


def test_a_server_that_makes_up_what_was_released_gets_contributions_of_length_one_at_most():
    stages = preparation_from(FLAT).stages(SHAPE)
    x, told = pictures().raw(0)[0], released(stages)
    for lie in (
        [np.zeros(20), np.eye(20).ravel()],
        [np.full(20, 1e300), told[1]],
        [told[0], np.full(400, 1e300)],
        [told[0], np.zeros(400)],
        [told[0] * 1e-300, told[1] * 1e-300],
    ):
        for step in (1, 2):
            for block in stages.contributions(step, x, lie[:step]):
                assert len(block) == len(x)
                for row in block.rows:
                    assert np.linalg.norm(products.total(row[None])) <= 1
    for short in ([told[0][:3]], [told[0], told[1][:7]]):
        with pytest.raises(BadInput, match="does not fit"):
            list(stages.contributions(1, x, short))
