"""A second opinion from dp-accounting on the same events, with its traps taken out.

Nothing is decided by this module; `sordino account --check` and the tests put its figure beside ours. What has to be
known about the library (0.6) is written down here once:

- Under replace-one its PLD accountant doubles the sensitivity by itself and its RDP accountant does not.
- Zero-out is its REPLACE_SPECIAL.
- Its PLD accountant takes one bare noise inside a sampling, so joint queries are collapsed first.
- Its PLD accountant charges a repeated randomised response once; here the repetitions are spelled out.
- Its RDP accountant reports orders that do not converge through absl's log. They are left out, which is safe, so the
  messages are held back while it runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from sordino.errors import BadInput
from sordino.privacy import events, rdp
from sordino.privacy.vocabulary import Relation


def epsilon(event: events.Event, delta: float, relation: Relation, accountant: Literal["pld", "rdp"]) -> float:
    """What dp-accounting says `event` costs; takes seconds where `accounting` takes milliseconds."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    neighbours = dp_accounting.NeighboringRelation
    theirs = {
        Relation.ADD_REMOVE: neighbours.ADD_OR_REMOVE_ONE,
        Relation.ZERO_OUT: neighbours.REPLACE_SPECIAL,
        Relation.REPLACE_ONE: neighbours.REPLACE_ONE,
    }[Relation(relation)]
    halved = accountant == "rdp" and relation == Relation.REPLACE_ONE
    made = PLDAccountant(theirs) if accountant == "pld" else RdpAccountant(neighboring_relation=theirs)
    with quiet():
        try:
            return float(made.compose(translated(event, halved)).get_epsilon(delta))
        except dp_accounting.UnsupportedEventError as error:
            raise BadInput(
                f"dp-accounting has no {accountant} account of this event under {relation}: {error}"
            ) from None


def translated(event: events.Event, halved: bool = False) -> events.Event:
    """`event` as the library has to be told it; `halved` for an accountant that must see noise over twice the bound."""
    t = events.types()
    if isinstance(event, (t.GaussianDpEvent, t.LaplaceDpEvent)):
        return type(event)(event.noise_multiplier / 2) if halved else event
    if isinstance(event, t.ComposedDpEvent):
        return t.ComposedDpEvent([translated(part, halved) for part in event.events])
    if isinstance(event, t.SelfComposedDpEvent):
        inner = translated(event.event, halved)
        if isinstance(inner, t.RandomizedResponseDpEvent):
            return t.ComposedDpEvent([inner] * event.count)
        return t.SelfComposedDpEvent(inner, event.count)
    if isinstance(event, t.PoissonSampledDpEvent):
        return t.PoissonSampledDpEvent(event.sampling_probability, translated(rdp.collapse(event.event), halved))
    if isinstance(event, t.SampledWithoutReplacementDpEvent):
        inner = translated(rdp.collapse(event.event), halved)
        return t.SampledWithoutReplacementDpEvent(event.source_dataset_size, event.sample_size, inner)
    if isinstance(event, t.ZCDpEvent) and halved:
        return t.ZCDpEvent(4 * event.rho, 4 * event.xi)
    return event


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back the library's log below errors, and put its level back afterwards."""
    from absl import logging

    before = logging.get_verbosity()
    logging.set_verbosity(min(before, logging.ERROR))
    try:
        yield
    finally:
        logging.set_verbosity(before)


def agrees(ours: float, theirs: float, within: float = 5e-3) -> bool:
    """Whether our figure lies on the private side of theirs, and close to it."""
    if math.isinf(ours) or math.isinf(theirs):
        return ours == theirs
    return theirs * (1 - 1e-6) <= ours <= theirs * (1 + within) + 1e-6
