"""What an attack can achieve, by hand and against the slow way: the best test between two distributions."""

from __future__ import annotations

import math

import pytest

from sordino.privacy.in_numbers import best_guess, in_numbers, most_found


def test_a_mechanism_that_meets_the_bound_is_guessed_as_often_as_is_said():
    """Four outcomes on which (epsilon, delta) is met exactly; the best guess picks the likelier world for each."""
    for epsilon, delta in ((math.log(3), 0.0), (1.0, 0.1), (4.0, 1e-5)):
        up, down = (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon)), (1 - delta) / (1 + math.exp(epsilon))
        worlds = [(delta, 0.0), (up, down), (down, up), (0.0, delta)]
        assert sum(max(a, b) for a, b in worlds) / 2 == pytest.approx(best_guess(epsilon, delta), abs=1e-12)
        # The test that alarms on the first outcome always and on the second now and then.
        alarms = down / 2
        assert delta + up / 2 == pytest.approx(most_found(epsilon, delta, alarms), abs=1e-12)


@pytest.mark.parametrize(
    ("relation", "words"),
    [
        ("add-remove", "one given record was used or not"),
        ("zero-out", "one given record contributed or not"),
        ("replace-one", "one given record has one value or another"),
        (None, "one given record was used or not"),
    ],
)
def test_the_question_follows_the_relation(relation, words):
    said = in_numbers(math.log(3), 0.0, relation, "example")
    assert words in said and "more often than 75% of the time" in said
    assert "more than 0.3001% of the true cases; with one in 100, no more than 3.001%" in said  # rounded up
