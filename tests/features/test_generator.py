import numpy as np
import pytest

from sordino.errors import BadInput
from sordino.features import generator


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (5, 9, 17), (1, 100), (6, 128)])
def test_any_shape_is_painted_and_varies(shape: tuple[int, ...]) -> None:
    pictures = generator.images(4, shape, seed=3)
    assert pictures.shape == (4, *shape) and pictures.dtype == np.uint8
    assert (pictures.reshape(4, -1).std(axis=1) > 5).all()
    assert not (pictures[0] == pictures[1]).all()


def test_a_picture_is_a_function_of_seed_and_number() -> None:
    whole = generator.images(5, (3, 12, 12), seed=7)
    assert (generator.images(2, (3, 12, 12), seed=7, first=3) == whole[3:]).all()
    assert not (generator.images(5, (3, 12, 12), seed=8) == whole).all()


def test_radii_follow_the_power_law() -> None:
    settings = generator.Leaves(least=0.1, largest=1.0, power=1.0)
    radii = generator._radii(settings, 200_000, np.random.default_rng(0))
    assert radii.min() >= 0.1 and radii.max() <= 1.0
    # P(r > 0.2) = (1/0.2 - 1/1) / (1/0.1 - 1/1) = 4/9, and P(r > 0.5) = (2 - 1) / 9.
    assert abs((radii > 0.2).mean() - 4 / 9) < 0.005
    assert abs((radii > 0.5).mean() - 1 / 9) < 0.005


def test_channels_of_a_colour_picture_differ_and_agree_in_light() -> None:
    pictures = generator.images(40, (3, 16, 16), seed=0).astype(float)
    red, green = pictures[:, 0].ravel(), pictures[:, 1].ravel()
    assert 0.5 < np.corrcoef(red, green)[0, 1] < 0.99


@pytest.mark.parametrize("shape", [(), (3,), (3, 4, 5, 6), (3, 0, 4), (1, 2.5, 3)])
def test_shapes_that_are_no_picture_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match="channels"):
        generator.images(1, shape, seed=0)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(BadInput, match="least radius"):
        generator.Leaves(least=0.5, largest=0.4)
