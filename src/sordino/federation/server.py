"""What the server does with a released mean: SGD, momentum or Adam on the model's vector. Post-processing costs no privacy.

State is plain arrays, so that a checkpoint holds it and a resumed run goes on bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class ServerOptimizer:
    """theta + lr * direction(mean), where the mean is an update to be added."""

    kind: str = "sgd"
    lr: float = 1.0
    momentum: float = 0.9

    def init(self, size: int) -> Arrays:
        if self.kind == "momentum":
            return {"velocity": np.zeros(size, np.float32)}
        if self.kind == "adam":
            return {
                "first": np.zeros(size, np.float32),
                "second": np.zeros(size, np.float32),
                "steps": np.zeros(1, np.int64),
            }
        return {}

    @np.errstate(over="ignore", invalid="ignore")  # training looks at the result, and says it better
    def step(self, theta: np.ndarray, mean: np.ndarray, state: Arrays) -> tuple[np.ndarray, Arrays]:
        mean = mean.astype(np.float32)
        if self.kind == "sgd":
            return theta + np.float32(self.lr) * mean, state
        if self.kind == "momentum":
            velocity = np.float32(self.momentum) * state["velocity"] + mean
            return theta + np.float32(self.lr) * velocity, {"velocity": velocity}
        t = state["steps"] + 1
        first = np.float32(0.9) * state["first"] + np.float32(0.1) * mean
        second = np.float32(0.99) * state["second"] + np.float32(0.01) * np.square(mean)
        first_hat = first / np.float32(1 - 0.9 ** int(t[0]))
        root = np.sqrt(second / np.float32(1 - 0.99 ** int(t[0]))) + np.float32(1e-4)
        return theta + np.float32(self.lr) * first_hat / root, {"first": first, "second": second, "steps": t}
