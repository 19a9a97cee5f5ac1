"""What IG and GI share: several groups of dummy images, moved side by side by signed Adam inside the box of pixel values.

The best point of each group is remembered, so that a late bad step costs nothing. Groups are moved in one pass. The search stops
when no group has improved for a while, and its whole state goes to disk from time to time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from sordino.attacks.inversion.attack import MessageAttack, Task
from sordino.attacks.inversion.descent import SignedAdam
from sordino.attacks.inversion.gradient import Distance, FeaturePrior, Matcher
from sordino.attacks.inversion.labels import infer_labels
from sordino.attacks.inversion.observed import Reconstruction
from sordino.attacks.inversion.priors import Term, total_variation
from sordino.engines.inprocess import one_thread
from sordino.privacy.randomness import stream

TINY = 1e-4  # relative improvement that counts


@dataclass(frozen=True)
class Course:
    """How long, how fast, and when to give up."""

    steps: int
    rate: Callable[[float], float]  # part of the run that is over -> rate
    patience: int  # steps without improvement of any group
    langevin: float = 0.0  # noise on each step, over the rate


Prior = tuple[float, Callable[[Tensor], Term]]  # weight and term


@dataclass(frozen=True, eq=False)
class Found:
    """The best images of each group, [group, batch, ...], and their losses."""

    best: Tensor
    least: Tensor
    labels: np.ndarray
    steps: int
    seconds: float

    def reconstruction(self, images: np.ndarray) -> Reconstruction:
        """The result of the search as the images that the attacker would show."""
        return Reconstruction(images, self.labels, float(self.least.min()), self.steps, self.seconds)


@dataclass(frozen=True)
class SearchAttack(MessageAttack):
    """The settings that IG and GI share."""

    steps: int = 1200
    lr: float = 0.1  # in pixel ranges
    variation: float = 1e-1
    patience: float = 0.4  # give up when this share of the run brought nothing; the rate of IG first falls after 3/8

    def search(
        self,
        task: Task,
        groups: int,
        distance: Distance,
        rate: Callable[[float], float],
        priors: Sequence[Prior] = (),
        features: FeaturePrior | None = None,
        langevin: float = 0.0,
    ) -> Found:
        """Labels come from the last layer, unless they are known. Total variation is a prior of both attacks."""
        labels = infer_labels(task.matcher, self.seed) if task.labels is None else np.sort(np.asarray(task.labels))
        span = task.victim.span
        course = Course(self.steps, lambda part: self.lr * span * rate(part), math.ceil(self.patience * self.steps), langevin)  # fmt: skip
        whole = [(self.variation / span, total_variation), *priors]
        return search(task, labels.astype(np.int64), groups, distance, whole, course, self.seed, features, self.name)


def search(
    task: Task,
    labels: np.ndarray,
    groups: int,
    distance: Distance,
    priors: Sequence[Prior],
    course: Course,
    seed: int,
    features: FeaturePrior | None = None,
    name: str = "ig",
) -> Found:
    """The best images of each group, moved side by side."""
    matcher, progress, say = task.matcher, task.progress, task.say
    victim, started = matcher.victim, time.process_time()
    low, high = (torch.from_numpy(np.asarray(end, np.float32)) for end in (victim.low, victim.high))
    q = F.one_hot(torch.from_numpy(labels), victim.classes).float().expand(groups, -1, -1)
    kept = progress.load()
    if kept is None:
        rng = stream(seed, 0, groups, "inversion-start")
        shape = (groups, len(labels), *victim.shape)
        middle, half = (low + high) / 2, (high - low) / 2
        start = middle + half * torch.from_numpy(rng.standard_normal(shape).clip(-2, 2) / 2).float()
        adam = SignedAdam.start(start)
        best, least = start.clone(), torch.full((groups,), torch.inf)
        step, idle, before = 0, 0, 0.0
    else:
        arrays, numbers = kept
        adam, best, least = SignedAdam.from_arrays(arrays), arrays["best"], arrays["least"]
        step, idle, before = int(numbers["step"]), int(numbers["idle"]), numbers["seconds"]

    def write() -> None:
        numbers = {"step": step, "idle": idle, "seconds": before + time.process_time() - started}
        progress.save({**adam.arrays(), "best": best, "least": least}, numbers)

    with one_thread():
        while step < course.steps and idle < course.patience:
            loss, slope = _loss(matcher, adam.point, q, distance, priors, features)
            better = loss < least * (1 - TINY)
            idle = 0 if bool(better.any()) else idle + 1
            least = torch.where(loss < least, loss, least)
            best[better] = adam.point[better]
            rate = course.rate(step / course.steps)
            if course.langevin:
                rng = stream(seed, step, groups, "inversion-noise")
                jump = torch.from_numpy(rng.standard_normal(tuple(adam.point.shape)).astype(np.float32))
                adam.point.add_(jump * (high - low), alpha=course.langevin * rate)
            adam.move(slope, rate, low, high)
            step += 1
            if step % 20 == 0:
                say(name, step, course.steps)
            if progress.due():
                write()
    say(name, course.steps, course.steps)
    write()
    return Found(best, least, labels, step, before + time.process_time() - started)


def _loss(
    matcher: Matcher,
    x: Tensor,
    q: Tensor,
    distance: Distance,
    priors: Sequence[Prior],
    features: FeaturePrior | None,
) -> tuple[Tensor, Tensor]:
    pull = matcher.step(x, q, distance, features)
    loss, slope = pull.value, pull.images.clone()
    for weight, prior in priors:
        if weight:
            value, way = prior(x)
            loss = loss + weight * value
            slope.add_(way, alpha=weight)
    return loss, slope
