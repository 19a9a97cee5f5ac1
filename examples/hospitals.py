"""Three hospitals, one model, every patient's record protected: the example unit with a server that sees sums only.

python examples/hospitals.py
"""

from __future__ import annotations

import numpy as np
import torch

import sordino


def records(rng: np.random.Generator, patients: int, shift: float) -> tuple[np.ndarray, np.ndarray]:
    """Ten measurements per patient and whether they were readmitted; each hospital sees somewhat other patients."""
    x = rng.normal(shift, 1.0, size=(patients, 10)).astype(np.float32)
    risk = x[:, 0] + 0.5 * x[:, 1] * x[:, 2] - 0.7 * x[:, 3]
    return x, (risk > 0).astype(np.int64)


def main(out: str | None = None) -> sordino.Result:
    rng = np.random.default_rng(7)
    hospitals = [records(rng, n, shift) for n, shift in ((900, 0.0), (2000, 0.3), (1400, -0.2))]
    federation = sordino.Federation.from_arrays(hospitals, test=records(rng, 1000, 0.0), name="hospitals")
    model = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2))
    plan = sordino.Plan(
        data="hospitals",
        clients=3,
        method="adact",
        unit="example",
        observer="secagg-server",
        epsilon=2.0,
        delta=1e-5,
        rounds=80,
        batch_size=300,
        lr=1.0,
        server_optimizer="momentum",
    )
    result = sordino.train(model, federation, plan, out=out)
    print(f"accuracy {result.accuracy:.1%}, epsilon {result.epsilon:.2f} for each record; report in {result.folder}")
    return result


if __name__ == "__main__":
    main()
