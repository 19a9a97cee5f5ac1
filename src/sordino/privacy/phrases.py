"""The sentences of a guarantee, once. The statement and the report take them from here, so that both say the same.

Keys are the words of `vocabulary`; a plain string such as "client" finds them too. What is not known is shown as it
stands, never guessed at.
"""

from __future__ import annotations

from collections.abc import Mapping

NOUN = {"client": "client", "example": "record"}
EACH = {"client": "each client", "example": "each record"}

PROTECTED = {
    "client": "Each client: all data that one client holds, taken together.",
    "example": "Each record: one single record of one client.",
}

TOWARDS = {
    "public": "towards anyone who sees the released models",
    "secagg-server": "towards a server that sees sums only",
    "server": "towards a server that sees every message",
}

AGAINST = {
    "public": "Anyone who sees the released models, from the first round to the last. The server is trusted: it sees what "
    "each client sends, and it adds the noise.",
    "secagg-server": "The server, which sees only sums over a cohort (secure aggregation), and anyone who sees the "
    "released models.",
    "server": "The server, which sees every message of every client, and anyone who sees the released models.",
}

MASKED_LOCAL = (
    "The proof does not depend on secure aggregation: each message carries its full noise, so the same epsilon holds "
    "towards a server that sees every message. Secure aggregation hides single messages in addition."
)

NEIGHBOURS = {
    "add-remove": "The result is nearly as likely if one {unit} takes part as if that {unit} does not exist.",
    "zero-out": "The result is nearly as likely if one {unit} contributes as if that {unit} contributes nothing. The "
    "number of {unit}s is public.",
    "replace-one": "The result is nearly as likely if any one {unit} is replaced by another.",
}

# What an attacker has to guess, under each relation.
QUESTION = {
    "add-remove": "one given {unit} was used or not",
    "zero-out": "one given {unit} contributed or not",
    "replace-one": "one given {unit} has one value or another",
}

SAMPLING = {
    "poisson": "{each} takes part in a {round} with probability {rate}, independently of all others",
    "fixed": "a fixed number of {unit}s is drawn without replacement, a share of {rate}",
    "none": "the proof gains nothing from it; every {unit} takes part each time, or the observer sees which ones do",
}

ACCOUNTANT = {
    "pld": "privacy loss distributions, for a schedule that was fixed before round one",
    "rdp": "Renyi differential privacy, for a schedule that was fixed before round one",
    "rdp-filter": "a Renyi filter at an order that was fixed before round one; it refuses a release that the budget does "
    "not cover",
    "gdp": "the exact trade-off curve of the Gaussian mechanism",
    "gdp-filter": "a Gaussian filter; it refuses a release that the budget does not cover",
}

NOISE = {
    "central": "the server adds it to the sum",
    "shares": "each client adds a share of it, under secure aggregation",
    "local": "each client adds it in full",
}

OWN_MULTIPLIERS = (
    "Each client sets its multiplier for each step and tells it to nobody. A client that takes the most steps and spends "
    "evenly uses {range}."
)

SIMULATION = "A simulation: all data was in one place, and the person who ran it could see everything."
DEPLOYMENT = "A deployment: the data of each client stayed with that client."

STOPPED_EARLY = "The epsilon is that of the whole budget: nothing is subtracted because the run stopped early."
LOST = "Rounds that were interrupted, are paid for and were not run again: {lost}."
CLAIM = "This figure is a claim of the paper. It does not replace the verdict."
PERSONAL = (
    "Each client has parameters of its own. They are trained on its data without noise, they never leave it, and nothing here "
    "protects them: a person who gets them learns about the data of that client. The guarantee is for what is released."
)
NOTHING_LEFT = "Nothing. Every released value went through a mechanism and was charged to the budget."


def heuristic(defence: object, proven: bool) -> str:
    """What must stand beside a defence of which nothing is proven."""
    under = " The epsilon above is that of the method without it: it neither rises nor falls." if proven else ""
    return (
        f"{defence}: heuristic: no guarantee. Each client changes its update by {defence} before it is clipped.{under}"
    )


def phrase(table: Mapping[str, str], word: object, **values: object) -> str:
    """The phrase for a word; an unknown word stands for itself."""
    known = table.get(word) if isinstance(word, str) else None
    if known is None:
        return "not stated" if word is None else str(word)
    return known.format(**values)


IN_TURNS = (
    "Clients take turns: a client may take part in one round of {rounds}, and the sampling is that of its turns. Noise is correlated over {rounds} "
    "rounds, so that later rounds take back a part of it; what one turn adds is protected by the multiplier in all that it shows in."
)


def sampling(word: object, unit: object, rate: str, local_steps: bool = False) -> str:
    """How units take part, as the proof uses it. `local_steps`: each client draws anew for every step."""
    each, noun = phrase(EACH, unit), phrase(NOUN, unit)
    return phrase(SAMPLING, word, each=each, unit=noun, rate=rate, round="step" if local_steps else "round")


def rehearsal(seed: object) -> str:
    """What must stand beside the verdict of a run whose noise can be drawn again."""
    which = f"seed {seed}" if isinstance(seed, int) and not isinstance(seed, bool) else "a seed"
    return (
        f"REHEARSAL: noise and draws follow from {which}; anyone who knows the seed can remove them. "
        "Train with --secure before you release the model."
    )
