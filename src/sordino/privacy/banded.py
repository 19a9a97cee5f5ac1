"""Noise that is correlated over rounds, so that it partly cancels in the model: banded matrix factorisation, on the integer grid.

A model is a sum over rounds of noisy sums x_1, x_2, ... What is released is y = C x + n with independent noise n, for a lower-triangular
Toeplitz matrix C of b bands c_0 = 1, c_1, ..., c_(b-1) (Choquette-Choo et al. 2023, "(Amplified) banded matrix factorization"). An observer who has
y_1, ..., y_t can solve for x_t + (C^-1 n)_t. Its noise is larger than that of one release and falls over rounds into what came before.

**What one client is exposed to.** Clients take turns: a client may take part in every b-th round, t, t + b, t + 2 b, ... (`schemes.turns`). What it
adds in round t shows in y_t, ..., y_(t+b-1) and nowhere else: its turns do not overlap. What it adds in one turn moves y by
(c_0, ..., c_(b-1)) times a vector no longer than the bound. Noise of standard deviation z |c| bound on each y therefore makes a turn one Gaussian
event of multiplier z, taken with the probability of the client's own coin; turns are composed, each chosen with knowledge of all y before
it. What others add is, given all y so far, the same in both worlds. In a test sensitivities are compared with those of all sets of rounds.

**On the grid.** c_i = a_i / 2^BITS with whole a_i. Sums x_t are whole numbers of grid steps, so that a_0 x_t + a_1 x_(t-1) + ... is a whole
number, to which n_t, an exact discrete Gaussian of deviation z |a| bound, is added: `grid_noise` says what that costs. What leaves is

    x_t + w_t        w_t = floor((n_t - a_1 w_(t-1) - a_2 w_(t-2) - ...) / 2^BITS + 1/2)

which is the floor of (y_t - a_1 (x_(t-1) + w_(t-1)) - ...) / 2^BITS + 1/2, a function of y_t and of what left before: no number of the proof is
rounded. The state is w of the last b - 1 rounds. It is a function of noise alone, and as secret as noise: it is never written down.

**Which C.** The first b coefficients of the square root of the workload's generating function, 1 / (1 - x) for a plain sum and
1 / ((1 - x)(1 - m x)) for a server with momentum m (Kalinin and Lampert 2024, "Banded square root matrix factorization").
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from sordino.errors import BadInput, NotPrivate, at_least, whole
from sordino.privacy import events, grid_noise
from sordino.privacy.bounds import Bound, Flat
from sordino.privacy.mechanisms import FixedPoint, Sum, _noisy, _stamped
from sordino.privacy.randomness import Source
from sordino.privacy.release import Private, Released

BITS = 8  # of a coefficient
_ONE = 1 << BITS
MOST = 256  # bands


@dataclass(frozen=True)
class Bands:
    """The coefficients of C, in parts of 2^BITS; the first is one."""

    steps: tuple[int, ...]

    def __post_init__(self) -> None:
        if (
            not self.steps
            or self.steps[0] != _ONE
            or any(isinstance(a, bool) or not isinstance(a, int) for a in self.steps)
        ):
            raise BadInput(f"bands are whole numbers of which the first is {_ONE}, not {self.steps!r}.")
        if len(self.steps) > MOST:
            raise BadInput(f"{len(self.steps)} bands are more than {MOST}; ask for at most that many.")

    @classmethod
    def square_root(cls, count: int, momentum: float = 0.0) -> Bands:
        """`count` coefficients of the square root of 1 / ((1 - x)(1 - momentum x)).

        >>> Bands.square_root(4).steps
        (256, 128, 96, 80)
        """
        whole(1, bands=count)
        at_least(0.0, momentum=momentum)
        root = np.cumprod([1.0, *((2 * i - 1) / (2 * i) for i in range(1, count))])  # of 1 / (1 - x)
        other = root * momentum ** np.arange(count)
        product = [float(root[: i + 1] @ other[i::-1]) for i in range(count)]
        return cls(tuple(round(c * _ONE) for c in product))

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def coefficients(self) -> np.ndarray:
        """The coefficients as floats. They are kept as integers, so that every machine has the same."""
        return np.array(self.steps) / _ONE

    @property
    def norm(self) -> float:
        """|c|: how far a contribution of length 1 moves all that it shows in. Rounded up by a hair."""
        return math.sqrt(sum(a * a for a in self.steps)) / _ONE * (1 + 2.0**-48)

    @property
    def room(self) -> float:
        """How much larger than noise of multiplier z the numbers become that a round works with."""
        spread = float(np.linalg.norm(self.inverse(4 * len(self) + 64)))
        return 2 * _ONE * self.norm * (1 + spread * sum(self.steps) / _ONE)

    def inverse(self, rounds: int) -> np.ndarray:
        """The first column of C^-1: how the noise of one round shows in those that follow."""
        c, out = self.coefficients, np.zeros(rounds)
        for t in range(rounds):
            back = min(t, len(c) - 1)
            out[t] = (t == 0) - float(c[1 : back + 1] @ out[t - back : t][::-1])
        return out

    def noise_of_round(self, t: int) -> float:
        """The deviation of the noise in what round t lets out, in multiplier x bound."""
        return self.norm * float(np.linalg.norm(self.inverse(t)))

    def noise_of_model(self, rounds: int, momentum: float = 0.0) -> float:
        """The deviation of the noise in the sum of all `rounds` steps, in multiplier x bound; one band: sqrt(rounds) for plain steps."""
        steps = np.cumsum(momentum ** np.arange(rounds))  # how much the release of j rounds ago counts by now
        seen = np.convolve(self.inverse(rounds), steps)[:rounds]
        return self.norm * float(np.linalg.norm(seen))


class CorrelatedNoise:
    """The noise of one run, round after round."""

    def __init__(self, bands: Bands) -> None:
        self.bands, self.round = bands, 0
        self._past: deque[np.ndarray] = deque(maxlen=max(1, len(bands) - 1))
        self._settled: tuple[Bound, FixedPoint, float, int] | None = None

    def gaussian(
        self, total: Private[Sum], bound: Bound, multiplier: float, t: int, source: Source
    ) -> tuple[Released[np.ndarray], events.Event]:
        """The sum of round t, which must be the next one, with its noise; event gaussian(multiplier) for every client whose turn it is."""
        value = _stamped(total, bound)
        noise = self.advance(t, value.codes.size, value.grid, bound, multiplier, source)
        how = f"Gaussian noise in {len(self.bands)} bands, multiplier {multiplier:g}, bound {bound.size:g}"
        return Released(value.grid.decode(value.codes + noise), how), events.gaussian(multiplier)

    def skip(self, total: Private[Sum], bound: Bound, multiplier: float, t: int, source: Source) -> None:
        """Draw the noise of a round whose sum leaves nowhere, or left before: later rounds take it back. Of `total` the shape alone is used."""
        value = _stamped(total, bound)
        self.advance(t, value.codes.size, value.grid, bound, multiplier, source)

    def advance(
        self, t: int, length: int, grid: FixedPoint, bound: Bound, multiplier: float, source: Source
    ) -> np.ndarray:
        """w of round t. Noise that later rounds take back must be that of the same bound, grid and multiplier throughout."""
        _noisy(multiplier)
        if not isinstance(bound, Flat) or not bound.honest:
            raise NotPrivate("Noise that is correlated over rounds is proven for one bound on the whole contribution.")
        if t != self.round + 1:
            raise NotPrivate(
                f"The noise of round {t} was asked for after that of round {self.round}: correlated noise is drawn once, in order."
            )
        settled = (bound, grid, multiplier, length)
        if self._settled not in (None, settled):
            raise NotPrivate(
                "Noise that is correlated over rounds needs the same bound, grid and multiplier in all of them."
            )
        spread = float(bound.std(multiplier)) * self.bands.norm * _ONE * grid.scale
        left = grid_noise.gaussian(spread, length, source)
        for a, past in zip(self.bands.steps[1:], self._past):
            left -= a * past
        w = (left + _ONE // 2) >> BITS
        self._settled, self.round = settled, t
        self._past.appendleft(w)
        return w
