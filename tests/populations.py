"""Small populations for tests of training; a module of its own, so that scripts in other processes can import it."""

from __future__ import annotations

import numpy as np

from sordino.federation.population import Federation


def toy(clients: int = 12, features: int = 5, classes: int = 3, size: int = 20, seed: int = 0) -> Federation:
    """Linearly separable points, a few more at each further client."""
    rng = np.random.Generator(np.random.PCG64(seed))
    weights = rng.normal(size=(features, classes))

    def points(n: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.normal(size=(n, features)).astype(np.float32)
        return x, (x @ weights).argmax(1)

    return Federation.from_arrays(
        [points(size + k) for k in range(clients)], test=points(400), classes=classes, name="toy"
    )
