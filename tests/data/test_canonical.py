"""Original files that a user has already: found in the data folder and read there."""

from __future__ import annotations

import io

import numpy as np
import pytest
import small_files

from sordino.data import sets, shakespeare
from sordino.errors import BadInput
from sordino.federation.population import Federation


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("mnist", "mnist"),
        ("mnist", "MNIST/raw"),
        ("fashion-mnist", "fashion-mnist"),
        ("fashion-mnist", "FashionMNIST/raw"),
    ],
)
def test_idx_files(root, name, folder, zipped):
    with pytest.raises(BadInput, match=f"{name} is not here yet: run `sordino data get {name}`"):
        sets.load(name)
    small_files.write(root / folder, small_files.idx_files(), zipped)
    data = sets.load(name)
    assert data.name == name and data.x.shape == (20, 1, 28, 28) and data.test_x.shape == (10, 1, 28, 28)
    assert data.classes == 10 and "28 x 28" in data.about
    federation = Federation.from_dataset(name, "iid", clients=4)
    mean, std = data.normalise.mean[0], data.normalise.std[0]
    assert federation.test[0][3, 0, 0, 0] == pytest.approx((3 / 255 - mean) / std, abs=1e-6)


def test_an_incomplete_set_is_not_found(root):
    files = small_files.idx_files()
    del files[small_files.IDX[3]]
    small_files.write(root / "mnist", files)
    assert sets.status("mnist").present == "no"


def test_a_label_too_large_is_refused(root):
    files = small_files.idx_files()
    files[small_files.IDX[1]] = small_files.idx(np.full(20, 11, np.uint8))
    small_files.write(root / "mnist", files)
    with pytest.raises(BadInput, match="hold the label 11, but it has 10 classes"):
        sets.load("mnist")


def cifar10_files() -> tuple[dict[str, bytes], list[int]]:
    files, labels = {}, []
    for i in range(1, 6):
        files[f"cifar-10-batches-py/data_batch_{i}"], _, some = small_files.cifar_batch(4, b"labels", 10, seed=i)
        labels += some
    files["cifar-10-batches-py/test_batch"] = small_files.cifar_batch(3, b"labels", 10, seed=9)[0]
    return files, labels


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("folder", [".", "cifar10"])
def test_cifar10_batches(root, packed, folder):
    files, labels = cifar10_files()
    (root / folder).mkdir(parents=True, exist_ok=True)
    if packed:
        small_files.tar(files, root / folder / "cifar-10-python.tar.gz")
    else:
        small_files.write(root / folder, files)
    assert sets.status("cifar10").present == "original files"
    data = sets.load("cifar10")
    assert data.x.shape == (20, 3, 32, 32) and data.y.tolist() == labels and len(data.test_y) == 3


@pytest.mark.parametrize("packed", [False, True])
def test_cifar100(root, packed):
    train, rows, labels = small_files.cifar_batch(6, b"fine_labels", 100)
    test = small_files.cifar_batch(2, b"fine_labels", 100, seed=5)[0]
    files = {"cifar-100-python/train": train, "cifar-100-python/test": test}
    root.mkdir()
    if packed:
        small_files.tar(files, root / "cifar-100-python.tar.gz")
    else:
        small_files.write(root, files)
    data = sets.load("cifar100")
    assert data.classes == 100 and data.y.tolist() == labels and (data.x.reshape(6, -1) == rows).all()


def test_a_damaged_archive(root):
    root.mkdir()
    small_files.tar({"something/else": b""}, root / "cifar-100-python.tar.gz")
    with pytest.raises(BadInput, match="has no readable train"):
        sets.load("cifar100")


@pytest.mark.parametrize("folder", [".", "svhn"])
def test_svhn(root, folder):
    from scipy.io import savemat

    (root / folder).mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 5), ("test", 2)):
        file = io.BytesIO()
        pixels = np.zeros((32, 32, 3, count), dtype=np.uint8)
        savemat(file, {"X": pixels, "y": np.full((count, 1), 10, dtype=np.uint8)})
        (root / folder / f"{part}_32x32.mat").write_bytes(file.getvalue())
    data = sets.load("svhn")
    assert data.x.shape == (5, 3, 32, 32) and data.test_y.tolist() == [0, 0]


def test_sets_without_a_package_say_which_files_they_want(root):
    for name, file in (("cifar100", "cifar-100-python"), ("svhn", "train_32x32.mat"), ("femnist", "LEAF")):
        with pytest.raises(BadInput, match=f"{name} is not here yet: put .*{file}"):
            sets.load(name)
        with pytest.raises(BadInput, match=f"{name} comes in no package: put .*{file}"):
            sets.get(name)


@pytest.mark.parametrize("inside", ["", "data"])
def test_leaf_numbers(root, inside):
    folder = root / "femnist" / inside
    small_files.leaf(folder / "train", {"b": ([[0.5] * 784] * 2, [61, 3]), "a": ([[1.0] * 784], [0]), "gone": ([], [])})
    small_files.leaf(folder / "test", {"a": ([[0.0] * 784], [5]), "stranger": ([[0.0] * 784], [1])})
    federation = Federation.from_dataset("femnist", "natural")
    assert federation.ids == ("a", "b") and federation.sizes.tolist() == [1, 2] and federation.classes == 62
    assert federation[1][0].shape == (2, 1, 28, 28) and federation[1][1].tolist() == [61, 3]
    assert federation.local_test(0)[1].tolist() == [5] and len(federation.local_test(1)[1]) == 0
    assert len(federation.test[1]) == 1


def test_leaf_text(root):
    small_files.leaf(root / "shakespeare" / "train", {"HAMLET": (["a" * 80, "b" * 80], ["c", "\n"])})
    data = sets.load("shakespeare")
    assert data.x.shape == (2, 80) and shakespeare.decode(data.y) == "c\n" and data.test_x is None
    assert Federation.from_dataset(data, "natural")[0][0].dtype == np.int64


@pytest.mark.parametrize("content", ["{", "{}", '{"users": ["a"], "user_data": {}}'])
def test_leaf_files_that_are_damaged(root, content):
    (root / "femnist" / "train").mkdir(parents=True)
    (root / "femnist" / "train" / "a.json").write_text(content)
    with pytest.raises(BadInput, match="is not a LEAF file"):
        sets.load("femnist")


def test_get_leaves_files_in_the_sets_own_folder_alone(root):
    small_files.write(root / "mnist", small_files.idx_files())
    assert sets.get("mnist") == root / "mnist"
    assert not (root / "mnist" / "meta.json").exists() and len(sets.load("mnist")) == 20


def test_get_converts_files_from_elsewhere(root):
    small_files.write(root / "MNIST" / "raw", small_files.idx_files())
    place = sets.get("mnist")
    assert place == root / "mnist" and sets.status("mnist").present == "converted"
    data = sets.load("mnist")
    assert isinstance(data.x, np.memmap) and not data.x.flags.writeable and (data.x[7] == 7).all()
