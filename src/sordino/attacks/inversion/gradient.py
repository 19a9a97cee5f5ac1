"""The gradient-matching step: how far the dummy images' gradient lies from the message, and which way lowers that.

`Matcher.step` takes one of three roads to the same number: the four passes of `chain` (fast; networks that are a plain chain of
layers), autograd twice (any other network), or autograd through several local steps of SGD (messages of FedAvg).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from sordino.attacks.inversion.chain import Chain, chain_of
from sordino.attacks.inversion.native_chain import NativeChain, native_chain
from sordino.attacks.inversion.observed import ObservedMessage, Victim
from sordino.gradients.flat import Flat
from sordino.privacy.randomness import SERVER, stream

# The value of each group, and its derivative by the gradient as a factor for each group times a row [groups, size].
Slope = tuple[Tensor, Tensor, Tensor]
Distance = Callable[[Tensor], Slope]
CLOSE = 1e-3  # relative difference at which the fast passes count as equal to autograd


def squared(target: Tensor) -> Distance:
    """||g - g*||^2 over ||g*||^2 (DLG, GI): the scale of the loss does not depend on the network."""
    scale = 1.0 / float(target.square().sum().clamp_min(1e-30))
    room = target.new_empty(0, len(target))

    def distance(g: Tensor) -> Slope:
        nonlocal room
        room = _room(room, g)
        off = torch.sub(g, target, out=room)
        value = torch.stack([torch.dot(row, row) for row in off]) * scale
        return value, off, torch.full_like(value, 2 * scale)

    return distance


def cosine(target: Tensor) -> Distance:
    """1 - cos(g, g*), over all tensors at once (IG)."""
    unit = target / target.norm().clamp_min(1e-30)
    room = target.new_empty(0, len(target))

    def distance(g: Tensor) -> Slope:
        nonlocal room
        room = _room(room, g)
        norm = torch.stack([torch.dot(row, row) for row in g]).sqrt().clamp_min(1e-30)
        along = (g @ unit) / norm
        # d/dg of -<g, u>/|g| is (u - cos * g/|g|) times -1/|g|
        for row, made, share in zip(g, room, (along / norm).tolist()):
            torch.sub(unit, row, alpha=share, out=made)
        return 1 - along, room, -1 / norm

    return distance


def _room(room: Tensor, g: Tensor) -> Tensor:
    """A place for a slope that is used again: fresh memory of this size costs more than the arithmetic."""
    return room if room.shape == g.shape else torch.empty_like(g)


@dataclass(frozen=True, eq=False)
class Pull:
    """One step: the distance of each group, and its derivatives by images and by label logits."""

    value: Tensor
    images: Tensor
    logits: Tensor
    gradient: Tensor  # of each group; the next step of the same matcher writes over it


@dataclass(frozen=True, eq=False)
class FeaturePrior:
    """Mean and variance of each channel behind every convolution, as public images have them (GI's prior without BatchNorm)."""

    means: list[Tensor]
    variances: list[Tensor]
    weight: float

    def slopes(self, features: list[Tensor], groups: int) -> tuple[Tensor, list[Tensor]]:
        """The prior of each group, and its derivatives by the features (example, height, width, channel)."""
        value, slopes = features[0].new_zeros(groups), []
        for u, mean, variance in zip(features, self.means, self.variances):
            mine = u.reshape(groups, -1, u.shape[3])
            centre = mine.mean(1, keepdim=True)
            off = mine - centre
            spread = off.square().mean(1, keepdim=True)
            scale = variance + 1e-6  # features of all layers count alike
            by_mean, by_spread = (centre - mean) / scale, (spread - variance) / scale.square()
            value += ((centre - mean) * by_mean + (spread - variance) * by_spread).mean(2)[:, 0]
            count = mine.shape[1] * u.shape[3]
            slopes.append(((2 * by_mean + 4 * by_spread * off) * (self.weight / count)).reshape(u.shape))
        return self.weight * value, slopes


class Matcher:
    """Gradients of dummy images on the victim's model, and their distance from a message."""

    def __init__(self, victim: Victim, message: ObservedMessage, fast: bool = True) -> None:
        self.victim, self.message = victim, message
        module = victim.make(victim.seed).eval()
        self.flat = Flat(module)
        self.flat.load(np.asarray(message.theta, np.float32))
        self.module = module
        self.names = self.flat.names
        self.target = torch.from_numpy(np.asarray(message.gradient, np.float32).copy())
        self.chain: Chain | NativeChain | None = None
        found = chain_of(module) if fast and message.local_steps == 1 else None
        if found is not None and found[1] == self.names:
            made = (native_chain(found[0].layers, victim.shape), found[0])
            self.chain = next((one for one in made if one is not None and self._agrees(one)), None)

    @property
    def fast(self) -> bool:
        """Whether the passes of `chain` serve this model, and not autograd."""
        return self.chain is not None

    def step(self, x: Tensor, labels: Tensor, distance: Distance, prior: FeaturePrior | None = None) -> Pull:
        """`x`: [groups, batch, ...]; `labels`: probabilities [groups, batch, classes]."""
        if self.chain is None:
            return self._by_autograd(x, labels, distance)
        with torch.no_grad():
            return self._by_chain(x, labels, distance, prior)

    def gradient(self, x: Tensor, labels: Tensor) -> Tensor:
        """The gradient as the victim would have sent it, without noise: [groups, size]."""
        return self.step(x, labels, nowhere).gradient.clone()

    # ---- four passes -------------------------------------------------------------------------------------------------

    def _by_chain(self, x: Tensor, labels: Tensor, distance: Distance, prior: FeaturePrior | None) -> Pull:
        chain = self.chain
        assert chain is not None
        groups, batch = x.shape[:2]
        q = labels.flatten(0, 1)
        logits = chain.forward(x.flatten(0, 1))
        features = chain.features
        s = F.softmax(logits, -1)
        out = (s - q) / batch
        g, weights = self._clipped(out, groups, batch)
        value, v, factor = distance(g)
        each = factor.repeat_interleave(batch)
        dz = chain.tangent(v) * each[:, None]
        # The tangent of the loss is sum of out * dz; these are its derivatives by the logits and by dz.
        share = 1.0 / batch if weights is None else weights[:, None] / batch
        by_logits = share * s * (dz - (s * dz).sum(1, keepdim=True))
        by_labels = -share * q * (dz - (q * dz).sum(1, keepdim=True))
        pushed = None
        if prior is not None:
            extra, pushed = prior.slopes(features, groups)
            value = value + extra
        # Tangents below were taken along v without its factor: their cotangents carry it.
        images = chain.reverse(by_logits, each if weights is None else each * weights, pushed)
        return Pull(value, images.reshape(x.shape), by_labels.reshape(labels.shape), g)

    def _clipped(self, out: Tensor, groups: int, batch: int) -> tuple[Tensor, Tensor | None]:
        """The gradient as it is clipped, and by how much each example was. The factors are held fixed in derivatives."""
        assert self.chain is not None
        limit = self.message.limit
        if limit is None:
            return self.chain.gradient(out, groups), None
        if self.message.clipped == "record" and batch > 1:
            each = self.chain.gradient(out, groups * batch)
            factors = (limit / (batch * each.norm(dim=1, keepdim=True)).clamp_min(1e-30)).clamp_max(1.0)
            return (each * factors).reshape(groups, batch, -1).sum(1), factors[:, 0]
        g = self.chain.gradient(out, groups)
        factors = (limit / g.norm(dim=1, keepdim=True).clamp_min(1e-30)).clamp_max(1.0)
        return g * factors, factors[:, 0].repeat_interleave(batch, 0)

    def _agrees(self, chain: Chain | NativeChain) -> bool:
        """Whether the fast passes give what autograd gives, on noise."""
        self.chain = chain
        rng = stream(
            0, 0, SERVER, "inversion-probe"
        )  # noise: smooth images have ties, of which pooling may take either
        x = torch.from_numpy(rng.random((1, 2, *self.victim.shape), np.float32))
        labels = F.softmax(torch.arange(2.0 * self.victim.classes).cos().reshape(1, 2, -1), -1)
        distance = squared(self.target + self.target.std() + 1e-3)
        try:
            with torch.no_grad():
                fast = self._by_chain(x, labels, distance, None)
            slow = self._by_autograd(x, labels, distance)
        except RuntimeError:
            return False
        finally:
            self.chain = None
        pairs = ((fast.images, slow.images), (fast.logits, slow.logits), (fast.gradient, slow.gradient))
        return all(float((a - b).norm()) <= CLOSE * float(b.norm()) + 1e-12 for a, b in pairs)

    # ---- autograd ----------------------------------------------------------------------------------------------------

    def _by_autograd(self, x: Tensor, labels: Tensor, distance: Distance) -> Pull:
        """Group by group; second derivatives by images and labels only, never by parameters."""
        values, images, logits, gradients = [], [], [], []
        for one, q in zip(x, labels):
            one, q = one.detach().requires_grad_(), q.detach().requires_grad_()
            g = self._sent(one, q)
            value, v, factor = distance(g.detach()[None])
            by_one, by_q = torch.autograd.grad((g * (v[0] * factor[0])).sum(), (one, q), allow_unused=True)
            values.append(value[0])
            images.append(torch.zeros_like(one) if by_one is None else by_one)
            by_q = torch.zeros_like(q) if by_q is None else by_q
            logits.append(q.detach() * (by_q - (q.detach() * by_q).sum(1, keepdim=True)))
            gradients.append(g.detach())
        return Pull(torch.stack(values), torch.stack(images), torch.stack(logits), torch.stack(gradients))

    def _sent(self, x: Tensor, q: Tensor) -> Tensor:
        """What the victim would send of these images, on the scale of `message.gradient`, with the graph kept."""
        message = self.message
        if message.local_steps > 1:  # records are clipped in each step, an update at the end
            return self._factor(self._unrolled(x, q), None if message.clipped == "record" else message.limit)
        if message.clipped == "record" and message.limit is not None and len(x) > 1:
            parts = [self._factor(self._gradient(x[i : i + 1], q[i : i + 1]), message.limit) for i in range(len(x))]
            return torch.stack(parts).mean(0)
        return self._factor(self._gradient(x, q), message.limit)

    @staticmethod
    def _factor(g: Tensor, limit: float | None) -> Tensor:
        return g if limit is None else g * (limit / g.detach().norm().clamp_min(1e-30)).clamp_max(1.0)

    def _gradient(self, x: Tensor, q: Tensor) -> Tensor:
        loss = _loss(self.module(x), q)
        return self._joined(list(torch.autograd.grad(loss, list(self.flat.parameters), create_graph=True)))

    def _joined(self, parts: list[Tensor]) -> Tensor:
        """Parameter-shaped tensors as one vector in the order of `Flat`."""
        rows = [
            part.permute(0, 2, 3, 1).reshape(-1) if slot.strides != part.contiguous().stride() else part.reshape(-1)
            for part, slot in zip(parts, self.flat.slots)
        ]
        return torch.cat(rows)

    def _unrolled(self, x: Tensor, q: Tensor) -> Tensor:
        """The mean move over the local steps at rate 1, through SGD with or without momentum (Geiping et al. 2020, section 6).

        An epoch goes through the records in order. The true order is the client's secret; any order is as likely.
        """
        message, total, velocity = self.message, None, None
        at = {name: p.detach().clone().requires_grad_() for name, p in zip(self.names, self.flat.parameters)}
        size = message.step_batch or len(x)
        epoch = math.ceil(len(x) / size)  # steps; the last one may be smaller
        for step in range(message.local_steps):
            start = step % epoch * size
            rows = slice(start, start + size)
            parts = self._step(x[rows], q[rows], at)
            if velocity is not None and message.momentum:
                parts = [message.momentum * old + part for old, part in zip(velocity, parts)]
            velocity = parts
            at = {name: p - message.lr * part for (name, p), part in zip(at.items(), parts)}
            total = self._joined(parts) if total is None else total + self._joined(parts)
        assert total is not None
        return total / message.local_steps

    def _step(self, x: Tensor, q: Tensor, at: dict[str, Tensor]) -> list[Tensor]:
        """The mean gradient of one local step at the weights `at`, each record's clipped if the client clips records."""
        message = self.message
        if message.clipped != "record" or message.limit is None:
            loss = _loss(torch.func.functional_call(self.module, at, (x,)), q)
            return list(torch.autograd.grad(loss, list(at.values()), create_graph=True))
        total: list[Tensor] = []
        for i in range(len(x)):
            loss = _loss(torch.func.functional_call(self.module, at, (x[i : i + 1],)), q[i : i + 1])
            parts = torch.autograd.grad(loss, list(at.values()), create_graph=True)
            norm = torch.stack([part.detach().norm() for part in parts]).norm().clamp_min(1e-30)
            share = (message.limit / norm).clamp_max(1.0) / len(x)
            total = [part * share for part in parts] if not total else [a + b * share for a, b in zip(total, parts)]
        return total


def nowhere(g: Tensor) -> Slope:
    """No distance at all: only the gradient is asked for."""
    return g.new_zeros(len(g)), torch.zeros_like(g), g.new_zeros(len(g))


def _loss(logits: Tensor, q: Tensor) -> Tensor:
    return -(q * F.log_softmax(logits, -1)).sum(1).mean()


def feature_prior(matcher: Matcher, images: np.ndarray, weight: float) -> FeaturePrior | None:
    """The statistics of public images on the victim's model; None for a network without the fast passes."""
    if matcher.chain is None or weight == 0:
        return None
    with torch.no_grad():
        matcher.chain.forward(torch.from_numpy(np.asarray(images, np.float32)))
        found = [u.flatten(0, 2) for u in matcher.chain.features]
    if not found:
        return None
    return FeaturePrior([u.mean(0) for u in found], [u.var(0, unbiased=False) for u in found], weight)
