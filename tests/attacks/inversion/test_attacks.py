"""The attacks as a whole on small victims: they succeed without a defence, go on where they were, and refuse what they cannot do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attacks.inversion.victims import Kinked, Smooth, message_of, records, victim_of
from sordino.attacks.inversion.dlg import DLG
from sordino.attacks.inversion.gi import GI
from sordino.attacks.inversion.ig import IG
from sordino.attacks.inversion.metrics import average, compare
from sordino.attacks.inversion.progress import Progress, digest


class Interrupted(Exception):
    pass


def after(steps: int):
    """A progress bar that interrupts the attack."""

    def say(what: str, done: int, total: int) -> None:
        if done >= steps:
            raise Interrupted

    return say


def likeness(victim, x, made):
    return average(compare(victim.pixels(x), victim.pixels(made.images))[0])


def test_dlg_draws_the_record_and_its_label():
    victim, (x, y) = victim_of(Smooth, 3.0), records(1)
    made = DLG(steps=400, restarts=3)(victim, message_of(victim, x, y))
    assert likeness(victim, x, made).ssim > 0.9 and made.labels.tolist() == y.tolist()


def test_ig_and_gi_come_nearer_than_chance():
    victim, (x, y) = victim_of(Smooth, 2.0), records(1)
    message = message_of(victim, x, y)
    blank = float(np.square(victim.pixels(x) - 0.5).mean())
    for attack in (IG(steps=300, variation=1e-3), GI(steps=300, variation=1e-3, seeds=2)):
        assert likeness(victim, x, attack(victim, message)).mse < blank / 3


@pytest.mark.parametrize(
    "attack, kind",
    [(DLG(steps=60, restarts=2), Smooth), (IG(steps=60), Kinked), (GI(steps=60, seeds=2), Kinked)],
    ids=["dlg", "ig", "gi"],
)
def test_an_interrupted_attack_goes_on_to_the_same_bits(attack, kind, tmp_path):
    victim, (x, y) = victim_of(kind), records(2)
    message = message_of(victim, x, y)
    whole = attack(victim, message, Progress(tmp_path / "whole"))
    path = tmp_path / "cut.safetensors"
    with pytest.raises(Interrupted):
        attack(victim, message, Progress(path, every=0.0), say=after(40))
    assert path.exists()
    rest = attack(victim, message, Progress(path, every=0.0))
    assert np.array_equal(whole.images, rest.images) and whole.loss == rest.loss and whole.steps == rest.steps
    again = attack(victim, message, Progress(path), say=after(10**9))  # finished: nothing is left to do
    assert np.array_equal(whole.images, again.images)


def test_progress_of_another_message_or_setting_is_not_taken_up(tmp_path):
    victim, (x, y) = victim_of(Kinked), records(1)
    message, other = message_of(victim, x, y), message_of(victim, x[:, :, ::-1].copy(), y)
    path = tmp_path / "kept"
    IG(steps=20)(victim, message, Progress(path))
    fresh = IG(steps=20)(victim, other)
    assert np.array_equal(IG(steps=20)(victim, other, Progress(path)).images, fresh.images)
    assert digest(IG(), message) != digest(IG(steps=7), message) != digest(IG(steps=7), other)
    assert digest(IG(), message, np.array([1])) != digest(IG(), message, None)
    assert digest(IG(), replace(message, defence="soteria")) != digest(IG(), message)


def test_progress_that_cannot_be_read_counts_as_none(tmp_path):
    victim, (x, y) = victim_of(Kinked), records(1)
    path = tmp_path / "kept"
    path.write_bytes(b"half a file")
    message = message_of(victim, x, y)
    made = IG(steps=10)(victim, message, Progress(path))
    assert np.array_equal(made.images, IG(steps=10)(victim, message).images)


def test_images_stay_in_the_box():
    victim, (x, y) = victim_of(Smooth), records(2)
    message = message_of(victim, x, y)
    for attack in (DLG(steps=20, restarts=1), IG(steps=20), GI(steps=20)):
        made = attack(victim, message).images
        assert made.shape == x.shape and made.min() >= 0 and made.max() <= 1


def test_labels_that_are_known_are_taken():
    victim, (x, y) = victim_of(Kinked), records(2)
    made = IG(steps=5)(victim, message_of(victim, x, y), labels=np.array([3, 1]))
    assert made.labels.tolist() == [1, 3]
