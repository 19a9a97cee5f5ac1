"""Every attack of the red team by one command, with the epsilon that is printed and the bound from below that it reached.

    python tests/redteam/table.py [--runs 400] [--only draws,sizes]

A line is one attack on the real path. It ends in one of three ways: what was asked is refused, or the attack ran and its
lower bound (95%) stands beside what is printed, or a length that was searched for is turned into the epsilon of that very
pair of neighbours. The command fails if any line shows more than is printed.
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from scipy import stats
from torch import nn

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "engines" / "flower")]

import redteam.test_gradients as gradients  # noqa: E402
import redteam.test_malicious_server as server  # noqa: E402
import redteam.test_noise as noise  # noqa: E402
import redteam.test_proof as proof  # noqa: E402
import redteam.test_worst_pair as pairs  # noqa: E402
from populations import toy  # noqa: E402
from redteam.through_train import attacks  # noqa: E402
from sordino import EngineOptions, Federation, Plan, train  # noqa: E402
from sordino.audit.bounds import many_runs  # noqa: E402
from sordino.audit.thresholds import split  # noqa: E402
from sordino.errors import SordinoError  # noqa: E402
from sordino.federation.sampling import Draws  # noqa: E402
from sordino.federation.sizes import PublicSizes  # noqa: E402
from sordino.gradients.per_example import PerExample  # noqa: E402
from sordino.privacy import bounds, gdp  # noqa: E402
from sordino.privacy.mechanisms import FixedPoint  # noqa: E402
from sordino.privacy.randomness import SecureSource, stream  # noqa: E402
from sordino.rules.base import Queries  # noqa: E402
from sordino.rules.query import CentredBit, RawNorm  # noqa: E402
from sordino.schemes import prelude, settle  # noqa: E402

DELTA, CONFIDENCE = 1e-5, 0.95
QUIET = EngineOptions("in-process", evaluate_every=10_000)


@dataclass(frozen=True)
class Line:
    """What one attack showed. Without `lower` nothing was released that it could have used, and `said` says why."""

    attack: str
    printed: float | None = None
    lower: float | None = None
    said: str = ""

    @property
    def holds(self) -> bool:
        return self.lower is None or (self.printed is not None and self.lower <= self.printed)

    def text(self) -> str:
        figures = [f"{word} {value:.3g}" for word, value in (("printed", self.printed), ("lower bound", self.lower))
                   if value is not None]  # fmt: skip
        return f"{self.attack}: {'; '.join([*figures, *([self.said] if self.said else [])])}"


def refused(attack: str, ask: Callable[[], object]) -> Line:
    """The line of something that must not run at all."""
    try:
        ask()
    except SordinoError as refusal:
        return Line(attack, said=f"refused: {str(refusal).splitlines()[0]}")
    return Line(attack, 0.0, math.inf, "it was not refused")


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(5, 3)


def trained(plan: Plan, federation: Federation | None = None, make: Callable[[], nn.Module] = linear, **others: object):
    with tempfile.TemporaryDirectory() as folder:
        return train(make(), federation or toy(), plan, out=Path(folder) / "run", options=QUIET, **others)


# ---- servers that lie ------------------------------------------------------------------------------------------------


def lying_server(runs: int) -> Iterator[Line]:
    """What is answered carries noise; its size, measured on the message, bounds from below what one message gave away."""
    with tempfile.TemporaryDirectory() as folder:
        hall = server.Hall(server.toy(clients=3, features=server.WIDE), Path(folder) / "holders")
        tap = server.Tap(hall, "n1")
        hall.train(server.plan(**server.SCHEMES["client"]), Path(folder) / "run")
        tried, sizes = 0, []
        for told, reply in server.told_lies(hall, tap):
            tried += 1
            if reply.kind != "problem":
                seen = server.sent_noise(hall, told, reply)
                sizes.append(
                    math.sqrt(np.sum(seen**2) / stats.chi2.ppf(0.05 / 40, seen.size))
                )  # not more, at 95% of all
        hall.close()
    z = server.Z
    yield Line(f"{tried} lies about every field of a request (bounds 1e-9 to 1e9 and of other kinds, queries, grids, noise up "
               "to 1e300)", gdp.epsilon(DELTA, 1 / z), gdp.epsilon(DELTA, 1 / (z * min(sizes))),
               f"a message; {tried - len(sizes)} refused, {len(sizes)} answered with the noise that is due")  # fmt: skip


def skewed_server(runs: int) -> Iterator[Line]:
    for field in ("bound", "facts", "plan"):
        with tempfile.TemporaryDirectory() as folder:
            server.test_a_server_that_tells_holders_different_things_learns_nothing(field, Path(folder))
        yield Line(f"one holder is told another {field}", said="nothing is opened: refused, or masks do not cancel")


# ---- draws -------------------------------------------------------------------------------------------------------------


def known_draws(runs: int) -> Iterator[Line]:
    """The attacker has the seed from the report, and picks a plan whose seed draws the record most often."""
    x, y = np.zeros((40, 9), np.float32), np.arange(40) % 3
    loud = x.copy()
    loud[0] = 10.0
    base = Plan(data="attacked", clients=1, method="dp-fedavg", unit="example", observer="public", batch_size=4, rounds=8,
                multiplier=2.0, lr=1.0, secure=True)  # fmt: skip
    worlds = [Federation.from_arrays([(data, y)], classes=3, name="attacked") for data in (x, loud)]

    def zero() -> nn.Module:
        model = nn.Linear(9, 3)
        nn.init.zeros_(model.weight), nn.init.zeros_(model.bias)
        return model

    def drawn(seed: int) -> int:
        draws = Draws(base.replace(seed=seed, secure=False))
        return sum(0 in draws.records(t, 0, 40, 0.1) for t in range(1, 9))

    seed = max(range(5 * runs), key=drawn)
    plan, scores, printed = base.replace(seed=seed), [], 0.0
    way = np.outer(np.array([-2.0, 1.0, 1.0]), np.ones(9))  # of the gradient of the record, whose class is 0
    for federation in worlds:
        rows = []
        for _ in range(runs):
            result = trained(plan, federation, zero)
            printed = result.epsilon
            rows.append([-float(np.sum(result.model.weight.detach().numpy() * way))])
        scores.append(np.array(rows))
    would = gdp.epsilon(DELTA, math.sqrt(drawn(seed)) / 2.0)
    yield Line("secure run, seed known to the attacker", printed, split(*scores, DELTA, CONFIDENCE, gdp=False).epsilon,
               f"if draws followed the seed: {would:.3g}")  # fmt: skip


# ---- schedules, sizes, relations -----------------------------------------------------------------------------------------


def optimistic(rounds: list[tuple[float, float, int]]) -> float:
    """Epsilon from below for steps of (rate, multiplier, number), by the library's optimistic discretisation."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    total = None
    for rate, z, count in rounds:
        one = pld.from_gaussian_mechanism(
            z,
            pessimistic_estimate=False,
            use_connect_dots=False,
            sampling_prob=rate,
            value_discretization_interval=1e-3,
        )
        part = one.self_compose(count)
        total = part if total is None else total.compose(part)
    assert total is not None
    return float(total.get_epsilon_for_delta(DELTA))


def uneven_schedule(runs: int) -> Iterator[Line]:
    sizes = (64, 200)
    plan = proof.plan(clients=2, method="dp-fedddc", unit="example", observer="server", rounds=6, batch_size=64,
                      multiplier=35.0, options={"mu_start": 0.02})  # fmt: skip
    terms, scheme = settle(plan, PublicSizes(2, np.array(sizes))), plan.scheme
    truth = max(
        optimistic([(scheme.rate(n), terms.multiplier_of(t), scheme.local_steps(n)) for t in range(1, 7)])
        for n in sizes
    )
    yield Line(
        "dp-fedddc, mu_start 0.02, sizes 64 and 200",
        terms.spent.epsilon,
        truth,
        "the busiest client's whole run, from below",
    )


def sizes_of_others(runs: int) -> Iterator[Line]:
    local = proof.plan(unit="example", observer="server", multiplier=4.0)
    size = lambda k: 200 if k == 0 else 9  # noqa: E731
    terms, scheme = settle(local, PublicSizes.of(proof.on_demand(size, size))), local.scheme
    truth = optimistic([(scheme.rate(9), 4.0, 3 * scheme.local_steps(9))])
    yield Line(
        "client 0 holds 200 records, the others 9", terms.spent.epsilon, truth, "a client of 9 records, from below"
    )
    yield refused("200 declared, 9 held", lambda: trained(local, proof.on_demand(lambda k: 9, 200)))
    yield refused("no size declared", lambda: settle(local, PublicSizes.of(proof.on_demand(lambda k: 9, None))).spent)


def relations(runs: int) -> Iterator[Line]:
    yield refused("add-remove where steps follow the number of records",
                  lambda: proof.plan(unit="example", observer="server", relation="add-remove"))  # fmt: skip


# ---- clipping --------------------------------------------------------------------------------------------------------------


def worst_pair(runs: int) -> Iterator[Line]:
    z = 1.5
    moved = max(pairs.furthest(make, grouped, max(6, runs // 10))
                for make in (pairs.kinked, pairs.block, pairs.normed) for grouped in (False, True))  # fmt: skip
    yield Line("search for the worst neighbour: kinks, 1 to 300 records, scales 1e-30 to 1e30", gdp.epsilon(DELTA, 1 / z),
               gdp.epsilon(DELTA, moved / z), f"the sum moves by {moved:.4f} C; noise of {z} C")  # fmt: skip


def through(*names: str) -> Callable[[int], Iterator[Line]]:
    def lines(runs: int) -> Iterator[Line]:
        for attack in attacks():
            if attack.name in names:
                wide = f"in a plain implementation the record moves the sum by {attack.control:.3g} C"
                try:
                    printed, lower = attack.lower(runs)
                except SordinoError as refusal:
                    yield Line(attack.name, said=f"refused: {str(refusal).splitlines()[0]}; {wide}")
                else:
                    yield Line(attack.name, printed, lower, wide)

    return lines


def small_squares(runs: int) -> Iterator[Line]:
    longest = 0.0
    for scale in (1e-30, 1e-20, 1.0, 1e15):
        model = nn.Linear(6, 2)
        nn.init.zeros_(model.weight), nn.init.zeros_(model.bias)
        bound = bounds.Flat(1e-3 * scale)
        total, _ = PerExample(model).clipped_sum(torch.full((1, 6), scale), torch.tensor([0]), bound)
        longest = max(longest, float(np.linalg.norm(total)) / bound.size)
    yield Line("squares that vanish or overflow, scales 1e-30 to 1e15", gdp.epsilon(DELTA, 0.5), gdp.epsilon(DELTA, longest / 2),
               f"the longest record is {longest:.6f} C; noise of 2 C")  # fmt: skip
    twice = [trained(proof.plan(unit="client", observer="public", bound=size)) for size in (1.0, 2.0)]
    said = all(run.statement.rehearsal for run in twice)
    yield Line("two runs of one seed share their noise", None, None if said else math.inf,
               "both are called rehearsals, and the page on guarantees says it" if said else "and nothing says so")  # fmt: skip


COLUMNS, NUMBERS = 5, 29
COSINES = {"kind": "fourier", "share": 0.3, "dense": 12, "singles": 6, "pairs": 6, "scaling": 0.0,
           "covariances": 2, "covariance": 0.6}  # fmt: skip


def statistics(runs: int) -> Iterator[Line]:
    """The sum with a record and without it, on the grid; what a server made up stands where a release should."""
    terms = settle(
        proof.plan(clients=1, unit="example", observer="public", prepare=COSINES), PublicSizes(1, np.array([40]))
    )
    stages, draws = terms.plan.preparation.stages((COLUMNS,)), np.random.Generator(np.random.PCG64(0))

    def summed(step: int, x: np.ndarray, told: list[np.ndarray]) -> np.ndarray:
        grid = prelude.request_for(terms, step).grid
        codes = [prelude._codes(block, grid) for block in stages.contributions(step, x, told)]
        return sum(codes, np.zeros(stages.length(step), np.int64)) / grid.scale

    def flat(size: float) -> np.ndarray:
        """A matrix along which rows cancel, or one that is random."""
        found = draws.standard_normal((NUMBERS, NUMBERS))
        found -= found.mean(axis=0) * draws.integers(2)
        return (size * found).ravel()

    moved = {step: 0.0 for step in range(len(terms.prelude))}
    for _ in range(max(20, runs // 4)):
        x = draws.standard_normal((40, COLUMNS)).astype(np.float32)
        with np.errstate(over="ignore"):
            x[7] = draws.choice([1e-30, 0.3, 30.0, 3e38, np.nan]) * draws.standard_normal(COLUMNS)
        told = [draws.choice([0.0, 1e-300, 1.0, 1e30]) * np.ones(NUMBERS), flat(draws.choice([1e-300, 1.0, 1e300]))]
        for step in moved:
            apart = summed(step, x, told[:step]) - summed(step, np.delete(x, 7, axis=0), told[:step])
            moved[step] = max(moved[step], float(np.linalg.norm(apart)))
    for step, far in moved.items():
        z = terms.prelude[step]
        yield Line(f"one record more in the {'covariance' if step else 'mean'} of rows (statistic {step}), under a server that lies",
                   gdp.epsilon(DELTA, 1 / z), gdp.epsilon(DELTA, far / z), f"the sum moves by {far:.6f}; noise of {z:.3g}")  # fmt: skip


# ---- rules and ledgers -----------------------------------------------------------------------------------------------------


def raw_norms(runs: int) -> Iterator[Line]:
    for settings in proof.SETTINGS:
        for queries in (Queries(RawNorm()), Queries(None, RawNorm())):
            rule = proof.Own(queries)
            line = refused(f"own rule with exact norms, {settings['unit']} / {settings['observer']}",
                           lambda rule=rule, s=settings: trained(proof.plan(**s), method=proof.own(rule)))  # fmt: skip
            if not line.holds or queries.pre_clip is not None:
                yield line


def laplace_and_gaussian(runs: int) -> Iterator[Line]:
    rule = proof.Own(Queries(None, CentredBit(0.5)), clip=bounds.L1(1.0))
    plan = proof.plan(unit="client", observer="public", mechanism="laplace")
    yield refused("a Gaussian answer beside a Laplace sum", lambda: trained(plan, method=proof.own(rule)))


def resumed(runs: int) -> Iterator[Line]:
    for observer in ("secagg-server", "server"):
        with tempfile.TemporaryDirectory() as folder:
            proof.test_a_seeded_resume_repeats_dropout_too(observer, Path(folder))
        yield Line(
            f"seeded resume with dropout, {observer}", said="the same bits: one release, not two that share their noise"
        )
    with tempfile.TemporaryDirectory() as folder:
        proof.test_a_checkpoint_without_its_ledger_is_refused(lambda: linear(), Path(folder))
    yield Line("a resume without its ledger", said="refused")
    for number, other in enumerate(({"size": 21}, {"seed": 1})):
        with tempfile.TemporaryDirectory() as folder:
            proof.test_a_run_goes_on_with_its_own_population_only(other, lambda: linear(), Path(folder))
        yield Line(f"a resume with other {('sizes', 'records')[number]}", said="refused")


def state(runs: int) -> Iterator[Line]:
    for make in (proof.FirstBatch, proof.Frozen):
        for settings in proof.SETTINGS:
            with tempfile.TemporaryDirectory() as folder:
                proof.test_no_record_stays_in_the_model(make, settings, Path(folder))
        yield Line(f"a model that writes a record into itself ({make.__name__}), four settings",
                   said="refused, or the file holds no trace of it")  # fmt: skip
    for kind in gradients.KINDS:
        gradients.test_state_is_guarded_while_clipping(kind)
    yield Line(
        f"{len(gradients.KINDS)} other places to write to (buffer, attribute, array, number, list)", said="refused"
    )


# ---- noise -----------------------------------------------------------------------------------------------------------------


def low_bits(runs: int) -> Iterator[Line]:
    z = 5e5
    grid = FixedPoint.for_bound(noise.BOUND, noise.CLIENTS, z)
    known = noise.secret(grid)
    for place in noise.PLACES:
        found = noise.lower(
            noise.low_bits(known), noise.exact(place, noise.BOUND, grid, z, SecureSource()), 0 * known, known
        )
        yield Line(f"multiplier 5e5, low bits, noise {place}", gdp.epsilon(DELTA, 1 / z), found)
    d, z, trials = 1 << 20, 10.0, 24
    grid, source = FixedPoint.for_bound(noise.BOUND, noise.CLIENTS, z), stream(7, 8, 9, "noise")
    codes = grid.round(np.full(d, 2.0**-10))
    exact = noise.exact("central", noise.BOUND, grid, z, source)
    releases = {
        "in doubles, as before": lambda c: grid.decode(c) + z * source.standard_normal(d),
        "on the grid": lambda c: exact(c) / grid.scale,
    }
    told = {}
    for name, release in releases.items():
        hits, alarms = (sum(noise.impossible(release(c)) for _ in range(trials)) for c in (0 * codes, codes))
        told[name] = (many_runs(alarms, trials, hits, trials, DELTA, CONFIDENCE), hits + trials - alarms)
    before = told["in doubles, as before"]
    yield Line("multiplier 10, a million coordinates, digits that a neighbour cannot have", gdp.epsilon(DELTA, 1 / z),
               told["on the grid"][0], f"noise in doubles: {before[0]:.3g}, told right {before[1]} of {2 * trials}")  # fmt: skip


def answers(runs: int) -> Iterator[Line]:
    norm, z = 0.5, 2.0
    grid = FixedPoint.for_bound(bounds.Flat(norm), noise.CLIENTS, z)
    yes, no = (noise.mechanisms.answer(np.full(16, half), norm, grid) for half in (norm / 4, 0.0))
    sharp = noise.finer_than(2.0**-54)
    for place in noise.PLACES:
        release = noise.exact(place, bounds.Flat(norm), grid, z, stream(4, 5, 6, "query"))
        tests = (
            lambda seen: sharp(grid.decode(seen)),
            noise.low_bits(int(yes[0])),
            lambda s: np.sum(s) > 2 * np.sum(yes),
        )
        found = max(max(noise.lower(t, release, a, b) for a, b in ((yes, no), (no, yes))) for t in tests)
        yield Line(f"answers to queries, noise {place}: digits, low bits, size", gdp.epsilon(DELTA, 1 / z), found)


# ---- what is said ------------------------------------------------------------------------------------------------------------


def classes(runs: int) -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as folder:
        proof.test_classes_that_are_read_from_private_labels_are_said(lambda: linear(), Path(folder))
    yield Line("classes read from private labels", said="the statement says so; not said where they are declared")


def page(runs: int) -> Iterator[Line]:
    from sordino.report.attacked import verdict

    line = {"attack": "dt", "auc": 0.5, "control_auc": None, "informative": None}
    yield Line("an attack without a control, on the signed page", said=verdict([line]))


ROWS: dict[str, Callable[[int], Iterator[Line]]] = {
    "lying server": lying_server,
    "skewed server": skewed_server,
    "draws": known_draws,
    "schedule": uneven_schedule,
    "neighbour": worst_pair,
    "mixing": through("class-balanced loss", "loss with a flag", "mean of the batch behind a gate"),
    "own rule": raw_norms,
    "two mechanisms": laplace_and_gaussian,
    "resume": resumed,
    "relation": relations,
    "small numbers": small_squares,
    "statistics": statistics,
    "page": page,
    "norms": through("positions that cancel", "positions that cancel, in groups"),
    "state": state,
    "sizes": sizes_of_others,
    "low bits": low_bits,
    "answers": answers,
    "classes": classes,
}


def lines(runs: int, only: set[str] | None = None) -> Iterator[Line]:
    """The table, or the rows of these names."""
    for name, row in ROWS.items():
        if only is None or name in only:
            for line in row(runs):
                yield replace(line, attack=f"{name}: {line.attack}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400, help="of each world, where an attack trains")
    parser.add_argument("--only", help="names of rows, such as draws,sizes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.ERROR)  # what holders say of each refusal
    held = True
    for line in lines(args.runs, set(args.only.split(",")) if args.only else None):
        held &= line.holds
        print(line.text() + ("" if line.holds else "   <-- MORE THAN IS PRINTED"), flush=True)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
