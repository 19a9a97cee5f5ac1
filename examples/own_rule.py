"""A rule of one's own, trained with: the bound halves every ten rounds. It follows a public schedule, so it costs no privacy.

python examples/own_rule.py

On the command line, from this folder: sordino train --method own_rule:HALVING --rounds 30
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import sordino
from sordino.assembly import assemble
from sordino.methods import RuleContext
from sordino.privacy.bounds import Bound, Flat
from sordino.rules.base import NOTHING, Queries, RoundOutput, State
from sordino.rules.query import Answer


@dataclass(frozen=True)
class Halving:
    """The bound of round t is start / 2^(t // every)."""

    start: float = 1.0
    every: int = 10

    def init(self) -> State:
        return {"round": 0}

    def query(self, state: State) -> Queries:
        return NOTHING

    def bound(self, state: State, answer: Answer | None) -> Bound:
        return Flat(self.start * 0.5 ** (state["round"] // self.every))

    def observe(self, state: State, seen: RoundOutput) -> State:
        return {"round": seen.round}


def halving(context: RuleContext, *, every: float = 10) -> Halving:
    """Keyword arguments are the options that a plan may give: `--option every=5`."""
    return Halving(context.plan.bound, int(every))


HALVING = sordino.Method("halving", "An example of this repository", halving)


def main(out: Path | None = None) -> sordino.Result:
    plan = sordino.Plan(
        method=HALVING,
        epsilon=4.0,
        rounds=30,
        batch_size=256,
        lr=2.0,
        server_optimizer="momentum",
        options={"every": 10},
    )
    model, federation, plan = assemble(plan)
    folder = out or Path(tempfile.mkdtemp()) / "run"
    result = sordino.train(model, federation, plan, out=folder)
    bounds = [row["bound"] for row in result.metrics]
    print(f"bounds of rounds 1, 11 and 21: {bounds[0]}, {bounds[10]}, {bounds[20]}")
    print(f"accuracy {result.accuracy:.1%} at epsilon {result.epsilon:.3g}, proven for each {plan.unit}")
    return result


if __name__ == "__main__":
    main()
