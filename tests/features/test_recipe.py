import json

import pytest

from sordino.errors import BadInput
from sordino.features.maps import Block
from sordino.features.recipe import Head, Recipe, recipe_for
from sordino.privacy import accounting, events


def test_the_multiplier_pays_for_the_mean_too() -> None:
    recipe = recipe_for((3, 32, 32), 4.0)
    multiplier = recipe.multiplier_for(4.0, 1e-5)
    spent = accounting.epsilon(recipe.event(multiplier), 1e-5).epsilon
    assert 3.99 < spent <= 4.0
    head = recipe.head
    steps = events.repeated(events.poisson(head.rate, events.gaussian(multiplier)), head.steps)
    assert accounting.epsilon(steps, 1e-5).epsilon < spent


def test_a_recipe_is_plain_data() -> None:
    recipe = recipe_for((1, 28, 28), 1.0)
    assert json.loads(json.dumps(recipe.to_json()))["head"]["rate"] == recipe.head.rate


def test_bad_settings_are_refused() -> None:
    with pytest.raises(BadInput, match="at least one block"):
        Recipe((), Head(0.1, 1, 1.0, 1.0))
    with pytest.raises(BadInput, match="rate"):
        Head(1.1, 1, 1.0, 1.0)
    with pytest.raises(BadInput, match="filters"):
        Block(0)
    with pytest.raises(BadInput, match="epsilon"):
        recipe_for((3, 32, 32), 0.0)
    with pytest.raises(BadInput, match="channel axis"):
        recipe_for((28,), 1.0)
