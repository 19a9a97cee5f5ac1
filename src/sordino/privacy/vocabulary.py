"""The words in which a guarantee is stated. Typed values, so that none can be mistaken for another.

They carry no mathematics. `accounting` gives them their meaning.
"""

from __future__ import annotations

from enum import StrEnum


class Unit(StrEnum):
    """What is protected."""

    CLIENT = "client"  # all data of one client
    EXAMPLE = "example"  # one record


class Relation(StrEnum):
    """Which two federations must be hard to tell apart."""

    ADD_REMOVE = "add-remove"  # one unit is there, or is not
    ZERO_OUT = "zero-out"  # one unit's contribution is replaced by nothing; the count of units is public
    REPLACE_ONE = "replace-one"  # one unit is another


class Observer(StrEnum):
    """Who looks."""

    PUBLIC = "public"  # sees the released models; the server is trusted
    SECAGG_SERVER = "secagg-server"  # the server, seeing sums only
    SERVER = "server"  # the server, seeing every message


class Sampling(StrEnum):
    """How the units that take part are chosen."""

    POISSON = "poisson"  # each by its own coin
    FIXED = "fixed"  # so many, without replacement
    NONE = "none"  # all, every time


class Variant(StrEnum):
    """A method as repaired, or as printed."""

    CERTIFIED = "certified"
    PUBLISHED = "published"


class Noise(StrEnum):
    """Where the noise is drawn; the observer decides it."""

    CENTRAL = "central"  # by the trusted server, on the sum
    SHARES = "shares"  # a share by each client, under secure aggregation
    LOCAL = "local"  # in full by each client


def noise_for(observer: Observer) -> Noise:
    """The least noise placement that convinces `observer`."""
    return {
        Observer.PUBLIC: Noise.CENTRAL,
        Observer.SECAGG_SERVER: Noise.SHARES,
        Observer.SERVER: Noise.LOCAL,
    }[observer]
