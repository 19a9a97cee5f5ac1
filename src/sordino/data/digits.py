"""The embedded data set: 1,797 handwritten digits of 8 x 8 pixels, as scikit-learn carries them.

Every fifth image, counted class by class, is for the test: 1,437 to train and 360 to test on, always the same. Each
image is scaled to Euclidean length one. That is public (it looks at one image alone) and worth much under
example-level clipping: the gradient of a linear softmax then is never longer than the square root of 2 (2 with a
bias), so one bound fits every example and little is lost to it.
"""

from __future__ import annotations

import numpy as np

from sordino.data.dataset import Dataset
from sordino.errors import BadInput


def load() -> Dataset:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise BadInput("digits come with scikit-learn, which is missing: pip install 'sordino[train]'.") from error
    images, labels = load_digits(return_X_y=True)
    x = images.astype(np.float64) / np.linalg.norm(images, axis=1, keepdims=True)
    x = x.astype(np.float32).reshape(-1, 1, 8, 8)
    y = labels.astype(np.int64)
    by_class = np.argsort(y, kind="stable")
    test = np.sort(by_class[::5])
    train = np.setdiff1d(np.arange(len(y)), test)
    return Dataset("digits", x[train], y[train], x[test], y[test], classes=10, about="handwritten digits, 8 x 8")
