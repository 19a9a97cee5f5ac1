"""FedMAP (Federated meta-driven adaptive privacy): a network at each client sets the bound and the noise of every step.

Published (algorithm 1): MetaNet reads four raw statistics of each mini-batch and gives (C, sigma); the client clips to C and
adds N(0, sigma^2), to the sum of the batch or to its mean (`schemes.fedmap.published` has both readings). It sends its model and its sigma. The server adds up (equations 6 to 9)

    rho_i(alpha) += alpha q^2 / (2 sigma_i^2),   eps_i = min_alpha rho_i + log(1/delta) / (alpha - 1)

and sends back eps_global = max_i eps_i. MetaNet's loss is lambda (C/sigma sqrt(2 ln(1.25/delta)) - eps_target)^2
+ beta eps_global (equations 11 to 15), whose second term is a constant to it.

Certified: MetaNet reads released values only and gives (C, z); the noise is z C on the sum of clipped gradients of a Poisson
batch. Every step is paid for out of the client's own budget of Renyi divergence at an order committed before round one,
before any record is drawn (`sordino.schemes.fedmap.budgets`, `sordino.privacy.round_budget`). With c(z) the cost of a step and a
the allowance (what is left of the budget over the steps that are left), the client tunes its network to

    u/2 (z / z_even)^2  +  lambda log^2(c(z) / a)  +  beta s c(z) / a  +  (within - 1/5) log C

less noise; the local penalty of equation 12, with a true cost in the place of a formula that holds below epsilon 1 only; the
feedback of equation 14, where s, the share of the client's budget that is spent, scales the marginal cost of the proposal instead
of standing alone, where its gradient would be zero; and the pinball loss whose minimum is a low quantile of the norms, through
the noisy count. The loop is closed by the ledger, whose grants tell a client what is left of its own budget; no one is told of another's.

What is asked of a step here is that count; the bound itself moves at the clients (`sordino.schemes.fedmap.client`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sordino.errors import at_least, between, one_of, positive
from sordino.privacy.bounds import Bound, Flat
from sordino.privacy.vocabulary import Sampling
from sordino.rules.base import NOTHING, Queries, RoundOutput, State
from sordino.rules.query import Answer, CentredBit

if TYPE_CHECKING:
    from sordino.methods import RuleContext
    from sordino.plan import Plan

ORDERS = np.array([2.0, 4.0, 8.0, 16.0, 32.0, 64.0])  # section 3.2
BINS = 100

REASONS = (
    "The cost alpha q^2 / (2 sigma^2) is the first term of an expansion and lies below the true Renyi divergence, up to "
    "many times where the noise is small or the order large.",
    "Sigma is the absolute size of the noise while the bound C is chosen apart from it: what protects is sigma over the "
    "sensitivity, which the ledger never sees.",
    "It is not said whether single gradients or a batch's mean is clipped, so that the sensitivity is not known.",
    "A client takes a noisy step for each batch of each local epoch, and the ledger charges one for the round.",
    "The ledger counts on client sampling, but the server sees who takes part and what each of them sends.",
    "Cohorts of a fixed size are accounted as if every client had flipped a coin.",
    "C and sigma are computed from the raw gradients of the batch that they protect, so that the size of the noise "
    "itself depends on the data and no composition theorem applies.",
    "Each client sends its sigma as it is, and the largest epsilon of any client is sent to all: both are exact functions of "
    "private data.",
    "Noise that is chosen from earlier outputs needs a filter at an order committed beforehand; summing what was spent and "
    "taking the best order afterwards proves nothing.",
    "Updates are weighted by the exact number of examples over the sum of the cohort, which depends on the data.",
    "The regulariser's epsilon, C/sigma sqrt(2 ln(1.25/delta)), holds below 1 only; and eps_global enters the clients' loss as a "
    "constant, whose gradient is zero: the feedback does nothing.",
    "The paper claims an epsilon for users, and its neighbours differ in one record.",
    "All of the paper's experiments, their noise included, use the published seed 42: noise that can be drawn again can be "
    "subtracted.",
    "The paper's MetaNet is pre-trained on statistics of the data sets that it is then evaluated on, outside of any budget.",
)


TUNE, LAMBDA = 0.01, 0.1  # as published: the rate of tuning, which is ours, and the weight of the local penalty
_NETWORK = (6, 7, 8, 10)  # places in the list: of what is true where a network sets C and sigma,
_REGULARISED = 10  # where it is tuned by the local penalty,
# where not all clients take part (with q = 1 the cost is that of a Gaussian), and where cohorts have a fixed size,
_SOME_TAKE_PART, _FIXED_COHORTS = (0, 4), 5
_PUBLISHED_SEED, PAPERS_SEED = 12, 42  # and where noise is drawn from the paper's seed.
_PAPERS_NETWORK = 13  # Our own MetaNet has seen no data set.


def reasons_of(plan: Plan) -> tuple[str, ...]:
    """True of this run."""
    untrue = {_PAPERS_NETWORK, *(_NETWORK if plan.options.get("sigma") else ())}
    if not (plan.options.get("tune", TUNE) and plan.options.get("lam", LAMBDA)):
        untrue.add(_REGULARISED)
    if plan.cohort_size == plan.clients:
        untrue |= {*_SOME_TAKE_PART, _FIXED_COHORTS}
    elif plan.sampling != Sampling.FIXED:
        untrue.add(_FIXED_COHORTS)
    if plan.secure or plan.seed != PAPERS_SEED:
        untrue.add(_PUBLISHED_SEED)
    return tuple(reason for i, reason in enumerate(REASONS) if i not in untrue)


def differs(plan: Plan) -> tuple[str, ...]:
    """What sets C and sigma in this run."""
    if plan.options.get("sigma"):
        return ("No network: C and sigma are the same for every batch.",)
    if plan.options.get("pretrained", 1) == 0:
        return ("MetaNet was not taught before: its projection and its head start at random.",)
    if plan.metanet is not None:
        return ()
    return (
        "MetaNet was taught on invented sequences with constants of our own; the paper measured its data sets and gives no constants.",
    )


@dataclass(frozen=True)
class FedMap:
    """The settings of the loop, and what a step of the certified variant is asked."""

    start: float = 1.0
    lam: float = 0.1
    beta: float = 0.1
    tune: float = 0.01  # learning rate of a client's own MetaNet; 0: it stays as it was pre-trained
    pretrained: float = 1.0  # 0: projection and head start at random
    share: float = 0.05  # of a step's privacy, for the count
    utility: float = 0.1
    hold: float = 0.0  # 1: no network; the first bound and the even multiplier, to tell what the network adds
    raw: bool = False  # as published
    on_sum: float = 1.0  # as published: the noise is on the sum of a batch; 0: on its mean
    sigma: float = 0.0  # as published, without the network: the noise of every batch, at the plan's bound
    bound_scale: float = 1.0  # as published: times MetaNet's C, whose constant the paper leaves open
    sigma_scale: float = 1.0  # likewise, times its sigma

    def __post_init__(self) -> None:
        positive(bound=self.start)
        at_least(0, lam=self.lam, beta=self.beta, tune=self.tune, utility=self.utility, sigma=self.sigma)
        positive(bound_scale=self.bound_scale, sigma_scale=self.sigma_scale)
        between(0, 1, share=self.share)
        one_of((0, 1), pretrained=self.pretrained, hold=self.hold, on_sum=self.on_sum)

    def init(self) -> State:
        return {"bound": self.start, "moved": 0.0}

    def query(self, state: State) -> Queries:
        return NOTHING if self.raw else Queries(with_sum=CentredBit(self.share))

    def bound(self, state: State, answer: Answer | None) -> Bound:
        return Flat(state["bound"])

    def observe(self, state: State, seen: RoundOutput) -> State:
        """What a step released, in the words of `metanet.features.Look`."""
        if seen.answer is None:
            return state
        expected = seen.mean.size * float(np.mean(np.square(seen.noise)))  # |noise|^2
        return state | {
            "within": 0.5 + float(seen.answer.mean[0]),
            "noise": seen.answer.noise,
            "signal": float(np.square(seen.mean).sum()) / expected - 1 if expected > 0 else 0.0,
        }


def certified(
    setting: RuleContext,
    *,
    lam: float = 0.1,
    beta: float = 0.1,
    tune: float = 0.01,
    pretrained: float = 1,
    share: float = 0.05,
    utility: float = 0.1,
    hold: float = 0,
) -> FedMap:
    return FedMap(setting.plan.bound, lam, beta, tune, pretrained, share, utility, hold)


def published(
    setting: RuleContext,
    *,
    lam: float = LAMBDA,
    beta: float = 0.1,
    tune: float = TUNE,
    pretrained: float = 1,
    on_sum: float = 1,
    sigma: float = 0,
    bound_scale: float = 1,
    sigma_scale: float = 1,
) -> FedMap:
    """The last four: see `schemes.fedmap.published`."""
    reading = {"on_sum": on_sum, "sigma": sigma, "bound_scale": bound_scale, "sigma_scale": sigma_scale}
    return FedMap(setting.plan.bound, lam, beta, tune, pretrained, raw=True, **reading)


class PrintedLedger:
    """The server's accountant as printed: a table of rho over 100 bins of sigma, interpolated, at six orders."""

    def __init__(self, clients: int, rate: float, delta: float, low: float = 1e-3, high: float = 1e3) -> None:
        self.delta = delta
        self.sigmas = np.geomspace(low, high, BINS)
        self._table = ORDERS * rate**2 / (2 * np.square(self.sigmas)[:, None])
        self.rho = np.zeros((clients, ORDERS.size))

    def charge(self, clients: np.ndarray, sigmas: np.ndarray) -> None:
        """One round, whatever was done in it (equations 6 and 7)."""
        self.rho[clients] += self.costs(sigmas)

    def costs(self, sigmas: np.ndarray) -> np.ndarray:
        """rho of a round for each sigma, at the six orders, from the table."""
        at = np.log(np.clip(sigmas, self.sigmas[0], self.sigmas[-1]) / self.sigmas[0])
        at = at / math.log(self.sigmas[-1] / self.sigmas[0]) * (BINS - 1)
        low = np.minimum(at.astype(np.intp), BINS - 2)
        part = (at - low)[:, None]
        return (1 - part) * self._table[low] + part * self._table[low + 1]

    def epsilon(self) -> float:
        """eps_global: the largest of any client (equations 8 and 9)."""
        each = (self.rho + math.log(1 / self.delta) / (ORDERS - 1)).min(axis=1)
        return float(each[self.rho[:, 0] > 0].max(initial=0.0))
