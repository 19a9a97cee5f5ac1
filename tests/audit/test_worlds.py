"""The two worlds of the conformance suite: what differs between them is what one unit may change, and no more."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from sordino.audit.cases import BASE, Case, certified, private_methods  # noqa: E402
from sordino.audit.script import JUST_WITHIN, Script  # noqa: E402
from sordino.audit.statistics import NAMES, statistics  # noqa: E402
from sordino.errors import BadInput  # noqa: E402

PLAIN = [
    {},
    {"observer": "secagg-server", "sampling": "fixed"},
    {"observer": "server", "sampling": "fixed"},
    {"unit": "example"},
    {"unit": "example", "observer": "secagg-server"},
    {"unit": "example", "observer": "server", "clients": 1},
    {"method": "dp-fedggc"},
    {"method": "automatic", "unit": "example"},
]


@pytest.mark.parametrize("settings", PLAIN, ids=lambda s: "-".join(map(str, s.values())) or "plain")
def test_the_target_moves_a_release_by_its_clipped_vector_and_the_noise_is_as_large_as_said(settings):
    stage = Case(settings).stage()
    without = np.array([stage.play(False, i)[0].value for i in range(300)])
    with_it = np.array([stage.play(True, 1000 + i)[0].value for i in range(300)])
    first = stage.play(True, 0)[0]
    std = np.broadcast_to(first.std, (stage.dimension,))
    assert np.linalg.norm(first.shift) == pytest.approx(first.bound, rel=1e-3)
    error = std * np.sqrt(2 / 300)
    assert (np.abs(with_it.mean(0) - without.mean(0) - first.shift) < 4.5 * error).all()
    both = np.concatenate([without - without.mean(0), with_it - with_it.mean(0)]) / std
    assert both.std() == pytest.approx(1.0, abs=0.03)  # 9600 numbers: a standard error of 0.007


def test_likelihood_ratios_have_the_mean_and_the_spread_of_the_proof():
    """Two Gaussian rounds: log likelihood ratios of mean +-mu^2/2 and variance mu^2, mu = sqrt(2)/z."""
    stage = Case().stage()
    mu = np.sqrt(2) / stage.terms.multiplier
    scores = np.array([[statistics(stage.play(w, i + 9000 * w), 1.0, False)[0] for i in range(500)] for w in (0, 1)])
    assert scores.mean(1) == pytest.approx([-(mu**2) / 2, mu**2 / 2], abs=4 * mu / np.sqrt(500))
    assert scores.std(1) == pytest.approx([mu, mu], rel=0.12)


def test_a_missing_client_takes_part_and_adds_its_noise():
    stage = Case({"observer": "secagg-server", "sampling": "fixed"}).stage()
    stage.play(False, 0)
    assert stage.terms.relation == "zero-out" and len(stage.work.site.draws.cohort(1)) == 2


def test_a_replaced_unit_is_its_opposite_with_the_other_answer():
    stage = Case({"method": "quantile", "relation": "replace-one", "options": {"share": 0.5}}).stage()
    bound = stage.rule.bound(stage.rule.init(), None)
    one, other = (bound.clip(stage.vector(1, bound, present)) for present in (True, False))
    np.testing.assert_allclose(one, -other, rtol=1e-5)
    assert stage.told(stage.rule.query(stage.rule.init()).with_sum, 1, bound) == -0.5
    assert np.linalg.norm(stage.vector(1, bound, False)) <= bound.size


def test_runs_do_not_share_their_noise():
    stage = Case().stage()
    values = [tuple(r.value) for seed in range(3) for r in stage.play(False, seed)]
    assert len(set(values)) == 6


def test_a_target_within_the_bound_says_so():
    stage = Case({"method": "quantile", "options": {"share": 0.9}}, Script(length=JUST_WITHIN)).stage()
    assert stage.play(True, 0)[0].answers[0][1] == 0.5


def test_every_method_is_checked_in_every_unit_towards_every_observer():
    wanted = {(m.name, u, o) for m in private_methods() for u in m.units for o in m.observers}
    found = {tuple((BASE | dict(c.settings))[k] for k in ("method", "unit", "observer")) for c in certified()}
    assert wanted <= found and len({o for _, _, o in found}) == 3
    small = {tuple((BASE | dict(c.settings))[k] for k in ("method", "unit")) for c in certified(small=True)}
    assert {(m.name, unit) for m in private_methods() for unit in m.units} <= small


def test_every_statistic_has_a_name():
    stage = Case({"observer": "server", "sampling": "fixed"}).stage()
    assert len(statistics(stage.play(True, 0), stage.rate, True)) == len(NAMES)


def test_a_relation_that_the_observer_sees_through_is_refused():
    """A server that sees who takes part notices a client that is not there; so no epsilon covers add-remove."""
    for observer in ("secagg-server", "server"):
        with pytest.raises(BadInput, match="sees who takes part"):
            Case({"observer": observer, "sampling": "none", "relation": "add-remove"}).plan()


@pytest.mark.parametrize("method", ["adaclip", "dp-fedavg", "automatic"])
@pytest.mark.parametrize("observer", ["public", "server"])
def test_in_the_example_unit_the_mean_of_constant_gradients_is_released_as_it_is(method, observer):
    """Hardly any noise, records that never change, gradients within the bound: every round releases the same mean."""
    settings = {
        "method": method,
        "unit": "example",
        "observer": observer,
        "epsilon": None,
        "multiplier": 1e-5,
        "rounds": 20,
    }
    settings |= {"clients": 1} if observer == "server" else {}
    settings |= {"options": {"beta1": 0.5}} if method == "adaclip" else {}
    stage, means = Case(settings, Script(length=0.3, quiet=True)).stage(), []
    inner = stage.rule.rule.observe

    class Spy:
        def __getattr__(self, name):
            return getattr(rule, name)

        def observe(self, state, seen):
            means.append(np.linalg.norm(seen.mean))
            return inner(state, seen)

    rule = stage.rule.rule
    stage.rule.rule = Spy()
    stage.play(True, 1)
    wanted = (
        0.3 / 0.31 if method == "automatic" else 0.3
    ) / stage.terms.units  # automatic: scaled to C |v| / (|v| + gamma)
    assert means == pytest.approx([wanted] * len(means), rel=0.02)


def test_a_target_that_trains_goes_through_the_real_masks():
    """Half of its coordinates are personal and are not sent; in the other world it is the other half. Nothing exceeds the bound."""
    from sordino.audit.cases import TRAINS, Case

    stage = Case({"method": "fed-dpa", "relation": "replace-one"}, TRAINS).stage()
    for present in (True, False):
        releases = stage.play(present, 3)
        assert len(releases) == 2
        for release in releases:
            mine, others = release.shift.reshape(4, 4)[:, 2:], release.shift.reshape(4, 4)[:, :2]
            assert np.linalg.norm(mine) == pytest.approx(1.0, rel=1e-3)  # what the target shares, clipped
            assert np.linalg.norm(others) == pytest.approx(1.0, rel=1e-3)  # what its neighbour shares
            assert (mine < 0).all() and (others < 0).all()  # the neighbour holds the opposite
    assert stage.work.mask(stage.work.theta, *stage.site.client(0)).sum() == 8
