"""What tests of whole FedMAP runs have in common: small runs, crashes in the middle, and what was truly paid."""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict

import pytest

from populations import toy
from sordino.engines import EngineOptions
from sordino.privacy import rdp
from sordino.schemes.fedmap.client import ControlledSteps
from sordino.training import train

HERE = EngineOptions("in-process", evaluate_every=100)


class Crash(Exception):
    """The machine goes away."""


def run(linear, folder, wanted, **more):
    return train(linear(), toy(), wanted, out=folder, **{"options": HERE, **more})


@contextlib.contextmanager
def crashing(monkeypatch, after, round=None):
    """Crash when so many errands are done, of one round or of all."""
    real, count = ControlledSteps.contribute, [0]

    def contribute(self, request, item, out):
        if round in (None, request.round):
            if count[0] == after:
                raise Crash
            count[0] += 1
        return real(self, request, item, out)

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(ControlledSteps, "contribute", contribute)
        yield


def watch_steps(monkeypatch):
    """Rate and multiplier of every step that a client takes, by client; attempts that a crash cuts short are in it too."""
    kept = defaultdict(list)
    real = ControlledSteps._step

    def step(self, round, k, number, state, z):
        kept[k].append((min(1.0, self.plan.batch_size / self.site.federation.size(k)), z))
        return real(self, round, k, number, state, z)

    monkeypatch.setattr(ControlledSteps, "_step", step)
    return kept


def spent(paid, order):
    """Renyi divergence of each client, by another formula than the table that granted it."""
    return {k: math.fsum(rdp.poisson_gaussian(order, q, z) for q, z in steps) for k, steps in paid.items()}
