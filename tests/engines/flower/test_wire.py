"""What travels, to the last bit; and bytes that are not what they should be."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.engines.flower import wire
from sordino.engines.flower.wire import MalformedMessage, Message
from sordino.errors import BadInput
from sordino.privacy.bounds import L1, Automatic, Coordinates, Flat, Grouped
from sordino.privacy.mechanisms import FixedPoint
from sordino.rules.query import BoundedValue, CentredBit, HistogramBin, RawBit, RawNorm
from sordino.schemes.request import CONTRIBUTE, QUERY, Request

BOUNDS = [
    None,
    Flat(0.1 + 0.2),
    Automatic(1.5, 0.02),
    L1(3.0),
    Grouped((3, 2), (0.5, 1 / 3)),
    Grouped(tuple(range(1, 200)), tuple(1 / k for k in range(1, 200))),
    Coordinates(np.linspace(-1, 1, 5), np.geomspace(1e-3, 1, 5)),
    Coordinates(np.linspace(-1, 1, 500), np.geomspace(1e-3, 1, 500)),
]
QUERIES = [None, CentredBit(0.07), HistogramBin((0.5, 1.0, 2.0), 0.1), BoundedValue(2.5), RawNorm(), RawBit()]


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda b: type(b).__name__)
@pytest.mark.parametrize("asked", QUERIES, ids=lambda q: type(q).__name__)
def test_a_request_comes_out_as_it_went_in(bound, asked):
    state = {"bound": 1 / 3, "edges": [1.0, 2.5], "round": 3}
    sent = Request(7, CONTRIBUTE, FixedPoint(2.0**33), bound, asked, FixedPoint(2.0**30), 1.1, 0.3, 4, state=state)
    head, arrays = wire.request_to_plain(sent)
    got = wire.from_bytes(wire.to_bytes(Message("work", {"request": head}, arrays)))
    assert wire.request_from_plain(got.head["request"], got.arrays) == sent


def test_every_field_of_a_request_travels():
    head, _ = wire.request_to_plain(Request(1, QUERY, FixedPoint(1.0), None))
    assert set(head) == {f.name for f in dataclasses.fields(Request)}


@given(
    st.dictionaries(st.text(max_size=5), st.integers() | st.floats(allow_nan=False) | st.text(), max_size=4),
    st.lists(st.sampled_from(wire.TYPES), max_size=3),
    st.integers(0, 9),
)
def test_parcels_round_trip(head, types, length):
    arrays = {f"a{i}": np.arange(length).astype(kind) for i, kind in enumerate(types)}
    got = wire.from_bytes(wire.to_bytes(Message("x", head, arrays)))
    assert got.kind == "x" and got.head == head and list(got.arrays) == list(arrays)
    for name, array in arrays.items():
        assert got.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(got.arrays[name], array)


@given(st.binary(max_size=60))
def test_noise_is_no_parcel(data):
    with pytest.raises(MalformedMessage):
        wire.from_bytes(data)


@given(st.data())
def test_a_changed_byte_is_noticed_or_changes_a_value_but_never_crashes(data):
    good = bytearray(wire.to_bytes(Message("work", {"round": 3}, {"theta": np.arange(3, dtype=np.float32)})))
    good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert isinstance(wire.from_bytes(bytes(good)), Message)
    except MalformedMessage:
        pass


def test_parcels_that_lie_about_themselves_are_refused():
    good = wire.to_bytes(Message("work", {}, {"theta": np.arange(4, dtype=np.float32)}))
    for wrong in (
        good[:-1],
        good + b"\x00",
        good.replace(b"<f4", b"|O8"),
        good.replace(b'", 4]', b'",-4]'),
        b"SRDN\x02" + good[5:],
    ):
        assert wrong != good
        with pytest.raises(MalformedMessage):
            wire.from_bytes(wrong)


def test_arrays_are_asked_for_by_type_and_length():
    parcel = Message("given", {"n": 1, "yes": True}, {"codes": np.arange(4)})
    assert parcel.array("codes", np.int64, 4).size == 4
    for name, kind, length in (("codes", np.int64, 5), ("codes", np.float64, 4), ("other", np.int64, 4)):
        with pytest.raises(MalformedMessage):
            parcel.array(name, kind, length)
    assert parcel.get("n", int) == 1
    for name, kind in (("n", str), ("m", int), ("yes", int)):
        with pytest.raises(MalformedMessage):
            parcel.get(name, kind)
    with pytest.raises(BadInput):
        wire.to_bytes(Message("x", {}, {"a": np.zeros((2, 2))}))


def test_requests_of_another_version_are_refused():
    head, arrays = wire.request_to_plain(Request(1, CONTRIBUTE, FixedPoint(1.0), Flat(1.0), CentredBit()))
    without = {name: value for name, value in head.items() if name != "phase"}
    for wrong in (
        head | {"extra": 1},
        without,
        head | {"phase": "take"},
        head | {"query": {"kind": "Eval"}},
        head | {"round": "1"},
    ):
        with pytest.raises(BadInput):
            wire.request_from_plain(wrong, arrays)
