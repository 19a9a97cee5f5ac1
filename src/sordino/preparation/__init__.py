"""Model input from records, by public functions and by statistics that are released with noise (see `base`).

A plan names its preparation: ``Plan(prepare="standard")``, or with settings ``Plan(prepare={"kind": "standard", "share": 0.1})``.
"""

from __future__ import annotations

from sordino.errors import BadInput
from sordino.plain import Plain
from sordino.preparation.base import Block, Preparation, Products, Released, Stages, Statistic
from sordino.preparation.features import Features
from sordino.preparation.fourier import Fourier
from sordino.preparation.standard import Standard

__all__ = [
    "FEATURES",
    "KINDS",
    "Block",
    "Features",
    "Fourier",
    "Preparation",
    "Products",
    "Released",
    "Stages",
    "Standard",
    "Statistic",
    "preparation_from",
]

KINDS: dict[str, type[Preparation]] = {made.kind: made for made in (Standard, Features, Fourier)}
FEATURES = (Features.kind, Fourier.kind)  # rows of length 1 for a linear head


def preparation_from(plain: Plain) -> Preparation:
    """The preparation that these settings describe; one sentence if they describe none."""
    kind = plain.get("kind")
    if kind not in KINDS:
        raise BadInput(f"prepare must be one of {', '.join(KINDS)}, not {kind!r}.")
    try:
        return KINDS[kind](**{name: value for name, value in plain.items() if name != "kind"})
    except TypeError as error:
        raise BadInput(f"preparation {kind} does not take these settings: {error}.") from None
