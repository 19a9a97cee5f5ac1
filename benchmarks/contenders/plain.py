"""Training without privacy on the data of W3: the usual layout, or channels-last (--variant channels-last). Two threads."""

from __future__ import annotations

import common
import torch
from net import Net
from torch.nn import functional

args = common.arguments()
w = common.work(args.work)
torch.set_num_threads(2)
torch.manual_seed(0)
x, y = torch.from_numpy(w.x), torch.from_numpy(w.y)
model = Net()
layout = torch.channels_last if args.variant == "channels-last" else torch.contiguous_format
model = model.to(memory_format=layout)
optimizer = torch.optim.SGD(model.parameters(), lr=w.lr)
clock = common.Clock()
for _ in range(args.rounds):
    for rows in torch.randperm(len(y)).split(w.batch):
        optimizer.zero_grad()
        functional.cross_entropy(model(x[rows].contiguous(memory_format=layout)), y[rows]).backward()
        optimizer.step()
    clock.lap()
common.emit(f"no privacy{', channels-last' if args.variant else ''}", clock.laps, None)
