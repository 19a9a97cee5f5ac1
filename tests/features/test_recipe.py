import json

import pytest

from sordino.errors import BadInput
from sordino.features.maps import Block
from sordino.features.recipe import Recipe, recipe_for


def test_a_recipe_is_plain_data() -> None:
    recipe = recipe_for((1, 28, 28))
    assert json.loads(json.dumps(recipe.to_json()))["blocks"][0]["filters"] == recipe.blocks[0].filters


def test_large_pictures_are_shrunk_and_small_ones_get_small_patches() -> None:
    assert recipe_for((3, 224, 224)).blocks[0].shrink == 7
    assert recipe_for((3, 32, 32)).blocks[0].shrink == recipe_for((1, 28, 28)).blocks[0].shrink == 1
    for shape in ((1, 8, 8), (3, 5, 9), (1, 12, 12), (2, 70, 33)):
        for block in recipe_for(shape).blocks:
            block.seen((shape[0], shape[1], shape[2]))  # does not refuse


def test_bad_settings_are_refused() -> None:
    with pytest.raises(BadInput, match="at least one block"):
        Recipe(())
    with pytest.raises(BadInput, match="filters"):
        Block(0)
    with pytest.raises(BadInput, match="channel axis"):
        recipe_for((28,))
