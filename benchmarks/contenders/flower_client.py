"""The client side of `flower.py`, as Flower's own examples write it; data is loaded once per actor."""

from __future__ import annotations

import functools
import os

import common
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from net import Net
from torch.nn import functional

app = ClientApp()


@functools.lru_cache(1)
def work():
    torch.set_num_threads(1)
    w = common.work(os.environ["BENCH_WORK"])
    return w, torch.from_numpy(w.x), torch.from_numpy(w.y)


@app.train()
def train(message: Message, context):
    w, x, y = work()
    here = common.client(w, message.content["config"]["client"])
    x, y = x[here], y[here]
    model = Net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=w.lr)
    for rows in torch.randperm(len(y)).split(w.batch):
        optimizer.zero_grad()
        functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    reply = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": 1})})
    return Message(content=reply, reply_to=message)
