"""Labels from the gradient of the last layer (Zhao et al. 2020, iDLG; Yin et al. 2021; Wainakh et al. 2022, LLG).

The derivative by the last bias is the mean of softmax minus one-hot: an entry is negative only if its class is among the labels.
With B records, ``B * (mean softmax - entry)`` counts how often. The mean softmax is taken from the model's own answers on noise.
Without a bias the smallest entries of the rows of the last weight tell which classes are there, each once, where features are
not negative.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional as F

from sordino.attacks.inversion.gradient import Matcher
from sordino.errors import BadInput
from sordino.privacy.randomness import SERVER, stream

NOISE_IMAGES = 64


def infer_labels(matcher: Matcher, seed: int = 0) -> np.ndarray:
    """The labels of the `batch` records behind the message, sorted; a guess where clipping or noise hide them."""
    message, victim = matcher.message, matcher.victim
    parts = dict(zip(matcher.names, matcher.flat.split(matcher.target)))
    classes, batch = victim.classes, message.batch
    last = [part for part in parts.values() if len(part) == classes][-2:]
    if last and not any(bool(part.any()) for part in last) and bool(matcher.target.any()):
        raise BadInput(
            "the layer that labels are read from stays with the clients (personal), so that no label can be read off the message; "
            "use dlg, which needs none."
        )
    name = next((n for n in reversed(matcher.names) if parts[n].shape == (classes,)), None)
    if name is None:
        weight = next(
            (parts[n] for n in reversed(matcher.names) if parts[n].dim() == 2 and len(parts[n]) == classes), None
        )
        if weight is None:
            return np.zeros(batch, np.int64)
        order = np.argsort(weight.min(1).values.numpy(), kind="stable")
        return np.sort(np.resize(order[:batch], batch))
    bias = parts[name].double().numpy()
    if message.limit is not None:  # clipped by an unknown factor: for one record, stretch it to softmax minus one-hot
        bias = bias / max(-bias.min(), 1e-30) if batch == 1 else bias
    rng = stream(seed, 0, SERVER, "inversion-labels")
    x = rng.uniform(size=(NOISE_IMAGES, *victim.shape)) * (victim.high - victim.low) + victim.low
    with torch.no_grad():
        usual = F.softmax(matcher.module(torch.from_numpy(x.astype(np.float32))), -1).mean(0).double().numpy()
    expected = batch * (usual - bias)
    counts = np.zeros(classes, np.int64)
    for c in np.argsort(bias, kind="stable")[:batch]:  # every clearly negative entry is a label for sure
        if bias[c] < 0:
            counts[c] += 1
    while counts.sum() < batch:
        counts[int(np.argmax(expected - counts))] += 1
    return np.repeat(np.arange(classes), counts)
