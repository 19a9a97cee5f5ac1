"""What is public of a population: numbers, shapes and types, and never a record."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sordino.data.schema import CLASSIFICATION

if TYPE_CHECKING:
    from sordino.data.dataset import Dataset
    from sordino.federation.population import Federation
    from sordino.preparation import Preparation


@dataclass(frozen=True)
class PublicFacts:
    """All that a recipe may know of the data."""

    records: int
    clients: int
    shape: tuple[int, ...]  # of one record
    classes: int
    tokens: bool = False  # whole numbers that name characters or words
    positions: bool = False  # a record has a label at every position
    unscaled: int | None = None  # columns that a schema leaves on scales of their own; None: no schema is known
    task: str = CLASSIFICATION

    @classmethod
    def of(cls, federation: Federation) -> PublicFacts:
        x, normalise = federation.x, federation.normalise
        dtype = np.dtype(np.float32) if x is None else x.dtype
        tokens = dtype.kind in "iu" and dtype != np.uint8 if normalise is None else normalise.tokens
        shape, classes = federation.input_shape, federation.classes
        schema = federation.schema
        return cls(
            records=federation.examples,
            clients=federation.clients,
            shape=shape,
            classes=classes,
            tokens=tokens,
            positions=federation.by_position,
            unscaled=None if schema is None else len(schema.unscaled),
            task=federation.task,
        )

    @classmethod
    def of_dataset(cls, data: Dataset, clients: int) -> PublicFacts:
        tokens = data.normalise is not None and data.normalise.tokens
        return cls(len(data), clients, tuple(data.x.shape[1:]), data.classes, tokens, data.y.ndim > 1)

    def prepared(self, preparation: Preparation | None) -> PublicFacts:
        """Of what a model sees, where a preparation stands before it."""
        return self if preparation is None else replace(self, shape=preparation.stages(self.shape).shape)

    @property
    def features(self) -> int:
        """Numbers in one record."""
        return math.prod(self.shape)

    @property
    def table(self) -> bool:
        """Rows of numbers; texts are rows too, of tokens."""
        return len(self.shape) == 1 and not self.tokens

    @property
    def said(self) -> str:
        """The shape in words."""
        if self.tokens:
            return f"texts of {self.features} tokens"
        if len(self.shape) == 1:
            return f"tables of {self.features} columns"
        if len(self.shape) == 2:
            return f"signals of {self.shape[1]} steps"
        return "pictures of " + " x ".join(str(n) for n in self.shape[1:])
