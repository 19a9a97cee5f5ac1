"""Fed-DPA: each client has a model of its own, and only the coordinates that it does not need for itself are shared.

Round t at client k, with the shared model theta and its own model theta_k:

    F        Fisher diagonal of theta_k on its records; in each tensor scaled to [0, 1]
    M        F > tau: the personal coordinates
    start    theta_k where M, theta elsewhere
    phase 1  E epochs on M:      loss + lambda1/2 * sum over tensors |theta' - theta|
    phase 2  E epochs on not M:  loss + lambda2/2 * | sum over tensors |theta' - theta| - C |
    keep     theta' as the new theta_k
    send     theta' - theta, zero on M; clipped as a whole to C; noise on every coordinate

Steps up to `keep` are local and cost no privacy. What is sent is one update of the client unit, so all of `schemes.client`
holds: the same events, the same observers. The vector is dense and noise lies on all of it: which coordinates are personal
depends on data and must not show.

Differences from the public code, on purpose: it sends the whole difference, personal coordinates included; it takes a parameter
that happens to be zero for one of the other phase; a tensor of equal entries gives 0/0 (here: nothing of it is personal).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sordino.errors import BadInput
from sordino.federation.sizes import PublicSizes
from sordino.privacy.randomness import stream
from sordino.schemes.client import Client, ClientUpdate
from sordino.schemes.terms import Terms

if TYPE_CHECKING:
    from torch import Tensor

    from sordino.clients.site import Site
    from sordino.gradients.fisher import Fisher
    from sordino.gradients.flat import Flat
    from sordino.plan import Plan


class FedDpaUpdate(ClientUpdate):
    """The work of clients with personal models."""

    def __init__(self, site: Site, theta: np.ndarray, terms: Terms) -> None:
        super().__init__(site, theta, terms)
        usual = self.plan.method_spec.options
        self.tau, self.lambda1, self.lambda2 = (
            float(self.plan.options.get(name, usual.get(name) or 0.0)) for name in ("tau", "lambda1", "lambda2")
        )
        self._fisher: Fisher | None = None

    def trained(self, t: int, item: int, x: Tensor, y: Tensor) -> np.ndarray:
        flat, own = self.site.flat, self.own_model(item, t, self.theta)
        personal = self.mask(own, x, y)
        flat.load(np.where(personal, own, self.theta))
        self.site.seed_layers(t, item)
        self._phase(t, item, x, y, personal, self.lambda1, 0.0, "personal-batches")
        self._phase(t, item, x, y, ~personal, self.lambda2, self.plan.bound, "batches")
        flat.guard()
        trained = flat.theta.detach().cpu().numpy().copy()
        self.site.personal.save(item, t, trained)
        return np.where(personal, self.theta, trained)

    def own_model(self, item: int, t: int, theta: np.ndarray) -> np.ndarray:
        """The client's model before round t; the shared one as long as it has none."""
        kept = self.site.personal.load(item, t)
        return theta if kept is None else kept

    def mask(self, own: np.ndarray, x: Tensor, y: Tensor) -> np.ndarray:
        """The coordinates that are personal: large Fisher information within their tensor."""
        from sordino.gradients.fisher import Fisher

        flat = self.site.flat
        flat.load(own)
        if self._fisher is None:
            self._fisher = Fisher(flat, self.site.losses)
        return personal_coordinates(flat, self._fisher.diagonal(x, y), self.tau)

    def _phase(
        self, t: int, item: int, x: Tensor, y: Tensor, free: np.ndarray, weight: float, aim: float, purpose: str
    ) -> None:
        """E epochs on the `free` coordinates, with the distance from the shared model pulled towards `aim`."""
        import torch

        from sordino.clients.descent import train

        flat, epochs, batch = self.site.flat, self.plan.local_epochs, self.plan.batch_size
        shared, moving = torch.from_numpy(self.theta.copy()), torch.from_numpy(free)

        def adjust(flat: Flat) -> None:
            pull(flat, shared, weight, aim)
            flat.grad.mul_(moving)

        batches = stream(self.plan.seed, t, item, purpose)
        train(flat, self.site.forward, x, y, self.site.loss, self.descent, epochs, batch, batches, adjust)


def personal_coordinates(flat: Flat, fisher: np.ndarray, tau: float) -> np.ndarray:
    """Entries above tau once each tensor is scaled to [0, 1]; a tensor of equal entries has none."""
    personal = np.zeros(flat.size, bool)
    for slot in flat.slots:
        here = slice(slot.offset, slot.offset + slot.size)
        low, high = fisher[here].min(), fisher[here].max()
        if high > low:
            personal[here] = (fisher[here] - low) / (high - low) > tau
    return personal


def pull(flat: Flat, shared: Tensor, weight: float, aim: float) -> None:
    """Add the gradient of weight/2 * | sum over tensors |theta - shared| - aim | to the flat gradient, in place."""
    away = flat.theta - shared
    lengths = [away[slot.offset : slot.offset + slot.size].norm() for slot in flat.slots]
    sign = 1.0 if float(sum(lengths)) > aim else -1.0
    for slot, length in zip(flat.slots, lengths):
        if float(length) > 0:
            here = slice(slot.offset, slot.offset + slot.size)
            flat.grad[here].add_(away[here] / length, alpha=sign * weight / 2)


class FedDpa(Client):
    """Whole clients that each keep a model of their own."""

    work_class = FedDpaUpdate
    keeps_personal = True

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.uses_sizes = self.uses_sizes or plan.published  # the paper's accountant asks for them

    def check(self) -> None:
        super().check()
        if self.plan.personal is not None:
            raise BadInput(
                f"method {self.plan.method} chooses the personal coordinates by itself, so personal {self.plan.personal!r} does "
                "not fit; leave it out."
            )

    def claim_inputs(self, sizes: PublicSizes) -> tuple[float | None, int | None]:
        """Rate and steps of single records, as the public code has them."""
        plan, records = self.plan, sizes.examples
        rate = min(1.0, plan.batch_size / records) * plan.cohort_size / plan.clients
        steps = plan.rounds * plan.local_epochs * records / plan.batch_size
        return rate, max(1, round(steps))
