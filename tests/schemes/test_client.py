"""Whole clients: two of them, with numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sordino import BadInput, Federation, Plan  # noqa: E402
from sordino.clients.site import Site  # noqa: E402
from sordino.federation.sizes import PublicSizes  # noqa: E402
from sordino.privacy import events  # noqa: E402
from sordino.privacy.bounds import Flat  # noqa: E402
from sordino.rules.query import CentredBit  # noqa: E402
from sordino.schemes import settle  # noqa: E402
from sordino.schemes.client import ClientUpdate, own_rounds, weight_of  # noqa: E402
from sordino.schemes.clipped import request_for  # noqa: E402
from sordino.schemes.request import CONTRIBUTE, QUERY  # noqa: E402

SIZES = PublicSizes(2, np.array([2, 6]))


def plan(**settings) -> Plan:
    base = {
        "data": "toy",
        "clients": 2,
        "method": "dp-fedavg",
        "unit": "client",
        "multiplier": 2.0,
        "rounds": 4,
        "lr": 0.5,
    }
    return Plan(**(base | settings))


def linear_loss(out, y):
    return out.sum(1)


def work(settings, records=((3.0, 4.0), (0.6, 0.8))):
    """A linear model whose gradient is its input: a client of one record moves by -lr times that record."""
    pairs = [(np.array([x], np.float32), [0]) for x in records]
    federation = Federation(
        name="toy", clients=2, classes=2, x=np.concatenate([x for x, _ in pairs]), y=np.zeros(2, np.int64),
        offsets=np.array([0, 1, 2]),
    )  # fmt: skip
    made = plan(**settings)
    terms = settle(made, PublicSizes.of(federation))
    model = torch.nn.Linear(2, 1, bias=False)
    site = Site(model, federation, made, linear_loss)
    return ClientUpdate(site, np.zeros(2, np.float32), terms), terms


def test_what_is_charged_follows_the_observer():
    public = settle(plan(observer="public", cohort=1), SIZES)
    assert public.total == events.repeated(events.poisson(0.5, events.gaussian(2.0)), 4)
    fixed = settle(plan(observer="public", cohort=1, sampling="fixed"), SIZES)
    assert fixed.relation == "replace-one" and fixed.exposures == 4
    seen = settle(plan(observer="server", cohort=1, sampling="fixed"), SIZES)
    assert seen.total == events.repeated(events.gaussian(2.0), seen.exposures) and seen.exposures <= 4


def test_an_update_is_clipped_to_the_bound_and_a_short_one_left_alone():
    clients, terms = work({"observer": "public"})
    request = request_for(terms, 1, CONTRIBUTE, Flat(1.0), None, 0.0)
    sums = []
    for k in (0, 1):
        out = np.zeros(2, np.int64)
        assert clients.contribute(request, k, out).noise == 0.0  # the server adds it
        sums.append(request.grid.decode(out))
    np.testing.assert_allclose(sums[0], [-0.6, -0.8], atol=1e-6)  # (-1.5, -2) has length 2.5
    np.testing.assert_allclose(sums[1], [-0.3, -0.4], atol=1e-6)  # length 0.5


def test_noise_is_added_by_clients_and_evidence_is_what_was_added():
    clients, terms = work({"observer": "secagg-server"})
    request = request_for(terms, 1, CONTRIBUTE, Flat(1.0), None, 0.0)
    assert request.survivors == 2 and request.multiplier == 2.0
    replies = [clients.contribute(request, k, np.zeros(2, np.int64)) for k in (0, 1)]
    assert [reply.noise for reply in replies] == [2.0, 2.0]  # z^2 / 2 each: together z^2
    alone, terms = work({"observer": "server", "sampling": "fixed"})
    request = request_for(terms, 1, CONTRIBUTE, Flat(1.0), None, 0.0)
    assert alone.contribute(request, 0, np.zeros(2, np.int64)).noise == 4.0  # in full


def test_a_query_takes_its_share_and_the_sum_the_rest():
    clients, terms = work({"observer": "server", "sampling": "fixed"})
    ask = request_for(terms, 1, QUERY, Flat(1.0), CentredBit(0.36), 0.0)
    give = request_for(terms, 1, CONTRIBUTE, Flat(1.0), None, 0.36)
    assert ask.query_multiplier == pytest.approx(2.0 / 0.6) and give.multiplier == pytest.approx(2.0 / 0.8)
    assert ask.query_multiplier**-2 + give.multiplier**-2 == pytest.approx(2.0**-2)
    reply = clients.query(ask, 1)
    assert reply.answer_noise == pytest.approx((2.0 / 0.6) ** 2)


def test_weights_have_a_public_cap_and_the_denominator_is_public():
    sized = plan(observer="public", weights="size", weight_cap=4)
    assert weight_of(sized, SIZES, np.array([0, 1])) == 1.5  # 2/4 and 1
    assert sized.scheme.denominator(SIZES, np.array([0])) == 1.5  # whoever came
    assert plan(observer="public", cohort=1).scheme.denominator(SIZES, np.arange(2)) == 1
    with pytest.raises(BadInput, match="public weight_cap"):
        plan(observer="public", weights="size")


def test_a_holders_own_filter_counts_its_own_rounds():
    terms = settle(plan(observer="server", cohort=1, sampling="fixed", rounds=9), SIZES)
    for k in (0, 1):
        filter = own_rounds(terms, k)
        for _ in range(terms.exposures):
            filter.request(terms.round_event(1))
        assert not filter.affords(terms.round_event(1))
