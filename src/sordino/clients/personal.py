"""What a client keeps for itself between rounds: its personal model, or its own values of some layers.

It is trained on the client's data without noise, so it is private data. In a deployment it lies at the holder; in a simulation
it lies in the run's `checkpoint/personal`, in folders and files that only their owner can read. It is never part of a message, a
metric, the statement, the report or `model.safetensors`.

Every version is kept under the round that made it, and a round begins from the newest version of an earlier round. So a round
that is run again, after a crash or between two phases, begins where it began before.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sordino.errors import BadInput
from sordino.files import write_atomically

if TYPE_CHECKING:
    from sordino.gradients.flat import Flat, Slot

KEEP = 16  # versions of each client; a server that goes back by more rounds is refused
HEAD = "head"


class PersonalModels:
    """Vectors by client and round, in `folder`; without one in memory, which other processes do not share."""

    def __init__(self, folder: Path | None = None, keep: int = KEEP) -> None:
        self.folder, self.keep = folder, max(2, keep)
        self._held: dict[int, dict[int, np.ndarray]] = {}

    def load(self, client: int, before: int) -> np.ndarray | None:
        """The newest version of a round before this one; None if the client has none yet."""
        rounds = self._rounds(client)
        earlier = [t for t in rounds if t < before]
        if earlier:
            return self._read(client, max(earlier))
        if len(rounds) >= self.keep:
            raise BadInput(
                f"round {before} needs a personal model of before it, and the oldest that client {client} kept is of round "
                f"{min(rounds)}; start a new run."
            )
        return None

    def save(self, client: int, t: int, vector: np.ndarray) -> None:
        """Keep the version of this round. One that is not finite is forgotten, and the last sound one stays."""
        if not np.isfinite(vector).all():
            return
        if self.folder is None:
            self._held.setdefault(client, {})[t] = np.array(vector)
        else:
            from safetensors.numpy import save as to_bytes

            for made in (self.folder, self._place(client)):
                made.mkdir(mode=0o700, exist_ok=True)
            blob = to_bytes({"values": np.ascontiguousarray(vector)}, {"round": str(t)})
            write_atomically(self._file(client, t), blob, private=True, durable=True)
        for old in self._rounds(client)[: -self.keep]:
            self._forget(client, old)

    def _rounds(self, client: int) -> list[int]:
        if self.folder is None:
            return sorted(self._held.get(client, {}))
        return sorted(int(file.stem.split("-")[1]) for file in self._place(client).glob("round-*.safetensors"))

    def _read(self, client: int, t: int) -> np.ndarray:
        if self.folder is None:
            return self._held[client][t]
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            return load_file(self._file(client, t))["values"]
        except (SafetensorError, KeyError, OSError) as error:
            raise BadInput(f"{self._file(client, t)} cannot be read ({error}); restore it.") from None

    def _forget(self, client: int, t: int) -> None:
        if self.folder is None:
            del self._held[client][t]
        else:
            self._file(client, t).unlink(missing_ok=True)

    def _place(self, client: int) -> Path:
        assert self.folder is not None
        return self.folder / f"client-{client:06d}"

    def _file(self, client: int, t: int) -> Path:
        return self._place(client) / f"round-{t:06d}.safetensors"


class PersonalLayers:
    """Layers whose values each client has for itself; `personal` marks their coordinates in the flat vector."""

    def __init__(self, flat: Flat, names: str, models: PersonalModels) -> None:
        self.personal, self.models = coordinates(flat.slots, names), models

    def enter(self, theta: np.ndarray, client: int, t: int) -> np.ndarray:
        """The model that the client starts from: the shared one, with its own layers."""
        own = self.models.load(client, t)
        if own is None:
            return theta
        mixed = np.array(theta)
        mixed[self.personal] = own
        return mixed

    def leave(self, trained: np.ndarray, theta: np.ndarray, client: int, t: int) -> np.ndarray:
        """Keep the client's own layers; what may leave has the shared values in their place."""
        self.models.save(client, t, trained[self.personal])
        return np.where(self.personal, theta, trained)


def coordinates(slots: Sequence[Slot], names: str) -> np.ndarray:
    """The coordinates of the layers named, separated by commas; `head` is the last layer with parameters."""
    layers = list(dict.fromkeys(slot.layer for slot in slots))
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    chosen: set[str] = set()
    for name in wanted:
        if name == HEAD and HEAD not in layers:
            name = layers[-1]
        found = {layer for layer in layers if layer == name or layer.startswith(f"{name}.")}
        if not found:
            raise BadInput(f"personal names no layer {name!r} of the model; it has {', '.join(map(repr, layers))}.")
        chosen |= found
    if not chosen:
        raise BadInput(f"personal names no layer; name one or more of {', '.join(map(repr, layers))}, or head.")
    if len(chosen) == len(layers):
        remedy = "leave one out" if len(layers) > 1 else "choose a network of several layers"
        raise BadInput(f"personal names every layer of the model, so that nothing would be trained together; {remedy}.")
    mask = np.zeros(sum(slot.size for slot in slots), bool)
    for slot in slots:
        mask[slot.offset : slot.offset + slot.size] = slot.layer in chosen
    return mask
