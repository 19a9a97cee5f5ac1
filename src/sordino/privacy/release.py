"""Two kinds of values and the doors between them.

What comes from a unit's data is `Private`: it can be carried and transformed, but not looked at. It becomes `Released`
through a mechanism (`sordino.privacy.mechanisms`), which adds noise and returns the event to be charged, or through
`disclose`, which adds nothing and charges an event that makes epsilon infinite, with the reason. There is no third way:
text, numbers, comparison, iteration, arrays, pickles and JSON are all refused.

Python cannot keep a determined programmer out. This keeps an honest one from leaking by accident.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

from sordino.errors import BadInput, NotPrivate
from sordino.privacy.events import Event

if TYPE_CHECKING:
    from sordino.privacy.bounds import Bound

T = TypeVar("T")
S = TypeVar("S")


class Private(Generic[T]):
    """A value that depends on data and has not been made private yet.

    `bound` is the stamp of clipping: the bound (see `bounds`) under which each unit's part was clipped. A
    mechanism refuses a value whose stamp is not the bound that it is told to noise for.
    """

    __slots__ = ("_raw", "bound")
    bound: Bound | None

    def __init__(self, value: T, bound: Bound | None = None) -> None:
        object.__setattr__(self, "_raw", value)
        object.__setattr__(self, "bound", bound)

    def map(self, fn: Callable[[T], S]) -> Private[S]:
        """The transformed value, still private. The stamp is lost: what `fn` does to the norm is not known."""
        return Private(fn(_open(self)))

    def __setattr__(self, name: str, value: object) -> None:
        if name != "__orig_class__":  # typing writes this one on Private[int](...); there is no room for it
            _refusal("changed")(self)

    def __repr__(self) -> str:
        return "Private(...)"

    def __copy__(self) -> Private[T]:
        return Private(_open(self), self.bound)

    def __deepcopy__(self, memo: dict) -> Private[T]:
        return Private(copy.deepcopy(_open(self), memo), copy.deepcopy(self.bound, memo))


def _refusal(deed: str) -> Callable[..., NoReturn]:
    def refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
        raise NotPrivate(
            f"A private value cannot be {deed}: release it through a mechanism (sordino.privacy.mechanisms), or "
            "through disclose(value, reason), which marks the run as not private."
        )

    return refuse


_REFUSED = {
    "printed": "str format bytes",
    "turned into a number": "float int complex bool index round trunc floor ceil",
    "counted or searched": "len length_hint contains",
    "iterated over or indexed": "iter next reversed getitem setitem delitem",
    "turned into an array": "array array_ufunc array_function array_interface buffer dlpack",
    "compared or hashed": "eq ne lt le gt ge hash",
    "computed with (use .map)": "neg pos abs invert "
    + " ".join(
        f"{name} r{name} i{name}"
        for name in "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or".split()
    ),
    "pickled or saved": "reduce reduce_ex getstate setstate",
    "changed": "delattr",
    "called or entered": "call enter exit",
}
for _deed, _names in _REFUSED.items():
    for _name in _names.split():
        setattr(Private, f"__{_name}__", _refusal(_deed))
# numpy looks this one up as an attribute, not as a method: reading it must be the refusal.
setattr(Private, "__array_interface__", property(_refusal("turned into an array")))  # noqa: B010
setattr(Private, "__array_struct__", property(_refusal("turned into an array")))  # noqa: B010


def _open(private: Private[T]) -> T:
    """What is inside. For the two doors only: `mechanisms` and `disclose`."""
    if not isinstance(private, Private):
        raise NotPrivate(f"Only a Private value goes through a mechanism, not {type(private).__name__}: wrap it first.")
    return object.__getattribute__(private, "_raw")


@dataclass(frozen=True, eq=False)
class Released(Generic[T]):
    """A value that anyone may see, and the way by which it was released."""

    value: T
    how: str

    def map(self, fn: Callable[[T], S]) -> Released[S]:
        """The transformed value: whatever is computed from released values alone is released."""
        return Released(fn(self.value), self.how)


def disclose(private: Private[T], reason: str) -> tuple[Released[T], Event]:
    """The other door: the value as it is, and an event that makes epsilon infinite and carries the reason."""
    from sordino.privacy import events

    if not isinstance(reason, str) or not reason.strip():
        raise BadInput("disclose needs a reason that the statement can print.")
    return Released(_open(private), f"disclosed without noise: {reason}"), events.nonprivate(reason)


def require_released(value: Private[T] | Released[T], what: str) -> T:
    """The content of a `Released`. Anything else used as `what` (a bound, a metric, a log line) is a hard error.

    >>> require_released(Released(0.25, "Gaussian noise"), "a metric")
    0.25
    """
    if isinstance(value, Released):
        return value.value
    kind = "a private value" if isinstance(value, Private) else f"a raw value ({type(value).__name__})"
    raise NotPrivate(
        f"{what} must be a released value, not {kind}: release it through a mechanism, or through "
        "disclose(value, reason), which marks the run as not private."
    )
