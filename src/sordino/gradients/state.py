"""Everything a model holds besides its trained parameters: frozen parameters, buffers and plain attributes of modules.

Only the trained parameters are protected. Anything else that a forward pass changes would carry private data out of the
client without noise. A `State` remembers all of it when training begins, tells what has changed since, and puts it back.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_DEPTH = 6  # how far lists, dictionaries and objects are followed
_OURS = set(vars(nn.Module())) - {"_parameters", "_buffers"}  # what PyTorch itself keeps in a module, flags and hooks
_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)


class State:
    """The state of `model` at the time this is made; `trained` are parameters that may change."""

    def __init__(self, model: nn.Module, trained: Iterable[nn.Parameter]) -> None:
        self.model = model
        self._trained = {id(p): p for p in trained}
        self._seen = self._look()
        self._kept = {(name, kind, key): self._copy(value) for name, kind, key, value in self._entries()}

    def changed(self) -> str | None:
        """The name of something that is no longer as it was, or None."""
        now = self._look()
        for name, value in now.items():
            if name not in self._seen or not _same(self._seen[name], value):
                return name
        return next((name for name in self._seen if name not in now), None)

    def restore(self) -> None:
        """Put everything back."""
        modules = dict(self.model.named_modules())
        for name, kind, key, value in list(self._entries()):
            kept = self._kept.get((name, kind, key), _entries)
            room = _room(modules[name], kind)
            if kept is _entries:  # it was not there
                del room[key]
            elif isinstance(value, Tensor) and isinstance(kept, Tensor) and value.shape == kept.shape:
                with torch.no_grad():
                    value.copy_(kept)
            else:
                room[key] = self._copy(kept)
        for (name, kind, key), kept in self._kept.items():
            room = _room(modules[name], kind)
            if key not in room:
                room[key] = self._copy(kept)

    def _entries(self) -> list[tuple[str, str, str, object]]:
        """(module, "" or the dictionary within it, key, value) of everything but trained parameters."""
        found = []
        for name, module in self.model.named_modules():
            for kind in ("_parameters", "_buffers"):
                found += [(name, kind, key, value) for key, value in vars(module)[kind].items()]
            found += [(name, "", key, value) for key, value in vars(module).items() if key not in _OURS | _ROOMS]
        return [entry for entry in found if id(entry[3]) not in self._trained]

    def _look(self) -> dict[str, object]:
        """Every tensor, array and plain value by its path; tensors and arrays are copied."""
        out: dict[str, object] = {}
        for name, _, key, value in self._entries():
            self._walk(f"{name}.{key}" if name else key, value, out, _DEPTH, set())
        return out

    def _walk(self, path: str, value: Any, out: dict[str, object], depth: int, above: set[int]) -> None:
        if id(value) in self._trained or id(value) in above or isinstance(value, nn.Module):
            return
        if isinstance(value, Tensor):
            out[path] = value.detach().clone()
        elif isinstance(value, np.ndarray):
            out[path] = value.copy()
        elif isinstance(value, _PLAIN):
            out[path] = value
        elif depth:
            inside: list[tuple[object, object]]
            if isinstance(value, dict):
                inside = list(value.items())
            elif isinstance(value, (list, tuple, set, frozenset)) or type(value).__name__ == "deque":
                inside = list(enumerate(value))
            elif callable(value) and getattr(value, "__closure__", None):
                inside = [(f"cell{i}", cell.cell_contents) for i, cell in enumerate(value.__closure__)]
            elif isinstance(getattr(value, "__dict__", None), dict) and not isinstance(value, type):
                inside = list(vars(value).items())
            else:
                return
            out[path + "#"] = len(inside)
            for key, part in inside:
                self._walk(f"{path}.{key}", part, out, depth - 1, above | {id(value)})

    def _copy(self, value: object) -> object:
        if isinstance(value, Tensor):
            return value.detach().clone() if not isinstance(value, nn.Parameter) else copy.deepcopy(value)
        memo: dict[int, object] = dict(self._trained) | {id(m): m for m in self.model.modules()}
        try:
            return copy.deepcopy(value, memo)
        except Exception:  # what cannot be copied stays as it is; a change of it is still seen
            return value


_ROOMS = {"_parameters", "_buffers"}


def _room(module: nn.Module, kind: str) -> dict[str, object]:
    """The dictionary that an entry lies in."""
    return module.__dict__ if kind == "" else module.__dict__[kind]


def _entries() -> None:
    """Stands for "not there", which None cannot."""


def _same(a: object, b: object) -> bool:
    if isinstance(a, Tensor):
        if not isinstance(b, Tensor) or a.shape != b.shape or a.dtype != b.dtype or a.device != b.device:
            return False
        return torch.equal(a, b) or bool(torch.allclose(a, b, rtol=0, atol=0, equal_nan=True))
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return type(a) is type(b) and (a == b or (a != a and b != b))
