"""The chained file under a ledger: what follows what, and what a crash leaves. `test_ledger.py` plays the same through grants."""

from __future__ import annotations

import json

import pytest

from sordino.errors import BadInput, SordinoError
from sordino.privacy.ledger_chain import FORMAT, Chain
from sordino.privacy.ledger_format import START

HEADER = {"plan": "p", "about": {}, "filter": {}, "spending": None}
LOST = {"kind": "lost", "round": 1}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def chain(path):
    made = Chain.create(path, HEADER)
    assert [row["kind"] for _, row in made.rows()] == ["header"]
    yield made
    made.close()


def rows(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_every_line_names_the_one_before(path, chain):
    chain.append(LOST)
    chain.append({"kind": "lost", "round": 2})
    first, second, third = rows(path)
    assert (first["seq"], first["format"], first["prev"]) == (0, FORMAT, START)
    assert (second["prev"], third["prev"]) == (first["hash"], second["hash"])
    assert chain.head == {"seq": 2, "hash": third["hash"]}
    assert chain.holds({"seq": 1, "hash": second["hash"]}) and not chain.holds({"seq": 1, "hash": third["hash"]})


def test_lines_are_checked_when_their_turn_comes(path, chain):
    chain.append(LOST)
    chain.close()
    path.write_bytes(path.read_bytes().replace(b'"round":1', b'"round":2'))
    read = Chain.read(path).rows()
    assert next(read)[0] == 0
    with pytest.raises(BadInput, match="Line 2 of the ledger .* was changed"):
        next(read)


def test_a_file_that_is_only_read_takes_no_line(path, chain):
    chain.close()
    looked = Chain.read(path)
    list(looked.rows())
    assert looked.only_read
    with pytest.raises(SordinoError, match="not open for writing"):
        looked.append(LOST)


def test_two_do_not_write_one_file(path, chain):
    with pytest.raises(BadInput, match="Another process is writing"):
        Chain.open(path)


def test_mending_puts_a_line_in_the_place_of_a_torn_one_and_says_what_it_grants(path, chain):
    chain.append({"kind": "grant", "round": 3, "step": 0, "attempt": 1, "event": {"kind": "nothing"}})
    chain.close()
    path.write_bytes(path.read_bytes()[:-20])  # the hash is gone, the event is there
    again = Chain.open(path)
    list(again.rows())
    assert again.seq == 0 and again.salvaged is not None
    granted = again.mend()
    assert granted is not None and (granted["round"], granted["event"]) == (3, {"kind": "nothing"})
    assert again.mend() is None and again.seq == 1
    again.append(LOST)
    again.close()
    assert [row["kind"] for row in rows(path)] == ["header", "torn", "lost"]
    assert [number for number, _ in Chain.read(path).rows()] == [0, 1, 2]


def test_a_missing_newline_is_put(path, chain):
    chain.close()
    text = path.read_bytes()
    path.write_bytes(text[:-1])
    again = Chain.open(path)
    list(again.rows())
    assert again.mend() is None
    again.close()
    assert path.read_bytes() == text
