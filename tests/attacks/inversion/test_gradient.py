"""The gradient-matching step: the fast passes against autograd, distances against their definitions, messages of several steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from attacks.inversion.victims import (
    CLASSES,
    SHAPE,
    Kinked,
    Overlapping,
    Shortcut,
    Smooth,
    Wide,
    by_layers,
    gradient_by_hand,
    message_of,
    records,
    slow,
    victim_of,
)
from sordino import native
from sordino.attacks.inversion.chain import Chain
from sordino.attacks.inversion.gradient import Matcher, cosine, feature_prior, nowhere, squared
from sordino.attacks.inversion.native_chain import NativeChain
from sordino.attacks.inversion.observed import ObservedMessage
from sordino.clients.descent import Descent
from sordino.gradients.flat import Flat


def dummies(groups: int, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(5)
    x = torch.from_numpy(rng.random((groups, batch, *SHAPE)).astype(np.float32))
    q = F.softmax(torch.from_numpy(rng.standard_normal((groups, batch, CLASSES)).astype(np.float32)), -1)
    return x, q


ROADS = [Matcher, by_layers]  # C where it was compiled, and PyTorch


@pytest.mark.skipif(native.passes() is None, reason="the passes were not compiled")
@pytest.mark.parametrize("kind", [Smooth, Kinked, Overlapping, Wide])
def test_compiled_passes_are_taken_where_there_are_any(kind):
    victim = victim_of(kind)
    message = message_of(victim, *records(1))
    assert isinstance(Matcher(victim, message).chain, NativeChain)
    assert isinstance(by_layers(victim, message).chain, Chain)


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("kind", [Smooth, Kinked, Overlapping, Wide])
@pytest.mark.parametrize("groups, batch", [(1, 1), (1, 3), (3, 2)])
@pytest.mark.parametrize("distance", [squared, cosine])
def test_four_passes_give_what_two_backward_passes_give(road, kind, groups, batch, distance):
    victim = victim_of(kind)
    message = message_of(victim, *records(batch))
    fast, plain = road(victim, message), slow(victim, message)
    assert fast.fast and not plain.fast
    x, q = dummies(groups, batch)
    for _ in range(2):  # memory is used again
        one, two = (m.step(x, q, distance(m.target)) for m in (fast, plain))
        for name in ("value", "images", "logits", "gradient"):
            torch.testing.assert_close(getattr(one, name), getattr(two, name), rtol=2e-3, atol=1e-6)
        x = x.flip(1, 3) * 0.9


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("clipped, limit", [("record", 0.05), ("update", 0.05), ("record", 1e3)])
def test_every_road_clips_alike(road, clipped, limit):
    victim = victim_of(Smooth)
    message = message_of(victim, *records(3), bound=limit, clipped=clipped)
    x, q = dummies(2, 3)
    one, two = (m.step(x, q, squared(m.target)) for m in (road(victim, message), slow(victim, message)))
    torch.testing.assert_close(one.gradient, two.gradient, rtol=1e-3, atol=1e-7)
    torch.testing.assert_close(one.images, two.images, rtol=2e-3, atol=1e-7)
    torch.testing.assert_close(one.logits, two.logits, rtol=2e-3, atol=1e-7)
    if limit < 1:
        assert float(one.gradient.norm(dim=1).max()) <= limit * (1 + 1e-5)


def test_a_step_leaves_the_result_of_an_earlier_one_alone():
    victim = victim_of(Kinked)
    matcher = Matcher(victim, message_of(victim, *records(2)))
    x, q = dummies(1, 2)
    first = matcher.step(x, q, squared(matcher.target)).images
    kept = first.clone()
    matcher.step(x * 0.5, q, squared(matcher.target))
    assert torch.equal(first, kept)


def test_the_pull_is_the_derivative_of_the_value():
    victim = victim_of(Smooth)
    matcher = Matcher(victim, message_of(victim, *records(2)))
    x, q = dummies(1, 2)
    pull = matcher.step(x, q, squared(matcher.target))
    way = torch.from_numpy(np.random.default_rng(1).standard_normal(x.shape).astype(np.float32))
    h = 1e-2
    up, down = (float(matcher.step(x + s * h * way, q, squared(matcher.target)).value) for s in (1, -1))
    assert (up - down) / (2 * h) == pytest.approx(float((pull.images * way).sum()), rel=2e-2)


def test_a_network_that_is_no_chain_takes_the_other_road():
    victim = victim_of(Shortcut)
    x, y = records(2)
    matcher = Matcher(victim, message_of(victim, x, y))
    assert not matcher.fast
    q = F.one_hot(torch.from_numpy(y), CLASSES).float()
    pull = matcher.step(torch.from_numpy(x)[None], q[None], squared(matcher.target))
    assert float(pull.value) < 1e-10  # the true records match their own message


def test_distances_by_hand():
    target = torch.tensor([3.0, 4.0])
    value, way, factor = squared(target)(torch.tensor([[3.0, 5.0]]))
    assert float(value) == pytest.approx(1 / 25) and (way[0] * factor[0]).tolist() == pytest.approx([0, 2 / 25])
    value, way, factor = cosine(target)(torch.tensor([[4.0, -3.0]]))
    assert float(value) == pytest.approx(1.0) and (way[0] * factor[0]).tolist() == pytest.approx([-0.6 / 5, -0.8 / 5])
    value, _, _ = cosine(target)(torch.tensor([[6.0, 8.0]]))
    assert float(value) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    "steps, step_batch, momentum", [(2, 0, 0.0), (4, 1, 0.0), (4, 2, 0.0), (3, 0, 0.9), (4, 2, 0.5)]
)
def test_local_steps_are_unrolled(steps, step_batch, momentum):
    """The records themselves give the very update that local training gives. Of three records in twos, the second step of an epoch has one."""
    victim, (x, y), lr = victim_of(Smooth), records(3), 0.5
    module = victim.make(0)
    flat = Flat(module)
    theta = flat.vector().numpy()
    size = step_batch or 3
    batches = [slice(start, start + size) for start in range(0, 3, size)]  # of an epoch, in the client's order
    move = Descent("momentum" if momentum else "sgd", lr, momentum).start(flat.size, torch.device("cpu"))
    for step in range(steps):
        rows = batches[step % len(batches)]
        gradient = torch.from_numpy(gradient_by_hand(module, x[rows], y[rows]))
        flat = Flat(module)
        with torch.no_grad():
            flat.theta.sub_(move(gradient))
    update = flat.vector().numpy() - theta
    message = ObservedMessage(
        update, "model-update", theta, 3, local_steps=steps, lr=lr, step_batch=step_batch, momentum=momentum
    )
    matcher = Matcher(victim, message)
    q = F.one_hot(torch.from_numpy(y), CLASSES).float()[None]
    here = matcher.step(torch.from_numpy(x)[None], q, squared(matcher.target))
    there = matcher.step(torch.from_numpy(x)[None] * 0.5, q, squared(matcher.target))
    assert float(here.value) < 1e-8 < float(there.value)
    assert float(there.images.abs().max()) > 0


def test_a_message_on_the_scale_of_a_gradient():
    theta, g = np.zeros(3, np.float32), np.array([1.0, -2.0, 0.5], np.float32)
    assert ObservedMessage(g, "gradient", theta, 1, bound=2.0).limit == 2.0
    sent = ObservedMessage(-0.1 * g, "model-update", theta, 1, lr=0.1, bound=0.2, clipped="update")
    assert sent.gradient.tolist() == pytest.approx(g.tolist()) and sent.limit == pytest.approx(2.0)
    summed = ObservedMessage(-0.3 * g, "sum", theta, 1, lr=0.1, clients=3)
    assert summed.gradient.tolist() == pytest.approx(g.tolist())
    with pytest.raises(ValueError, match="not finite"):
        ObservedMessage(g * np.nan, "gradient", theta, 1)
    with pytest.raises(ValueError, match="kind"):
        ObservedMessage(g, "letter", theta, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("road", ROADS)
def test_the_feature_prior_is_least_at_the_public_images_and_has_the_right_slope(road):
    victim = victim_of(Smooth)
    matcher = road(victim, message_of(victim, *records(2)))
    public, _ = records(6, seed=3)
    prior = feature_prior(matcher, public, 0.5)
    assert prior is not None
    q = F.softmax(torch.zeros(1, 6, CLASSES), -1)
    here = matcher.step(torch.from_numpy(public)[None], q, nowhere, prior)
    assert float(here.value) == pytest.approx(0, abs=1e-8)
    x = torch.from_numpy(public)[None] * 0.5
    way = torch.ones_like(x)
    there = matcher.step(x, q, nowhere, prior)
    up, down = (float(matcher.step(x + s * 1e-2 * way, q, nowhere, prior).value) for s in (1, -1))
    assert float(there.value) > 0
    assert (up - down) / 2e-2 == pytest.approx(float((there.images * way).sum()), rel=1e-2)
