"""What the server does with a released mean: SGD, momentum or Adam on the model's vector. Post-processing costs no privacy.

A mean of clipped contributions is at most as long as the bound, so a step along it is as long as the bound says: a rule that
moves the bound also moves the step. `scaled` steps go along mean / bound, so that a learning rate means the same under every
bound. `factor` is the learning rate's schedule: warm-up, then decay.

State is plain arrays, so that a checkpoint holds it and a resumed run goes on bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Arrays = dict[str, np.ndarray]

STEPS = ("mean", "scaled")
SCHEDULES = ("constant", "decay")
WARM_UP = 0.05  # part of the rounds in which the learning rate rises


@dataclass(frozen=True)
class ServerOptimizer:
    """theta + lr * direction(mean), where the mean is an update to be added."""

    kind: str = "sgd"
    lr: float = 1.0
    momentum: float = 0.9
    steps: str = "mean"

    def init(self, size: int) -> Arrays:
        """The state before round 1: zeros, as many as the model has weights."""
        if self.kind == "momentum":
            return {"velocity": np.zeros(size, np.float32)}
        if self.kind == "adam":
            return {
                "first": np.zeros(size, np.float32),
                "second": np.zeros(size, np.float32),
                "steps": np.zeros(1, np.int64),
            }
        return {}

    def direction(self, mean: np.ndarray, bound: float | None) -> np.ndarray:
        """Along which the server steps."""
        return mean / bound if self.steps == "scaled" and bound is not None else mean

    @np.errstate(over="ignore", invalid="ignore")  # training looks at the result, and says it better
    def step(
        self, theta: np.ndarray, mean: np.ndarray, state: Arrays, bound: float | None = None, factor: float = 1.0
    ) -> tuple[np.ndarray, Arrays]:
        """`bound`: that of the contributions; None where there is none, and steps follow the mean."""
        scaled = self.steps == "scaled" and bound is not None
        mean = self.direction(mean, bound).astype(np.float32)
        lr = np.float32(self.lr * factor)
        if self.kind == "sgd":
            return theta + lr * mean, state
        if self.kind == "momentum":
            velocity = np.float32(self.momentum) * state["velocity"] + mean
            return theta + lr * velocity, {"velocity": velocity}
        t = state["steps"] + 1
        first = np.float32(0.9) * state["first"] + np.float32(0.1) * mean
        second = np.float32(0.99) * state["second"] + np.float32(0.01) * np.square(mean)
        first_hat = first / np.float32(1 - 0.9 ** int(t[0]))
        least = np.float32(1e-8 if scaled else 1e-4)  # a mean in bounds over many records is short in every coordinate
        root = np.sqrt(second / np.float32(1 - 0.99 ** int(t[0]))) + least
        return theta + lr * first_hat / root, {"first": first, "second": second, "steps": t}


def factor(schedule: str, t: int, rounds: int) -> float:
    """What the learning rate is multiplied by in a round (from 1): up in the first rounds, then in a line down towards 0.

    >>> [round_ for round_ in (factor("decay", t, 40) for t in (1, 2, 3, 40))]
    [0.5, 1.0, 1.0, 0.02631578947368421]
    """
    if schedule == "constant":
        return 1.0
    warm = int(WARM_UP * rounds)
    return t / warm if t <= warm else (rounds - t + 1) / (rounds - warm)
