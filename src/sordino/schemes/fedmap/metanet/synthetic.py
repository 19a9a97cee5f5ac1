"""Where the shipped weights come from: invented sequences of gradient statistics, and labels for them.

FedMAP estimates the distributions of its features on CIFAR-10, Fashion-MNIST and SVHN and is then evaluated on them; the
prior has seen the private data. Nothing here was measured on any data set. Each sequence is one imagined client:

    median gradient norm      m_1 = 10^N(0, 0.75), then m_{t+1} = m_t exp(g + 0.1 N), trend g = N(-0.02, 0.08)
    spread of the norms       s = U(0.2, 1.2): the norms of a step are log-normal, m_t exp(s N)
    alignment                 a = U(0.02, 0.8): |mean gradient| = a x mean norm
    records in a step         10^U(1, 2.7); learning rate 10^U(-3, 0); parameters 10^U(2, 6.5)

Labels (FedMAP: "C proportional to the empirical mean plus variance of gradient norms, sigma proportional to feature
variance"; it gives no constants):

    published   C = (mean + variance of the norms of the last batch) / 2,   sigma = gradient variance / 100
    certified   C = the 20% quantile of the log-normal that has this mean and variance: steps are measured in bounds, and a
                bound below most norms leaves the most signal in such a step; below all of them no count could find it
                cost / even cost = (1 + k (2x - 1)) / (1 + k x) at the progress x of the client, k = 0.3: costs that grow
                along a straight line and add up to the budget; z / even z follows as its root, and is larger by up to a
                tenth while released gradients stand out from their noise

The certified controller sees the norms only through noisy counts, as it will in use. The bounds of its sequence come from
a wandering hand: half way to the label at each step, with a jitter of 0.3 and at most e, from a start that is off by N(0, 2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from sordino.privacy.randomness import stream
from sordino.schemes.fedmap.metanet.features import CERTIFIED, LENGTH, PUBLISHED, REACH, SPAN, WITHIN

GROWTH = 0.3  # k: how much more the last step may cost than the middle one


@dataclass(frozen=True)
class Set:
    """Sequences [n, LENGTH, features], the latest step first; which steps are there; labels [n, 2] as raw outputs."""

    steps: np.ndarray
    valid: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, rows: np.ndarray | slice) -> Set:
        return Set(self.steps[rows], self.valid[rows], self.labels[rows])


def sequences(kind: str, count: int, seed: int) -> Set:
    """So many sequences: a pure function of its arguments."""
    rng = stream(seed, 0, 0, f"metanet-{kind}")
    rows, labels = {PUBLISHED: _published, CERTIFIED: _certified}[kind](rng, count)
    steps = np.stack(rows[::-1], axis=1).astype(np.float32)
    # A client that begins has no past: one in eight sequences is cut short.
    there = np.where(rng.random(count) < 0.125, rng.integers(1, LENGTH + 1, count), LENGTH)
    valid = np.arange(LENGTH) < there[:, None]
    return Set(np.where(valid[:, :, None], steps, np.float32(0)), valid, labels.astype(np.float32))


@dataclass(frozen=True)
class _Clients:
    """The imagined clients of a set."""

    median: np.ndarray  # [step, n]
    spread: np.ndarray
    alignment: np.ndarray
    records: np.ndarray
    rate: np.ndarray
    size: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """Mean norm [step, n]."""
        return self.median * np.exp(self.spread**2 / 2)


def _clients(rng: np.random.Generator, n: int) -> _Clients:
    trend = rng.normal(-0.02, 0.08, n)
    walk = np.cumsum(trend + 0.1 * rng.standard_normal((LENGTH, n)), axis=0)
    return _Clients(
        median=10 ** (0.75 * rng.standard_normal(n)) * np.exp(walk),
        spread=rng.uniform(0.2, 1.2, n),
        alignment=rng.uniform(0.02, 0.8, n),
        records=np.ceil(10 ** rng.uniform(1, 2.7, n)),
        rate=10 ** rng.uniform(-3, 0, n),
        size=np.ceil(10 ** rng.uniform(2, 6.5, n)),
    )


def _published(rng: np.random.Generator, n: int) -> tuple[list[np.ndarray], np.ndarray]:
    who, batch = _clients(rng, n), 64
    rows, labels = [], np.empty((n, 2))
    for t in range(LENGTH):
        norms = who.median[t] * np.exp(who.spread * rng.standard_normal((batch, n)))
        mean = who.alignment * norms.mean(0)
        variance = np.maximum(np.square(norms).mean(0) - mean**2, 1e-12)  # (1/B) sum |g_k - mean|^2
        drift = who.rate * mean * np.exp(0.3 * rng.standard_normal(n))
        rows.append(_decades(np.stack([variance * batch / (batch - 1), norms.max(0), drift, variance], 1), 1e-6, 1e6))
        labels = np.log(np.stack([(norms.mean(0) + norms.var(0)) / 2, variance / 100], 1))
    return rows, labels


def _certified(rng: np.random.Generator, n: int) -> tuple[list[np.ndarray], np.ndarray]:
    who = _clients(rng, n)
    wanted = who.median * np.exp(who.spread * ndtri(WITHIN))
    bound = wanted[0] * np.exp(2.0 * rng.standard_normal(n))
    multiplier = np.exp(rng.normal(0.7, 0.6, n))
    progress, ahead = rng.random(n), 0.2 * rng.standard_normal(n)
    rows, change = [], np.zeros(n)
    for t in range(LENGTH):
        within = ndtr(np.log(bound / who.median[t]) / who.spread)
        noise = 0.5 * multiplier / np.sqrt(0.05) / who.records  # of a centred bit that takes a twentieth of the step
        seen = np.clip(within + noise * rng.standard_normal(n), 0, 1)
        clipped = np.minimum(who.alignment * who.mean[t], who.alignment * bound)
        noise_square = who.size * np.square(multiplier * bound / who.records)
        wobble = np.sqrt(2 / who.size) * rng.standard_normal(n)
        signal = np.square(clipped) / noise_square + wobble
        drift = np.sqrt(np.square(clipped) + noise_square) / bound
        rows.append(
            np.stack(
                [
                    2 * seen - 1,
                    change,
                    1 / (1 + np.square(noise / 0.25)),
                    _decades(signal, 1e-3, 1e2),
                    _decades(drift, 1e-3, 1e3),
                    2 * progress - 1,
                    np.clip(ahead, -1, 1),
                ],
                axis=1,
            )
        )
        if t < LENGTH - 1:
            change = np.clip(0.5 * np.log(wanted[t] / bound) + 0.3 * rng.standard_normal(n), -REACH, REACH)
            bound = bound * np.exp(change)
    missing = np.log(wanted[-1] / bound)
    stands_out = 0.05 * (1 - progress) * (1 + np.clip(1 + _decades(signal, 1e-3, 1e2), -1, 1))
    noise_label = stands_out - 0.5 * np.log((1 + GROWTH * (2 * progress - 1)) / (1 + GROWTH * progress))
    return rows, np.stack([_inverse(missing, REACH), _inverse(noise_label, SPAN)], axis=1)


def _inverse(wanted: np.ndarray, reach: float) -> np.ndarray:
    """The output whose tanh, times `reach`, is the wanted change; changes beyond 95% of the reach count as that."""
    return np.arctanh(np.clip(wanted / reach, -0.95, 0.95))


def _decades(values: np.ndarray, low: float, high: float) -> np.ndarray:
    return np.log10(np.clip(values, low, high))
