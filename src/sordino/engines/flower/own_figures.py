"""What a data holder writes down for itself when a run is over. Nothing of it is ever sent.

own_figures.json       accuracy on its own records: of the last shared model that it was sent, and of its personal model
personal.safetensors   its personal model under the names of the network, ready for use
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING

import numpy as np
import torch

from sordino.clients.threads import one_thread
from sordino.data.schema import CLASSIFICATION
from sordino.federation.checkpoint import weights
from sordino.files import write_atomically
from sordino.gradients.flat import Flat
from sordino.schemes.client import ClientUpdate

if TYPE_CHECKING:
    from sordino.engines.flower.holder_run import HolderRun

NOTE = "Measured on the records of this holder, which the model was trained on. For this holder alone; no guarantee covers it."
PIECE = 1000


def write_own_figures(run: HolderRun) -> None:
    """Readable by the holder alone. A holder that never took part has nothing to write down."""
    if not run.prepared or run.round == 0:
        return
    flat = Flat(copy.deepcopy(run.site.flat.model))
    flat.model.eval()
    figures: dict[str, object] = {"note": NOTE, "records": run.site.federation.size(run.me), "round": run.round}
    figures["shared"] = _accuracy(run, flat, run.theta)
    if run.terms.scheme.keeps_personal and isinstance(run.work, ClientUpdate):
        own = run.work.own_model(run.me, run.plan.rounds + 1, run.theta)
        figures["personal"] = _accuracy(run, flat, own)
        write_atomically(run.folder / "personal.safetensors", weights(flat.model), private=True)
    write_atomically(run.folder / "own_figures.json", json.dumps(figures, indent=2) + "\n", private=True)


def _accuracy(run: HolderRun, flat: Flat, vector: np.ndarray) -> float | None:
    flat.load(vector)
    if run.plan.task != CLASSIFICATION:
        return None
    x, y = run.site.client(run.me)
    with torch.no_grad(), one_thread():
        right = sum(int((flat.model(a).argmax(-1) == b).sum()) for a, b in zip(x.split(PIECE), y.split(PIECE)))
    return right / max(1, len(y))
