"""A guard against becoming slow: local training against what a user writes by hand, as a ratio of processor time.

The margin is generous; `make bench` measures properly.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from sordino.clients import local
from sordino.clients.flat import Flat
from sordino.clients.rewrite import faster
from sordino.engines.inprocess import one_thread


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 5), nn.Conv2d(16, 32, 5)
        self.dense1, self.dense2 = nn.Linear(512, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.dense2(functional.relu(self.dense1(torch.flatten(x, 1))))


def processor_seconds(work, times=5):
    work()
    laps = []
    for _ in range(times):
        start = time.process_time()
        work()
        laps.append(time.process_time() - start)
    return float(np.min(laps))


def test_a_client_trains_faster_than_the_loop_people_write():
    x, y = torch.randn(320, 1, 28, 28), torch.randint(0, 10, (320,))
    flat = Flat(Net())
    forward, descent = faster(flat.model), local.Descent("sgd", 0.05)
    rng = np.random.Generator(np.random.PCG64(0))

    def ours():
        local.train(flat, forward, x, y, functional.cross_entropy, descent, 1, 64, rng)

    model = Net()

    def by_hand():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for a, b in DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True):
            optimizer.zero_grad()
            functional.cross_entropy(model(a), b).backward()
            optimizer.step()

    with one_thread():
        ratio = processor_seconds(by_hand) / processor_seconds(ours)
    assert ratio > 1.1, f"only {ratio:.2f} times as fast as a hand-written loop"
