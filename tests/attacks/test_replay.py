"""The run once more: the same bits without an attacker, and what an attacker adds."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from attacks.by_heart import SPEED, make, plan, population, private_plan
from sordino import BadInput, Plan, train
from sordino.attacks.protocol import Protocol, deal
from sordino.attacks.replay import Tamper, replay, server_sees_messages
from sordino.attacks.target import Target
from sordino.engines import EngineOptions
from sordino.federation import checkpoint
from sordino.gradients.flat import Flat

SHORT = {"rounds": 4, "local_epochs": 1}
WAYS = {
    "no privacy": plan(**SHORT),
    "weighed by size": plan(**SHORT, weights="size"),
    "client unit, noise in full": plan(
        **SHORT, method="quantile", variant="certified", observer="server", sampling="none", multiplier=0.5
    ),
    "client unit, central": plan(
        **SHORT, method="dp-fedavg", variant="certified", multiplier=0.5, cohort=2, sampling="fixed"
    ),
    "example unit, local": private_plan(rounds=3, observer="server", batch_size=10),
    "example unit, pooled": private_plan(rounds=4),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_honest_replay_is_the_run(way, tmp_path):
    federation, p = population(), WAYS[way]
    speed = EngineOptions("in-process", keep_models=1, checkpoint_every=100)
    result = train(make(p.seed), federation, p, out=tmp_path / "run", options=speed)
    kept = checkpoint.kept(tmp_path / "run" / "models")
    assert sorted(kept) == list(range(1, p.rounds + 1))
    seen: dict[int, np.ndarray] = {}
    final = replay(make, federation, p, {1, 3}, lambda t, _, theta: seen.update({t: theta.copy()}), workers=1)
    assert sorted(seen) == [1, 3] and np.array_equal(seen[1], kept[1]) and np.array_equal(seen[3], kept[3])
    assert np.array_equal(final, kept[p.rounds]) and np.array_equal(final, Flat(result.model).vector().numpy())


@pytest.mark.parametrize("way", [w for w in WAYS if "pooled" not in w and "central" not in w])
def test_messages_are_what_the_models_are_made_of(way):
    """Local models, weighed as the plan says, average to the released one."""
    federation, p = population(), WAYS[way]
    sent: dict[int, dict[int, np.ndarray]] = {}
    seen: dict[int, np.ndarray] = {}
    final = replay(
        make, federation, p, {1, 2}, lambda t, _, theta: seen.update({t: theta.copy()}),
        lambda t, _, k, theta: sent.setdefault(t, {}).update({k: theta.copy()}),
    )  # fmt: skip
    assert np.array_equal(
        final, replay(make, federation, p, set(), lambda *_: None, workers=1)
    )  # listening changes nothing
    weights = federation.sizes / federation.sizes.sum() if p.weights == "size" else np.full(4, 0.25)
    for t in (1, 2):
        assert sorted(sent[t]) == [0, 1, 2, 3]
        mean = sum(w * sent[t][k].astype(np.float64) for k, w in enumerate(weights))
        assert np.allclose(mean, seen[t], atol=2e-5)
        assert not np.allclose(sent[t][0], seen[t], atol=1e-4)


def test_where_there_are_no_single_messages():
    assert server_sees_messages(WAYS["no privacy"]) and server_sees_messages(WAYS["example unit, local"])
    assert not server_sees_messages(WAYS["example unit, pooled"])
    assert not server_sees_messages(
        plan(**SHORT, method="dp-fedavg", variant="certified", multiplier=1.0, observer="secagg-server")
    )


def _put(kept: dict[int, np.ndarray], round: int, before: np.ndarray, theta: np.ndarray) -> None:
    kept[round] = theta.copy()


@pytest.mark.parametrize("server", [True, False])
def test_tampering_starts_when_it_is_told_to(server):
    federation, p = population(), plan(**SHORT)
    direction = np.ones(Flat(make(0)).size)
    thetas = []
    for strength in (0.0, 1.0):
        kept: dict[int, np.ndarray] = {}
        tamper = Tamper(lambda theta: direction, server, strength, start=2)
        seen = functools.partial(_put, kept)
        kept[4] = replay(make, federation, p, {1, 2}, seen, tamper=tamper, workers=1)
        thetas.append(kept)
    assert np.array_equal(thetas[0][1], thetas[1][1]) and not np.array_equal(thetas[0][4], thetas[1][4])
    # A server's climb is in what clients start from; a client looks before it adds its own.
    assert np.array_equal(thetas[0][2], thetas[1][2]) != server


def test_a_client_climbs_one_honest_move():
    federation, p, direction = population(), plan(**{**SHORT, "rounds": 2}), np.ones(Flat(make(0)).size)
    seen: dict[int, np.ndarray] = {}
    tamper = Tamper(lambda theta: direction, False, 1.0, start=2)
    final = replay(
        make, federation, p, {1, 2}, lambda t, _, theta: seen.update({t: theta.copy()}), tamper=tamper, workers=1
    )
    move = np.linalg.norm(seen[1] - Flat(make(0)).vector().numpy())
    assert np.linalg.norm(final - seen[2]) == pytest.approx(move, rel=1e-3)


def test_a_client_that_tampers_is_clipped_like_everyone_else():
    short = {**SHORT, "rounds": 2}
    p = plan(**short, method="dp-fedavg", variant="certified", multiplier=0.01, bound=0.1)
    direction, seen = np.ones(Flat(make(0)).size), {}
    tamper = Tamper(lambda theta: direction, False, 100.0, start=2)
    final = replay(
        make, population(), p, {2}, lambda t, _, theta: seen.update({t: theta.copy()}), tamper=tamper, workers=1
    )
    assert np.linalg.norm(final - seen[2]) == pytest.approx(0.1 / 4, rel=1e-3)  # the bound, over four clients


def target(p, theta=None) -> Target:
    federation = population()
    theta = Flat(make(p.seed)).vector().numpy() if theta is None else theta
    return Target(p, deal(federation, Protocol()), make, theta, p.rounds, workers=1)


def test_a_run_that_cannot_be_repeated_is_refused():
    with pytest.raises(BadInput, match="ends in another model.*--keep-models"):
        target(plan(**SHORT)).watch(2, deep=False)
    with pytest.raises(BadInput, match="secure noise cannot be repeated.*--keep-models"):
        target(private_plan(rounds=3, secure=True)).watch(2, deep=False)
    with pytest.raises(BadInput, match="cannot be replayed"):
        target(private_plan(rounds=3, secure=True)).watch(2, deep=False, active=1.0)


def test_a_run_that_kept_no_models_is_replayed(tmp_path):
    p = plan(**SHORT)
    result = train(make(0), population(), p, out=tmp_path / "run", options=SPEED)
    sights = target(p, Flat(result.model).vector().numpy()).watch(2, deep=True)
    assert [s.round for s in sights] == [2, 4]
    assert (
        sights[0].logits.shape == (320, 4) and sights[0].hidden.shape == (320, 64) and sights[0].norms.shape == (320, 2)
    )


def test_norms_of_gradients_are_norms_of_gradients():
    import torch
    from torch.nn import functional

    one = target(plan(**SHORT))
    sight = one.lens.look(one.theta, one.inputs[:5], one.labels[:5], 1, before=one.theta)
    model = make(0)
    for i in range(5):
        model.zero_grad()
        out = model(torch.from_numpy(one.inputs[i : i + 1]))
        functional.cross_entropy(out, torch.from_numpy(one.labels[i : i + 1])).backward()
        last = model[2]
        norm = float(torch.sqrt(last.weight.grad.square().sum() + last.bias.grad.square().sum()))
        assert sight.norms[i, 1] == pytest.approx(norm, rel=1e-4)
        p = torch.softmax(out, 1)[0].detach().numpy()
        error = p - np.eye(4)[one.labels[i]]
        assert np.allclose(np.outer(error, sight.hidden[i]), last.weight.grad.numpy(), atol=1e-6)
    model.zero_grad()
    functional.cross_entropy(model(torch.from_numpy(one.inputs)), torch.from_numpy(one.labels)).backward()
    whole = np.concatenate([p.grad.numpy().ravel() for p in model.parameters()])
    assert np.allclose(one.lens.gradient(one.theta, one.inputs, one.labels), whole, atol=1e-6)


def test_a_pull_is_the_cosine_of_a_gradient_with_the_move_that_followed():
    import torch
    from torch.nn import functional

    one = target(plan(**SHORT))
    move = 0.001 * np.random.Generator(np.random.PCG64(0)).standard_normal(one.theta.size).astype(np.float32)
    sight = one.lens.look(one.theta + move, one.inputs[:20], one.labels[:20], 1, before=one.theta)
    assert np.abs(sight.update_cosines).mean() > 0.01
    model, cut = make(0), one.lens.flat.layer_sizes()[0]
    for i in range(20):
        model.zero_grad()
        out = model(torch.from_numpy(one.inputs[i : i + 1]))
        functional.cross_entropy(out, torch.from_numpy(one.labels[i : i + 1])).backward()
        gradient = np.concatenate([p.grad.numpy().ravel() for p in model.parameters()])
        for layer, part in enumerate((slice(None, cut), slice(cut, None))):
            cosine = gradient[part] @ move[part] / np.linalg.norm(gradient[part]) / np.linalg.norm(move[part])
            assert sight.update_cosines[i, layer] == pytest.approx(cosine, abs=1e-3)


def test_the_server_looks_at_moves_within_a_round():
    """In the first round: from the model that everyone knows to what each client made of it."""
    p = plan(**SHORT)
    one, moves = target(p), {}
    start = Flat(make(p.seed)).vector().numpy()

    def sent(t, before, client, theta):
        moves[t, client] = np.linalg.norm(theta - before)
        assert t != 1 or np.array_equal(before, start)

    released = {}
    replay(
        make, population(), p, {1, 2}, lambda t, before, theta: released.update({t: (before, theta)}), sent, workers=1
    )
    assert len(moves) == 2 * p.clients and min(moves.values()) > 0
    assert np.array_equal(released[2][0], released[1][1]) and one.rounds == p.rounds


def test_a_rule_that_reads_the_calibrated_noise_is_replayed_alike(tmp_path):
    p = plan(**SHORT, method="quantile", variant="certified", epsilon=20.0)
    result = train(make(0), population(), p, out=tmp_path / "run", options=SPEED)
    final = replay(make, population(), p, set(), lambda *_: None, workers=1)
    assert np.array_equal(final, Flat(result.model).vector().numpy())


def test_closed_loops_are_watched_from_outside_only(tmp_path):
    p = Plan(
        data="by-heart",
        clients=4,
        method="fedmap",
        epsilon=20.0,
        rounds=3,
        batch_size=10,
        model="own",
        observer="server",
    )
    result = train(make(0), population(), p, out=tmp_path / "run", options=SPEED)
    one = target(p, Flat(result.model).vector().numpy())
    assert [s.round for s in one.watch(3, deep=False)] == [1, 2, 3]
    with pytest.raises(BadInput, match="method fedmap; attack what it released"):
        one.watch(3, deep=False, server=True)


def test_canaries_are_left_out_where_the_attacker_trains(tmp_path):
    p = plan(**SHORT, method="dp-fedavg", variant="certified", multiplier=1.0, canaries=10)
    bare = replay(make, population(), p, set(), lambda *_: None, workers=1)
    assert np.array_equal(bare, replay(make, population(), p.replace(canaries=0), set(), lambda *_: None, workers=1))
