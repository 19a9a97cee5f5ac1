"""FedMAP's client, certified: a network of its own sets the bound and the noise of every step from what it has released.

Before each step, in this order:

    look       at the last step's released gradient and count, at the drift of released parameters, at round and budget
    propose    (C, z), by MetaNet
    pay        the step's cost at z, out of the round's budget; a proposal that is refused is asked again at the even multiplier
               of that budget; a client that cannot pay for that either sits out the rest of the round
    step       a Poisson batch of the client's own records, each gradient clipped to C, noise z C on the sum, as in `dpsgd`

Steps are measured in bounds: the released gradient is divided by the bound that clipped it and multiplied by the plan's (as De et
al. 2022 do). Otherwise the bound would set the step size as well, and the loop could run away: a larger bound means larger noise
in the parameters, these give larger gradients, and those a larger bound.

After the last step the client tunes its network (see `sordino.schemes.fedmap.rule` for the loss). Nothing in here looks at a raw
value: the controller's inputs, its state and what it sends are functions of released values and public numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace

import numpy as np
import torch

from sordino.clients.site import Site
from sordino.privacy.lookup import Table
from sordino.privacy.mechanisms import FixedPoint
from sordino.privacy.round_budget import RoundBudget
from sordino.rules.base import Rule
from sordino.schemes.fedmap.budgets import step_costs
from sordino.schemes.fedmap.metanet import features
from sordino.schemes.fedmap.metanet.features import CERTIFIED, Look
from sordino.schemes.fedmap.metanet.net import MetaNet, load
from sordino.schemes.fedmap.rule import FedMap
from sordino.schemes.fedmap.scheme import REPORT_LENGTH
from sordino.schemes.local import LocalSteps
from sordino.schemes.request import Reply, Request
from sordino.schemes.terms import Terms

NORM = 1.0  # of a tuning step's gradient, at most (as in the paper's pre-training)


@dataclass(frozen=True)
class ClientState:
    """What a client keeps between its rounds; all of it released or public."""

    net: np.ndarray  # the trained part of its MetaNet; empty: as pre-trained
    rows: np.ndarray  # the last looks [at most 5, features]
    bound: float = 0.0  # 0: not yet begun
    unspent: float = 0.0  # granted and not spent
    granted: float = 0.0
    spent: float = 0.0
    turns: int = 0  # rounds that it was drawn for

    @classmethod
    def blank(cls, kind: str = CERTIFIED) -> ClientState:
        return cls(np.zeros(0, np.float32), np.zeros((0, len(features.NAMES[kind])), np.float32))


@dataclass(frozen=True)
class ClientTask:
    """One client's work in a round: what it may spend now, and what it will be able to spend later."""

    client: int
    round_budget: float
    later: float  # of its budget, not yet granted
    turns: int  # rounds that it will be drawn for, this one included
    own: ClientState

    @property
    def grant(self) -> float:
        """What of the round's budget is new."""
        return max(0.0, self.round_budget - self.own.unspent)

    def progress(self, part: float) -> float:
        """The share of all its steps that are over, when so much of this round is."""
        over = max(0, self.own.turns - 1)
        return (over + part) / (over + self.turns)


@dataclass(frozen=True)
class Report:
    """What a client says after a round."""

    client: int
    own: ClientState
    bounds: tuple[float, ...] = ()  # of the steps taken
    multipliers: tuple[float, ...] = ()
    spent: float = 0.0  # in this round, as a share of the budget

    def tally(self, grid: FixedPoint, clients: int) -> np.ndarray:
        """The report as numbers to be added up, for a server that is told sums only (see `SummedReport`)."""
        began, log_z = float(bool(self.bounds)), float(np.log(self.multipliers).sum())
        log_bound = math.log(self.own.bound) if self.bounds else 0.0
        said = [began, log_bound, float(len(self.multipliers)), log_z, self.spent]
        return grid.round(within_reach(np.array(said), grid, clients))


@dataclass(frozen=True)
class SummedReport:
    """The sum of a cohort's reports."""

    began: float = 0.0  # clients that took a step
    log_bound: float = 0.0  # over these, each one's last
    steps: float = 0.0
    log_multiplier: float = 0.0  # over all steps
    spent: float = 0.0  # shares of budgets

    @classmethod
    def of(cls, codes: np.ndarray, grid: FixedPoint) -> SummedReport:
        return cls(*grid.decode(codes).tolist())


assert len(fields(SummedReport)) == REPORT_LENGTH


def within_reach(v: np.ndarray, grid: FixedPoint, clients: int) -> np.ndarray:
    """Each coordinate within a public limit, at which a sum over all clients cannot overflow 64 bits, on this grid or under masks.

    On the grid of 2^-32 it is 2^29 divided by the number of clients: 500 for a million of them, where no useful step of a model is as
    long as 1. What is limited is released already, so this is post-processing; without it one client whose steps ran away would
    spoil the sum of all, or betray itself by an error. What is not a number counts as nothing.
    """
    most = 2.0**61 / (grid.scale * max(2, clients))
    return np.clip(np.nan_to_num(v, nan=0.0, posinf=most, neginf=-most), -most, most)


@dataclass
class _Diary:
    """The steps of one round, for tuning."""

    histories: list[list[list[float]]] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)
    multipliers: list[float] = field(default_factory=list)
    evens: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)  # over the allowance
    slopes: list[float] = field(default_factory=list)  # of log cost in log z
    within: list[float] = field(default_factory=list)
    spent: list[float] = field(default_factory=list)  # share of the budget, before the step


class ControlledSteps(LocalSteps):
    """The work of clients whose own controllers set the bound and the multiplier."""

    rule: FedMap

    def __init__(self, site: Site, theta: np.ndarray, rule: Rule, terms: Terms) -> None:
        super().__init__(site, theta, rule, terms)
        self.net = self._load()  # weights that cannot be read are found before anything is granted
        if not self.rule.pretrained:
            self.net.initialise(torch.Generator().manual_seed(self.plan.seed))
        self._first = self.net.personal
        self._tables: dict[tuple[float, int], Table] = {}

    def items(self, round: int, cohort: np.ndarray) -> list[int]:
        raise AssertionError("errands are made by the round, which grants their budgets")

    def weight(self, item: ClientTask) -> int:  # type: ignore[override]
        return self.site.federation.size(item.client)

    def contribute(self, request: Request, item: ClientTask, out: np.ndarray) -> Reply:  # type: ignore[override]
        return Reply(report=self._round(request, item, out))

    def _round(self, request: Request, item: ClientTask, out: np.ndarray) -> Report:
        """Run the round's steps as far as its budget allows; put the released move into `out` and report."""
        if not item.round_budget > 0:
            return Report(item.client, item.own)
        k, flat, own, public = item.client, self.site.flat, item.own, request.state
        examples = self.site.federation.size(k)
        table = self._table(self.scheme.rate(examples), int(public["order"]))
        net = self._controller(own)
        flat.load(self.theta)
        self.site.seed_layers(request.round, k)
        move = self.descent.start(flat.size, flat.theta.device)
        granted, steps, diary = RoundBudget(item.round_budget), self.scheme.local_steps(examples), _Diary()
        rows = own.rows.tolist()
        bound = own.bound or public["bound"]
        budget = own.spent + item.round_budget + item.later
        drift = public["moved"] / (self.plan.lr * self.plan.bound)
        look = Look(drift=drift, progress=item.progress(0.0), spent=own.spent / budget if budget else 1.0)
        for step in range(steps):
            rows = [*rows, look.row()][-features.LENGTH :]
            allowance = (granted.left + item.later) / (steps - step + (item.turns - 1) * steps)
            proposal = self._propose(net, rows, bound, float(table.multiplier(allowance)[0]))
            if proposal is None:
                break
            proposed, multiplier, even = proposal
            paid = self._pay(granted, table, multiplier, steps - step)
            if paid is None:
                break
            multiplier, cost = paid
            gradient, state = self._step(request.round, k, step, {"bound": proposed}, multiplier)
            gradient *= self.plan.bound / proposed
            moved = move(torch.from_numpy(gradient.astype(np.float32)).to(flat.theta.device))
            flat.theta.sub_(moved)
            drift = float(torch.linalg.vector_norm(moved)) / (self.plan.lr * self.plan.bound)
            diary.histories.append(list(rows))
            diary.spent.append(look.spent)
            diary.bounds.append(proposed)
            diary.multipliers.append(multiplier)
            diary.evens.append(even)
            diary.costs.append(cost / allowance)
            diary.slopes.append(_slope(table, multiplier))
            diary.within.append(min(max(state["within"], 0.0), 1.0))
            spent = (own.spent + granted.spent) / budget
            change, progress = math.log(proposed / bound), item.progress((step + 1) / steps)
            look = Look(state["within"], change, state["noise"], state["signal"], drift, progress, spent)
            bound = proposed
        moved_by = flat.theta.cpu().numpy().astype(np.float64) - self.theta
        out += request.grid.round(within_reach(moved_by, request.grid, self.plan.clients))
        self._tune(net, diary)
        after = replace(
            own,
            net=net.personal if self.rule.tune and not self.rule.hold else own.net,
            rows=np.asarray(rows, np.float32).reshape(-1, len(features.NAMES[CERTIFIED])),
            bound=bound,
            unspent=granted.left,
            spent=own.spent + granted.spent,
        )
        share = granted.spent / budget if budget else 0.0
        return Report(k, after, tuple(diary.bounds), tuple(diary.multipliers), share)

    # ---- the parts of a step -----------------------------------------------------------------------------------------

    def _propose(
        self, net: MetaNet, rows: list[list[float]], bound: float, even: float
    ) -> tuple[float, float, float] | None:
        """(C, z, even z); None if so little is left that no useful noise would fit."""
        if even > features.MULTIPLIERS[1]:
            return None
        if self.rule.hold:
            return self.plan.bound, even, even
        outputs = net.decide(*features.stack([rows], len(features.NAMES[CERTIFIED])))[0]
        proposed, multiplier = features.read(CERTIFIED, outputs.tolist(), bound, even)
        # Where more than a fifth of the gradients vanish, as at a client whose few classes are learnt, no bound is small enough.
        proposed = min(max(proposed, self.plan.bound / features.ASTRAY), self.plan.bound * features.ASTRAY)
        features.usable(proposed, multiplier)
        return proposed, multiplier, even

    @staticmethod
    def _pay(granted: RoundBudget, table: Table, multiplier: float, steps: int) -> tuple[float, float] | None:
        """The multiplier that was paid for, and its cost. The budget is asked before any record is drawn."""
        for asked in (multiplier, float(table.multiplier(granted.left / steps)[0])):
            asked = max(asked, table.least)
            cost = float(table.cost(asked)[0])
            if granted.affords(cost) and asked <= features.MULTIPLIERS[1]:
                granted.request(cost)
                return asked, cost
        return None

    # ---- the controller ----------------------------------------------------------------------------------------------

    def _controller(self, own: ClientState) -> MetaNet:
        self.net.take(own.net if own.net.size else self._first)
        return self.net

    def _load(self) -> MetaNet:
        return load(CERTIFIED, self.plan.metanet)

    def _tune(self, net: MetaNet, diary: _Diary) -> None:
        """One gradient step of the client's own projection and head."""
        if not (self.rule.tune and diary.histories) or self.rule.hold:
            return
        steps, valid = features.stack(diary.histories, len(features.NAMES[CERTIFIED]))
        columns = (diary.multipliers, diary.evens, diary.costs, diary.slopes, diary.within, diary.spent)
        z, even, cost, slope, within, spent = (torch.tensor(column, dtype=torch.float32) for column in columns)
        outputs = torch.tanh(net(torch.from_numpy(steps), torch.from_numpy(valid)))
        log_bound, off = features.REACH * outputs[:, 0], features.SPAN * outputs[:, 1]
        # The cost as a power of z, about what was paid: its marginal cost is then that of the table.
        log_cost = torch.log(cost.clamp_min(1e-12)) + slope * (off - torch.log(z / even))
        loss = (
            0.5 * self.rule.utility * torch.exp(2 * off)
            + self.rule.lam * log_cost.square()
            + self.rule.beta * spent * torch.exp(log_cost)
            + (within - features.WITHIN) * log_bound
        ).mean()
        self._descend(net, loss)

    def _descend(self, net: MetaNet, loss: torch.Tensor) -> None:
        """One clipped gradient step of projection and head; none, if the gradient is not a number."""
        gradients = torch.autograd.grad(loss, net.trained)
        norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
        if not math.isfinite(norm):
            return
        with torch.no_grad():
            for parameter, gradient in zip(net.trained, gradients):
                parameter.sub_(gradient, alpha=self.rule.tune * min(1.0, NORM / max(norm, 1e-12)))

    def _table(self, rate: float, order: int) -> Table:
        if (rate, order) not in self._tables:
            self._tables[rate, order] = step_costs(rate, order)
        return self._tables[rate, order]


def _slope(table: Table, z: float) -> float:
    """d log cost / d log z, by a small difference; 0 where the table ends."""
    near, far = table.cost([z, z * 1.01], [0, 0])
    return math.log(far / near) / math.log(1.01) if 0 < near < math.inf and far > 0 else 0.0
