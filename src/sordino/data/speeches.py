"""Shakespeare as DP-FedACN and Reddi et al. (2021) count it: samples are speeches, and the next character is asked at every position.

DP-FedACN's table II has 715 clients, 16,068 samples to train on and 2,356 to test on, and follows Reddi et al. in the rest. These are
the numbers of the Shakespeare set of TensorFlow Federated, whose documentation says what a sample is: a contiguous set of lines of one
role, a speech here. Each role has at least one in either part.

What is our own, since neither text says it or it cannot be repeated: our plays have 29,643 speeches of 715 roles, so the first ones of
each role are kept, as many of each as give these numbers (`fill`); the last fifth of a role's speeches is the part to test on; a
speech begins with START, ends with END, and is cut into runs of 80 whose places beyond its end are PAD and have no label.
"""

from __future__ import annotations

import numpy as np

from sordino.data.dataset import NO_LABEL, TOKENS, Dataset
from sordino.data.shakespeare import CLASSES, END, PAD, ROLES, START, WINDOW, encode, largest_roles

NAME = "shakespeare-speeches"
TRAIN, TEST = 16_068, 2_356
"""Speeches of all roles together (DP-FedACN, table II)."""


def federation(plays: dict[str, str], keep: int = ROLES, train: int = TRAIN, test: int = TEST) -> Dataset:
    """The roles of `shakespeare.federation`, with so many speeches in all."""
    said, found = largest_roles(plays, keep)
    held = np.array([max(1, len(speeches) // 5) for speeches in said.values()])
    left = np.array([len(speeches) for speeches in said.values()]) - held
    kept, told = fill(left, train), fill(held, test)
    x, y, groups = _pooled([own[:n] for own, n in zip(said.values(), kept)])
    test_x, test_y, test_groups = _pooled([own[b : b + n] for own, b, n in zip(said.values(), left, told)])
    return Dataset(
        name=NAME,
        x=x,
        y=y,
        test_x=test_x,
        test_y=test_y,
        classes=CLASSES,
        normalise=TOKENS,
        groups=groups,
        group_names=tuple(said),
        test_groups=test_groups,
        notes={"roles_found": found, "speeches": int(kept.sum()), "test_speeches": int(told.sum())},
    )


def _pooled(said: list[list[str]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Runs, their labels, and whose they are."""
    runs = [[run for speech in own for run in cut(speech)] for own in said]
    x, y = (np.array([run[side] for own in runs for run in own]) for side in (0, 1))
    return x.astype(np.uint8), y, np.repeat(np.arange(len(runs), dtype=np.int32), [len(own) for own in runs])


def cut(speech: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """The speech in runs of 80 tokens, each with the token that follows at every position; every token is asked for once.

    >>> [(x.size, int((y != NO_LABEL).sum())) for x, y in cut("a" * 100)]
    [(80, 80), (80, 21)]
    """
    tokens = np.concatenate([[START], encode(speech), [END]]).astype(np.int8)
    runs = []
    for at in range(0, len(tokens) - 1, WINDOW):
        here, following = tokens[:-1][at : at + WINDOW], tokens[1:][at : at + WINDOW]
        room = (0, WINDOW - len(here))
        runs.append((np.pad(here, room, constant_values=PAD), np.pad(following, room, constant_values=NO_LABEL)))
    return runs


def fill(sizes: np.ndarray, total: int) -> np.ndarray:
    """How many of each to keep so that all together are `total`: as even as the sizes allow, the first ones first.

    >>> fill(np.array([5, 1, 9]), 8).tolist()
    [4, 1, 3]
    """
    if total >= sizes.sum():
        return sizes
    even = max(m for m in range(int(sizes.max()) + 1) if np.minimum(sizes, m).sum() <= total)
    kept = np.minimum(sizes, even)
    kept[np.flatnonzero(sizes > even)[: total - int(kept.sum())]] += 1
    return kept
