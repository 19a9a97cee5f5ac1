"""LEAF's JSON files (Caldas et al. 2018): ``train`` and ``test`` folders of users with their own x and y.

Numbers stay numbers (FEMNIST: 784 pixels between 0 and 1); text of 80 characters with the next one as label
(Shakespeare) is encoded in the alphabet of `sordino.data.shakespeare`.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from sordino.data import shakespeare
from sordino.data.dataset import TOKENS, Dataset
from sordino.errors import BadInput


def find(folder: Path) -> Path | None:
    """The folder with ``train`` and ``test``, directly or under ``data``, as LEAF leaves them."""
    for place in (folder, folder / "data"):
        if any((place / "train").glob("*.json")):
            return place
    return None


def read(folder: Path, name: str, classes: int) -> Dataset:
    """All users with training data; users that appear only in the test folder are left out of it."""
    train = _users(folder / "train")
    test = _users(folder / "test") if (folder / "test").is_dir() else {}
    names = tuple(sorted(user for user, (_, y) in train.items() if len(y)))
    if not names:
        raise BadInput(f"{folder / 'train'} names no user with data: run the preparation of LEAF again.")
    x, y, groups = _pool(train, names, folder)
    held = tuple(user for user in names if user in test and len(test[user][1]))
    test_x, test_y, test_groups = _pool(test, held, folder, names) if held else (None, None, None)
    return Dataset(
        name=name,
        x=x,
        y=y,
        test_x=test_x,
        test_y=test_y,
        classes=classes,
        about=f"{len(names)} users, LEAF JSON",
        normalise=TOKENS if x.dtype == np.uint8 else None,
        groups=groups,
        group_names=names,
        test_groups=test_groups,
    )


def _users(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    users: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for file in sorted(folder.glob("*.json")):
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            for user in content["users"]:
                users[str(user)] = _encode(content["user_data"][user])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadInput(f"{file} is not a LEAF file with users and user_data: {error!r}.") from error
    return users


def _encode(rows: dict) -> tuple[np.ndarray, np.ndarray]:
    x, y = rows["x"], rows["y"]
    if x and isinstance(x[0], str):
        tokens = [shakespeare.encode(window) for window in x]
        return np.stack(tokens), np.concatenate([shakespeare.encode(following[:1]) for following in y])
    values = np.asarray(x, dtype=np.float32)
    side = int(round(values.shape[1] ** 0.5)) if values.ndim == 2 else 0
    # FEMNIST keeps its 28 x 28 pixels in one line.
    return (values.reshape(-1, 1, side, side) if side > 3 and side * side == values.shape[1] else values), np.asarray(y)


def _pool(
    users: dict[str, tuple[np.ndarray, np.ndarray]], chosen: tuple[str, ...], folder: Path, order: tuple[str, ...] = ()
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    number = {user: i for i, user in enumerate(order or chosen)}
    try:
        x = np.concatenate([users[user][0] for user in chosen])
    except ValueError as error:
        raise BadInput(f"users in {folder} have examples of different shapes: prepare them again.") from error
    y = np.concatenate([users[user][1] for user in chosen])
    groups = np.concatenate([np.full(len(users[user][1]), number[user], dtype=np.int32) for user in chosen])
    return x, y, groups
