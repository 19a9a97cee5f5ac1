"""Rounds, batches, rates and cohorts for each scheme, from public facts.

The noise on the mean of a round, in bounds, is z sqrt(d) / B. With a batch of a fixed part q of the n records over T rounds z grows
with q sqrt(T), so that the noise is about c sqrt(T d) / (n epsilon) for any q that is not small: a larger batch costs time and gains
little. So T rounds share a fixed number of passes over the data. Over T steps of a fixed length noise and signal grow alike, so T
need only be as many as the optimiser wants: 240 in trials (docs/regret.md), more where records times epsilon is large and the noise small.
Units beside a linear model, which tables have, take longer than it: 360, and 720 shorter steps where records are many enough for batches
to stay large. The rate falls to zero: the fall averages the noise of the last rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sordino.methods import Method
from sordino.plain import Plain
from sordino.preparation import FEATURES
from sordino.recipes import client_unit
from sordino.recipes.choice import Choice
from sordino.recipes.facts import PublicFacts
from sordino.recipes.networks import rate_for

ROUNDS, MOST_ROUNDS = 240, 480
TABLE_ROUNDS, LARGE_TABLE_ROUNDS = 360, 720
# records, from which on more and shorter steps pay: the noise of T steps grows with its root
LARGE_TABLE, SHORTER = 3_000, 0.7
TABLE_RATE = 0.2  # over the root of the columns: 64 (optdigits) and 784 (MNIST as a table) want less than 40 and fewer
# Below so many columns a large table of two classes takes longer steps, up to twice as long. Tables of more classes did not gain, and one of
# four columns (chem97) lost a point (docs/regret.md).
FEW_COLUMNS, LONGEST = 16, 2.0
# Small tables of two classes take shorter ones: one line between the classes is less to learn than several, under the same noise.
TWO_CLASSES = 0.7
QUIET = 60_000  # records times epsilon, from which on more rounds pay
PASSES, FEWER_PASSES, MANY = 40, 20, 12_000  # over the data; fewer over many records, where time counts
LEAST_BATCH, MOST_BATCH = 32, 10_000


SCALED = [
    Choice("steps", "scaled", "a rate then means the same under every bound"),
    Choice("lr_schedule", "decay", "the fall averages the noise of the last rounds"),
]


@dataclass(frozen=True)
class Asked:
    """What a recipe starts from."""

    facts: PublicFacts
    method: Method
    published: bool
    epsilon: float  # that was given; a middling one where only a multiplier was
    fan: int  # the most inputs that one unit of the network adds up
    optimizer: str  # the server's, if it was given, else adam
    dimension: int  # parameters of the network
    linear: bool  # in its input
    settings: Plain  # what is settled already
    signals: bool = False  # or tables: the records, before any preparation


def _server(asked: Asked, rate: str, adam: Choice | None = None) -> list[Choice]:
    """Steps of the server, and the name of the setting that is their rate. Published variants step as their papers print."""
    chosen = [Choice("server_optimizer", "adam", "its steps have the length of the rate, whatever the network")]
    if not asked.published:
        chosen += SCALED
    if asked.optimizer == "adam":
        chosen.append(adam or Choice(rate, rate_for(asked.fan), f"for Adam and units of up to {asked.fan:,} inputs"))
    else:
        chosen.append(Choice(rate, 0.5, f"for {asked.optimizer}, whose steps are at most that long"))
    return chosen


def pooled_rounds(records: int, epsilon: float, table: bool = False) -> tuple[int, int]:
    """How many rounds, and how many records in each."""
    if table:
        rounds = LARGE_TABLE_ROUNDS if records >= LARGE_TABLE else TABLE_ROUNDS
    else:
        rounds = int(min(max(ROUNDS, ROUNDS * math.sqrt(records * epsilon / QUIET)), MOST_ROUNDS))
    return rounds, min(max(passes(records) * records // rounds, LEAST_BATCH), MOST_BATCH, records)


def passes(records: int) -> int:
    """Over the data, in all rounds together."""
    return PASSES if records <= MANY else FEWER_PASSES


def pooled(asked: Asked) -> list[Choice]:
    records = asked.facts.records
    table = asked.facts.table and not asked.linear
    rounds, batch = pooled_rounds(records, asked.epsilon, table)
    more = "units beside a linear model take longer than it" if table else "more bring noise, not signal"
    if not table and rounds > ROUNDS:
        more = f"{records * asked.epsilon:,.0f} records times epsilon leave little noise"
    return [
        Choice("rounds", rounds, more),
        Choice(
            "batch_size",
            batch,
            f"{passes(records)} passes over {records:,} records; larger gains little at the same epsilon",
        ),
        *_server(asked, "lr", _table_rate(asked) if table else None),
    ]


def _table_rate(asked: Asked) -> Choice:
    """Records of a table in one sum."""
    if asked.facts.records < LARGE_TABLE:
        return _small_table_rate(asked, "lr")
    columns, two = asked.facts.features, asked.facts.classes == 2
    longer = min(max(1.0, math.sqrt(FEW_COLUMNS / columns)), LONGEST) if two else 1.0
    rate = SHORTER * longer * min(rate_for(asked.fan), TABLE_RATE / math.sqrt(columns))
    why = "longer for so few and two classes" if longer > 1 else "shorter on a large table"
    return Choice("lr", float(f"{rate:.2g}"), f"for Adam and {columns:,} columns, {why}")


def _small_table_rate(asked: Asked, name: str, longer: float = 1.0, why: str = "") -> Choice:
    """A score adds up all columns, whatever the hidden units add up."""
    columns, two = asked.facts.features, asked.facts.classes == 2
    rate = longer * min(rate_for(asked.fan), TABLE_RATE / math.sqrt(columns)) * (TWO_CLASSES if two else 1.0)
    reason = f"for Adam and {columns:,} columns" + (" of two classes" if two else "") + why
    return Choice(name, float(f"{rate:.2g}"), reason)


CLIENT_ROUNDS = 60
# Tables of clients as units take steps twice as long as a small table of records: 60 rounds are few for cosines to learn in (docs/regret.md).
FEW_ROUNDS = 2.0


def client(asked: Asked) -> list[Choice]:
    """Whole clients; the reasons are those of `client_unit`."""
    facts, given = asked.facts, asked.settings
    dimension = client_unit.counted(asked.dimension, facts.classes, featured_rows(given))
    left = client_unit.left_over(dimension, facts.clients, asked.epsilon)
    work = client_unit.local_work(facts, left, featured_rows(given), asked.linear)
    if asked.published or not asked.linear or given.get("server_optimizer") == "adam":
        usual = "each round is many local steps, and more rounds bring as much noise as signal"
        lr = Choice("lr", client_unit.sgd_rate(asked.fan), f"for local SGD and units of up to {asked.fan:,} inputs")
        cosines = facts.table and not asked.linear and not asked.published
        rate = _small_table_rate(asked, "server_lr", FEW_ROUNDS, ", longer for few rounds") if cosines else None
        steps = _server(asked, "server_lr", rate)
        return [Choice("rounds", CLIENT_ROUNDS, usual), *work, lr, *steps]
    rounds = client_unit.rounds_for(left)
    optimizer = str(given.get("server_optimizer") or "momentum")
    steps = client_unit.linear_steps(
        asked.fan, featured_rows(given), rounds, facts.clients, asked.epsilon, optimizer, asked.signals
    )
    return [client_unit.rounds(left), *work, *steps, *SCALED]


def featured_rows(settings: Plain) -> bool:
    """Whether the model takes rows of length 1."""
    prepare = settings.get("prepare")
    return (prepare.get("kind") if isinstance(prepare, Mapping) else prepare) in FEATURES


def local(asked: Asked) -> list[Choice]:
    """Each client its own DP-SGD: a batch is a part of the client's own records, and every local step is charged."""
    each = max(1, asked.facts.records // asked.facts.clients)
    batch = min(each, max(LEAST_BATCH, each // 4))
    chosen = [
        Choice("rounds", 40, "every local step is charged"),
        Choice("batch_size", batch, f"a quarter of the about {each:,} records of a client, at least {LEAST_BATCH}"),
        Choice("lr", 0.2, "for SGD, whose steps are at most that long"),
    ]
    if not asked.published and asked.method.scheme is None:
        chosen.append(Choice("steps", "scaled", "a rate then means the same under every bound"))
    return chosen


def plain(asked: Asked) -> list[Choice]:
    each = max(1, asked.facts.records // asked.facts.clients)
    return [
        Choice("rounds", 60, "without noise rounds cost time only"),
        Choice("batch_size", min(32, each), f"clients hold about {each:,} records"),
        Choice("local_epochs", 1, "clients that differ drift apart in longer local training"),
        Choice("optimizer", "adam", "its steps have the length of the rate, whatever the network"),
        Choice("lr", rate_for(asked.fan) / 5, f"for local Adam and units of up to {asked.fan:,} inputs"),
    ]


BY_SCHEME: dict[str, Callable[[Asked], list[Choice]]] = {
    "pooled": pooled,
    "client": client,
    "local": local,
    "plain": plain,
}
