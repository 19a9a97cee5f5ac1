"""KED-MI (Chen et al. 2021, Knowledge-Enriched Distributional Model Inversion): what a class looks like, from the model alone.

A generator learns from public images of other classes, while its discriminator also learns the target's answers on them. Then, for each
private class, a Gaussian over the generator's inputs is moved until the target recognises that class in what it draws. Success is judged by an
independent classifier that was trained on the private classes.

This inverts classes and not records. A model that is good at its task gives its classes away whatever noise it was trained with, so success
here is not a violation of differential privacy.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sordino.attacks.inversion.attack import Say
from sordino.attacks.inversion.gan import LATENT, Discriminator, Generator
from sordino.attacks.inversion.observed import Victim
from sordino.attacks.inversion.progress import Progress
from sordino.engines.inprocess import one_thread
from sordino.errors import BadInput
from sordino.privacy.randomness import SERVER, stream

ENTROPY, CLASS = 1e-4, 100.0  # weights of the paper
Answers = Callable[[Tensor], Tensor]  # images -> logits


@dataclass(frozen=True, eq=False)
class ClassInversion:
    """Images that were drawn for each private class, [class, sample, ...] in model input, and how often a judge agrees."""

    images: np.ndarray
    classes: tuple[int, ...]
    top1: float
    top5: float
    by_seed: tuple[float, ...]  # top-1 agreement of each seed
    chance: float  # of naming the class without looking
    seconds: float


@dataclass(frozen=True)
class KedMI:
    """The paper trains 120 epochs on a graphics card; digits need few."""

    epochs: int = 10
    batch: int = 64
    critics: int = 2  # steps of the discriminator for one of the generator (the paper takes 5)
    recovery: int = 300
    samples: int = 5
    seeds: int = 3
    lr: float = 2e-4
    seed: int = 0

    name = "ked-mi"

    def __call__(
        self,
        victim: Victim,
        target: Answers,
        public: np.ndarray,
        judge: Answers,
        progress: Progress | None = None,
        say: Say = lambda *_: None,
        private: Sequence[int] | None = None,
    ) -> ClassInversion:
        """`target` answers with the attacked model's logits; `public` are images of classes that it was not trained on.

        `private` are the classes to draw; all that the model tells apart unless given. An interruption costs the seed that was being
        worked on.
        """
        drawn = tuple(range(victim.classes) if private is None else private)
        if len(public) < 2 * self.batch:
            raise BadInput(f"{len(public)} public images are too few for KED-MI; give at least {2 * self.batch}.")
        started, progress = time.process_time(), progress or Progress()
        progress.key = self._key(target, public, drawn)
        found = progress.load()
        rates, images = ([], None) if found is None else (found[0]["rates"].tolist(), found[0]["images"])
        before = 0.0 if found is None else found[1]["seconds"]
        for k in range(len(rates), self.seeds):
            rng = stream(self.seed, k, SERVER, "inversion-ked-mi")
            with one_thread(), torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(rng.integers(2**62)))  # layers draw their weights from the global generator
                generator, critic = self._gan(victim, target, public, rng, k, say)
                made = self._recover(victim, target, generator, critic, drawn, k, say)
            rates.append(_agreement(judge, made, drawn))
            images = made if images is None else images
            seconds = before + time.process_time() - started
            progress.save({"rates": torch.tensor(rates, dtype=torch.float64), "images": images}, {"seconds": seconds})
        assert images is not None
        top1, top5 = np.mean(rates, axis=0)
        seconds, by_seed = before + time.process_time() - started, tuple(rate[0] for rate in rates)
        return ClassInversion(images.numpy(), drawn, float(top1), float(top5), by_seed, 1.0 / len(drawn), seconds)

    def _key(self, target: Answers, public: np.ndarray, drawn: tuple[int, ...]) -> str:
        """What the result depends on: the settings, the public images, and the model by its answers on some of them."""
        some = torch.from_numpy(np.asarray(public[: self.batch], np.float32))
        with torch.no_grad():
            said = target(some).numpy()
        parts = (
            repr((self, drawn)).encode(),
            np.ascontiguousarray(public).tobytes(),
            np.ascontiguousarray(said).tobytes(),
        )
        return hashlib.sha256(b"".join(parts)).hexdigest()[:16]

    def _gan(
        self, victim: Victim, target: Answers, public: np.ndarray, rng: np.random.Generator, k: int, say: Say
    ) -> tuple[Generator, Discriminator]:
        low, high = (torch.from_numpy(np.asarray(end, np.float32)) for end in (victim.low, victim.high))
        generator, critic = Generator(victim.shape, low, high), Discriminator(victim.shape, victim.classes)
        adams = [torch.optim.Adam(part.parameters(), self.lr, (0.5, 0.999)) for part in (generator, critic)]
        images = torch.from_numpy(np.asarray(public, np.float32))
        with torch.no_grad():
            soft = torch.cat([F.softmax(target(part), -1) for part in images.split(500)])
        count = 0
        for epoch in range(self.epochs):
            say(f"{self.name}: generator {k + 1}", epoch, self.epochs)
            for rows in torch.from_numpy(rng.permutation(len(images))).split(self.batch):
                if len(rows) < self.batch:
                    continue
                x = images[rows]
                with torch.no_grad():
                    drawn = generator(_latent(rng, len(rows)))
                loss = critic_loss(critic, x, soft[rows], drawn)
                _descend(adams[1], loss)
                count += 1
                if count % self.critics == 0:
                    made, logits = critic(generator(_latent(rng, len(rows))))
                    with torch.no_grad():
                        real, _ = critic(x)
                    gap = (real.mean(0) - made.mean(0)).abs().mean()
                    _descend(adams[0], gap + ENTROPY * _entropy(logits))
        say(f"{self.name}: generator {k + 1}", self.epochs, self.epochs)
        for part in (generator, critic):
            part.eval().requires_grad_(False)
        return generator, critic

    def _recover(
        self,
        victim: Victim,
        target: Answers,
        generator: Generator,
        critic: Discriminator,
        drawn: tuple[int, ...],
        k: int,
        say: Say,
    ) -> Tensor:
        """A Gaussian for each class, moved until the target recognises what is drawn from it."""
        rng = stream(self.seed, k, SERVER, "inversion-recovery")
        mean = torch.zeros(len(drawn), 1, LATENT, requires_grad=True)
        spread = torch.ones(len(drawn), 1, LATENT, requires_grad=True)  # log variance
        adam = torch.optim.Adam([mean, spread], 0.02)
        wanted = torch.tensor(drawn).repeat_interleave(self.samples)
        for step in range(self.recovery):
            z = self._draw(rng, mean, spread)
            images = generator(z)
            _, logits = critic(images)
            size = torch.logsumexp(logits, -1)
            prior = F.softplus(size).mean() - size.mean()
            _descend(adam, prior + CLASS * F.cross_entropy(target(images), wanted))
            if step % 20 == 0:
                say(f"{self.name}: classes {k + 1}", step, self.recovery)
        say(f"{self.name}: classes {k + 1}", self.recovery, self.recovery)
        with torch.no_grad():
            images = generator(self._draw(rng, mean, spread))
        return images.reshape(len(drawn), self.samples, *victim.shape)

    def _draw(self, rng: np.random.Generator, mean: Tensor, spread: Tensor) -> Tensor:
        noise = torch.from_numpy(rng.standard_normal((len(mean), self.samples, LATENT)).astype(np.float32))
        return (mean + torch.exp(spread / 2) * noise).reshape(-1, LATENT)


def _agreement(judge: Answers, images: Tensor, drawn: tuple[int, ...]) -> list[float]:
    """How often the judge names the class first, and among its first five. `images`: [class, sample, ...]."""
    classes, samples = images.shape[:2]
    with torch.no_grad():
        order = judge(images.flatten(0, 1)).argsort(-1, descending=True).reshape(classes, samples, -1)
    right = order == torch.tensor(drawn)[:, None, None]
    return [float(right[:, :, :first].any(-1).double().mean()) for first in (1, 5)]


def critic_loss(critic: Discriminator, real: Tensor, soft: Tensor, drawn: Tensor) -> Tensor:
    """Soft cross-entropy with the target's answers, and half of: real images have a large log-sum-exp, drawn ones a small one."""
    _, on_real = critic(real)
    _, on_drawn = critic(drawn)
    size, size_drawn = torch.logsumexp(on_real, -1), torch.logsumexp(on_drawn, -1)
    answers = -(soft * F.log_softmax(on_real, -1)).sum(1).mean()
    return answers + 0.5 * (F.softplus(size).mean() - size.mean() + F.softplus(size_drawn).mean())


def _entropy(logits: Tensor) -> Tensor:
    return -(F.softmax(logits, -1) * F.log_softmax(logits, -1)).sum(1).mean()


def _latent(rng: np.random.Generator, count: int) -> Tensor:
    return torch.from_numpy(rng.standard_normal((count, LATENT)).astype(np.float32))


def _descend(adam: torch.optim.Optimizer, loss: Tensor) -> None:
    adam.zero_grad()
    loss.backward()
    adam.step()


def answers_of(module: nn.Module) -> Answers:
    """The logits of a module in evaluation mode."""
    frozen = module.eval().requires_grad_(False)
    return lambda x: frozen(x)
