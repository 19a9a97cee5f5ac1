"""Whether the epsilon of the statement bounds what the ledger granted, in dp-accounting's eyes.

Tolerance. dp-accounting rounds losses up to a grid, and so does the accountant that printed the epsilon; where all noise is
Gaussian and nothing is sampled, the printed one is exact. So either of two sound figures may be the larger one, by a few
parts in ten thousand. Hence the library's figure may exceed the printed one by 0.1% and 1e-6, and no more. Two Renyi bounds
also differ by the orders that are tried, and may differ by 1%.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from sordino.verify import client_sums
from sordino.verify.chain import Chain, Row
from sordino.verify.recompute import Leaf, Recomputed, leaves, recompute
from sordino.verify.verdict import Check

RELATIVE, ABSOLUTE, RENYI = 1e-3, 1e-6, 1e-2
NAME = "epsilon"


@dataclass(frozen=True)
class Opinion:
    """The check, and the library's figure."""

    check: Check
    epsilon: float | None
    accountant: str | None


def judge(
    ledger: Chain, statement: Row, exposures: int | None, thorough: bool = True, aside: Chain | None = None
) -> Opinion:
    """Compare `statement` with what the grants of `ledger` cost. `exposures`: rounds of the unit that takes part most.

    `aside` is the ledger of a test on held-out records. A client is trained on and tested on, and pays for both. A record
    is one or the other, so the run costs the larger of both.
    """
    printed, delta = number(statement.get("epsilon")), number(statement.get("delta"))
    if printed is None or delta is None or not 0 <= delta < 1:
        return Opinion(Check(NAME, False, "statement.json holds no epsilon and delta that can be read."), None, None)
    if ledger.header.get("spending") is not None:
        return _of_clients(ledger, printed, delta)
    rounds, before, tested = _rounds(ledger), _before(ledger.prelude), _before(() if aside is None else aside.grants)
    if rounds is None or before is None or tested is None:
        if math.isinf(printed):
            said = "ledger.jsonl grants releases without noise, and the statement says that the run is not private."
            return Opinion(Check(NAME, True, said), math.inf, "none")
        said = f"statement.json says epsilon {printed:g}, and ledger.jsonl grants a release without noise: epsilon is infinite."
        return Opinion(Check(NAME, False, said), math.inf, "none")
    if math.isinf(printed):
        return Opinion(Check(NAME, True, "the statement claims no epsilon, so there is none to confirm."), None, None)
    total, counted = _most_exposed(rounds, exposures)
    total.update(before)
    if before:
        counted = f"the prelude and {counted}"
    relation = str(ledger.about.get("relation"))
    if tested and ledger.about.get("unit") == "client":
        total.update(tested)
        counted = f"{counted} and the test on held-out records"
    elif tested:
        alone = recompute(tested, delta, relation, printed, thorough)
        judged = _compared(alone, printed, "the test on held-out records", statement.get("accountant"))
        if judged.ok is not True:
            return Opinion(judged, alone.epsilon, alone.accountant)
    found = recompute(total, delta, relation, printed, thorough)
    return Opinion(_compared(found, printed, counted, statement.get("accountant")), found.epsilon, found.accountant)


def _of_clients(ledger: Chain, printed: float, delta: float) -> Opinion:
    """FedMAP: the library cannot follow the clients' own steps; it follows what each client was granted for them."""
    most, order = client_sums.largest(ledger)
    found = client_sums.epsilon(most, order, delta)
    how = f"the most that one client was granted, {most:.4g} at Renyi order {order:g}, is epsilon {found:.6g} to dp-accounting"
    beyond = "what clients spend of it step by step is known to them alone and cannot be followed"
    if found <= printed * (1 + RELATIVE) + ABSOLUTE:
        return Opinion(Check(NAME, True, f"{how}, within the printed {printed:.6g}; {beyond}."), found, "rdp")
    return Opinion(Check(NAME, False, f"{how}, and statement.json says {printed:.6g}."), found, "rdp")


def _rounds(ledger: Chain) -> list[Counter[Leaf]] | None:
    """What each round after the prelude released; None if something left without noise."""
    rounds: dict[int, Counter[Leaf]] = {}
    for grant in ledger.grants:
        if not grant["round"]:
            continue
        found = leaves(grant["event"])
        if found is None:
            return None
        rounds.setdefault(grant["round"], Counter()).update(found)
    return list(rounds.values())


def _before(grants: tuple[Row, ...]) -> Counter[Leaf] | None:
    """What these grants released, which every unit takes part in; None if something left without noise."""
    total: Counter[Leaf] = Counter()
    for grant in grants:
        found = leaves(grant["event"])
        if found is None:
            return None
        total.update(found)
    return total


def _most_exposed(rounds: list[Counter[Leaf]], exposures: int | None) -> tuple[Counter[Leaf], str]:
    """All that the most exposed unit takes part in: the costliest rounds, as many as it has."""
    total: Counter[Leaf] = Counter()
    alike = len({_shape(one) for one in rounds}) <= 1
    if exposures is None or exposures >= len(rounds) or not alike:
        for one in rounds:
            total.update(one)
        return total, f"all {len(rounds)} rounds" + ("" if alike else ", which are of different kinds")
    # Rounds that differ in their noise only: the less noise, the costlier.
    for one in sorted(rounds, key=lambda one: sorted(leaf.multiplier for leaf in one))[:exposures]:
        total.update(one)
    return total, f"the {exposures} costliest of {len(rounds)} rounds, as many as the busiest unit takes part in"


def _shape(one: Counter[Leaf]) -> tuple[object, ...]:
    """A round without its multipliers."""
    return tuple(sorted((leaf.noise, leaf.sampling, leaf.rate, leaf.counts, count) for leaf, count in one.items()))


def _compared(found: Recomputed, printed: float, counted: str, by: object) -> Check:
    if found.at_least is not None and printed < found.at_least * (1 - RELATIVE) - ABSOLUTE:
        said = f"statement.json says epsilon {printed:.6g}, and {counted} cost at least {found.at_least:.6g} (dp-accounting)."
        return Check(NAME, False, said)
    if found.epsilon is None:
        least = (
            ""
            if found.at_least is None
            else f"; the lower bound {found.at_least:.6g} is below the printed {printed:.6g}"
        )
        return Check(NAME, None, f"{found.why}{least}.")
    slack = RENYI if found.accountant == "rdp" and by == "rdp" else RELATIVE
    how = f"dp-accounting gives epsilon {found.epsilon:.6g} ({found.accountant}) for {counted}"
    if found.epsilon <= printed * (1 + slack) + ABSOLUTE:
        return Check(NAME, True, f"{how}; {printed:.6g} is printed.")
    if found.tight or by == "rdp":
        return Check(NAME, False, f"{how}, and statement.json says {printed:.6g}: too little is claimed.")
    return Check(NAME, None, f"{found.why}; {how}, a looser bound than the printed {printed:.6g}.")


def number(value: object) -> float | None:
    """A number of at least 0, or infinity for "inf"; None for anything else."""
    if value == "inf":
        return math.inf
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value) or value < 0:
        return None
    return float(value)
