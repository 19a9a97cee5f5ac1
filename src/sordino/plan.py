"""The plan: every setting that decides the result and its guarantee, in one frozen, validated, serialisable object.

Field names are those of the command line. What can only change speed (engine, workers) is not here: see
`sordino.engines`. A plan says what is wanted; `sordino.schemes.terms` works out what that releases, before any data is touched.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Literal, TypeVar, cast

from sordino.errors import BadInput
from sordino.federation.held_out import share_in
from sordino.methods import Method, adopt, method
from sordino.plain import Json, Plain
from sordino.plan_checks import check_fit, check_numbers
from sordino.preparation import Preparation, preparation_from
from sordino.privacy.vocabulary import Observer, Relation, Sampling, Unit, Variant
from sordino.schemes import Scheme, scheme_for

T = TypeVar("T")
Word = TypeVar("Word")


class Given(Generic[T, Word]):
    """For type checkers alone: a field that may be given as a plain `Word` and reads as a `T` (`Plan.__post_init__`)."""

    def __get__(self, plan: object, owner: object = None) -> T: ...  # type: ignore[empty-body]

    def __set__(self, plan: object, value: T | Word) -> None: ...


def given(default: T) -> Given[T, Word]:
    """The default of a field that may be given as a plain word."""
    return cast(Given[T, Word], default)  # at run time the field is the value itself


@dataclass(frozen=True)
class Plan:
    """What is trained, how, and under which guarantee.

    Give `epsilon` and the multiplier is calibrated; give `multiplier` and epsilon is computed; give both and training stops
    before the budget is exceeded.
    """

    # the population
    data: str = "digits"
    clients: int = 10
    partition: str = "dirichlet"
    alpha: float = 1.0
    model: str = "auto"
    classes: int | None = None  # how many there are; None: the data set or its public test set says
    partition_seed: int | None = None  # of the partition; None: that of everything
    # tables of one's own
    client_column: str | None = None  # whose a row is; None: rows are dealt out, or each client has a file
    label: str | None = None  # None: the column called label, or the last one
    test: str | None = None  # a public test file; holdout=0.1: a share of the records, tested on with noise; none
    fairness: str = "public"  # figures between clients: on public splits, or noisy: on held-out records, with noise
    schema: str | None = None  # schema.toml
    ignore: str | None = None  # columns that are left out, with commas between
    task: str = "classification"
    # how records become model input, and the statistics asked for that before round 1; empty: as they are
    prepare: Given[Plain, str] = given(field(default_factory=lambda: MappingProxyType({})))
    # the method
    method: Given[str, Method] = given("adact")
    variant: Given[Variant, Literal["certified", "published"]] = given(Variant.CERTIFIED)
    mechanism: str = "gaussian"
    bound: float = 1.0
    options: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    metanet: str | None = None  # weights of FedMAP's controllers; None: those of the package
    personal: str | None = None  # layers that each client keeps for itself, separated by commas; head: the last one
    defence: str | None = None  # a heuristic that changes updates before they are clipped; no guarantee
    # the guarantee
    unit: Given[Unit, Literal["client", "example"]] = given(Unit.EXAMPLE)
    observer: Given[Observer, Literal["public", "secagg-server", "server"]] = given(Observer.SECAGG_SERVER)
    # None: follows from the sampling
    relation: Given[Relation | None, Literal["add-remove", "zero-out", "replace-one"]] = given(None)
    epsilon: float | None = None
    delta: float = 1e-5
    multiplier: float | None = None
    # who takes part
    sampling: Given[Sampling, Literal["poisson", "fixed", "none"]] = given(Sampling.POISSON)
    cohort: int | None = None  # clients expected in a round; None: all
    # secagg-server: the fewest clients whose shares of the noise make up the whole; None: all. fedmap: the fewest in a sum; None: 2
    survivors: int | None = None
    weights: str = "uniform"
    weight_cap: int | None = None  # examples from which on a client weighs in full; public
    # training
    rounds: int = 100
    local_epochs: int = 1
    batch_size: int = 256
    lr: float = 0.5
    optimizer: str = "sgd"
    momentum: float = 0.9
    server_optimizer: str = "sgd"
    server_lr: float = 1.0
    server_momentum: float = 0.9
    steps: str = (
        "mean"  # along the noisy mean, or scaled: along mean / bound, so that lr means the same under every bound
    )
    lr_schedule: str = "constant"  # or decay: of the server's steps; a short warm-up, then in a line towards 0
    average: str = "none"  # or settled: the model is the mean of all iterates if the second half only added noise
    # chance
    canaries: int = 0
    canary: str = "turning"  # or steady; or records, in the example unit pooled: mislabelled, random
    seed: int = 0
    secure: bool = False  # noise from the operating system's secure source; never repeatable

    def __post_init__(self) -> None:
        if isinstance(self.method, Method):
            object.__setattr__(self, "method", adopt(self.method))
        _enums(self)
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))
        object.__setattr__(self, "prepare", _prepared(self.prepare))
        if self.cohort is None:
            object.__setattr__(self, "cohort", self.clients)
        check_numbers(self)
        check_fit(self)

    # ---- what follows from the fields ------------------------------------------------------------------------------------

    @property
    def method_spec(self) -> Method:
        """The line of the table of methods, or the method of one's own."""
        return method(self.method)

    @property
    def cohort_size(self) -> int:
        """The cohort that is expected, as a number."""
        return self.clients if self.cohort is None else self.cohort

    @cached_property
    def scheme(self) -> Scheme:
        """What one unit is exposed to, and what a round does."""
        return scheme_for(self)

    @cached_property
    def preparation(self) -> Preparation | None:
        """How records become model input; None: as they are."""
        return preparation_from(self.prepare) if self.prepare else None

    @property
    def holdout(self) -> float | None:
        """The share of every client's records that is tested on and never trained on; None: nothing is held out."""
        return share_in(self.test)

    @property
    def published(self) -> bool:
        """Whether the method runs as its paper prints it."""
        return self.variant == Variant.PUBLISHED

    @property
    def paper(self) -> str | None:
        """The method whose paper the run follows, as published; None: it need not."""
        return self.method if self.published else None

    @property
    def claim(self) -> Callable[..., float | None] | None:
        """The paper's own accounting, if the run follows the paper and the paper prints an epsilon."""
        return self.method_spec.claim if self.published else None

    @property
    def private(self) -> bool:
        """Whether noise is drawn at all."""
        return self.method_spec.private

    # ---- plain data ------------------------------------------------------------------------------------------------------

    def replace(self, **changes: Any) -> Plan:
        """The same plan with other settings, checked anew."""
        return dataclasses.replace(self, **changes)

    def to_json(self) -> dict[str, object]:
        """Every setting by its name, as plain data."""
        plain: dict[str, object] = {}
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            plain[f.name] = dict(value) if isinstance(value, Mapping) else str(value) if _is_word(value) else value
        return plain

    @classmethod
    def from_json(cls, plain: Plain) -> Plan:
        """The plan with these settings; a setting that no plan has is refused."""
        names = {f.name for f in dataclasses.fields(cls)}
        for key in plain:
            if key not in names:
                raise BadInput(f"the plan has no setting {key!r}; it has {', '.join(sorted(names))}.")
        return cls(**plain)

    def digest(self) -> str:
        """What binds a ledger to this plan: all that plan.toml holds. A later version's setting that is not given changes nothing."""
        given = {name: value for name, value in self.to_json().items() if value is not None}
        return hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()

    def to_toml(self) -> str:
        """The text of a plan.toml, with which the run can be repeated."""
        plain = self.to_json()
        tables = {name: dict(plain.pop(name)) for name in ("options", "prepare")}  # type: ignore[call-overload]
        lines = [f"{key} = {_toml(value)}" for key, value in plain.items() if value is not None]
        for name, table in tables.items():
            if table:
                lines += ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
        return "\n".join(lines) + "\n"

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """The plan in a plan.toml."""
        return cls.from_json(read_toml(path))


def read_toml(path: str | Path) -> Json:
    """The settings in a plan file; one sentence if it cannot be read."""
    try:
        return tomllib.loads(Path(path).read_text())
    except FileNotFoundError:
        raise BadInput(f"there is no plan file {str(path)!r}; give the path of a plan.toml.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"the plan file {str(path)!r} is not valid TOML: {error}.") from None
    except OSError as error:
        raise BadInput(f"the plan file {str(path)!r} cannot be read ({error.strerror}); give a plan.toml.") from None


def _enums(plan: Plan) -> None:
    """Take the words as plain strings too, and refuse unknown ones."""
    words = {"variant": Variant, "unit": Unit, "observer": Observer, "sampling": Sampling, "relation": Relation}
    for name, kind in words.items():
        value = getattr(plan, name)
        if value is None and name == "relation":
            continue
        try:
            object.__setattr__(plan, name, kind(value))
        except ValueError:
            raise BadInput(f"{name} must be one of {', '.join(kind)}, not {value!r}.") from None


def _prepared(asked: Plain | str | None) -> Plain:
    """The preparation in full, its defaults included; a name alone means its defaults."""
    if not asked or asked == "none":
        return MappingProxyType({})
    plain = {"kind": asked} if isinstance(asked, str) else asked
    return MappingProxyType(preparation_from(plain).to_json())


def _is_word(value: object) -> bool:
    return isinstance(value, (Variant, Unit, Observer, Sampling, Relation))


def _toml(value: object) -> str:
    return json.dumps(value)  # the same for strings, numbers and booleans
