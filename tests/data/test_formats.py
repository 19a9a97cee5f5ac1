"""Published file formats, on small files made in them."""

from __future__ import annotations

import gzip
import io
import pickle

import numpy as np
import pytest
import small_files

from sordino.data import formats
from sordino.data.unpickle import plain
from sordino.errors import BadInput


@pytest.mark.parametrize("wrap", [bytes, gzip.compress])
def test_idx(wrap):
    files = {name: wrap(content) for name, content in small_files.idx_files().items()}
    x, y = formats.idx_pair(files[small_files.IDX[0]], files[small_files.IDX[1]], "here")
    assert x.shape == (20, 1, 28, 28) and x.dtype == np.uint8 and (x[7] == 7).all()
    assert y.tolist() == [i % 10 for i in range(20)]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is not an idx file"),
        (b"\x1f\x8bbroken", "is not an idx file"),
        (b"<html>not found</html>", "is not an idx file"),
        (b"\x00\x00\x0d\x01" + bytes(8), "is not an idx file of bytes"),
        (small_files.idx(np.zeros((3, 4), np.uint8))[:-1], "should hold 12 bytes but has 11"),
    ],
)
def test_idx_that_is_not_whole(content, sentence):
    with pytest.raises(BadInput, match=sentence):
        formats.idx(content, "this file")


def test_images_and_labels_that_do_not_belong_together():
    images, labels = small_files.idx(np.zeros((3, 4, 4), np.uint8)), small_files.idx(np.zeros(2, np.uint8))
    with pytest.raises(BadInput, match=r"images of shape \(3, 4, 4\) and labels of shape \(2,\)"):
        formats.idx_pair(images, labels, "here")


def test_cifar_batches_are_channel_first_and_in_order():
    one, rows, labels = small_files.cifar_batch(3, b"labels", 10, seed=1)
    two, more, others = small_files.cifar_batch(2, b"labels", 10, seed=2)
    x, y = formats.cifar_batches([one, two], b"labels", "here")
    assert x.shape == (5, 3, 32, 32) and y.tolist() == labels + others
    assert (x[0, 1, 0, :] == rows[0, 1024:1056]).all()  # green, first line
    assert (x[4].ravel() == more[1]).all()


@pytest.mark.parametrize(
    ("batch", "sentence"),
    [
        ([1, 2], "does not hold a CIFAR batch"),
        ({b"data": np.zeros((1, 3072), np.uint8)}, "has no labels"),
        ({b"data": np.zeros((1, 9), np.uint8), b"labels": [0]}, "does not hold 32 x 32 colour images"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0]}, "does not hold 32 x 32 colour images"),
    ],
)
def test_cifar_batches_that_are_something_else(batch, sentence):
    with pytest.raises(BadInput, match=sentence):
        formats.cifar_batches([pickle.dumps(batch, protocol=2)], b"labels", "here")


class Malice:
    def __reduce__(self):
        import os

        return os.system, ("touch should-not-exist",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_cannot_run_anything(protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="holds more than arrays, lists and dictionaries"):
        plain(pickle.dumps({"data": Malice()}, protocol=protocol), "here")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name", [b"cbuiltins\neval\n", b"cnumpy\nload\n", b"cnumpy\nfromfile\n", b"c_codecs\ndecode\n"]
)
def test_names_that_a_pickle_may_not_ask_for(name):
    with pytest.raises(BadInput, match="holds more than"):
        plain(name + b".", "here")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_pickles_are_read(protocol):
    value = {"a": np.arange(6, dtype=np.int16).reshape(2, 3), "b": [b"\xff\x00", "text", 1.5, None], "c": np.float32(2)}
    back = plain(pickle.dumps(value, protocol=protocol), "here")
    if protocol < 2:
        back = {key.decode() if isinstance(key, bytes) else key: item for key, item in back.items()}
    assert (back["a"] == value["a"]).all() and back["b"][0] == b"\xff\x00" and back["c"] == 2


def test_codecs_other_than_latin1_are_refused():
    with pytest.raises(BadInput, match="codec zlib"):
        plain(b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x04\x00\x00\x00zlibtR.", "here")


def test_png_rows():
    image = pytest.importorskip("PIL.Image")
    rows = small_files.numbers().integers(0, 256, size=(4, 1024, 3), dtype=np.uint8)
    file = io.BytesIO()
    image.fromarray(rows).save(file, "PNG")
    x = formats.png_rows(file.getvalue(), "here")
    assert x.shape == (4, 3, 32, 32)
    assert (x[2, :, 1, 5] == rows[2, 32 + 5]).all()


def test_svhn():
    from scipy.io import savemat

    pixels = small_files.numbers().integers(0, 256, size=(32, 32, 3, 5), dtype=np.uint8)
    file = io.BytesIO()
    savemat(file, {"X": pixels, "y": np.array([[1], [10], [9], [2], [10]], dtype=np.uint8)})
    x, y = formats.svhn(file.getvalue(), "here")
    assert x.shape == (5, 3, 32, 32) and y.tolist() == [1, 0, 9, 2, 0]
    assert (x[3, 2] == pixels[:, :, 2, 3]).all()
    with pytest.raises(BadInput, match="cannot be read as a MATLAB file"):
        formats.svhn(b"nonsense", "here")


def test_ucr_labels_are_numbered_in_order():
    x, y = formats.ucr(b"-1\t0.5\t1.5\n1\t2\t3\n-1\t4\t5\n", "here")
    assert x.shape == (3, 1, 2) and x[1, 0].tolist() == [2, 3] and y.tolist() == [0, 1, 0]
    with pytest.raises(BadInput, match="is not a table of numbers"):
        formats.ucr(b"a\tb\n", "here")
