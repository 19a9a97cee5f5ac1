"""A federation whose clients are holders, reached by direct calls instead of a network."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sordino.deployment.federate import federate
from sordino.engines.flower.engine import Patience
from sordino.engines.flower.holder import Holder
from sordino.engines.flower.policy import Policy
from sordino.engines.flower.seals import Plain
from sordino.engines.flower.transport import Direct, SecureChannel
from sordino.federation.population import Federation

ANYTHING = Policy(
    epsilon=1e30, delta=0.5, observers=("public", "secagg-server", "server"), variants=("certified", "published"),
    secure=False, least=1,
)  # fmt: skip
QUICK = Patience(deadline=5.0, wait=2.0)


class Hall:
    """Holders by name; `post` reaches them."""

    def __init__(self, federation, folder: Path, policy: Policy = ANYTHING):
        self.federation, self.folder, self.policy = federation, folder, policy
        self.names = [f"n{k}" for k in range(federation.clients)]
        self.holders = {name: self.open(name) for name in self.names}
        self.direct = Direct({name: holder.handle for name, holder in self.holders.items()})
        self.post = SecureChannel(self.direct, Plain(), self.names)

    def open(self, name: str) -> Holder:
        data = self.federation.raw(self.names.index(name))
        return Holder(name, data, self.policy, self.folder / name, Plain())

    def restart(self, name: str) -> None:
        self.holders[name].close()
        self.holders[name] = self.open(name)
        self.direct.handlers[name] = self.holders[name].handle

    def train(self, plan, out, **others):
        test, classes = self.federation._test, self.federation.classes
        others = {"patience": QUICK} | others
        return federate(self.post, plan, out, classes=classes, test=test, normalise=self.federation.normalise, **others)

    def outlive(self, plan, out, death, dice, curse):
        """Train through deaths of the server, after each of which a holder starts anew: (deaths, result)."""
        for name in self.names:
            curse(name)
        deaths = 0
        while True:
            try:
                resume = (out / "deployment.json").exists()
                return deaths, self.train(plan, out, resume=resume, patience=Patience(1.0, 5.0))
            except death:
                deaths += 1
                name = self.names[int(dice.integers(len(self.names)))]
                self.restart(name)
                curse(name)

    def close(self):
        for holder in self.holders.values():
            holder.close()


def odds(dice, death):
    """What happens to a message: now and then the server dies of it, it is not heard, or its answer is lost."""

    def fate(*_):
        roll = dice.random()
        if roll < 0.01:
            raise death
        return "deaf" if roll < 0.03 else "mute" if roll < 0.05 else None

    return fate


def toy(clients: int = 5, features: int = 5, classes: int = 3, size: int = 20, seed: int = 0) -> Federation:
    """Linearly separable points, a few more at each further client."""
    rng = np.random.Generator(np.random.PCG64(seed))
    weights = rng.normal(size=(features, classes))

    def points(n: int):
        x = rng.normal(size=(n, features)).astype(np.float32)
        return x, (x @ weights).argmax(1)

    pairs = [points(size + k) for k in range(clients)]
    return Federation.from_arrays(pairs, test=points(400), classes=classes, name="toy")
