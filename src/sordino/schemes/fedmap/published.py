"""FedMAP's client as printed (algorithm 1, lines 6 to 17). Not private; `sordino.schemes.fedmap.rule` lists why.

For every mini-batch of shuffled data: per-example gradients, their raw statistics h (equation 4), (C, sigma) from MetaNet, gradients
clipped to C, Gaussian noise of standard deviation sigma, a step. After each batch MetaNet is tuned by equation 15, of which only the
lambda term has a gradient. At the end the client sends its move, weighted by its number of examples, and the mean of its sigmas.

The paper does not say what is clipped, nor what the noise is added to. There are two readings of it (the option `on_sum`):

    on_sum=1   g = (sum of clip(g_k, C) + N(0, sigma^2 I)) / B      "applies DP-SGD": the noise is on the sum of the batch
    on_sum=0   g = (sum of clip(g_k, C)) / B + N(0, sigma^2 I)      theorem 1: variance d sigma^2 beside the mean gradient

With the option `sigma` there is no network: C is the plan's bound and sigma that number, the paper's baseline "DP". The paper
gives no constants for "C proportional to mean plus variance of the norms" and "sigma proportional to feature variance"; the options
`bound_scale` and `sigma_scale` multiply what the shipped weights propose.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from sordino.privacy import mechanisms
from sordino.privacy.bounds import Bound, Flat
from sordino.privacy.randomness import source, stream
from sordino.privacy.release import Private, disclose
from sordino.schemes.fedmap.client import ClientState, ClientTask, ControlledSteps
from sordino.schemes.fedmap.metanet import features
from sordino.schemes.fedmap.metanet.features import PUBLISHED
from sordino.schemes.fedmap.metanet.net import MetaNet, load
from sordino.schemes.request import Reply, Request

if TYPE_CHECKING:
    from sordino.privacy.randomness import Source

Clipper = Callable[
    [Bound], tuple[np.ndarray, np.ndarray]
]  # the gradients of one batch: their clipped sum, and their norms
HUGE = Flat(1e12)  # clips nothing that is finite


@dataclass(frozen=True)
class RawReport:
    """What a client sends beside its move: its sigma, as the paper has it, and what its controller keeps between rounds."""

    client: int
    own: ClientState
    weight: int
    sigma: float
    bound: float
    multiplier: float  # the noise on the sum of a batch over its bound


class PublishedSteps(ControlledSteps):
    """The work of clients as the paper prints it."""

    @property
    def slots(self) -> int:
        return self.plan.batch_size  # the most that a batch of shuffled data has

    def contribute(self, request: Request, item: ClientTask, out: np.ndarray) -> Reply:  # type: ignore[override]
        return Reply(report=self._raw_round(request, item, out))

    def _raw_round(self, request: Request, item: ClientTask, out: np.ndarray) -> RawReport:
        k, flat = item.client, self.site.flat
        x, y = self.site.client(k)
        net = None if self.rule.sigma else self._controller(item.own)
        flat.load(self.theta)
        self.site.seed_layers(request.round, k)
        move = self.descent.start(flat.size, flat.theta.device)
        batches = stream(self.plan.seed, request.round, k, "batches")
        noise = source(self.plan.seed, request.round, k, "noise", self.plan.secure)
        rows, drift = item.own.rows.tolist(), float(request.state["moved"])
        bounds, sigmas, multipliers = [], [], []
        for _ in range(self.plan.local_epochs):
            for part in np.array_split(batches.permutation(len(y)), math.ceil(len(y) / self.plan.batch_size)):
                at = torch.from_numpy(part).to(x.device)
                clipped_to = self.per_example.clipper(x.index_select(0, at), y.index_select(0, at))
                if net is None:
                    bound, sigma = self.rule.start, self.rule.sigma
                else:
                    rows = [*rows, self._statistics(clipped_to, drift)][-features.LENGTH :]
                    bound, sigma = self._decide(net, rows)
                gradient = self._noisy(clipped_to, bound, sigma, noise)
                moved = move(torch.from_numpy(gradient.astype(np.float32)).to(x.device))
                flat.theta.sub_(moved)
                drift = float(torch.linalg.vector_norm(moved))
                if net is not None:
                    self._regularise(net, rows)
                bounds.append(bound)
                sigmas.append(sigma)
                multipliers.append(self._std(sigma, len(part)) / bound)
        weighted = np.nan_to_num(flat.theta.cpu().numpy().astype(np.float64) - self.theta, posinf=0, neginf=0) * len(y)
        out += request.grid.round(np.clip(weighted, -(2.0**28), 2.0**28))
        tuned = net.personal if net is not None and self.rule.tune else item.own.net
        own = replace(item.own, net=tuned, rows=np.asarray(rows, np.float32).reshape(-1, 4), bound=bounds[-1])
        return RawReport(k, own, len(y), float(np.mean(sigmas)), typical(bounds), typical(multipliers))

    def _decide(self, net: MetaNet, rows: list[list[float]]) -> tuple[float, float]:
        """(C, sigma) of the batch."""
        outputs = net.decide(*features.stack([rows], 4))[0]
        bound, sigma = features.read(PUBLISHED, outputs.tolist())
        bound, sigma = bound * self.rule.bound_scale, sigma * self.rule.sigma_scale
        features.carried(bound, sigma)
        return bound, sigma

    def _statistics(self, clipped_to: Clipper, drift: float) -> list[float]:
        """h of equation 4, from raw gradients: the sum of squares, less that of the mean, is the spread."""
        total, norms = clipped_to(HUGE)
        count, norms = len(norms), np.nan_to_num(norms, posinf=0)
        mean = total / count
        variance = max(float(np.square(norms).mean() - np.square(mean).sum()), 0.0)
        trace = variance * count / max(count - 1, 1)
        raw = Private(features.raw_row(trace, float(norms.max()), drift, variance))
        return disclose(raw, "exact statistics of a batch set its bound and its noise")[0].value

    def _noisy(self, clipped_to: Clipper, bound: float, sigma: float, noise: Source) -> np.ndarray:
        """The mean of clipped gradients; sigma is the noise on their sum, or on the mean itself."""
        clip = Flat(bound)
        total, norms = clipped_to(clip)
        std = self._std(sigma, len(norms))
        grid = mechanisms.FixedPoint.for_bound(max(bound, 16 * sigma), len(norms))  # room for the noise too
        raw = Private(mechanisms.Sum(grid.encode(total), grid), bound=clip)
        noisy, _ = mechanisms.gaussian(raw, clip, std / bound, noise)
        return noisy.value / len(norms)

    def _std(self, sigma: float, batch: int) -> float:
        """Of the noise on the sum, under the reading that is asked for."""
        return sigma if self.rule.on_sum else sigma * batch

    def _regularise(self, net: MetaNet, rows: list[list[float]]) -> None:
        """Equations 11 to 15. eps_global is a constant here, so it cannot appear in a gradient."""
        if not self.rule.tune:
            return
        outputs = net(*(torch.from_numpy(a) for a in features.stack([rows], 4)))
        assert self.plan.epsilon is not None
        epsilon = torch.exp(outputs[:, 0] - outputs[:, 1]) * math.sqrt(2 * math.log(1.25 / self.plan.delta))
        epsilon = epsilon * (self.rule.bound_scale / self.rule.sigma_scale)
        loss = self.rule.lam * (epsilon - self.plan.epsilon).square().mean()
        self._descend(net, loss)

    def _load(self) -> MetaNet:
        return load(PUBLISHED, self.plan.metanet)


def typical(values: list[float]) -> float:
    """The geometric mean."""
    return float(np.exp(np.mean(np.log(values))))
