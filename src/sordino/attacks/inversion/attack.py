"""What the attacks on messages share: how they are called, and what their result depends on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sordino.attacks.inversion.adaptive import adapted
from sordino.attacks.inversion.gradient import Distance, Matcher
from sordino.attacks.inversion.observed import ObservedMessage, Reconstruction, Victim
from sordino.attacks.inversion.progress import Progress, digest

Say = Callable[[str, int, int], None]


def quiet(what: str, done: int, total: int) -> None:
    """No progress bar."""


@dataclass(frozen=True, eq=False)
class Task:
    """One message to be inverted, what is known besides it, and where the attack stands."""

    matcher: Matcher
    progress: Progress
    labels: np.ndarray | None  # None: not known
    public: np.ndarray | None  # images in model input; None: none are known
    say: Say

    @property
    def victim(self) -> Victim:
        """Who is attacked: the model, its loss and the shape of a record."""
        return self.matcher.victim

    @property
    def message(self) -> ObservedMessage:
        """What the attacker saw of the victim's update."""
        return self.matcher.message


@dataclass(frozen=True)
class MessageAttack(ABC):
    """An attack on one message. Its fields are all of its settings."""

    seed: int = 0
    adaptive: bool = False  # take the heuristic defence into account that the plan names

    name: ClassVar[str]

    def __call__(
        self,
        victim: Victim,
        message: ObservedMessage,
        progress: Progress | None = None,
        labels: np.ndarray | None = None,
        public: np.ndarray | None = None,
        say: Say = quiet,
    ) -> Reconstruction:
        """`labels` and `public` images are what is known besides the message; an attack may do without either."""
        progress = progress or Progress()
        progress.key = digest(self, message, labels, public)
        return self.draw(Task(Matcher(victim, message), progress, labels, public, say))

    @abstractmethod
    def draw(self, task: Task) -> Reconstruction:
        """The images behind the message."""

    def distance(self, task: Task, plain: Callable[..., Distance]) -> Distance:
        """`plain`, over what the message tells an attacker that knows the defence, or does not."""
        return adapted(task.matcher, plain, self.adaptive)
