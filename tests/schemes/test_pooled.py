"""Records in one sum: the rate that draws is charged, chunks have a fixed size, shares are items of their own."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from populations import toy  # noqa: E402
from sordino import BadInput, Plan  # noqa: E402
from sordino.clients.site import Site  # noqa: E402
from sordino.federation.sizes import PublicSizes  # noqa: E402
from sordino.privacy import events  # noqa: E402
from sordino.privacy.bounds import Flat  # noqa: E402
from sordino.schemes import settle  # noqa: E402
from sordino.schemes.clipped import request_for  # noqa: E402
from sordino.schemes.pooled import Chunk, PooledGradients, Share, cut, record_rate, slots_for  # noqa: E402
from sordino.schemes.request import CONTRIBUTE  # noqa: E402


def plan(**settings) -> Plan:
    return Plan(
        **(
            {"data": "toy", "clients": 12, "method": "dp-fedavg", "multiplier": 1.5, "rounds": 3, "batch_size": 64}
            | settings
        )
    )


def test_rate_event_units_and_capacity_by_hand():
    sizes = PublicSizes(3, np.array([10, 20, 70]))
    terms = settle(plan(clients=3, batch_size=25), sizes)
    assert terms.scheme.rate(sizes) == 0.25 and terms.units == 25 and terms.denominator(np.arange(1)) == 25
    assert terms.total == events.repeated(events.poisson(0.25, events.gaussian(1.5)), 3)
    assert terms.scheme.capacity(sizes) == 100 and terms.survivors == 3
    full = settle(plan(clients=3, sampling="none"), sizes)
    assert full.total == events.repeated(events.gaussian(1.5), 3) and full.units == 100
    assert record_rate(plan(batch_size=500), 100) == 1.0


@pytest.mark.parametrize("wrong", [{"cohort": 3}, {"sampling": "fixed"}, {"optimizer": "adam"}, {"weights": "size"}])
def test_what_no_proof_covers_is_refused(wrong):
    with pytest.raises(BadInput):
        plan(**wrong)


def test_pieces_have_a_fixed_number_of_rows():
    assert [len(piece) for piece in cut(np.arange(70), 32)] == [32, 32, 6]
    assert slots_for(9) == 32 and slots_for(64) == 40 and slots_for(256) == 144 and slots_for(10_000) == 144


def make(linear, **settings):
    federation, wanted = toy(), plan(**settings)
    terms = settle(wanted, PublicSizes.of(federation))
    site = Site(linear(), federation, wanted)
    return PooledGradients(site, site.flat.vector().numpy(), terms), terms


def test_items_are_drawn_records_and_one_share_for_each_client(linear):
    work, _ = make(linear)
    items = work.items(1, np.arange(12))
    chunks = [item for item in items if isinstance(item, Chunk)]
    drawn = np.concatenate([chunk.rows for chunk in chunks])
    assert len(set(drawn.tolist())) == len(drawn) and [c.number for c in chunks] == list(range(len(chunks)))
    assert [item.client for item in items if isinstance(item, Share)] == list(range(12))
    again = np.concatenate([c.rows for c in work.items(1, np.arange(12)) if isinstance(c, Chunk)])
    assert np.array_equal(drawn, again)


def test_evidence_comes_from_shares_alone_and_makes_the_whole(linear):
    work, terms = make(linear)
    request = request_for(terms, 1, CONTRIBUTE, Flat(0.1), None, 0.0)
    noise = {True: 0.0, False: 0.0}
    for item in work.items(1, np.arange(12)):
        noise[isinstance(item, Share)] += work.contribute(request, item, np.zeros(work.theta.size, np.int64)).noise
    assert noise[False] == 0.0 and noise[True] == pytest.approx(1.5**2)


def test_no_record_adds_more_than_the_bound(linear):
    work, terms = make(linear)
    request = request_for(terms, 1, CONTRIBUTE, Flat(0.01), None, 0.0)
    for row in range(20):
        out = np.zeros(work.theta.size, np.int64)
        work.contribute(request, Chunk(np.array([row]), 0), out)
        assert 0 < np.linalg.norm(request.grid.decode(out)) <= 0.01
