"""Client unit, gradients instead of updates: DP-FedACN as printed (Zhang et al., algorithm 1, lines 10 to 28).

A client's contribution is g, the sum of its local gradients. It is g that is clipped and noised, and the server that multiplies
by the learning rate:

    g = sum of the gradients of the client's steps,   theta <- theta - eta mean(clip(g, C) + N(0, sigma^2))

With plain steps g = (theta - theta_k) / eta. Compared with clipped updates the bound is eta times longer in the model, and so is
the noise: sigma on g moves the model by eta sigma.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sordino.errors import BadInput
from sordino.privacy.vocabulary import Unit
from sordino.schemes.client import Client, ClientUpdate

if TYPE_CHECKING:
    from sordino.plan import Plan
    from sordino.schemes.base import Scheme


def as_published(plan: Plan) -> type[Scheme] | None:
    """Whole clients' gradients in the published variant; the certified one clips updates."""
    return GradientSum if plan.published and plan.unit == Unit.CLIENT else None


class SummedGradients(ClientUpdate):
    """The work of clients that send the sum of their gradients, as the way down."""

    def update(self, t: int, item: int) -> np.ndarray:
        return super().update(t, item) / np.float32(self.plan.lr)


class GradientSum(Client):
    """Whole clients; what is clipped and noised is a sum of gradients."""

    work_class = SummedGradients

    def check(self) -> None:
        super().check()
        if self.plan.optimizer != "sgd":
            raise BadInput(
                f"method {self.plan.method} as published sends the sum of its gradients, which a local optimizer "
                f"{self.plan.optimizer} does not take its steps along; use sgd."
            )

    @property
    def server_lr(self) -> float:
        """theta - eta g: the plan's learning rate is applied by the server, too."""
        return self.plan.server_lr * self.plan.lr
