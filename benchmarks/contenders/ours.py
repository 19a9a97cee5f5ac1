"""Sordino, through the public `sordino.train`, with ledger, filter, metrics and checkpoints on.

W3 is the example unit pooled with a trusted server: a round is a step, 47 of them an epoch.
"""

from __future__ import annotations

import os
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import common
import torch
import workloads
from net import Net

import sordino

args = common.arguments()
w = common.work(args.work)
test = (w.test_x, w.test_y)
torch.manual_seed(0)
steps = 1
if hasattr(w, "cohorts"):
    clients = [(w.x[common.client(w, k)], w.y[common.client(w, k)]) for k in range(w.clients)]
    plan = workloads.plan(vars(w), len(w.cohorts)).replace(rounds=args.rounds)
else:
    steps = w.examples // w.batch
    clients = list(zip(np.array_split(w.x, 8), np.array_split(w.y, 8)))
    plan = sordino.Plan(
        data="fashion-mnist", clients=8, method="dp-fedavg", unit="example", observer="public",
        multiplier=w.multiplier, bound=w.bound, batch_size=w.batch, lr=w.lr, rounds=args.rounds * steps,
    )  # fmt: skip
federation = sordino.Federation.from_arrays(clients, test=test, classes=10, name="fashion-mnist")
workers = 1 if args.variant == "one" else 2
speed = sordino.EngineOptions(workers=workers, evaluate_every=plan.rounds)
with tempfile.TemporaryDirectory() as folder:
    result = sordino.train(Net(), federation, plan, out=folder + "/run", options=speed)
seconds = np.array([row["seconds"] for row in result.metrics])
if steps > 1:
    laps = seconds.reshape(-1, steps).sum(axis=1)[:-1].tolist() or [float(seconds.sum())]
else:
    laps = seconds[:-1].tolist()  # the last round also evaluates
common.emit(f"Sordino{', one worker' if workers == 1 else ''}", laps, result.accuracy)
