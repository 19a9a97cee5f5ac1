"""The reader of its own, against ledgers that the real one wrote."""

from __future__ import annotations

import numpy as np
import pytest

from sordino.privacy import events
from sordino.privacy.client_budgets import ClientBudgets
from sordino.privacy.filter import NoBudget
from sordino.privacy.ledger import Ledger
from sordino.verify import chain, client_sums
from sordino.verify.verdict import Broken

ABOUT = {"unit": "client", "relation": "zero-out", "observer": "server", "exposures": 2}
ROUND = events.gaussian(2.0)


def ledger(path, spending=None) -> Ledger:
    return Ledger.create(path, "digest", NoBudget("a test"), ABOUT, spending)


def test_grants_reuse_and_lost_rounds(tmp_path):
    file = tmp_path / "ledger.jsonl"
    with ledger(file) as written:
        for t in (1, 2, 3):
            written.request(ROUND, t)
        written.resume(3, secure=False)
        written.forfeit(2)
        written.resume(1, secure=True)  # charged once more
    found = chain.read(file)
    assert (found.header["plan"], found.about, found.head) == ("digest", ABOUT, written.head["hash"])
    assert [(row["round"], row["attempt"]) for row in found.grants] == [(1, 1), (2, 1), (3, 1), (1, 2)]
    assert found.rounds == {1, 2, 3} and found.lost == {2} and len(found.hashes) == written.head["seq"] + 1


@pytest.mark.parametrize("cut", [5, 40, 150])
def test_a_torn_line_is_refused_until_the_run_is_resumed(tmp_path, cut):
    file = tmp_path / "ledger.jsonl"
    with ledger(file) as written:
        written.request(ROUND, 1)
        written.request(ROUND, 2)
    text = file.read_bytes()
    last = text.rstrip(b"\n").rfind(b"\n") + 1
    file.write_bytes(text[: last + cut])
    with pytest.raises(Broken, match=r"line 3 of ledger\.jsonl is cut short"):
        chain.read(file)
    Ledger.open(file, "digest").close()
    counted = len(Ledger.read(file).grants)
    assert len(chain.read(file).grants) == counted == (2 if cut == 150 else 1)


@pytest.mark.parametrize("kind", ["one for all", "few prices", "one each"])
def test_what_clients_were_granted_is_added_up(tmp_path, kind):
    """However the ledger packs cohorts and costs; the slow way adds them up one by one."""
    rng = np.random.Generator(np.random.PCG64(3))
    clients, order, rounds = 3000, 8.0, 6
    budgets = ClientBudgets(clients, 1000.0, 1e-5, order, "zero-out")
    slow = [0.0] * clients
    with ledger(tmp_path / "ledger.jsonl", budgets) as written:
        for t in range(1, rounds + 1):
            ids = np.sort(rng.choice(clients, 700, replace=False))
            costs = {
                "one for all": 0.25,
                "few prices": rng.choice([0.1, 0.2, 0.4], 700),
                "one each": rng.random(700),
            }[kind]
            most = float(np.max(costs))
            written.request(events.gaussian((order / (2 * most)) ** 0.5), t, ids, costs)
            for k, cost in zip(ids.tolist(), np.broadcast_to(costs, ids.shape).tolist()):
                slow[k] += cost
    largest, found = client_sums.largest(chain.read(tmp_path / "ledger.jsonl"))
    assert found == order and largest == pytest.approx(max(slow), rel=1e-12)
    assert largest == pytest.approx(budgets.largest(), rel=1e-9)


def test_the_conversion_at_one_order_by_hand():
    """rdp + log((a - 1) / a) - log(delta a) / (a - 1) with rdp 1, order 2, delta 1/e: 1 - log 2 + 1 - log 2."""
    assert client_sums.epsilon(1.0, 2.0, np.exp(-1)) == pytest.approx(2 - 2 * np.log(2))


def test_a_few_bytes_that_unpack_to_gigabytes_are_refused(tmp_path):
    import base64
    import zlib

    with pytest.raises(ValueError, match="another length"):
        client_sums._bytes(base64.b64encode(zlib.compress(bytes(10**7))).decode(), 100)
