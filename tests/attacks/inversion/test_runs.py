"""A run folder in, a table out; from Python and from the command line."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from attacks.inversion.victims import CLASSES, Smooth, maker
from sordino import Federation, Plan, train
from sordino.attacks.inversion.ked_mi import KedMI, critic_loss
from sordino.attacks.inversion.message import OPEN
from sordino.attacks.inversion.pictures import png, side_by_side
from sordino.attacks.inversion.runs import InversionSettings
from sordino.attacks.inversion.verdict import verdict
from sordino.attacks.runs import attack_run, invert_run
from sordino.attacks.table import entries
from sordino.errors import BadInput

MAKE = maker(Smooth, 3.0)
FAST = InversionSettings(images=1, steps=12)


def population() -> Federation:
    rng = np.random.default_rng(0)
    parts = [(rng.random((6, 2, 8, 8)).astype(np.float32), np.arange(6) % CLASSES) for _ in range(3)]
    return Federation.from_arrays(parts, test=(rng.random((12, 2, 8, 8)).astype(np.float32), np.arange(12) % CLASSES))


def trained(folder, **settings):
    plan = Plan(data="arrays", clients=3, rounds=2, batch_size=8, lr=0.2, **settings)
    train(MAKE(plan.seed), population(), plan, out=folder)
    return folder


@pytest.fixture(scope="module")
def private(tmp_path_factory):
    settings = {"method": "dp-fedavg", "unit": "example", "observer": "server", "epsilon": 8.0}
    return trained(tmp_path_factory.mktemp("runs") / "private", **settings)


def invert(folder, names, settings=FAST, **more):
    return invert_run(folder, names, settings, make=MAKE, federation=population(), **more)


def test_lines_say_how_near_how_far_any_attack_gets_and_what_the_control_says(private):
    table = invert(private, ["dlg", "ig"])
    assert [(row["attack"], row["model"]) for row in table["results"]] == [
        ("dlg", "first"), ("dlg", "trained"), ("ig", "first"), ("ig", "trained"),
    ]  # fmt: skip
    for row in table["results"]:
        assert row["kind"] == "inversion" and 0 < row["prior_chance"] <= row["reconstruction_bound"] <= 1
        assert row["ssim"] == pytest.approx(np.mean([one["ssim"] for one in row["images"]]))
        wanted = norm.cdf(norm.ppf(row["prior_chance"]) + 1 / row["multiplier"])  # one Gaussian
        assert row["message_bound"] == pytest.approx(wanted, rel=1e-3)
        assert row["multiplier"] > 0 and row["window"] == 7 and "full noise" in row["view"]
        assert row["informative"] == (row["control_ssim"] >= 0.5)
        failed = any("undefended control failed" in note for note in row["notes"])
        assert failed == (not row["informative"])
    kept = json.loads((private / "inversion.json").read_text())
    assert kept["results"] == table["results"] and kept["verdict"] == table["verdict"]
    assert not list((private / "attack" / "inversion").glob("*"))  # nothing is left of finished attacks


def test_a_second_call_takes_the_lines_that_are_there(private, monkeypatch):
    first = invert(private, ["dlg"])
    from sordino.attacks.inversion import dlg

    def never(*_, **__):
        raise AssertionError("attacked again")

    monkeypatch.setattr(dlg.DLG, "__call__", never)
    assert invert(private, ["dlg"])["results"] == first["results"]
    with pytest.raises(AssertionError, match="again"):
        invert(private, ["dlg"], InversionSettings(images=1, steps=12, fresh=True))


def test_an_interrupted_run_goes_on(private):
    settings = InversionSettings(images=1, steps=40, models=("first",), seed=3)

    def stop(what, done, total):
        raise KeyboardInterrupt

    from sordino.attacks.inversion import progress

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress.Progress, "due", lambda self: True)
        with pytest.raises(KeyboardInterrupt):
            invert(
                private, ["ig"], settings, say=lambda what, done, total: stop(what, done, total) if done == 40 else None
            )
    assert list((private / "attack" / "inversion").glob("*.safetensors"))
    (row,) = invert(private, ["ig"], settings)["results"]
    assert row["attack"] == "ig" and not list((private / "attack" / "inversion").glob("*"))


def test_a_run_without_messages_is_named_with_the_remedy(tmp_path):
    secure = trained(tmp_path / "s", method="dp-fedavg", unit="client", observer="server", epsilon=8.0, secure=True)
    with pytest.raises(BadInput, match="without --secure"):
        invert(secure, ["dlg", "gi"])
    with pytest.raises(BadInput, match="16 pixels"):
        invert(secure, ["ked-mi"])


def test_a_batch_larger_than_any_client_is_refused(private):
    with pytest.raises(BadInput, match="smaller --batch"):
        invert(private, ["ig"], InversionSettings(batch=7, steps=2))


def test_kinds_do_not_mix(private):
    with pytest.raises(BadInput, match="invert_run"):
        attack_run(private, ["dlg"], make=MAKE, federation=population())
    with pytest.raises(BadInput, match="attack_run"):
        invert(private, ["rf"])
    assert [one.name for one in entries("inversion")] == ["dlg", "ig", "gi", "ked-mi"]
    assert {one.kind for one in entries("membership")} == {"membership"}


def test_the_verdict_names_what_tells_nothing():
    good = {"attack": "ig", "model": "first", "informative": True}
    bad = {"attack": "dlg", "model": "first", "informative": False}
    assert "Every attack succeeds" in verdict([good])
    assert "dlg (first model) failed" in verdict([good, bad])
    assert "carries no information about the defence" in verdict([bad])
    assert "No undefended control" in verdict([{**good, "informative": None}])
    assert "Nothing protects" in verdict([{**good, "informative": None, "view": OPEN}])
    assert "no information about single records" in verdict([{"attack": "ked-mi", "informative": None}])


def test_a_heuristic_defence_is_attacked_by_one_that_knows_it_too(tmp_path):
    open_ = {"method": "fedavg", "variant": "published", "unit": "client", "observer": "public", "sampling": "none"}
    folder = trained(tmp_path / "soteria", **open_, defence="soteria")
    rows = invert(folder, ["dlg"], InversionSettings(images=1, steps=12, models=("first",)))["results"]
    assert [row["adaptive"] for row in rows] == [False, True] and rows[0]["ssim"] != rows[1]["ssim"]
    for row in rows:
        assert row["control_ssim"] is not None and row["message_bound"] == row["reconstruction_bound"] == 1.0
        assert "without a guarantee" in row["view"]
    text = (folder / "report.html").read_text()
    assert "dlg that knows soteria, first round" in text


# ---- pictures ----------------------------------------------------------------------------------------------------------


def pixels_of(data: bytes) -> np.ndarray:
    """A PNG read by hand: chunks with their checksums, lines without a filter."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    place, parts, size = 8, b"", (0, 0, 0)
    while place < len(data):
        (length,) = struct.unpack(">I", data[place : place + 4])
        name, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        assert struct.unpack(">I", data[place + 8 + length : place + 12 + length])[0] == zlib.crc32(name + body)
        if name == b"IHDR":
            width, height, depth, colours = struct.unpack(">IIBB", body[:10])
            assert depth == 8
            size = (height, width, 3 if colours == 2 else 1)
        parts += body if name == b"IDAT" else b""
        place += 12 + length
    lines = np.frombuffer(zlib.decompress(parts), np.uint8).reshape(size[0], -1)
    assert not lines[:, 0].any()
    return lines[:, 1:].reshape(size)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_can_be_read_back(channels):
    image = np.random.default_rng(0).random((channels, 5, 7))
    assert np.array_equal(pixels_of(png(image)), np.round(image * 255).astype(np.uint8).transpose(1, 2, 0))


def test_originals_stand_above_reconstructions():
    both = side_by_side(np.zeros((2, 1, 4, 4)), np.full((2, 1, 4, 4), 0.5))
    assert both.shape == (1, 10, 10) and not both[:, :4, :4].any() and (both[:, 6:, 6:] == 0.5).all()


def test_pictures_are_kept_only_where_they_were_asked_for(private):
    report = private / "report.html"
    plain = invert(private, ["dlg"])["results"]
    assert all(row["pictures"] is None for row in plain) and "<img" not in report.read_text()
    shown = invert(private, ["dlg"], replace(FAST, pictures=True))["results"]
    assert all(set(row["pictures"]) == {"original", "drawn", "undefended"} for row in shown)
    assert [row["ssim"] for row in shown] == [row["ssim"] for row in plain]
    text = report.read_text()
    assert text.count("<img") == 6 and text.count("shows private records") == 2 and "img-src data:" in text
    again = invert(private, ["dlg"])["results"]  # asked for no more: they go
    assert [row["ssim"] for row in again] == [row["ssim"] for row in plain] and "<img" not in report.read_text()
    assert "iVBOR" not in (private / "inversion.json").read_text()


# ---- KED-MI ------------------------------------------------------------------------------------------------------------


def test_the_discriminator_loss_by_hand():
    import torch

    class Fixed:
        def __init__(self, *outs):
            self.outs = list(outs)

        def __call__(self, x):
            return None, self.outs.pop(0)

    on_real, on_drawn = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, -0.5]])
    soft = torch.tensor([[0.25, 0.75]])
    found = critic_loss(Fixed(on_real, on_drawn), torch.zeros(1), soft, torch.zeros(1))  # type: ignore[arg-type]
    lse, lse_drawn = np.log(np.e + 1), np.log(np.exp(0.5) + np.exp(-0.5))
    answers = -(0.25 * (1 - lse) + 0.75 * (0 - lse))
    plus = lambda u: np.log1p(np.exp(u))  # noqa: E731
    assert float(found) == pytest.approx(answers + 0.5 * (plus(lse) - lse + plus(lse_drawn)), rel=1e-5)


def test_ked_mi_needs_public_classes_and_draws_every_class(tmp_path):
    from sordino.models import build

    rng = np.random.default_rng(0)
    make = lambda seed: build("lenet", (1, 16, 16), 3, seed)  # noqa: E731
    x, y = rng.random((60, 1, 16, 16)).astype(np.float32), np.arange(60) % 2
    tests = rng.random((200, 1, 16, 16)).astype(np.float32)
    plan = Plan(data="arrays", clients=1, rounds=1, batch_size=32, lr=0.1, method="fedavg", variant="published",
                unit="client", observer="public", sampling="none")  # fmt: skip
    seen = Federation.from_arrays([(x, y)], test=(tests, np.full(200, 2)), classes=3)  # class 2 is at no client
    train(make(0), seen, plan, out=tmp_path / "run")
    settings = InversionSettings(steps=2)
    (row,) = invert_run(tmp_path / "run", ["ked-mi"], settings, make=make, federation=seen)["results"]
    assert row["chance"] == pytest.approx(1 / 2)  # class 2 is public, and nobody draws it
    assert len(row["top1_by_seed"]) == KedMI.seeds and row["judge_accuracy"] is None  # no test image of classes 0 and 1
    assert row["times_chance"] == pytest.approx(2 * row["top1"]) and row["top5"] == 1.0
    hidden = Federation.from_arrays([(x, y)], test=(tests, np.full(200, 1)), classes=3)
    with pytest.raises(BadInput, match="--public"):
        invert_run(tmp_path / "run", ["ked-mi"], InversionSettings(steps=3), make=make, federation=hidden)


def test_ked_mi_goes_on_with_the_seed_that_was_cut_short(tmp_path):
    import torch

    from sordino.attacks.inversion.observed import Victim
    from sordino.attacks.inversion.progress import Progress

    ends = np.zeros((1, 1, 1), np.float32), np.ones((1, 1, 1), np.float32)
    victim = Victim(MAKE, (1, 16, 16), 2, *ends)
    answers = lambda x: torch.stack([x.mean((1, 2, 3)), 1 - x.mean((1, 2, 3))], 1) * 9  # noqa: E731
    public = np.random.default_rng(0).random((128, 1, 16, 16)).astype(np.float32)
    attack, path = KedMI(epochs=1, recovery=3, seeds=2), tmp_path / "kept"
    whole = attack(victim, answers, public, answers)
    seen: list[str] = []

    def stop(what, done, total):
        seen.append(what)
        if what.endswith("classes 2"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attack(victim, answers, public, answers, Progress(path), stop)
    again: list[str] = []
    rest = attack(victim, answers, public, answers, Progress(path), lambda what, *_: again.append(what))
    assert any(what.endswith("1") for what in seen) and all(what.endswith("2") for what in again)
    assert rest.by_seed == whole.by_seed and np.array_equal(rest.images, whole.images)
