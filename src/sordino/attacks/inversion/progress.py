"""Progress of an attack on disk: an interrupted attack goes on where it was.

One safetensors file holds the optimiser's arrays and, as text, where it stood. It is bound to what is attacked and how by a
digest, so that the progress of another attack is never taken up. Without a file everything stays in memory.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from torch import Tensor

from sordino.attacks.inversion.observed import ObservedMessage

EVERY = 10.0  # seconds between two writings


def digest(attack: object, message: ObservedMessage, *known: np.ndarray | None) -> str:
    """What an attack's result depends on: the settings (a frozen dataclass prints them all), the message, and what else is known."""
    found = hashlib.sha256(repr(attack).encode())
    facts = [value for value in vars(message).values() if not isinstance(value, np.ndarray)]
    found.update(json.dumps([*facts, [None if array is None else array.shape for array in known]]).encode())
    for array in (message.update, message.theta, *known):
        if array is not None:
            found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


@dataclass
class Progress:
    """Where an attack stands. `say(done, total)` moves a bar."""

    path: Path | None = None
    key: str = ""
    every: float = EVERY
    _last: float = field(default_factory=time.monotonic, repr=False)

    def load(self) -> tuple[dict[str, Tensor], dict[str, float]] | None:
        """Arrays and numbers that were kept for this attack; None if there are none."""
        if self.path is None or not self.path.exists():
            return None
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self.path, "pt") as file:
                said = file.metadata() or {}
                if said.get("key") != self.key:
                    return None
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError):
            return None
        return arrays, {name: float(value) for name, value in json.loads(said.get("numbers", "{}")).items()}

    def due(self) -> bool:
        """Whether it is time to save again."""
        return self.path is not None and time.monotonic() - self._last >= self.every

    def save(self, arrays: dict[str, Tensor], numbers: dict[str, float]) -> None:
        """Write aside, then rename: a crash leaves the older progress."""
        if self.path is None:
            return
        from safetensors.torch import save

        from sordino.federation.checkpoint import write_atomically

        self.path.parent.mkdir(parents=True, exist_ok=True)
        plain = {name: array.detach().contiguous().clone() for name, array in arrays.items()}
        write_atomically(self.path, save(plain, {"key": self.key, "numbers": json.dumps(numbers)}))
        self._last = time.monotonic()

    def forget(self) -> None:
        """Delete the file: the search is over."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
