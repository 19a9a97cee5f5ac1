"""A small network pre-trained on synthetic pictures alone, to be probed beside the filters of the recipe `frontier`.

    python benchmarks/pretrained.py --minutes 12           benchmarks/results/pretrained.npz (under 1 MB); minutes of processor time
    python benchmarks/frontier_ablation.py --only network --write

Three convolutions (32, 64 and 128 channels), trained so that two views of one synthetic picture (crop, mirror, colours) are alike and views of different ones
are not (contrastive, Chen et al. 2020). No data is used. docs/features.md says what it buys; it is not part of the recipe, and its weights are not shipped.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sordino.features.generator import Leaves, images

PLACE = Path(__file__).parent / "results" / "pretrained.npz"
PICTURES, BATCH, HEAT = 12_000, 256, 0.2


class Body(nn.Module):
    """What is kept: three convolutions, the last two of which give features."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 32, 64, 128)
        sizes = (5, 3, 3)
        self.convs = nn.ModuleList(
            nn.Conv2d(a, b, k, padding=k // 2, bias=False) for a, b, k in zip(widths, widths[1:], sizes)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for b in widths[1:])

    def forward(self, x: Tensor) -> list[Tensor]:
        found = []
        for conv, norm in zip(self.convs, self.norms):
            x = F.relu(norm(conv(x)))
            found.append(x)
            x = F.max_pool2d(x, 2)
        return found


class Network:
    """Features of pictures (bytes, n x 3 x 32 x 32): the last two layers, averaged over 2 x 2 cells."""

    def __init__(self, body: Body) -> None:
        self.body = body.eval()

    @torch.no_grad()
    def __call__(self, x: np.ndarray) -> np.ndarray:
        out = []
        for start in range(0, len(x), 500):
            some = torch.from_numpy(np.ascontiguousarray(x[start : start + 500])).float() / 255 - 0.5
            layers = [a + b.flip(3) for a, b in zip(self.body(some), self.body(some.flip(3)))][1:]
            out.append(torch.cat([F.adaptive_avg_pool2d(one, 2).flatten(1) for one in layers], 1).numpy())
        return np.concatenate(out)

    @classmethod
    def load(cls, place: Path = PLACE) -> Network:
        body = Body()
        with np.load(place, allow_pickle=False) as file:
            body.load_state_dict({name: torch.from_numpy(file[name]) for name in file.files})
        return cls(body)


def view(x: Tensor, rng: torch.Generator) -> Tensor:
    """One view of each picture: a crop of a third to all of it, mirrored or not, other brightness, contrast and colours, or grey."""
    n = len(x)

    def between(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(n, *shape, generator=rng)

    size = between(0.3, 1.0).sqrt()
    at = between(-1, 1, 2) * (1 - size)[:, None]
    way = torch.where(torch.rand(n, generator=rng) < 0.5, -1.0, 1.0)
    zero = torch.zeros(n)
    turn = torch.stack([torch.stack([size * way, zero, at[:, 0]], 1), torch.stack([zero, size, at[:, 1]], 1)], 1)
    x = F.grid_sample(
        x, F.affine_grid(turn, list(x.shape), align_corners=False), padding_mode="border", align_corners=False
    )
    x = x * between(0.6, 1.4, 1, 1, 1) * between(0.8, 1.2, 3, 1, 1) + between(-0.2, 0.2, 1, 1, 1)
    grey = (torch.rand(n, generator=rng) < 0.2)[:, None, None, None]
    return torch.where(grey, x.mean(1, keepdim=True), x)


def alike(a: Tensor, b: Tensor) -> Tensor:
    """NT-Xent: each view finds its other one among all."""
    both = F.normalize(torch.cat([a, b]), dim=1)
    scores = (both @ both.T / HEAT).fill_diagonal_(-1e9)
    return F.cross_entropy(scores, torch.arange(len(both)).roll(len(a)))


def pretrain(minutes: float, seed: int = 0) -> Body:
    torch.manual_seed(seed)
    rng = torch.Generator().manual_seed(seed)
    pictures = torch.from_numpy(images(PICTURES, (3, 32, 32), seed + 1, Leaves()))
    body, head = Body(), nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 64))
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], 1e-3, weight_decay=1e-5)
    began, step = time.process_time(), 0
    while (spent := (time.process_time() - began) / 60 / minutes) < 1:
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * (1 - spent)
        some = pictures[torch.randint(0, PICTURES, (BATCH,), generator=rng)].float() / 255 - 0.5
        a, b = (head(body(view(some, rng))[-1].mean((2, 3))) for _ in range(2))
        loss = alike(a, b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}, loss {float(loss):.3f}, {60 * spent * minutes:.0f} s", flush=True)
        step += 1
    print(f"{step} steps of {BATCH} pictures")
    return body


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=12.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    body = pretrain(args.minutes, args.seed)
    PLACE.parent.mkdir(exist_ok=True)
    np.savez(PLACE, **{name: value.numpy() for name, value in body.state_dict().items()})  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
