"""What a data holder allows, whatever the server asks: its policy file, and the check of a plan against it.

    epsilon = 8.0                               # all runs together, by adding up
    delta = 1e-4                                # likewise
    units = ["example", "client"]
    observers = ["secagg-server", "server"]     # not "public": that trusts the server with raw contributions
    methods = []                                # empty: any
    variants = ["certified"]
    secure = true                               # noise and draws must come from this machine's secure source
    least = 2                                   # fewest clients in whose noise ours hides, under secure aggregation
    colluders = 0                               # clients that may collude with the server: so many more must be left in a sum
    code = []                                   # methods and models of one's own that a plan may name, as module:object,
                                                # pinned to their source: "mymodels:net#sha256=..." (sha256sum mymodels.py)

A refusal is a sentence for the other side: it names the plan's value and the rule that it breaks, and nothing of the data.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sordino.errors import BadInput, SordinoError, between, one_of, positive, whole
from sordino.methods import METHODS
from sordino.own_code import is_reference, source_hash
from sordino.plain import Json
from sordino.privacy.vocabulary import Noise, Observer, Unit, Variant
from sordino.schemes.terms import Terms

PIN = "#sha256="


class Refused(SordinoError):
    """The holder's veto. The sentence is meant for the server too."""

    exit_code = 3


@dataclass(frozen=True)
class Policy:
    """The rules of one data holder."""

    epsilon: float = 8.0
    delta: float = 1e-4
    units: tuple[str, ...] = tuple(str(u) for u in Unit)
    observers: tuple[str, ...] = (str(Observer.SECAGG_SERVER), str(Observer.SERVER))
    methods: tuple[str, ...] = ()
    variants: tuple[str, ...] = (str(Variant.CERTIFIED),)
    secure: bool = True
    least: int = 2
    colluders: int = 0
    code: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        positive(epsilon=self.epsilon)
        between(0, 1, delta=self.delta)
        whole(least=self.least)
        whole(0, colluders=self.colluders)
        object.__setattr__(self, "code", tuple(self.code))
        for entry in self.code:
            name, sign, pin = str(entry).partition(PIN)
            if not is_reference(name) or sign and (len(pin) != 64 or set(pin) - set("0123456789abcdef")):
                raise BadInput(f"code of a policy lists module:object{PIN} and 64 hexadecimal digits, not {entry!r}.")
            if not sign:
                raise BadInput(_unpinned(name))
        for name, words, given in (
            ("units", Unit, self.units),
            ("observers", Observer, self.observers),
            ("variants", Variant, self.variants),
            ("methods", METHODS, self.methods),
        ):
            kept = tuple(given)
            object.__setattr__(self, name, kept)
            for word in kept:
                one_of(list(words), **{f"{name} of a policy": word})
        if not isinstance(self.secure, bool):
            raise BadInput(f"secure of a policy must be true or false, not {self.secure!r}.")

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """The policy in a file; a file that cannot be read is a refusal."""
        try:
            plain: Json = tomllib.loads(Path(path).read_text())
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadInput(f"the policy {str(path)!r} cannot be read: {error}.") from None
        known = {f.name for f in dataclasses.fields(cls)}
        for name in plain:
            if name not in known:
                raise BadInput(f"a policy has no rule {name!r}; it has {', '.join(sorted(known))}.")
        return cls(**plain)

    def check_code(self, plan: Mapping[str, object]) -> None:
        """Before the plan is read, since reading it imports what it names."""
        for name in ("method", "model"):
            value = plan.get(name)
            if not isinstance(value, str) or not is_reference(value):
                continue
            if value not in self.own_code:
                raise Refused(
                    f"{name} {value} is code that this holder does not know; the policy must list it under code."
                )
            if source_hash(value) != self.own_code[value]:
                raise Refused(f"{name} {value} is not the code that this holder's policy is pinned to.")

    @property
    def own_code(self) -> dict[str, str]:
        """Code that a plan may name, and the hash of its source."""
        pairs = (entry.partition(PIN) for entry in self.code)
        return {name: pin for name, _, pin in pairs}

    def check(self, terms: Terms) -> None:
        """Refuse a plan that breaks a rule. `terms` are worked out here, from the plan alone, not taken on trust."""
        plan = terms.plan
        for name, value, allowed in (
            ("unit", plan.unit, self.units),
            ("observer", plan.observer, self.observers),
            ("variant", plan.variant, self.variants),
            ("method", plan.method, self.methods or (*METHODS, *self.own_code)),
        ):
            if str(value) not in allowed:
                raise Refused(f"{name} {value} is not allowed here; allowed: {', '.join(allowed)}.")
        if plan.metanet is not None:
            raise Refused("the plan names a file of weights (metanet), and no file that a server names is read here.")
        if not terms.proven and str(Variant.PUBLISHED) not in self.variants:
            raise Refused(f"method {plan.method} is not private, and nothing that is not private is allowed here.")
        if self.secure and plan.private and not plan.secure:
            raise Refused("the plan's noise would be seeded, and only noise from the secure source is allowed here.")
        if plan.observer == Observer.SECAGG_SERVER and terms.survivors < self.least:
            what = "the noise is divided among" if terms.scheme.noise == Noise.SHARES else "sums are opened for"
            raise Refused(f"{what} {terms.survivors} clients; at least {self.least} are asked for.")
        if terms.proven and terms.spent.epsilon > self.epsilon * (1 + 1e-9):
            raise Refused(f"epsilon {terms.spent.epsilon:.4g} is more than the {self.epsilon:g} allowed here.")
        if terms.proven and plan.delta > self.delta:
            raise Refused(f"delta {plan.delta:g} is more than the {self.delta:g} allowed here.")


def _unpinned(name: str) -> str:
    """The line that the policy should have instead."""
    found = source_hash(name)
    if found is None:
        return f"code {name!r} of a policy is not pinned to its source, which is not found here: install it, and write its hash behind {PIN}."
    return f'code {name!r} of a policy is not pinned to its source; if you have read it, write "{name}{PIN}{found}".'
