"""What a user writes by hand: copy the model, a DataLoader, torch.optim, clip, add up, noise. Two threads."""

from __future__ import annotations

import copy

import common
import torch
from net import Net, accuracy
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

args = common.arguments()
w = common.work(args.work)
x, y = torch.from_numpy(w.x), torch.from_numpy(w.y)
torch.set_num_threads(2)
torch.manual_seed(0)
model = Net()
data = [TensorDataset(x[common.client(w, k)], y[common.client(w, k)]) for k in range(w.clients)]
clock = common.Clock()
for cohort in w.cohorts[: args.rounds]:
    before = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    total = torch.zeros_like(before)
    for k in cohort:
        local = copy.deepcopy(model)
        optimizer = torch.optim.SGD(local.parameters(), lr=w.lr)
        for a, b in DataLoader(data[k], batch_size=w.batch, shuffle=True):
            optimizer.zero_grad()
            functional.cross_entropy(local(a), b).backward()
            optimizer.step()
        update = torch.nn.utils.parameters_to_vector(local.parameters()).detach() - before
        total += update * min(1.0, w.bound / (update.norm().item() + 1e-12))
    total += torch.randn_like(total) * w.multiplier * w.bound
    torch.nn.utils.vector_to_parameters(before + total / w.cohort, model.parameters())
    clock.lap()
common.emit("hand-written loop", clock.laps, accuracy(model, torch.from_numpy(w.test_x), torch.from_numpy(w.test_y)))
