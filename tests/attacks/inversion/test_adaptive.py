"""Attackers that know the defence: their distances by hand, and what Soteria hides from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from attacks.inversion.victims import Smooth, message_of, records, victim_of
from sordino.attacks.inversion.adaptive import adapted, right_angles, told, within
from sordino.attacks.inversion.dlg import DLG
from sordino.attacks.inversion.gradient import Matcher, cosine, squared
from sordino.attacks.inversion.ig import IG
from sordino.attacks.inversion.metrics import average, compare
from sordino.attacks.inversion.observed import ObservedMessage
from sordino.errors import BadInput


def masked(message: ObservedMessage, matcher: Matcher, columns: list[int]) -> ObservedMessage:
    """The message with columns of the first dense layer set to zero, as Soteria leaves it."""
    update = torch.from_numpy(message.update.copy())
    slot = next(slot for slot in matcher.flat.slots if slot.name == "fc1.weight")
    slot.view(update)[:, columns] = 0.0
    return ObservedMessage(update.numpy(), "gradient", message.theta, message.batch, defence="soteria")


def test_columns_that_are_zero_throughout_are_left_out():
    victim = victim_of(Smooth)
    whole = Matcher(victim, message_of(victim, *records(2)))
    matcher = Matcher(victim, masked(whole.message, whole, [0, 5]))
    mask = told(matcher.flat, matcher.target, columns=True)
    assert int((mask == 0).sum()) == 2 * 7 and told(whole.flat, whole.target, True).all()  # fc1 has 7 rows
    value, way, factor = adapted(matcher, squared, True)(whole.target[None])
    assert float(value) == 0 and not way.any()  # the true gradient fits, whatever was hidden
    assert (
        float(squared(matcher.target)(whole.target[None])[0]) > 1e-4
    )  # it does not for an attacker that does not know


@pytest.mark.parametrize("plain", [squared, cosine])
def test_within_is_the_distance_on_what_is_left(plain):
    target, g = torch.tensor([3.0, 4.0, 9.0]), torch.tensor([[1.0, 2.0, 7.0]])
    mask = torch.tensor([1.0, 1.0, 0.0])
    value, way, factor = within(plain, target, mask)(g)
    inner, inner_way, inner_factor = plain(target[:2])(g[:, :2])
    assert float(value) == pytest.approx(float(inner)) and float(way[0, 2]) == 0
    torch.testing.assert_close(way[:, :2] * factor, inner_way * inner_factor)


def test_right_angles_by_hand_and_by_autograd():
    victim = victim_of(Smooth)
    matcher = Matcher(victim, message_of(victim, *records(1)))
    flat, target = matcher.flat, matcher.target
    distance = right_angles(flat, target)
    # The message itself is as long, but at no right angle: the cosine of every tensor is 1.
    assert float(distance(target[None])[0]) == pytest.approx(1.0, rel=1e-4)
    # Half as long and at no right angle: 1 + 1/4.
    assert float(distance(target[None] / 2)[0]) == pytest.approx(1.25, rel=1e-4)
    g = torch.from_numpy(np.random.default_rng(0).standard_normal((2, len(target)))).requires_grad_()
    places = [slice(slot.offset, slot.offset + slot.size) for slot in flat.slots]
    wanted = target.double()
    by_hand = sum(
        torch.nn.functional.cosine_similarity(g[:, p], wanted[None, p]) ** 2
        + (g[:, p].norm(dim=1) / wanted[p].norm() - 1) ** 2
        for p in places
    ) / len(places)
    (by_autograd,) = torch.autograd.grad(by_hand.sum(), g)
    value, way, factor = right_angles(flat, wanted)(g.detach())
    torch.testing.assert_close(value, by_hand.detach())
    torch.testing.assert_close(way * factor[:, None], by_autograd)


def test_an_attacker_that_knows_soteria_draws_what_it_hides():
    """Half of the columns are hidden. Compared as published the zeros mislead; left out they cost little."""
    victim, (x, y) = victim_of(Smooth, 3.0), records(1)
    message = message_of(victim, x, y)
    hidden = masked(message, Matcher(victim, message), list(range(0, 24, 2)))
    reached = []
    for adaptive in (False, True):
        made = DLG(steps=300, restarts=3, adaptive=adaptive)(victim, hidden)
        reached.append(average(compare(victim.pixels(x), victim.pixels(made.images))[0]).ssim)
    assert reached[1] > 0.9 > reached[0]


def test_without_a_defence_nothing_is_adapted():
    victim, (x, y) = victim_of(Smooth), records(1)
    message = message_of(victim, x, y)
    one, two = (DLG(steps=10, restarts=1, adaptive=adaptive)(victim, message) for adaptive in (False, True))
    assert np.array_equal(one.images, two.images)


def test_layers_that_clients_keep_are_not_compared_and_labels_not_read_off_them():
    victim, (x, y) = victim_of(Smooth), records(2)
    message = message_of(victim, x, y)
    matcher = Matcher(victim, message)
    head = [slot for slot in matcher.flat.slots if slot.name.startswith("fc2.")]
    kept = torch.from_numpy(message.update.copy())
    for slot in head:
        slot.view(kept).zero_()
    sent = Matcher(victim, replace(message, update=kept.numpy()))
    assert int((told(sent.flat, sent.target, False) == 0).sum()) == sum(slot.size for slot in head)
    assert float(adapted(sent, squared, False)(matcher.target[None])[0]) == 0
    with pytest.raises(BadInput, match="use dlg"):
        IG(steps=1)(victim, sent.message)
    assert DLG(steps=3, restarts=1)(victim, sent.message).images.shape == x.shape
    assert IG(steps=1)(victim, replace(message, update=np.zeros_like(message.update))).images.shape == x.shape
