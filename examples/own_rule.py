"""A rule of one's own: the bound halves every ten rounds. It follows a public schedule, so it costs no privacy.

python examples/own_rule.py
"""

from __future__ import annotations

from dataclasses import dataclass

from sordino.privacy.bounds import Bound, Flat
from sordino.rules.base import NOTHING, Queries, RoundOutput, State
from sordino.rules.query import Answer


@dataclass(frozen=True)
class Halving:
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


def main() -> list[float]:
    rule = Halving()
    state, sizes = rule.init(), []
    for t in range(1, 31):
        bound = rule.bound(state, None)
        sizes.append(bound.size)
        state = {"round": t}
    print("bounds of rounds 1, 11 and 21:", sizes[0], sizes[10], sizes[20])
    return sizes


if __name__ == "__main__":
    main()
