"""The embedded data set: 1,797 handwritten digits of 8 x 8 pixels, as scikit-learn carries them.

Every fifth image, counted class by class, is for the test: 1,437 to train and 360 to test on, always the same. Each
image is scaled to Euclidean length one. That is public (it looks at one image alone) and worth much under
example-level clipping: the gradient of a linear softmax then is never longer than the square root of 2 (2 with a
bias), so one bound fits every example and little is lost to it.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from sordino.data.dataset import Dataset
from sordino.errors import BadInput


def load() -> Dataset:
    """Both parts, ready for a model."""
    images, labels = _read()
    x = images / np.linalg.norm(images, axis=1, keepdims=True)
    x = x.astype(np.float32).reshape(-1, 1, 8, 8)
    y = labels.astype(np.int64)
    by_class = np.argsort(y, kind="stable")
    test = np.sort(by_class[::5])
    train = np.setdiff1d(np.arange(len(y)), test)
    return Dataset("digits", x[train], y[train], x[test], y[test], classes=10, about="handwritten digits, 8 x 8")


def _read() -> tuple[np.ndarray, np.ndarray]:
    """Straight from scikit-learn's file: importing the whole of it takes seconds, its table a moment."""
    found = find_spec("sklearn")
    if found is None or found.origin is None:
        raise BadInput("digits come with scikit-learn, which is missing: pip install 'sordino[train]'.")
    file = Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if file.is_file():
        table = np.loadtxt(file, delimiter=",")
        return table[:, :-1], table[:, -1]
    from sklearn.datasets import load_digits

    return load_digits(return_X_y=True)
