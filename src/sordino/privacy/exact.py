"""Exact numbers for the filters: what is added up, what an event costs, and when one event is no costlier than another.

Every finite double is a whole number of 2^-1074. Costs and budgets are integers in that unit, so a sum has no rounding
error, however many terms it has and however small they are.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, cast

from sordino.errors import BadInput, between, positive, rate, whole
from sordino.privacy.events import Event, parts, reasons

if TYPE_CHECKING:
    from dp_accounting import dp_event

    Noise = dp_event.GaussianDpEvent | dp_event.LaplaceDpEvent
    Wrapped = dp_event.PoissonSampledDpEvent | dp_event.SampledWithoutReplacementDpEvent | dp_event.SelfComposedDpEvent

_BITS = 1074
ONE = 1 << _BITS  # the number 1 in the unit 2^-1074


def from_float(value: float) -> int:
    """A finite double in units of 2^-1074."""
    numerator, denominator = value.as_integer_ratio()
    return numerator << (_BITS - denominator.bit_length() + 1)


def to_float(exact: int) -> float:
    """The nearest float; infinite where none is large enough."""
    try:
        return exact / ONE
    except OverflowError:
        return math.inf


def pack(exact: int) -> str:
    """The number as text that `unpack` reads without loss."""
    shift = (exact & -exact).bit_length() - 1 if exact else 0
    return f"{exact >> shift:x}p{shift - _BITS}"


def unpack(text: str) -> int:
    """The number that `pack` wrote."""
    mantissa, _, power = text.partition("p")
    try:
        return int(mantissa, 16) << (int(power) + _BITS)
    except ValueError as error:
        raise BadInput(f"{text!r} is not a number as a filter stores it; take an untouched copy.") from error


def no_costlier(asked: Event, settled: Event) -> bool:
    """Whether `asked` is `settled` with, at most, larger multipliers: provably no more costly under any accountant.

    Gaussian noise of a larger scale is Gaussian noise plus an independent Gaussian; Laplace noise of a larger scale is
    Laplace noise plus an independent mixture of nothing and Laplace. Either is post-processing, under sampling too.
    """
    if type(asked) is not type(settled):
        return False
    name = type(settled).__name__
    if name in ("GaussianDpEvent", "LaplaceDpEvent"):
        more, least = (cast("Noise", event).noise_multiplier for event in (asked, settled))
        return math.isfinite(more) and more >= least
    if name == "ComposedDpEvent":
        these, those = parts(asked), parts(settled)
        return len(these) == len(those) and all(map(no_costlier, these, those))
    same = _WRAPPERS.get(name)
    if same is not None:
        return all(getattr(asked, field) == getattr(settled, field) for field in same) and no_costlier(
            cast("Wrapped", asked).event, cast("Wrapped", settled).event
        )
    return bool(asked == settled)


def largest_mu(epsilon: float, delta: float) -> float:
    """The largest mu for which mu-GDP implies (epsilon, delta), on the private side (Dong et al. 2022, corollary 1)."""
    from scipy.special import log_ndtr

    positive(epsilon=epsilon)
    between(0, 1, delta=delta)

    def delta_at_most(mu: float) -> float:
        first = float(log_ndtr(mu / 2 - epsilon / mu))
        second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
        slip = 1e-15 * (8 + epsilon + epsilon / mu + abs(first) + abs(second))  # more than the rounding
        return math.exp(first) * (-math.expm1(min(0.0, second - first)) + 2 * slip)

    low, high = 0.0, 1.0
    while delta_at_most(high) <= delta:
        low, high = high, 2 * high
    while (middle := (low + high) / 2) not in (low, high) and high - low > 1e-13 * high:
        low, high = (middle, high) if delta_at_most(middle) <= delta else (low, middle)
    if low == 0.0:
        raise BadInput(f"delta {delta!r} is too small for epsilon {epsilon!r} to be computed; take a larger delta.")
    return low


_WRAPPERS = {
    "PoissonSampledDpEvent": ("sampling_probability",),
    "SampledWithoutReplacementDpEvent": ("source_dataset_size", "sample_size"),
    "SelfComposedDpEvent": ("count",),
}


def not_private(event: Event) -> bool:
    """Whether anything in `event` is released as it is."""
    return bool(reasons(event))


def check(event: Event) -> None:
    """Refuse numbers that mean nothing, wherever the event came from."""
    if (multiplier := getattr(event, "noise_multiplier", None)) is not None:
        positive(multiplier=multiplier)
    if (probability := getattr(event, "sampling_probability", None)) is not None:
        rate(rate=probability)
    if (count := getattr(event, "count", None)) is not None:
        whole(1, count=count)
    for part in parts(event):
        check(part)


def inverse_square(event: Event) -> Fraction:
    """The exact sum of 1/z^2 over the Gaussians of `event`."""
    name = type(event).__name__
    if name == "GaussianDpEvent":
        return 1 / Fraction(cast("dp_event.GaussianDpEvent", event).noise_multiplier) ** 2
    if name == "NoOpDpEvent":
        return Fraction(0)
    if name == "ComposedDpEvent":
        return sum(map(inverse_square, parts(event)), Fraction(0))
    if name == "SelfComposedDpEvent":
        repeated = cast("dp_event.SelfComposedDpEvent", event)
        return repeated.count * inverse_square(repeated.event)
    if name == "PoissonSampledDpEvent":
        sampled = cast("dp_event.PoissonSampledDpEvent", event)
        if sampled.sampling_probability == 1:
            return inverse_square(sampled.event)
    raise BadInput(f"The GDP filter charges Gaussian releases without sampling, not {say(event)}; use the RDP filter.")


def say(event: Event) -> str:
    """An event in a few words."""
    name = type(event).__name__.removesuffix("DpEvent")
    inner = ", ".join(map(say, parts(event)[:3])) + (", ..." if len(parts(event)) > 3 else "")
    match name:
        case "Gaussian" | "Laplace":
            return f"{name} noise of multiplier {cast('Noise', event).noise_multiplier:g}"
        case "PoissonSampled":
            return f"{inner} at Poisson rate {cast('dp_event.PoissonSampledDpEvent', event).sampling_probability:g}"
        case "SampledWithoutReplacement":
            sample = cast("dp_event.SampledWithoutReplacementDpEvent", event)
            return f"{inner} on {sample.sample_size} of {sample.source_dataset_size}"
        case "SelfComposed":
            return f"{cast('dp_event.SelfComposedDpEvent', event).count} times {inner}"
    return f"{name} ({inner})" if inner else name
