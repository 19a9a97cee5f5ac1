"""Shakespeare by role: every (play, role) is a client, and the task is to predict the next character.

The task of McMahan et al. (2017) and Caldas et al. (2018, LEAF): 80 characters in, the next one out. The plays are
printed in several ways (``HAMLET.``, ``Ham.``, ``THESEUS`` without a full stop, ``NORFOLK. I thank your Grace`` inside
a paragraph), so a heading is recognised by what it looks like and by how often the play repeats it. A role keeps the
first four fifths of its text for training and the last fifth for the test, as LEAF splits in time.

The 715 roles that say most are kept, as many as DP-FedACN and Reddi et al. (2021) have. Their networks have 90 outputs:
86 characters, fixed in advance so that the alphabet tells nothing about the data, and four reserved tokens.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import numpy as np

from sordino.data.dataset import TOKENS, Dataset

WINDOW = 80
STRIDE = 10
"""Every tenth window is kept: neighbours share 79 characters of 80, but cost as much as strangers."""
ROLES = 715

PAD, UNKNOWN, START, END = range(4)
ALPHABET = "\n\r !\"#$%&'()*,-./0123456789:;?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]_abcdefghijklmnopqrstuvwxyz"
CLASSES = len(ALPHABET) + 4

_TABLE = np.full(256, UNKNOWN, dtype=np.uint8)
for _i, _character in enumerate(ALPHABET):
    _TABLE[ord(_character)] = _i + 4

_BEGINNING = re.compile(r"^\s*(ACT (I|1|FIRST)|(THE )?PROLOGUE|INDUCTION)\b[^,\n]*$", re.M | re.I)
_NOT_A_ROLE = re.compile(
    r"^((ACT|SCENE|(THE )?(PROLOGUE|EPILOGUE|END)|INDUCTION|EXEUNT|EXIT|ENTER|(A )?SONG|DUMB SHOW)\b|[IVXLC]+\.?$)",
    re.I,
)
_CAPITALS = re.compile(r"^([A-Z][A-Z'&, -]*[A-Z])(?:\.|:|,)?\s*(?:\[.*|\(.*)?$")
_NAMED = re.compile(r"^((?:[A-Z1-9][A-Za-z']*\.?\s?){1,3})[.:]\s*(?:\[.*|\(.*)?$")
_INLINE = re.compile(r"^([A-Z][A-Z' -]{2,}[A-Z])\. (?=\S)")
_DIRECTION = re.compile(r"\[[^\]]*\]")


def encode(text: str) -> np.ndarray:
    """Characters as numbers from 4 up; anything outside the alphabet is UNKNOWN."""
    return _TABLE[np.frombuffer(text.encode("latin-1", "replace"), dtype=np.uint8)]


def decode(tokens: Iterable[int]) -> str:
    """The inverse of `encode`, with reserved tokens left out."""
    return "".join(ALPHABET[t - 4] for t in tokens if t >= 4)


def roles(play: str) -> dict[str, list[str]]:
    """The speeches of every role in one play, in order; none for a poem."""
    start = _BEGINNING.search(play)
    if start is None:
        return {}  # a poem
    body = _DIRECTION.sub("", play[start.end() :])
    paragraphs = [[line.rstrip() for line in block.split("\n") if line.strip()] for block in re.split(r"\n\s*\n", body)]
    paragraphs = [lines for lines in paragraphs if lines]
    often = Counter(_named(lines[0]) for lines in paragraphs if len(lines) > 1)
    speeches: dict[str, list[str]] = {}
    speaker: str | None = None
    for lines in paragraphs:
        heading = _heading(lines[0], often)
        if heading is not None:
            speaker, lines = heading, lines[1:]
        elif _NOT_A_ROLE.match(lines[0].strip()):
            speaker = None
        if speaker is None:
            continue
        said: list[str] = []
        for line in lines:
            inline = _INLINE.match(line)
            if inline and not _NOT_A_ROLE.match(line):
                _add(speeches, speaker, said)
                speaker, said, line = _tidy(inline.group(1)), [], line[inline.end() :]
            said.append(line.strip())
        _add(speeches, speaker, said)
    return speeches


def _heading(line: str, often: Counter) -> str | None:
    line = line.strip()
    if len(line) > 60 or _NOT_A_ROLE.match(line):
        return None
    capitals = _CAPITALS.match(line)
    if capitals and len(capitals.group(1)) <= 40:
        return _tidy(capitals.group(1))
    named = _named(line)
    # A short sentence can open a paragraph too ("Farewell."); a role is named again and again.
    return named if named is not None and often[named] >= 3 else None


def _named(line: str) -> str | None:
    match = _NAMED.match(line.strip())
    return _tidy(match.group(1)) if match and not _NOT_A_ROLE.match(line.strip()) else None


def _tidy(name: str) -> str:
    return re.sub(r"\s+", " ", name).strip(" .,:").upper()


def _add(speeches: dict[str, list[str]], speaker: str, said: list[str]) -> None:
    if any(said):
        speeches.setdefault(speaker, []).append("\n".join(said))


def windows(tokens: np.ndarray, stride: int = STRIDE) -> tuple[np.ndarray, np.ndarray]:
    """Every `stride`-th run of 80 tokens, and the token after it."""
    if len(tokens) <= WINDOW:
        return np.empty((0, WINDOW), dtype=np.uint8), np.empty(0, dtype=np.uint8)
    views = np.lib.stride_tricks.sliding_window_view(tokens, WINDOW + 1)[::stride]
    return views[:, :WINDOW].copy(), views[:, WINDOW].copy()


def largest_roles(plays: dict[str, str], keep: int = ROLES) -> tuple[dict[str, list[str]], int]:
    """The speeches of the `keep` roles of these plays that say most, two speeches at least; and how many roles there are."""
    said = {f"{name}: {role}": lines for name, text in plays.items() for role, lines in roles(text).items()}
    lengths = {owner: len("\n".join(lines)) for owner, lines in said.items() if len(lines) >= 2}
    # A fifth of the text must still hold a window and its next character.
    lengths = {owner: length for owner, length in lengths.items() if length // 5 > WINDOW}
    owners = sorted(sorted(lengths, key=lambda owner: (-lengths[owner], owner))[:keep])
    return {owner: said[owner] for owner in owners}, len(said)


def federation(plays: dict[str, str], keep: int = ROLES, stride: int = STRIDE) -> Dataset:
    """The roles of these plays that say most, in windows of 80 characters."""
    said, found = largest_roles(plays, keep)
    train, test, characters = [], [], 0
    for speeches in said.values():
        text = encode("\n".join(speeches))
        cut = len(text) - len(text) // 5
        train.append(windows(text[:cut], stride))
        test.append(windows(text[cut:], stride))
        characters += len(text)
    return Dataset(
        name="shakespeare",
        x=np.concatenate([x for x, _ in train]),
        y=np.concatenate([y for _, y in train]),
        test_x=np.concatenate([x for x, _ in test]),
        test_y=np.concatenate([y for _, y in test]),
        classes=CLASSES,
        normalise=TOKENS,
        groups=_owners(train),
        group_names=tuple(said),
        test_groups=_owners(test),
        notes={"roles_found": found, "characters": characters, "stride": stride},
    )


def _owners(pairs: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    return np.repeat(np.arange(len(pairs), dtype=np.int32), [len(y) for _, y in pairs])
