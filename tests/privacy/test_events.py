"""Events: builders, their JSON form, and that describing an event stays cheap."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.errors import BadInput
from sordino.privacy import events

multipliers = st.floats(1e-3, 1e3)
noises = multipliers.map(events.gaussian) | multipliers.map(events.laplace)
sampled = st.builds(events.poisson, st.floats(1e-6, 1.0), noises) | st.builds(
    lambda population, part, noise: events.without_replacement(population, max(1, int(part * population)), noise),
    st.integers(1, 10**6),
    st.floats(0, 1),
    noises,
)
leaves = noises | sampled | st.builds(events.zcdp, st.floats(0, 9), st.floats(0, 9)) | st.just(events.nothing())
leaves = leaves | st.text(min_size=1).map(events.nonprivate)
nested = st.recursive(
    leaves,
    lambda inner: (
        st.builds(events.repeated, inner, st.integers(1, 10**9))
        | st.lists(inner, min_size=1, max_size=4).map(events.composed)
    ),
    max_leaves=8,
)


@given(nested)
def test_json_round_trip(event):
    row = events.to_json(event)
    again = events.from_json(json.loads(json.dumps(row)))
    assert again == event
    assert json.dumps(events.to_json(again)) == json.dumps(row)


def test_json_is_stable():
    # Ledgers are hashed over this text: it may not change.
    event = events.composed(
        [
            events.repeated(events.poisson(0.1, events.gaussian(1.5)), 3),
            events.without_replacement(100, 10, events.laplace(2.0)),
            events.zcdp(0.5, 0.25),
            events.nonprivate("raw norms were sent"),
        ]
    )
    assert json.dumps(events.to_json(event)) == (
        '{"kind": "composed", "events": [{"kind": "repeated", "count": 3, "event": {"kind": "poisson", "rate": 0.1, '
        '"event": {"kind": "gaussian", "multiplier": 1.5}}}, {"kind": "without-replacement", "population": 100, '
        '"cohort": 10, "event": {"kind": "laplace", "multiplier": 2.0}}, {"kind": "zcdp", "rho": 0.5, "xi": 0.25}, '
        '{"kind": "nonprivate", "reason": "raw norms were sent"}]}'
    )


@pytest.mark.parametrize(
    "row",
    [
        None,
        {},
        {"kind": "magic"},
        {"kind": "gaussian"},
        {"kind": "gaussian", "multiplier": 1.0, "extra": 1},
        {"kind": "gaussian", "multiplier": 0.0},
        {"kind": "gaussian", "multiplier": float("nan")},
        {"kind": "gaussian", "multiplier": "1"},
        {"kind": "poisson", "rate": 1.5, "event": {"kind": "gaussian", "multiplier": 1.0}},
        {"kind": "poisson", "rate": 0.5, "event": {"kind": "gaussian"}},
        {"kind": "without-replacement", "population": 5, "cohort": 6, "event": {"kind": "gaussian", "multiplier": 1.0}},
        {"kind": "repeated", "count": 0, "event": {"kind": "nothing"}},
        {"kind": "repeated", "count": 1.5, "event": {"kind": "nothing"}},
        {"kind": "composed", "events": {"kind": "nothing"}},
        {"kind": "nonprivate", "reason": ""},
    ],
)
def test_json_of_anything_else_is_refused(row):
    with pytest.raises(BadInput):
        events.from_json(row)


def test_joint_queries_are_one_gaussian():
    # 1/z^2 adds up: 1/9 + 1/16 = 25/144.
    assert events.joint(3.0, 4.0).noise_multiplier == pytest.approx(12 / 5)
    assert events.joint(2.0).noise_multiplier == pytest.approx(2.0)
    with pytest.raises(BadInput):
        events.joint()
    with pytest.raises(BadInput):
        events.joint(1.0, 0.0)


def test_composed_folds_equal_neighbours():
    a, b = events.gaussian(1.0), events.gaussian(2.0)
    assert events.composed([a, a, a]) == events.repeated(a, 3)
    assert events.composed([a]) == a
    assert events.composed([]) == events.nothing()
    assert events.composed([a, a, b, a]).events == [events.repeated(a, 2), b, a]


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf, True, "1"])
def test_multipliers_must_be_numbers_above_zero(bad):
    for build in (events.gaussian, events.laplace):
        with pytest.raises(BadInput):
            build(bad)


def test_reasons_are_found_wherever_they_are():
    raw = events.nonprivate("raw norms")
    event = events.composed(
        [events.gaussian(1.0), events.repeated(raw, 3), events.poisson(0.1, raw), events.nonprivate("loss")]
    )
    assert events.reasons(event) == ["raw norms", "loss"]
    assert events.reasons(events.gaussian(1.0)) == []
    assert events.reasons(events.types().GaussianDpEvent(0.0)) != []
    with pytest.raises(BadInput):
        events.nonprivate("")


def test_a_foreign_event_has_no_json():
    with pytest.raises(BadInput, match="RandomizedResponse"):
        events.to_json(events.types().RandomizedResponseDpEvent(0.5, 2))


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_describing_events_does_not_import_the_package():
    out = python(
        "import sys; from sordino.privacy import events; events.poisson(0.1, events.gaussian(1.0));"
        "print([m for m in ('dp_accounting', 'dp_accounting.pld', 'scipy', 'torch') if m in sys.modules])"
    )
    assert out.strip() == "[]"


@pytest.mark.parametrize("first", ["events", "package"])
def test_the_classes_are_the_packages_own(first):
    build = "from sordino.privacy import events; e = events.gaussian(1.0);"
    package = "import dp_accounting;"
    out = python(
        (build + package if first == "events" else package + build)
        + "print(type(e) is dp_accounting.GaussianDpEvent, dp_accounting.dp_event.GaussianDpEvent is type(e),"
        "dp_accounting.rdp.RdpAccountant().compose(e).get_epsilon(1e-5) > 1,"
        "dp_accounting.pld.PLDAccountant().compose(events.nonprivate('x')).get_epsilon(1e-5))"
    )
    assert out.split() == ["True", "True", "True", "inf"]
