"""DLG (Zhu, Liu and Han 2019, Deep Leakage from Gradients): L-BFGS on the squared gradient distance, images and labels both free.

It needs activations with a second derivative (sigmoid, tanh); on ReLU networks the matching loss has kinks and most restarts stall. A
restart that stalls above `enough` is given up for the next one; the least loss wins.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from sordino.attacks.inversion.attack import MessageAttack, Task
from sordino.attacks.inversion.descent import LBFGS
from sordino.attacks.inversion.gradient import squared
from sordino.attacks.inversion.observed import Reconstruction
from sordino.engines.inprocess import one_thread
from sordino.privacy.randomness import stream


@dataclass(frozen=True)
class DLG(MessageAttack):
    """`enough` is the relative squared distance at which an image is exact to the eye."""

    steps: int = 2000
    restarts: int = 3
    enough: float = 3e-8
    patience: int = 150  # steps in which the loss must fall by a hundredth

    name = "dlg"

    def draw(self, task: Task) -> Reconstruction:
        """Labels and public images are not used: DLG knows the message and the model."""
        victim, message, matcher, progress, say = task.victim, task.message, task.matcher, task.progress, task.say
        started = time.process_time()
        distance = self.distance(task, squared)
        shape = (1, message.batch, *victim.shape)
        pixels, span = int(np.prod(shape)), torch.from_numpy(np.asarray(victim.high - victim.low, np.float32))
        low = torch.from_numpy(np.asarray(victim.low, np.float32))

        def images(p: Tensor) -> Tensor:
            return low + p[:pixels].reshape(shape) * span  # pixels of 0 to 1 whatever the normalisation

        def classes(p: Tensor) -> Tensor:
            return F.softmax(p[pixels:].reshape(1, message.batch, victim.classes), -1)

        def objective(p: Tensor) -> tuple[float, Tensor]:
            pull = matcher.step(images(p), classes(p), distance)
            return float(pull.value[0]), torch.cat([(pull.images * span).reshape(-1), pull.logits.reshape(-1)])

        restart, step, before, taken, mark = 0, 0, 0.0, 0, float("inf")
        state: LBFGS | None = None
        best, least = torch.zeros(pixels + message.batch * victim.classes), float("inf")
        kept = progress.load()
        if kept is not None:
            arrays, numbers = kept
            best, least = arrays.pop("best"), numbers["least"]
            restart, step, before = int(numbers["restart"]), int(numbers["step"]), numbers["seconds"]
            taken, mark = int(numbers["taken"]), numbers["mark"]
            state = LBFGS.from_arrays(arrays) if "point" in arrays else None

        def write() -> None:
            seconds = before + time.process_time() - started
            numbers = {"restart": restart, "step": step, "seconds": seconds, "least": least, "taken": taken}
            numbers["mark"] = mark
            progress.save({**({} if state is None else state.arrays()), "best": best}, numbers)

        with one_thread():
            while restart < self.restarts and least > self.enough:
                if state is None:
                    rng = stream(self.seed, restart, message.batch, "inversion-dlg")
                    start = [rng.random(pixels), rng.standard_normal(message.batch * victim.classes)]
                    state = LBFGS.start(torch.from_numpy(np.concatenate(start).astype(np.float32)), objective)
                while step < self.steps and not state.stalled and state.value > self.enough:
                    if step % self.patience == 0:
                        if state.value > 0.99 * mark:
                            break
                        mark = state.value
                    state.advance(objective)
                    step += 1
                    taken += 1
                    if step % 20 == 0:
                        say(self.name, restart * self.steps + step, self.restarts * self.steps)
                    if progress.due():
                        write()
                if state.value < least:
                    best, least = state.point, state.value
                restart, step, state, mark = restart + 1, 0, None, float("inf")
        say(self.name, self.restarts * self.steps, self.restarts * self.steps)
        write()
        made = images(best)[0].clamp(min=low, max=low + span).numpy().copy()
        seconds = before + time.process_time() - started
        return Reconstruction(made, np.asarray(classes(best)[0].argmax(-1)), least, taken, seconds)
