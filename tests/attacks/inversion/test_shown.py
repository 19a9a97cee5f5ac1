"""What the study shows at full size, on one image each: undefended messages give the record away, certified ones do not."""

from __future__ import annotations

import os

import numpy as np
import pytest

from sordino import Federation, Plan
from sordino.attacks.inversion.dlg import DLG
from sordino.attacks.inversion.gi import GI
from sordino.attacks.inversion.ig import IG
from sordino.attacks.inversion.message import observe
from sordino.attacks.inversion.metrics import Likeness, average, compare
from sordino.attacks.inversion.observed import Victim
from sordino.data import store
from sordino.models import build

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get("SORDINO_SLOW_TESTS"), reason="set SORDINO_SLOW_TESTS=1 for the study of minutes"
    ),
    pytest.mark.skipif(not store.has("cifar10"), reason="needs CIFAR-10: sordino data get cifar10"),
]
BASE = {"data": "cifar10", "clients": 100, "partition": "iid", "rounds": 20, "batch_size": 64, "lr": 0.1}
OPEN = {"method": "fedavg", "variant": "published", "unit": "client", "observer": "public", "sampling": "none"}
CERTIFIED = {"method": "dp-fedavg", "unit": "example", "observer": "server", "epsilon": 8.0}


def reached(attack, network: str, records: list[int], **settings) -> Likeness:
    federation = Federation.from_dataset("cifar10", partition="iid", clients=100, seed=0)
    make = lambda seed: build(network, federation.input_shape, federation.classes, seed)  # noqa: E731
    victim = Victim.of(federation, make)
    plan = Plan(model=network, **BASE, **settings)
    message = observe(plan, make, federation, 7, np.array(records))
    test = federation.raw_test
    assert test is not None
    made = attack(victim, message, public=federation.prepare(np.asarray(test[0][:64])))
    return average(compare(victim.pixels(federation[7][0][records]), victim.pixels(made.images))[0])


def test_dlg_draws_an_undefended_record():
    assert reached(DLG(), "lenet-sigmoid", [3], **OPEN).ssim >= 0.9


def test_ig_draws_an_undefended_record_of_a_relu_network():
    """On average: single records lie between 16.7 and 21.6 dB."""
    found = [reached(IG(), "cnn-cifar", [record], **OPEN).psnr for record in (3, 10, 20, 30)]
    assert np.mean(found) >= 18


def test_gi_is_as_good_as_ig_on_four_records():
    four = [3, 10, 20, 30]
    assert reached(GI(), "cnn-cifar", four, **OPEN).psnr >= reached(IG(), "cnn-cifar", four, **OPEN).psnr


@pytest.mark.parametrize("attack, network", [(DLG(), "lenet-sigmoid"), (IG(), "cnn-cifar"), (GI(), "cnn-cifar")])
def test_nothing_is_drawn_from_a_certified_message(attack, network):
    assert reached(attack, network, [3], **CERTIFIED).ssim < 0.2
