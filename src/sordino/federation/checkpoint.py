"""A checkpoint: everything that a round changes, in one safetensors file that is replaced atomically.

Noise, cohorts and batches need no state: they are functions of (seed, round, client, purpose).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sordino.errors import BadInput, in_short
from sordino.federation.server import Arrays
from sordino.files import write_atomically
from sordino.plain import Json

if TYPE_CHECKING:
    from torch import Tensor, nn

NAME = "state.safetensors"


@dataclass(frozen=True)
class TrainState:
    """All that a round changes: a checkpoint holds exactly this."""

    round: int
    theta: np.ndarray
    optimizer: Arrays
    rule: Json  # the state of the rule (`rules.base.State`): numbers and lists
    clients: Arrays = field(default_factory=dict)  # what clients keep between their rounds, where a method has such


class Checkpoint(NamedTuple):
    """What was kept, and the facts beside it."""

    state: TrainState
    facts: Json


def save(folder: Path, model: TrainState, facts_beside: dict[str, object]) -> None:
    """Write aside, flush to disk, rename: at any moment there is one whole checkpoint."""
    from safetensors.numpy import save as to_bytes

    arrays = {"theta": model.theta, **{f"optimizer.{name}": array for name, array in model.optimizer.items()}}
    arrays |= {f"clients.{name}": array for name, array in model.clients.items()}
    facts = {"round": model.round, "rule": model.rule, **facts_beside}
    blob = to_bytes({k: np.ascontiguousarray(v) for k, v in arrays.items()}, {"facts": json.dumps(facts)})
    write_atomically(folder / NAME, blob, durable=True)


def load(folder: Path) -> Checkpoint | None:
    """The last checkpoint and what was kept with it; None if there is none yet."""
    path = folder / NAME
    if not path.exists():
        return None
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            facts = json.loads(file.metadata()["facts"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise BadInput(f"the checkpoint {path} cannot be read ({error}); restore it, or start a new run.") from None
    optimizer, clients = (
        {name.split(".", 1)[1]: array for name, array in arrays.items() if name.startswith(f"{part}.")}
        for part in ("optimizer", "clients")
    )
    return Checkpoint(TrainState(facts.pop("round"), arrays["theta"], optimizer, facts.pop("rule"), clients), facts)


def keep(folder: Path, model: TrainState) -> None:
    """Put the released model of this round aside: the vector in the order of `gradients.flat`."""
    from safetensors.numpy import save as to_bytes

    folder.mkdir(exist_ok=True)
    blob = to_bytes({"theta": np.ascontiguousarray(model.theta)}, {"round": str(model.round)})
    write_atomically(folder / f"round-{model.round:06d}.safetensors", blob, durable=True)


def kept(folder: Path) -> dict[int, np.ndarray]:
    """The models that were put aside, by round."""
    from safetensors.numpy import load_file

    files = sorted(folder.glob("round-*.safetensors"))
    return {int(file.stem.split("-")[1]): load_file(file)["theta"] for file in files}


def weights(model: nn.Module, about: dict[str, str] | None = None) -> bytes:
    """The model's parameters and buffers under their own names, for any program that reads safetensors.

    Tensors that a model has under several names (tied weights) are kept once; `tied` in the metadata says which are which.
    """
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    seen: dict[object, str] = {}
    tied: dict[str, str] = {}
    for name, tensor in model.state_dict().items():
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if tensor.numel() and key in seen:
            tied[name] = seen[key]
            continue
        seen[key] = name
        tensors[name] = tensor.detach().cpu().clone().contiguous()
    return _in_order(save(tensors, {"format": "pt", **({"tied": json.dumps(tied)} if tied else {}), **(about or {})}))


def _in_order(blob: bytes) -> bytes:
    """The same file with its metadata in alphabetical order: the library writes it in a random one."""
    length = int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8 : 8 + length])
    header = {"__metadata__": dict(sorted(header.pop("__metadata__").items())), **header}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + blob[8 + length :]


def load_weights(model: nn.Module, path: Path) -> dict[str, str]:
    """Put the weights in `path` into `model`, and give back what the file says about them."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            about = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        tensors |= {name: tensors[other] for name, other in json.loads(about.get("tied", "{}")).items()}
        model.load_state_dict(tensors)
    except FileNotFoundError:
        raise BadInput(f"there are no weights {path}; give the folder of a run that has ended.") from None
    except (SafetensorError, RuntimeError, KeyError, ValueError) as error:
        raise BadInput(
            f"{path} does not fit the model of the plan ({in_short(error)}); give the folder of a whole run."
        ) from None
    return about
