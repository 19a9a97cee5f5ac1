"""The prelude: statistics of all records, released once before round 1, in the same plan and under the same budget.

    settle   each statistic is one Gaussian event on every unit, without sampling; `Terms.total` is the prelude and the rounds
    grant    on disk, as step i of round 0, before a record is touched
    ask      each record's contribution is cut to length 1 where the data is, and added on the integer grid
    noise    where the scheme has it: by the server, in shares, or in full by each client
    keep     the released values are on disk before round 1; a run that resumes takes them from there

In the example unit every record adds one contribution. In the client unit a client adds the mean of its records' contributions.
A statistic that was granted, and whose release was cut short, is not drawn again with secure noise: the budget holds it
once. A seeded run draws the same noise, which tells nothing new.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sordino.errors import BadInput, BudgetRefused, NotPrivate
from sordino.federation import binding
from sordino.files import write_atomically
from sordino.preparation import Block, Products, Released, Stages
from sordino.privacy import mechanisms, products
from sordino.privacy.bounds import Flat
from sordino.privacy.ledger import Ledger
from sordino.privacy.mechanisms import FixedPoint
from sordino.privacy.randomness import SERVER, source
from sordino.privacy.release import Private
from sordino.privacy.vocabulary import Noise, Unit
from sordino.schemes import certified, expected
from sordino.schemes.aggregate import Aggregate, aggregate
from sordino.schemes.request import PRELUDE, Reply, Request
from sordino.schemes.terms import Terms

if TYPE_CHECKING:
    from sordino.federation.population import Federation
    from sordino.plan import Plan

BOUND = Flat(1.0)
FILE = "prelude.safetensors"
Ask = Callable[
    [Request, Released], Aggregate
]  # has every client add its contributions, knowing what was released before


# ---- what is asked ---------------------------------------------------------------------------------------------------------


def request_for(terms: Terms, step: int) -> Request:
    """What every client is asked for statistic `step`; a data holder makes the same one from its own terms."""
    z = terms.prelude[step]
    by_clients = terms.scheme.noise != Noise.CENTRAL and terms.plan.private
    return Request(
        round=0,
        step=step,
        phase=PRELUDE,
        grid=FixedPoint.for_bound(BOUND, units(terms) + 1, max(1000.0, z)),
        bound=BOUND,
        multiplier=z if by_clients else None,
        survivors=survivors(terms),
    )


def expected_request(terms: Terms, asked: Request) -> Request:
    """A data holder's own copy of a request of the prelude, or `NotPrivate`."""
    if asked.phase != PRELUDE or isinstance(asked.step, bool) or not 0 <= asked.step < len(terms.prelude):
        raise NotPrivate(f"the plan has no statistic {asked.step!r}.")
    if asked.bound != BOUND or asked.query is not None or asked.state:
        raise NotPrivate("a statistic is a sum of contributions of length 1, and nothing else is asked with it.")
    return expected.same(request_for(terms, asked.step), asked)


def units(terms: Terms) -> int:
    """Contributions in a sum: a public number."""
    return terms.public.clients if terms.plan.unit == Unit.CLIENT else terms.public.examples


def survivors(terms: Terms) -> int:
    """Among how many clients the noise is divided: as large a part of all clients as it is of a cohort in the rounds."""
    if not terms.scheme.divides_noise:
        return 1
    return max(1, terms.plan.clients * terms.survivors // terms.plan.cohort_size)


# ---- where the data is -----------------------------------------------------------------------------------------------------


def contribute(
    request: Request, plan: Plan, stages: Stages, released: Released, client: int, x: np.ndarray, out: np.ndarray
) -> Reply:
    """Add one client's contributions, and its noise if it owes any, to `out`; the evidence of the noise."""
    blocks = stages.contributions(request.step, x, released)
    return add(request, plan, blocks, client, len(x), f"prelude-{request.step}", out)


def add(
    request: Request, plan: Plan, blocks: Iterable[Block], client: int, records: int, purpose: str, out: np.ndarray
) -> Reply:
    """Add rows, one for each record and cut to length 1 each, and the client's noise, which has a stream for this `purpose`."""
    if plan.unit == Unit.CLIENT:
        out += mechanisms.answer(_mean(blocks, records, len(out)), BOUND.size, request.grid)
    else:
        rows = 0
        for block in blocks:
            rows += len(block)
            if rows > records:
                raise NotPrivate(f"more than one contribution of a record was made for {purpose}.")
            codes = _codes(block, request.grid)
            if codes.shape != out.shape:  # one number would be added to all of them
                raise NotPrivate(
                    f"contributions of {len(codes)} numbers were made for {purpose}, which has {len(out)}."
                )
            out += codes
    if request.multiplier is None:
        return Reply()
    drawn = source(plan.seed, 0, client, purpose, plan.secure)
    return Reply(noise=mechanisms.add_share(out, request.grid, BOUND, request.multiplier, request.survivors, drawn))


def _codes(block: Block, grid: FixedPoint) -> np.ndarray:
    """The sum of the contributions of a block, each cut to length 1, on the grid."""
    if isinstance(block, Products):
        return grid.encode(products.total(block.rows))
    return mechanisms.answer(block, BOUND.size, grid)


def _mean(blocks: Iterable[Block], records: int, length: int) -> np.ndarray:
    """The mean contribution of a client; each record's is cut to length 1, so that no single one rules the mean."""
    total = np.zeros(length)
    for block in blocks:
        if isinstance(block, Products):
            total += products.total(block.rows)
            continue
        norms = np.sqrt(np.square(block).sum(axis=1))
        total += (np.where(np.isfinite(norms)[:, None], block, 0.0) * BOUND.factors(norms)[:, None]).sum(axis=0)
    return total / max(records, 1)


def here(federation: Federation, plan: Plan, stages: Stages) -> Ask:
    """For simulations: every client's data is on this machine."""

    def ask(request: Request, released: Released) -> Aggregate:
        codes, replies = np.zeros(stages.length(request.step), np.int64), []
        for k in range(federation.clients):
            replies.append((k, contribute(request, plan, stages, released, k, federation.raw(k)[0], codes)))
        return aggregate(request, codes, replies)

    return ask


# ---- the releases ----------------------------------------------------------------------------------------------------------


def play(terms: Terms, stages: Stages, ledger: Ledger, ask: Ask, folder: Path) -> list[np.ndarray]:
    """All statistics in order, from `folder` or released now; each is kept before the next is asked."""
    released = load(folder, stages, ledger)
    for step in range(len(released), len(terms.prelude)):
        _grant(terms, step, ledger)
        total = ask(request_for(terms, step), released).total
        released.append(_open(terms, stages, step, total))
        save(folder, released, ledger)
    return released


def _grant(terms: Terms, step: int, ledger: Ledger) -> None:
    event = terms.prelude_event(step)
    standing = ledger.granted(0, step)
    if standing is not None and terms.plan.secure:
        raise BudgetRefused(
            f"{words(terms)[step]} was granted before and its release was cut short; secure noise cannot be drawn twice under "
            "one grant: start a new run, and count this one as spent."
        )
    if standing is None or ledger.resume(0, secure=False, event=event, step=step) is None:
        ledger.request(event, 0, step=step)


def _open(terms: Terms, stages: Stages, step: int, total: object) -> np.ndarray:
    """The statistic, from the sum."""
    noisy, surplus = opened(terms, terms.prelude[step], total, f"prelude-{step}")
    count = units(terms)
    return np.asarray(stages.decode(step, noisy / count, terms.prelude[step] * surplus / count), np.float64)


def opened(terms: Terms, z: float, total: object, purpose: str) -> tuple[np.ndarray, float]:
    """A sum through the one door, held against what was granted; and how much larger than due the noise in it is."""
    plan, where = terms.plan, purpose.partition("-")[0]
    if not isinstance(total, Private):
        raise NotPrivate("a statistic that clients released themselves was about to be noised again; report this.")
    if not plan.private:
        return mechanisms.without_noise(total, terms.reasons[0])[0].value, 1.0
    if terms.scheme.noise == Noise.CENTRAL:
        noisy, event = mechanisms.gaussian(total, BOUND, z, source(plan.seed, 0, SERVER, purpose, plan.secure))
        surplus = 1.0
    else:
        noisy, event = mechanisms.open_noised(total, BOUND, z)
        surplus = math.sqrt(plan.clients / survivors(terms))
    certified.check_released("gaussian", [event], z, f"the {where}")
    return noisy.value, surplus


def words(terms: Terms) -> list[str]:
    """The statistics as a statement names them."""
    preparation = terms.plan.preparation
    return [] if preparation is None else [statistic.words for statistic in preparation.statistics]


# ---- on disk ---------------------------------------------------------------------------------------------------------------


def save(folder: Path, released: Sequence[np.ndarray], ledger: Ledger) -> None:
    """Written aside, flushed and renamed; bound to the ledger under whose grants the values were released."""
    from safetensors.numpy import save as to_bytes

    arrays = {f"statistic.{i}": np.ascontiguousarray(value) for i, value in enumerate(released)}
    facts = {"plan": ledger.plan_digest, "ledger": json.dumps(ledger.head), "run": binding.mark(folder / "checkpoint")}
    write_atomically(folder / FILE, to_bytes(arrays, facts), durable=True)


def load(folder: Path, stages: Stages, ledger: Ledger) -> list[np.ndarray]:
    """What this run has released already; a file of another run, or of another ledger, is refused."""
    if not (folder / FILE).exists():
        return []
    released, facts = read(folder)
    whose = f"{folder / FILE} does not belong to this run's ledger; bring back its own file, or start a new run."
    try:
        head = json.loads(facts["ledger"])
        mine = facts["plan"] == ledger.plan_digest and ledger.holds(head)
        mine = mine and facts["run"] == binding.mark(folder / "checkpoint")  # runs of one plan have equal ledgers
    except (KeyError, TypeError, ValueError):
        raise BadInput(whose) from None
    if not mine or any(ledger.granted(0, step) is None for step in range(len(released))):
        raise BadInput(whose)
    return released


def model_input(folder: Path, plan: Plan, shape: tuple[int, ...]) -> Callable[[np.ndarray], np.ndarray]:
    """What the model of the run in `folder` takes, from records of this shape as they are stored."""
    if plan.preparation is None:
        raise BadInput("the plan has no preparation: the model takes records as they are.")
    stages, released = plan.preparation.stages(shape), read(folder)[0]
    if len(released) != len(plan.preparation.statistics):
        raise BadInput(
            f"the prelude of the run in {folder} has not ended; finish it with sordino train --resume {folder}."
        )
    return lambda x: stages.apply(x, released)


def read(folder: Path) -> tuple[list[np.ndarray], dict[str, str]]:
    """The released statistics in a run folder, in order, and what they are bound to."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder / FILE, "numpy") as file:
            facts, names = file.metadata() or {}, sorted(file.keys(), key=lambda name: int(name.split(".")[1]))
            found = [np.asarray(file.get_tensor(name), np.float64).reshape(-1) for name in names]
    except (OSError, SafetensorError, ValueError, IndexError) as error:
        raise BadInput(f"{folder / FILE} cannot be read ({error}); bring back the file of this run.") from None
    if not all(np.isfinite(value).all() for value in found):
        raise BadInput(f"{folder / FILE} holds numbers that are not finite; bring back the file of this run.")
    return found, facts
