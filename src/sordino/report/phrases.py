"""The words of a guarantee in plain language. What is not known is shown as it stands, never guessed at."""

from __future__ import annotations

from typing import Any

EACH = {"example": "each record", "client": "each client"}

PROTECTED = {
    "example": "Each record: a single example, whichever client holds it.",
    "client": "Each client: everything that it holds, taken together.",
}

TOWARDS = {
    "public": "towards anyone who sees the released models",
    "secagg-server": "towards a server that sees sums only",
    "server": "towards a server that sees every message",
}

AGAINST = {
    "public": "Anyone who sees the released models, of every round. The server is trusted: it sees what clients send "
    "and adds the noise.",
    "secagg-server": "The server, which sees sums over clients and nothing else (secure aggregation), and anyone who "
    "sees the released models.",
    "server": "The server, which sees every message of every client, and anyone who sees the released models.",
}

SEALED = (
    " The promise does not rest on the aggregation: each message carries its full noise, and it would hold towards a server that "
    "sees every one of them."
)

NEIGHBOURS = {
    "add-remove": "The result is nearly as likely whether one {unit} is in the data or not.",
    "zero-out": "The result is nearly as likely whether one {unit} contributes or contributes nothing. How many there "
    "are is public.",
    "replace-one": "The result is nearly as likely whichever other {unit} stands in the place of one.",
}

UNIT = {"example": "record", "client": "client"}

ACCOUNTANT = {
    "pld": "Privacy loss distributions, over a schedule that was settled before the first round",
    "rdp": "Renyi differential privacy",
    "rdp-filter": "A Renyi filter at an order fixed before the first round; it refuses what the budget cannot bear",
    "gdp": "The exact trade-off curve of the Gaussian mechanism",
    "gdp-filter": "A Gaussian filter; it refuses what the budget cannot bear",
}

SAMPLING = {
    "poisson": "{who} takes part by its own coin, with probability {rate}",
    "fixed": "Of all, a share of {rate} is drawn without replacement",
    "none": "Nothing is gained from sampling: everyone takes part, or it is known who does",
}

NOISE = {
    "central": "added by the server to the sum",
    "shares": "added in shares by the clients, under secure aggregation",
    "local": "added in full by each client",
}

SIMULATION = "All clients ran in one place, and whoever ran them could see everything."
DEPLOYMENT = "Each client's data stayed with that client."
SEEDED = (
    "The noise was drawn from a seed, so that the run can be repeated; it hides nothing from whoever knows the seed. "
    "A deployment draws it from the secure source (--secure)."
)


def phrase(table: dict[str, str], word: Any, **values: Any) -> str:
    """The phrase for a word; an unknown word stands for itself."""
    known = table.get(word) if isinstance(word, str) else None
    if known is None:
        return "not stated" if word is None else str(word)
    return known.format(**values)
