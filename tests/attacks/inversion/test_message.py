"""The message is the client's own: exact without a defence, clipped and noised with one, refused where it cannot be had."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attacks.inversion.victims import CLASSES, Kinked, Smooth, gradient_by_hand, maker
from sordino import Federation, Plan
from sordino.attacks.inversion.gradient import Matcher, squared
from sordino.attacks.inversion.message import observe, one_message, refusal, released, undefended, view_of
from sordino.attacks.inversion.observed import Victim
from sordino.errors import BadInput
from sordino.gradients.flat import Flat

MAKE = maker(Smooth)
BASE = {"data": "arrays", "clients": 3, "rounds": 4, "batch_size": 8, "lr": 0.25}
BARE = {"method": "fedavg", "variant": "published", "unit": "client", "observer": "public", "sampling": "none"}
LOCAL = {"method": "dp-fedavg", "unit": "example", "observer": "server"}
POOLED = {"method": "dp-fedavg", "unit": "example", "observer": "secagg-server"}
CLIENT = {"method": "dp-fedavg", "unit": "client", "observer": "server", "sampling": "none"}


def federation() -> Federation:
    rng = np.random.default_rng(0)
    parts = [(rng.random((6, 2, 8, 8)).astype(np.float32), np.arange(6) % CLASSES) for _ in range(3)]
    return Federation.from_arrays(parts, test=parts[0], classes=CLASSES)


def gradient(fed: Federation, client: int, rows: list[int]) -> np.ndarray:
    x, y = fed[client]
    return gradient_by_hand(MAKE(0), x[rows], y[rows])


def test_without_a_defence_the_message_is_the_gradient():
    fed = federation()
    seen = observe(Plan(**BASE, **BARE), MAKE, fed, 1, np.array([0, 4]))
    assert (seen.kind, seen.batch, seen.local_steps, seen.lr, seen.bound) == ("model-update", 2, 1, 0.25, None)
    assert np.allclose(seen.gradient, gradient(fed, 1, [0, 4]), atol=1e-5)
    assert np.array_equal(seen.theta, Flat(MAKE(0)).vector().numpy())


def test_on_another_model_and_over_several_epochs():
    fed = federation()
    theta = Flat(MAKE(5)).vector().numpy()
    seen = observe(Plan(**BASE, **BARE, local_epochs=3), MAKE, fed, 0, np.array([2]), theta=theta)
    assert seen.local_steps == 3 and np.array_equal(seen.theta, theta)


@pytest.mark.parametrize("settings, records", [(LOCAL, [1]), (LOCAL, [0, 1, 2]), (POOLED, [1]), (POOLED, [0, 1, 2])])
def test_records_are_clipped_and_the_noise_has_its_size(settings, records):
    """What is left after the clipped gradients is noise of multiplier times bound over the records; two thirds of it is told apart."""
    fed, bound, z = federation(), 0.01, 0.8
    plan = Plan(**BASE, **settings, bound=bound, multiplier=z)
    seen = observe(plan, MAKE, fed, 1, np.array(records))
    assert (seen.bound, seen.multiplier, seen.clipped) == (bound, pytest.approx(z), "record")
    each = [gradient(fed, 1, [row]) for row in records]
    clipped = np.mean([g * min(1.0, bound / np.linalg.norm(g)) for g in each], axis=0)
    noise = seen.gradient - clipped
    std = z * bound / len(records)
    found, slack = noise.std(), 5 * std / np.sqrt(2 * noise.size)
    assert abs(found - std) < slack
    assert abs(found - std * 2 / 3) > slack and abs(found - std * 3 / 2) > slack


def test_a_client_is_clipped_as_a_whole():
    fed, bound, z = federation(), 1e-3, 1e-4
    seen = observe(Plan(**BASE, **CLIENT, bound=bound, multiplier=z), MAKE, fed, 1, np.array([0, 1]))
    assert seen.clipped == "update"
    assert np.linalg.norm(seen.update) == pytest.approx(bound, rel=0.02)
    assert seen.limit == pytest.approx(bound / 0.25)


def test_the_noise_is_that_of_the_whole_run():
    """One record alone would be calibrated otherwise: it is never sampled."""
    from sordino.federation.sizes import PublicSizes
    from sordino.schemes import settle

    fed = federation()
    plan = Plan(**BASE, **{**POOLED, "epsilon": 8.0}).replace(batch_size=2)
    seen = observe(plan, MAKE, fed, 0, np.array([0]))
    assert seen.multiplier == pytest.approx(settle(plan, PublicSizes.of(fed)).multiplier)


def test_others_hide_a_record_in_the_sum():
    fed = federation()
    plan = Plan(**BASE, **{**BARE, "observer": "secagg-server"})
    seen = observe(plan, MAKE, fed, 1, np.array([3]), others=True)
    assert (seen.kind, seen.clients, seen.batch) == ("sum", 3, 13)
    parts = [gradient(fed, 0, list(range(6))), gradient(fed, 1, [3]), gradient(fed, 2, list(range(6)))]
    assert np.allclose(-seen.update / 0.25, sum(parts), atol=1e-4)


def test_a_defence_changes_the_gradient_before_it_is_clipped():
    fed, bound = federation(), 1e-3

    def first_half(g, own):
        assert len(own.x) == len(own.y) == 2 and own.flat.model(own.x).shape == (2, CLASSES)
        return np.where(np.arange(g.size) < g.size // 2, g, 0)

    bare = observe(Plan(**BASE, **BARE), MAKE, fed, 1, np.array([0, 1]), defence=first_half)
    whole = gradient(fed, 1, [0, 1])
    half = whole.size // 2
    assert np.allclose(bare.gradient[:half], whole[:half], atol=1e-5) and not bare.gradient[half:].any()
    plan = Plan(**BASE, **CLIENT, bound=bound, multiplier=1e-4)
    seen = observe(plan, MAKE, fed, 1, np.array([0, 1]), defence=first_half)
    assert np.linalg.norm(seen.update) == pytest.approx(bound, rel=0.02)  # clipped behind the defence
    with pytest.raises(BadInput, match="clip each record"):
        observe(Plan(**BASE, **LOCAL, multiplier=1.0), MAKE, fed, 1, np.array([0]), defence=first_half)


def test_what_cannot_be_had_is_named_with_the_remedy():
    fed = federation()
    with pytest.raises(BadInput, match="without --secure"):
        observe(Plan(**BASE, **LOCAL, multiplier=1.0, secure=True), MAKE, fed, 0, np.array([0]))
    with pytest.raises(BadInput, match="--optimizer sgd"):
        observe(Plan(**BASE, **BARE, optimizer="adam"), MAKE, fed, 0, np.array([0]))
    with pytest.raises(BadInput, match="holds 6 records"):
        observe(Plan(**BASE, **BARE), MAKE, fed, 0, np.array([6]))
    with pytest.raises(BadInput, match="no records"):
        observe(Plan(**BASE, **BARE), MAKE, fed, 0, np.array([], int))
    assert refusal(Plan(**BASE, **LOCAL, multiplier=1.0)) is None


def test_the_control_is_the_same_client_without_the_defence():
    fed, plan = federation(), Plan(**BASE, **LOCAL, epsilon=2.0)
    seen = observe(undefended(plan), MAKE, fed, 2, np.array([1]))
    assert seen.bound is None and np.allclose(seen.gradient, gradient(fed, 2, [1]), atol=1e-5)
    assert released(undefended(plan), fed) is None and released(plan, fed) is not None
    assert "full noise" in view_of(plan) and "nothing protects" in view_of(undefended(plan))


def test_a_victim_needs_pictures():
    flat = Federation.from_arrays([(np.zeros((4, 3), np.float32), [0, 1, 0, 1])])
    with pytest.raises(BadInput, match="channel, height, width"):
        Victim.of(flat, maker(Kinked))
    bytes_ = Federation.from_arrays([(np.full((2, 2, 8, 8), 255, np.uint8), [0, 1])])
    victim = Victim.of(bytes_, maker(Kinked))
    assert victim.low.ravel().tolist() == [0, 0] and victim.high.ravel().tolist() == pytest.approx([1, 1])
    assert victim.pixels(bytes_[0][0]).max() == pytest.approx(1.0)


def test_numbers_that_are_no_bytes_have_the_range_of_the_test_split():
    x = np.full((2, 1, 4, 4), 3.0, np.float32)
    open_ended = Victim.of(Federation.from_arrays([(x, [0, 1])]), maker(Kinked))
    assert (open_ended.low.item(), open_ended.high.item()) == (0.0, 1.0)
    test = (np.stack([x[0] - 5, x[0] + 1]), [0, 1])
    victim = Victim.of(Federation.from_arrays([(x, [0, 1])], test=test), maker(Kinked))
    assert (victim.low.item(), victim.high.item()) == (-2.0, 4.0)
    assert victim.pixels(x).max() == pytest.approx(5 / 6)


@pytest.mark.parametrize("defence", ["soteria", "censor"])
def test_a_heuristic_defence_is_part_of_the_message_and_of_what_is_known(defence):
    fed, plan = federation(), Plan(**BASE, **BARE, defence=defence)
    seen = observe(plan, MAKE, fed, 1, np.array([0, 1]))
    whole = gradient(fed, 1, [0, 1])
    assert seen.defence == defence and not np.allclose(seen.gradient, whole, atol=1e-4)
    assert np.allclose(observe(undefended(plan), MAKE, fed, 1, np.array([0, 1])).gradient, whole, atol=1e-5)
    assert defence in view_of(plan) and "without a guarantee" in view_of(plan)


def test_a_message_of_a_run_without_a_proof_has_no_bound():
    """Published AdaCT-DPFL adds noise too, but by a bound from raw norms: its multiplier proves nothing."""
    fed, plan = federation(), Plan(**BASE, **LOCAL, multiplier=1.0)
    seen = observe(plan, MAKE, fed, 1, np.array([0]))
    assert one_message(plan, seen, proven=True) is not None and one_message(plan, seen, proven=False) is None


@pytest.mark.parametrize("records", [[1], [0, 3]])
@pytest.mark.parametrize("settings, bound", [(LOCAL, 0.05), (LOCAL, 20.0), (CLIENT, 1e-3), (BARE, None)])
def test_the_records_themselves_give_the_message_of_several_local_steps(settings, bound, records):
    """Almost without noise: what the attacker unrolls and clips is what the client does."""
    fed, noise = federation(), {} if bound is None else {"bound": bound, "multiplier": 1e-6}
    seen = observe(Plan(**BASE, **settings, **noise, local_epochs=3), MAKE, fed, 1, np.array(records))
    assert seen.local_steps == 3
    x, y = fed[1]
    q = torch.nn.functional.one_hot(torch.from_numpy(y[records]), CLASSES).float()[None]
    matcher = Matcher(Victim.of(fed, MAKE), seen)
    pull = matcher.step(torch.from_numpy(x[records])[None], q, squared(matcher.target))
    assert float(pull.value) < 1e-5
    other = matcher.step(torch.from_numpy(x[[2] * len(records)])[None], q, squared(matcher.target))
    assert float(other.value) > 1e-3
