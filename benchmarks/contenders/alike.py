"""Like for like: a hand-written loop with every trick of ours that a user could apply by hand.

Two processes with one thread each, channels-last, pooling before the rectifier, an allocator that keeps its memory.
"""

from __future__ import annotations

import ctypes

import common
import torch
import torch.multiprocessing as processes
from net import Reordered, accuracy
from torch.nn import functional

args = common.arguments()
w = common.work(args.work)


def tune() -> None:
    libc = ctypes.CDLL("libc.so.6")
    for option, value in ((-3, 32 << 20), (-1, 2**31 - 1), (-2, 64 << 20)):  # mmap threshold, trim threshold, top pad
        libc.mallopt(option, value)


def serve(rank, data, theta, sums, tasks, done, counter, order):
    torch.set_num_threads(1)
    tune()
    model = Reordered().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=w.lr)
    sizes = [p.numel() for p in model.parameters()]
    while (count := tasks.get()) is not None:
        sums[rank].zero_()
        while True:
            with counter.get_lock():
                place = counter.value
                counter.value += 1
            if place >= count:
                break
            x, y = data[order[place].item()]
            with torch.no_grad():
                for p, q in zip(model.parameters(), theta.split(sizes)):
                    p.copy_(q.view(p.shape))
            for rows in torch.randperm(len(y)).split(w.batch):
                optimizer.zero_grad(set_to_none=True)
                batch = x[rows].contiguous(memory_format=torch.channels_last)
                functional.cross_entropy(model(batch), y[rows]).backward()
                optimizer.step()
            update = torch.cat([p.detach().reshape(-1) for p in model.parameters()]) - theta
            sums[rank] += update * min(1.0, w.bound / (update.norm().item() + 1e-12))
        done.put(rank)


def main() -> None:
    torch.set_num_threads(1)
    x, y = torch.from_numpy(w.x).share_memory_(), torch.from_numpy(w.y).share_memory_()
    data = [(x[common.client(w, k)], y[common.client(w, k)]) for k in range(w.clients)]
    torch.manual_seed(0)
    model = Reordered()
    theta = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).share_memory_()
    sums = torch.zeros(2, len(theta)).share_memory_()
    order = torch.zeros(w.cohort, dtype=torch.long).share_memory_()
    context = processes.get_context("fork")
    counter, done = context.Value("i", 0), context.SimpleQueue()
    queues = [context.SimpleQueue() for _ in range(2)]
    for rank in range(2):
        job = (rank, data, theta, sums, queues[rank], done, counter, order)
        context.Process(target=serve, args=job, daemon=True).start()
    clock = common.Clock()
    for cohort in w.cohorts[: args.rounds]:
        largest = sorted(cohort, key=lambda k: w.offsets[k] - w.offsets[k + 1])
        order[:] = torch.tensor([int(k) for k in largest])
        counter.value = 0
        for queue in queues:
            queue.put(len(largest))
        for _ in queues:
            done.get()
        theta += (sums.sum(0) + torch.randn(len(theta)) * w.multiplier * w.bound) / w.cohort
        clock.lap()
    for queue in queues:
        queue.put(None)
    torch.nn.utils.vector_to_parameters(theta, model.parameters())
    common.emit("like for like", clock.laps, accuracy(model, torch.from_numpy(w.test_x), torch.from_numpy(w.test_y)))


main()
