"""What a client of FedMAP may spend in a round, reckoned from what it keeps between its rounds and public numbers.

    there    what is left of the budget
    left     rounds that the client is still drawn for, this one included
    budget   there / left x 2, at most all that is there, and never less than what was granted before and not spent

Towards the observer `server` the server reckons, for it keeps the accounts. Towards `secagg-server` each client does, for nobody
else knows what it has spent; the server then charges what a client would ask for if it had spent every round's budget in full. That is a
public number, and never below what is truly granted: with S spent, S plus the round's budget grows with S, and S is at most the sum of grants.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sordino.schemes.fedmap.client import ClientState, ClientTask

GENEROUS = 2.0  # times its even share a client may spend in one round


def round_budget_and_grant(own: ClientState, budget: float, turns: int) -> tuple[float, float]:
    """(the round's budget, what of it is new) of a client that is drawn for `turns` rounds in all."""
    there = later(own, budget) + own.unspent
    left = max(1, turns - own.turns)
    amount = min(there, GENEROUS * there / left)
    return max(amount, own.unspent), max(0.0, amount - own.unspent)


def later(own: ClientState, budget: float) -> float:
    """What can still be granted to a client."""
    return max(0.0, budget - own.granted)


def task(k: int, own: ClientState, grant: float, budget: float, turns: int) -> ClientTask:
    """The work of client k with what it has not spent and `grant`; its turn is counted."""
    own = replace(own, turns=own.turns + 1, granted=own.granted + grant)
    left = max(1, turns - own.turns + 1)
    return ClientTask(k, own.unspent + grant, later(own, budget) if left > 1 else 0.0, left, own)


def next_task(k: int, own: ClientState, budget: float, turns: int) -> ClientTask:
    return task(k, own, round_budget_and_grant(own, budget, turns)[1], budget, turns)


def lost(own: ClientState, grant: float) -> ClientState:
    """After a round that came to nothing: what the client had not spent, old and new, may have been spent, and counts as spent."""
    spent = own.spent + own.unspent + grant
    return replace(own, unspent=0.0, granted=own.granted + grant, spent=spent, turns=own.turns + 1)


def most_granted(taken: np.ndarray, turns: np.ndarray) -> np.ndarray:
    """The largest share of a budget that can have been granted after so many of `turns` rounds.

    If every round's budget is spent in full, a turn that has `left` rounds to go leaves 1 - 2/left of what was there; over the first i of n
    turns the product is (n - i) (n - i - 1) / (n (n - 1)).
    """
    i, n = np.asarray(taken, float), np.asarray(turns, float)
    rest = (n - i) * np.maximum(n - i - 1, 0) / np.maximum(n * (n - 1), 1)
    return np.where((i > 0) & (i <= n), 1 - rest, np.where(i > 0, 1.0, 0.0))
