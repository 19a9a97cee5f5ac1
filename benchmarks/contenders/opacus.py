"""Per-example clipping with Opacus, in the mode named by --variant: ghost or hooks."""

from __future__ import annotations

import os
import sys
import warnings

sys.path = [p for p in sys.path if os.path.abspath(p or ".") != os.path.dirname(os.path.abspath(__file__))]
warnings.filterwarnings("ignore")
import torch
from opacus import PrivacyEngine

sys.path.append(os.path.dirname(os.path.abspath(__file__)))
import common
from net import Net
from torch.utils.data import DataLoader, TensorDataset

args = common.arguments()
w = common.work(args.work)
torch.set_num_threads(2)
torch.manual_seed(0)
model, loss = Net(), torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=w.lr)
batches = DataLoader(TensorDataset(torch.from_numpy(w.x), torch.from_numpy(w.y)), batch_size=w.batch, shuffle=True)
made = PrivacyEngine().make_private(
    module=model,
    optimizer=optimizer,
    criterion=loss,
    data_loader=batches,
    noise_multiplier=w.multiplier,
    max_grad_norm=w.bound,
    poisson_sampling=False,
    grad_sample_mode=args.variant,
)
model, optimizer, batches = made[0], made[1], made[-1]
if args.variant == "ghost":
    loss = made[2]
clock = common.Clock()
for _ in range(args.rounds):
    for x, y in batches:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    clock.lap()
common.emit(f"Opacus {args.variant}", clock.laps, None)
