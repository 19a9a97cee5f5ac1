"""Tables of KEEL: text in, a shuffled data set out."""

from __future__ import annotations

import numpy as np
import pytest

from sordino.data import keel
from sordino.errors import BadInput

TEXT = b"1.5, 2, van\n2.5, 4, bus \n3.5, 6, van\n4.5, 8, bus\n5.5, 10, van\n"


def test_rows_keep_their_class_and_a_fifth_is_held_out():
    data = keel.table("vehicle", TEXT)
    assert data.x.shape == (4, 2) and data.test_x.shape == (1, 2) and data.classes == 2
    x, y = np.concatenate([data.x, data.test_x]), np.concatenate([data.y, data.test_y])
    assert sorted(x[:, 0].tolist()) == [1.5, 2.5, 3.5, 4.5, 5.5]
    assert all((label == 1) == (row[0] in (1.5, 3.5, 5.5)) for row, label in zip(x, y))  # bus is 0, van is 1


def test_a_word_among_the_numbers_is_named():
    with pytest.raises(BadInput, match="vehicle.*word"):
        keel.table("vehicle", TEXT + b"word, 2, van\n")
