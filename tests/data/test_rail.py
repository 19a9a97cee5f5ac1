"""The rail pipeline and its simulator."""

from __future__ import annotations

import numpy as np
import pytest

from sordino.data import rail, railsim
from sordino.data.sets import load
from sordino.errors import BadInput
from sordino.federation.population import Federation

SMALL = railsim.Track(sections=4, windows=60)


@pytest.fixture(scope="module")
def small():
    return railsim.simulated(SMALL)


def test_a_lone_wild_sample_goes_and_a_real_impact_stays():
    time = np.arange(512) / 4096
    quiet = np.sin(2 * np.pi * 50 * time)
    glitch = quiet.copy()
    glitch[100] = 40
    cleaned = rail.without_outliers(glitch[None, None], 6.0)[0, 0]
    assert abs(cleaned[100] - quiet[100]) < 0.2
    assert (np.delete(cleaned, 100) == np.delete(glitch, 100)).all()
    ringing = np.where(time >= 0.05, 9 * np.exp(-(time - 0.05) / 0.005) * np.sin(2 * np.pi * 400 * (time - 0.05)), 0)
    impact = quiet + ringing
    kept = rail.without_outliers(impact[None, None], 6.0)[0, 0]
    assert np.abs(kept).max() > 0.8 * np.abs(impact).max()


def test_normalised_windows_and_a_dead_channel():
    windows = np.stack([np.vstack([np.arange(64.0), np.full(64, 3.0)])])
    out = rail.normalised(windows)
    assert out.dtype == np.float32 and out[0, 0].mean() == pytest.approx(0, abs=1e-6)
    assert out[0, 0].std() == pytest.approx(1, abs=1e-6) and (out[0, 1] == 0).all()


def test_an_example_depends_on_its_own_samples_alone():
    pipeline = rail.Pipeline(window=64)
    windows = np.random.Generator(np.random.PCG64(0)).normal(size=(5, 1, 64))
    changed = windows.copy()
    changed[2] *= 100
    before, after = pipeline.examples(windows), pipeline.examples(changed)
    assert (np.delete(before, 2, axis=0) == np.delete(after, 2, axis=0)).all()


def test_eight_to_two():
    train, test = rail.Pipeline().split(100, 3)
    assert len(train) == 80 and len(test) == 20 and sorted([*train, *test]) == list(range(100))
    assert [len(part) for part in rail.Pipeline().split(2, 0)] == [1, 1]
    assert (train != rail.Pipeline(seed=1).split(100, 3)[0]).any()


def csv(label: str, samples: int, extra: str = "") -> str:
    head = "time,acceleration,label" + (",section" if extra else "") + "\n"
    return head + "".join(f"{i / 100},{(i * 37) % 11},{label}{',' + extra if extra else ''}\n" for i in range(samples))


def test_recordings_in_csv(tmp_path):
    (tmp_path / "north.csv").write_text(csv("corrugation", 70) + csv("2", 70).split("\n", 1)[1])
    (tmp_path / "south.csv").write_text(csv("Fish-Scale", 100, "east"))
    data = rail.read(tmp_path, rail.Pipeline(window=32))
    assert data.name == "rail" and data.group_names == ("north", "east") and data.classes == 3
    federation = Federation.from_dataset(data, "natural")
    assert federation.clients == 2 and federation.input_shape == (1, 32)
    # 70 samples hold two windows of 32, and no window crosses from one label to the next.
    assert sorted([*federation[0][1], *federation.local_test(0)[1]]) == [0, 0, 2, 2]
    assert set(federation[1][1]) == {1}


def test_recordings_are_found_in_the_data_folder(root):
    (root / "rail").mkdir(parents=True)
    (root / "rail" / "a.csv").write_text(csv("0", 1100))
    (root / "rail" / "b.csv").write_text(csv("1", 1100))
    assert load("rail").x.shape[1:] == (1, 512)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("acceleration\n1\n", "needs a heading with `label`"),
        ("label\n1\n", "needs a heading with `label`"),
        ("acceleration,label\n1,rust\n", "has the label 'rust'"),
        ("acceleration,label\n1,7\n", "has the label '7'"),
        ("acceleration,label\nx,1\n", "a row that is not numbers"),
        ("acceleration,label\n1\n", "a row that is not numbers"),
        ("acceleration,label\nnan,1\n", "NaN or infinite"),
        ("acceleration,label\n1,1\n", "as long as a window of 512"),
        ("acceleration,label\n" + "1,1\n" * 600, "section a has 1 windows and needs 2"),
    ],
)
def test_recordings_that_are_refused(tmp_path, content, sentence):
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(BadInput, match=sentence):
        rail.read(tmp_path)


def test_no_recordings(tmp_path):
    with pytest.raises(BadInput, match="has no CSV files"):
        rail.read(tmp_path)


# ---- the simulator -------------------------------------------------------------------------------------------------


def test_it_is_labelled_as_simulated(small):
    assert small.name == "rail-simulated" and small.notes["simulated"] is True and "simulated" in small.about
    assert Federation.from_dataset(small, "natural").name == "rail-simulated"


def test_the_seed_makes_the_track(small):
    again, other = railsim.simulated(SMALL), railsim.simulated(railsim.Track(sections=4, windows=60, seed=1))
    assert (again.x == small.x).all() and (again.test_y == small.test_y).all()
    assert other.x.shape != small.x.shape or (other.x != small.x).any()
    # A section does not depend on how many others there are.
    more = railsim.simulated(railsim.Track(sections=5, windows=60))
    assert (more.x[more.groups == 2] == small.x[small.groups == 2]).all()


def test_sections_differ(small):
    sizes = np.bincount(small.groups)
    assert len(sizes) == 4 and sizes.max() > 1.2 * sizes.min()
    held = np.bincount(small.test_groups)
    assert np.allclose(held / (held + sizes), 0.2, atol=0.02)
    speeds = [railsim.conditions(SMALL, k).speed for k in range(4)]
    assert all(12 <= speed <= 35 for speed in speeds) and len(set(speeds)) == 4


def spectrum(signal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.fft.rfftfreq(signal.shape[-1], 1 / 4096), np.abs(np.fft.rfft(signal, axis=-1)) ** 2


def test_corrugation_is_a_tone_of_speed_over_pitch():
    here = railsim.conditions(SMALL, 0)
    time = np.arange(512) / 4096
    for n in range(5):
        frequencies, power = spectrum(railsim._corrugation(here, time, np.random.Generator(np.random.PCG64(n))))
        assert frequencies[power.argmax()] == pytest.approx(here.speed / here.pitch, rel=0.25)


def test_cracks_are_dense_and_high_and_spalls_sparse_and_heavy():
    here, time = railsim.conditions(SMALL, 0), np.arange(512) / 4096
    draw = np.random.Generator(np.random.PCG64(0))
    cracks = np.stack([railsim._cracks(here, time, draw) for _ in range(50)])
    spalls = np.stack([railsim._spalls(here, time, draw) for _ in range(50)])

    def centre(signals):
        frequencies, power = spectrum(signals)
        return float((frequencies * power.sum(0)).sum() / power.sum())

    def peakedness(signals):
        return float(np.median((signals**4).mean(1) / (signals**2).mean(1) ** 2))

    assert centre(cracks) > 1100 > 900 > centre(spalls)
    assert peakedness(spalls) > 2 * peakedness(cracks)


def features(x: np.ndarray) -> np.ndarray:
    """Power in 32 bands, peakedness, height and the strongest line."""
    x = x[:, 0].astype(np.float64)
    power = np.abs(np.fft.rfft(x, axis=1)[:, 1:257]) ** 2
    bands = np.log(power.reshape(len(x), 32, 8).mean(2) + 1e-6)
    lines = np.log(power.max(1) / np.median(power, axis=1))
    return np.column_stack([bands, np.log((x**4).mean(1)), np.log(np.abs(x).max(1)), lines])


def test_defects_can_be_told_apart_but_not_always():
    pytest.importorskip("sklearn")
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    data = railsim.simulated(railsim.Track(windows=150))
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)).fit(features(data.x), data.y)
    assert 0.85 < model.score(features(data.test_x), data.test_y) < 0.99
    # Raw samples tell a linear model next to nothing: the phase of a defect is arbitrary.
    raw = LogisticRegression(C=1e-3, max_iter=500).fit(data.x[:, 0], data.y)
    majority = np.bincount(data.test_y).max() / len(data.test_y)
    assert raw.score(data.test_x[:, 0], data.test_y) < majority + 0.1


def test_faint_defects_are_harder():
    hard = railsim.simulated(railsim.Track(sections=3, windows=40, severity=0.05))
    pytest.importorskip("sklearn")
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import scale

    x = scale(np.vstack([features(hard.x), features(hard.test_x)]))
    model = LogisticRegression(max_iter=300).fit(x[: len(hard.y)], hard.y)
    assert model.score(x[len(hard.y) :], hard.test_y) < 0.75
