"""Data that is not held in memory: mapped from disk, or made when it is needed; and a device by name."""

from __future__ import annotations

import numpy as np
import pytest

from populations import toy
from sordino import Federation, Plan, train
from sordino.engines import EngineOptions
from sordino.errors import BadInput

ALONE = EngineOptions("in-process", isolate_clients=True)
POOLED = {
    "method": "dp-fedavg",
    "unit": "example",
    "observer": "secagg-server",
    "epsilon": 8.0,
    "rounds": 3,
    "batch_size": 30,
}


def test_clients_made_on_demand_train_in_the_default_unit_as_held_ones_do(linear, tmp_path):
    held = toy(clients=4)
    made = Federation.on_demand(4, held.raw, size=held.size, classes=3, test=held.raw_test)
    results = [train(linear(), f, Plan(**POOLED), out=tmp_path / f.name, options=ALONE) for f in (held, made)]
    first, second = (np.concatenate([v.flatten() for v in r.model.state_dict().values()]) for r in results)
    assert np.array_equal(first, second) and results[0].epsilon == results[1].epsilon


def test_a_client_that_holds_another_number_than_declared_is_refused(linear, tmp_path):
    held = toy(clients=4)
    made = Federation.on_demand(4, held.raw, size=lambda k: held.size(k) + (k == 2), classes=3)
    with pytest.raises(Exception, match=r"client 2 does not hold as many examples as was declared"):
        train(linear(), made, Plan(**POOLED), out=tmp_path / "run", options=ALONE)
    with pytest.raises(BadInput, match="is not declared"):
        unknown = Federation.on_demand(4, held.raw, size=None, classes=3)
        train(linear(), unknown, Plan(**POOLED), out=tmp_path / "no", options=ALONE)


def test_mapped_arrays_stay_on_disk(tmp_path):
    x = np.arange(60, dtype=np.float32).reshape(20, 3)
    for k in range(2):
        np.save(tmp_path / f"{k}.npy", x[10 * k : 10 * k + 10])
    mapped = [(np.load(tmp_path / f"{k}.npy", mmap_mode="r"), np.arange(10) % 2) for k in range(2)]
    federation = Federation.from_arrays(mapped)
    assert isinstance(federation.x.base, np.memmap) and np.array_equal(federation.x, x)
    assert np.shares_memory(Federation.from_arrays(mapped[:1]).x, mapped[0][0])


def test_a_device_by_its_name(linear, tmp_path):
    from sordino.clients.devices import device, generator_of

    torch = pytest.importorskip("torch")
    assert device("cpu") == torch.device("cpu") and generator_of(device("cpu")) is torch.default_generator
    with pytest.raises(BadInput, match="device 'gpu' cannot be used here"):
        device("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(BadInput, match="device 'cuda' cannot be used here"):
            device("cuda")
