"""The plays: who speaks, whatever the print; and windows of 80 characters."""

from __future__ import annotations

import numpy as np
import pytest
import small_files

from sordino.data import shakespeare, speeches
from sordino.data.dataset import NO_LABEL
from sordino.data.partition import split
from sordino.errors import BadInput
from sordino.federation.population import Federation


def test_speakers_in_every_layout():
    said = shakespeare.roles(small_files.PLAY)
    assert set(said) == {"KING", "FOOL", "QUEEN", "THESEUS", "BER", "FRAN"}
    assert said["KING"] == ["Who is it that so late disturbs our rest?\nSpeak, or be silent evermore.", "Enough."]
    assert said["FOOL"] == ["Nothing, nuncle.", "Nothing at all."]  # goes on after the stage direction
    assert said["QUEEN"] == ["I thank your Grace,\nand bid good night."]  # begins inside a paragraph
    assert said["BER"][1] == "Long live the king!" and "Farewell.\nIt is too late." in said["BER"]
    assert not any("nobody" in speech for speeches in said.values() for speech in speeches)
    assert not any("[" in speech for speeches in said.values() for speech in speeches)


def test_a_poem_has_no_roles():
    assert shakespeare.roles("THE SONNETS\n\nI\n\nFrom fairest creatures we desire increase\n") == {}


def test_the_alphabet_is_that_of_the_papers():
    assert shakespeare.CLASSES == 90 and len(set(shakespeare.ALPHABET)) == 86
    text = shakespeare.ALPHABET
    assert shakespeare.decode(shakespeare.encode(text)) == text
    assert shakespeare.encode("~\u00e9\u2014").tolist() == [shakespeare.UNKNOWN] * 2 + [shakespeare.encode("?")[0]]
    assert shakespeare.encode(text).min() == 4 and shakespeare.encode(text).max() == 89


def test_windows_and_the_character_after_them():
    tokens = np.arange(120) % 256
    x, y = shakespeare.windows(tokens.astype(np.uint8), stride=10)
    assert x.shape == (4, 80) and x[:, 0].tolist() == [0, 10, 20, 30] and y.tolist() == [80, 90, 100, 110]
    assert shakespeare.windows(tokens[:80].astype(np.uint8))[0].shape == (0, 80)


@pytest.fixture
def plays():
    def play(*lengths: int) -> str:
        speech = "{}.\n{}\n\n"
        body = "".join(speech.format(f"ROLE {chr(65 + i)}", "word " * (n // 10)) * 2 for i, n in enumerate(lengths))
        return "ACT I.\n\n" + body

    return {"one": play(2000, 600, 200), "two": play(1000)}


def test_the_largest_roles_become_clients(plays):
    data = shakespeare.federation(plays, keep=2)
    assert data.group_names == ("one: ROLE A", "two: ROLE A") and data.classes == 90
    assert data.notes["roles_found"] == 4
    federation = Federation.from_dataset(data, "natural")
    assert federation.clients == 2 and federation[0][0].dtype == np.int64 and federation[0][0].shape[1] == 80
    assert federation.local_test(1)[0].shape[0] > 0
    # Too small to hold a window in the last fifth, so never a client.
    assert "one: ROLE C" not in shakespeare.federation(plays, keep=9).group_names


def test_training_and_test_share_no_text(plays):
    text = "".join(chr(65 + i % 26) if i % 7 else "\n" for i in range(2000))
    pieces = [f"ROLE.\n{text[i : i + 500].strip()}\n" for i in range(0, 2000, 500)]
    data = shakespeare.federation({"p": "ACT I.\n\n" + "\n".join(pieces)}, stride=1)
    said = len(shakespeare.encode("\n".join(shakespeare.roles("ACT I.\n\n" + "\n".join(pieces))["ROLE"])))
    # With stride 1 a text of n characters has n - 80 windows; both parts together lose one window's length more.
    assert len(data.y) + len(data.test_y) == said - 160


def test_a_speech_is_asked_for_character_by_character():
    (x, y), (more_x, more_y) = speeches.cut("ab" * 45)
    assert x[0] == shakespeare.START and shakespeare.decode(x) == ("ab" * 40)[:79]
    assert shakespeare.decode(y) == "ab" * 40  # the character after each
    assert shakespeare.decode(more_x) == "b" + "ab" * 5  # it goes on with the character that was asked for last
    known = more_y != NO_LABEL
    assert (
        more_y[known][-1] == shakespeare.END and known.sum() == 91 - 80
    )  # 90 characters and END are asked for, once each
    assert (more_x[~known] == shakespeare.PAD).all()


def test_so_many_speeches_as_evenly_as_they_come(plays):
    assert speeches.fill(np.array([5, 1, 9]), 8).tolist() == [4, 1, 3] and speeches.fill(
        np.array([2, 3]), 9
    ).tolist() == [2, 3]
    text = "ACT I.\n\n" + "".join(f"ROLE {r}.\n{'word ' * (20 + i)}\n\n" for r in "AB" for i in range(10))
    data = speeches.federation({"one": text}, train=9, test=3)
    assert (
        data.notes["speeches"] == 9
        and data.notes["test_speeches"] == 3
        and data.group_names == ("one: ROLE A", "one: ROLE B")
    )
    starts = [(x[:, 0] == shakespeare.START) for x in (data.x, data.test_x)]
    assert [int(s.sum()) for s in starts] == [9, 3]
    assert np.bincount(data.groups[starts[0]]).tolist() == [5, 4] and np.bincount(
        data.test_groups[starts[1]]
    ).tolist() == [2, 1]
    assert data.y.shape == data.x.shape and data.y.min() == NO_LABEL and data.x.min() == shakespeare.PAD
    federation = Federation.from_dataset(data, "natural")
    assert federation[0][1].dtype == np.int64 and federation[0][1].shape[1] == 80
    with pytest.raises(
        BadInput, match="a label at every position, so that dirichlet has no one label to skew: choose iid or natural."
    ):
        split(data, "dirichlet", clients=2)
    assert Federation.from_dataset(data, "iid", 3).clients == 3
