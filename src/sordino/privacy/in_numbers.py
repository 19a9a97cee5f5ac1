"""What (epsilon, delta) allows the best attack, as shares of right guesses (Kairouz et al. 2015, hypothesis testing)."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Decimal

from sordino.privacy import phrases
from sordino.privacy.phrases import phrase

_EXACT = 50.0  # beyond this, e^epsilon changes no digit that is printed


def best_guess(epsilon: float, delta: float) -> float:
    """How often a guess at even odds can be right: (e^epsilon + delta) / (1 + e^epsilon).

    >>> best_guess(math.log(3), 0.0)
    0.75
    """
    back = math.exp(-epsilon)
    return min(1.0, (1 + delta * back) / (1 + back))


def most_found(epsilon: float, delta: float, alarms: float) -> float:
    """The largest rate of true alarms at a rate of false ones: both errors obey `a + e^epsilon b >= 1 - delta`."""
    back = 1 - math.exp(-epsilon) * max(0.0, 1 - delta - alarms)
    return min(math.exp(min(epsilon, _EXACT)) * alarms + delta, back)


def in_numbers(epsilon: float, delta: float, relation: object, unit: object) -> str:
    """The sentences that the statement and the report print. Every share is rounded up."""
    noun = phrase(phrases.NOUN, unit)
    question = phrase(phrases.QUESTION, relation, unit=noun)
    if relation is None:
        question = phrase(phrases.QUESTION, "add-remove", unit=noun)
    right = percent_up(best_guess(epsilon, delta))
    few, more = (percent_up(most_found(epsilon, delta, alarms)) for alarms in (0.001, 0.01))
    return (
        f"Suppose that it is equally likely that {question}. No observer guesses right more often than {right} of the "
        f"time; a blind guess is right 50% of the time. With one false alarm in 1,000, no observer finds more than "
        f"{few} of the true cases; with one in 100, no more than {more}."
    )


def percent_up(share: float) -> str:
    """A share that is an upper bound: four digits, rounded up, never more than all.

    >>> percent_up(0.98201), percent_up(0.75), percent_up(1.0), percent_up(0.0), percent_up(0.999999)
    ('98.21%', '75%', '100%', '0%', '100%')
    """
    if not 0 < share < 1:
        return "100%" if share >= 1 else "0%"
    exact = Decimal(repr(share)) * 100
    rounded = min(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 3), ROUND_CEILING), Decimal(100))
    return f"{rounded.normalize():f}%"


def rounded_up(value: float) -> str:
    """Four digits, rounded up: what is printed is never less than what is proven.

    >>> rounded_up(4.00001), rounded_up(1e-5), rounded_up(0.0)
    ('4.001', '1e-05', '0')
    """
    number = Decimal(repr(float(value)))
    return f"{float(number.quantize(Decimal(1).scaleb(number.adjusted() - 3), ROUND_CEILING)):.4g}" if number else "0"
