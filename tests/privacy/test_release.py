"""A private value gets out through a mechanism or through disclose, and through nothing else."""

import copy
import io
import json
import math
import operator
import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from sordino.errors import BadInput, NotPrivate
from sordino.privacy import events
from sordino.privacy.bounds import Flat
from sordino.privacy.release import Private, Released, _open, disclose, require_released

WAYS_OUT = {
    "str": str,
    "print": lambda p: print(p, file=io.StringIO()),
    "format": lambda p: f"{p}",
    "format spec": lambda p: f"{p:.3f}",
    "percent": lambda p: "%s" % p,  # noqa: UP031
    "bytes": bytes,
    "float": float,
    "int": int,
    "complex": complex,
    "bool": bool,
    "if": lambda p: 1 if p else 0,
    "index": operator.index,
    "round": round,
    "floor": math.floor,
    "sqrt": math.sqrt,
    "len": len,
    "in": lambda p: 3 in p,
    "iter": iter,
    "list": list,
    "sum": sum,
    "unpack": lambda p: [*p],
    "getitem": lambda p: p[0],
    "setitem": lambda p: operator.setitem(p, 0, 1),
    "reversed": reversed,
    "array": np.array,
    "asarray": np.asarray,
    "array of": lambda p: np.array([p, p]),
    "float64": np.float64,
    "ufunc": lambda p: np.add(p, 1),
    "ufunc out": lambda p: np.add(np.ones(2), np.ones(2), out=p),
    "norm": np.linalg.norm,
    "mean": np.mean,
    "eq": lambda p: p == 3,
    "eq itself": lambda p: p == p,
    "ne": lambda p: p != 3,
    "lt": lambda p: p < 3,
    "ge": lambda p: 3 >= p,
    "max": lambda p: max(p, p),
    "hash": hash,
    "set": lambda p: {p},
    "add": lambda p: p + 1,
    "radd": lambda p: 1 + p,
    "add arrays": lambda p: np.ones(3) + p,
    "sub": lambda p: p - p,
    "mul": lambda p: 2 * p,
    "iadd": lambda p: operator.iadd(p, 1),
    "matmul": lambda p: np.ones(3) @ p,
    "div": lambda p: p / 3,
    "pow": lambda p: 2**p,
    "divmod": lambda p: divmod(p, 2),
    "neg": operator.neg,
    "abs": abs,
    "pickle": pickle.dumps,
    "reduce": lambda p: p.__reduce__(),
    "getstate": lambda p: p.__getstate__(),
    "json with str": lambda p: json.dumps(p, default=str),
    "set stamp": lambda p: setattr(p, "bound", Flat(1.0)),
    "call": lambda p: p(),
}


@pytest.mark.parametrize("way", WAYS_OUT)
@pytest.mark.parametrize("value", [3.0, np.arange(3.0)], ids=["number", "array"])
def test_every_way_out_is_refused(way, value):
    with pytest.raises(NotPrivate) as refusal:
        WAYS_OUT[way](Private(value))
    assert "mechanism" in str(refusal.value) and "disclose" in str(refusal.value)  # names the two doors


@pytest.mark.parametrize("way", [json.dumps, vars, memoryview, lambda p: p.value, lambda p: p.__dict__])
def test_other_ways_lead_nowhere(way):
    with pytest.raises((TypeError, AttributeError)):
        way(Private(3.0))


def test_repr_shows_nothing():
    assert repr(Private(3.0)) == repr(Private([1, 2])) == "Private(...)"
    assert "3" not in repr([Private(3.0)])


def test_map_stays_private_and_loses_the_stamp():
    mapped = Private(np.array([3.0, 4.0]), bound=Flat(5.0)).map(np.linalg.norm)
    assert isinstance(mapped, Private) and mapped.bound is None
    assert _open(mapped) == 5.0


def test_copies_stay_private():
    stamp = Flat(1.0)
    one = Private(np.ones(2), bound=stamp)
    assert copy.copy(one).bound is stamp
    deep = copy.deepcopy(one)
    assert isinstance(deep, Private) and deep.bound == stamp and _open(deep) is not _open(one)


def test_typing_syntax_works():
    assert isinstance(Private[int](3), Private)


def test_open_takes_private_values_only():
    with pytest.raises(NotPrivate):
        _open(3.0)


def test_disclose_gives_the_value_and_the_reason():
    released, event = disclose(Private(3.0), "the paper publishes the mean norm")
    assert released.value == 3.0 and "the paper publishes the mean norm" in released.how
    assert events.reasons(event) == ["the paper publishes the mean norm"]
    for bad in ("", "  ", None):
        with pytest.raises(BadInput):
            disclose(Private(3.0), bad)
    with pytest.raises(NotPrivate):
        disclose(3.0, "not wrapped")


def test_released_is_frozen_and_maps():
    one = Released(2.0, "Gaussian noise")
    with pytest.raises(FrozenInstanceError):
        one.value = 3.0
    assert one.map(lambda x: x + 1).value == 3.0 and one.map(str).how == one.how


@pytest.mark.parametrize("raw", [3.0, np.float32(2), "text", None, np.ones(2), Private(1.0), [Released(1, "")]])
def test_raw_values_are_a_hard_error(raw):
    with pytest.raises(NotPrivate, match="The bound must be a released value"):
        require_released(raw, "The bound")
    assert require_released(Released(raw, "noise"), "The bound") is raw
