"""Who is attacked, and who judges.

Members come from the federation, non-members from the public test split; as many of one as of the other, so that blind
guessing is right half the time. Three groups are kept apart, record by record:

    own         attacked records whose membership the attacker knows; it may learn from them
    judged      attacked records on which it is scored; half of either class
    population  test records that are in no model at all: shadow data, and what scores are compared with

Test records that also occur in the training data are left out, or they would count as members and non-members at once.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sordino.errors import BadInput, between, whole
from sordino.privacy.randomness import SERVER, stream

if TYPE_CHECKING:
    from sordino.federation.population import Federation

LEAST = 20  # attacked members, and non-members, below which nothing can be told
FEW = 5  # members, and non-members, that the attacker must know and be judged on


@dataclass(frozen=True)
class Protocol:
    """How the records are dealt out."""

    records: int = 0  # attacked members, and as many non-members; 0: as many as there are
    own: float = 0.5  # the share of them that the attacker knows
    population: float = 0.5  # the share of the test split that is kept out of every model
    seed: int = 0

    def __post_init__(self) -> None:
        whole(0, records=self.records, seed=self.seed)
        between(0, 1, own=self.own, population=self.population)


@dataclass(frozen=True, eq=False)
class AttackSplit:
    """The records by their place in the stored data. Attacked ones are numbered, in an order that tells nothing."""

    federation: Federation
    member: np.ndarray  # bool, of each attacked record
    row: np.ndarray  # of each attacked record: in the pooled training data if it is a member, else in the test split
    owner: np.ndarray  # the client that is asked about: "does this client hold this record?"
    own: np.ndarray  # numbers of attacked records
    judged: np.ndarray
    population: np.ndarray  # rows of the test split
    repeated: int = 0  # test records that were left out because the training data holds them too

    @cached_property
    def labels(self) -> np.ndarray:
        """The labels of the judged records, members and others, as stored."""
        train, test = self._stored("y")
        inside, outside = train[np.where(self.member, self.row, 0)], test[np.where(self.member, 0, self.row)]
        return np.where(self.member.reshape(-1, *(1,) * (train.ndim - 1)), inside, outside)

    def inputs(self, some: np.ndarray | None = None) -> np.ndarray:
        """Attacked records as model input."""
        some = np.arange(len(self.row)) if some is None else some
        train, test = self._stored("x")
        out = np.empty((len(some), *train.shape[1:]), train.dtype)
        inside = self.member[some]
        out[inside], out[~inside] = train[self.row[some][inside]], test[self.row[some][~inside]]
        return self.federation.prepare(out)

    def population_inputs(self) -> np.ndarray:
        """Test records that are not judged, ready for a model: the attacker's own."""
        return self.federation.prepare(self._stored("x")[1][self.population])

    @cached_property
    def population_labels(self) -> np.ndarray:
        """The labels of the attacker's own records."""
        return self.federation.labels(np.asarray(self._stored("y")[1])[self.population])

    def _stored(self, part: str) -> tuple[np.ndarray, np.ndarray]:
        test = self.federation.raw_test
        mine = self.federation.x if part == "x" else self.federation.y
        assert mine is not None and test is not None
        return mine, np.asarray(test[0 if part == "x" else 1])


def deal(federation: Federation, protocol: Protocol) -> AttackSplit:
    """Deal the records out, by the protocol's seed."""
    test = federation.raw_test
    if federation.x is None or federation.offsets is None:
        raise BadInput(f"the data of {federation.name} is made on demand; a membership attack needs data that is held.")
    if test is None:
        raise BadInput(f"{federation.name} has no test split to take non-members from; add one (test.npz in a folder).")
    rng = stream(protocol.seed, 0, SERVER, "attack-cast")
    fresh = unseen(federation.x, federation.y, *test)
    rng.shuffle(fresh)
    reserve = int(len(fresh) * protocol.population)
    most = min(federation.examples, len(fresh) - reserve)
    count = min(protocol.records, most) if protocol.records else most
    if count < LEAST:
        raise BadInput(f"only {count} members and non-members can be attacked; at least {LEAST} of each are needed.")
    known = round(count * protocol.own)
    if not FEW <= known <= count - FEW:
        raise BadInput(
            f"with own {protocol.own:g} the attacker knows {known} of {count} members and is judged on {count - known}; "
            f"both must be at least {FEW}."
        )
    members = np.sort(rng.choice(federation.examples, count, replace=False))
    outsiders, population = fresh[:count], np.sort(fresh[len(fresh) - reserve :])
    order = rng.permutation(2 * count)
    member = (np.arange(2 * count) < count)[order]
    row = np.concatenate([members, outsiders])[order]
    # A non-member is asked about at a client drawn as members' owners are distributed.
    owners = np.searchsorted(federation.offsets, members, "right") - 1
    owner = np.concatenate([owners, rng.permutation(owners)])[order].astype(np.int64)
    own = np.zeros(2 * count, bool)
    for kind in (True, False):
        mine = rng.permutation(np.flatnonzero(member == kind))
        own[mine[:known]] = True
    return AttackSplit(
        federation=federation,
        member=member,
        row=row,
        owner=owner,
        own=np.flatnonzero(own),
        judged=np.flatnonzero(~own),
        population=population,
        repeated=len(test[1]) - len(fresh),
    )


def unseen(x: np.ndarray, y: np.ndarray | None, test_x: np.ndarray, test_y: np.ndarray) -> np.ndarray:
    """Rows of the test split that do not occur in the training data (labels aside) and not twice among themselves."""
    seen = {_digest(row) for row in x}
    kept = []
    for i, row in enumerate(np.asarray(test_x)):
        key = _digest(row)
        if key not in seen:
            seen.add(key)
            kept.append(i)
    return np.array(kept, np.int64)


def _digest(row: np.ndarray) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(row).tobytes(), digest_size=16).digest()
