"""Certificates and seals: what is changed, replayed, forged, expired or meant for others is refused, with the reason."""

from __future__ import annotations

import datetime
import os
import stat

import numpy as np
import pytest

from sordino.engines.flower import pki
from sordino.engines.flower.pki import Own, Untrusted
from sordino.engines.flower.seals import EVERYONE, SignedHolder, SignedServer, digest
from sordino.engines.flower.wire import MalformedMessage, Message
from sordino.errors import BadInput


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("pki")
    pki.make(made, ["10.0.0.1", "fl.example.org"], ["n1", "n2"])
    return made


@pytest.fixture
def server(folder):
    nodes = {name: (folder / name / "node.crt").read_text() for name in ("n1", "n2")}
    return SignedServer(Own.server(folder / "server"), nodes)


@pytest.fixture
def holder(folder):
    return SignedHolder(Own.node(folder / "n1"))


ASKED = Message("work", {"round": 3}, {"theta": np.arange(5, dtype=np.float32)})
REPLY = Message("given", {}, {"codes": np.arange(4)})


def test_an_exchange_between_honest_ends(server, holder):
    sent = server.seal(ASKED, "n1")
    assert holder.open(sent, 0).get("round", int) == 3
    assert server.open(sent, holder.seal(sent, REPLY)).kind == "given"


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p.but(round=4),
        lambda p: p.but(number=p.head["number"] + 1),
        lambda p: p.but(extra=1),
        lambda p: Message("reveal", p.head, p.arrays),
        lambda p: Message(p.kind, p.head, {"theta": p.arrays["theta"] + 1}),
        lambda p: Message(p.kind, p.head, {"other": p.arrays["theta"]}),
        lambda p: Message(p.kind, p.head, {}),
        lambda p: p.but(signature="00" * 96),
    ],
)
def test_a_tampered_message_is_refused(change, server, holder):
    with pytest.raises(Untrusted, match="signed"):
        holder.open(change(server.seal(ASKED, "n1")), 0)


def test_a_replayed_or_late_message_is_refused(server, holder):
    first, second = server.seal(ASKED, "n1"), server.seal(ASKED, "n1")
    assert second.head["number"] > first.head["number"]
    holder.open(second, first.head["number"])
    for old in (first, second):
        with pytest.raises(Untrusted, match="played again"):
            holder.open(old, second.head["number"])


def test_numbers_grow_over_restarts(folder, server):
    nodes = {"n1": (folder / "n1" / "node.crt").read_text()}
    before = server.seal(ASKED, "n1").head["number"]
    assert SignedServer(Own.server(folder / "server"), nodes).seal(ASKED, "n1").head["number"] > before


def test_a_message_for_another_is_refused_but_a_greeting_may_be_for_all(server, holder):
    with pytest.raises(Untrusted, match="meant for"):
        holder.open(server.seal(ASKED, "n2"), 0)
    with pytest.raises(Untrusted, match="meant for"):
        holder.open(server.seal(ASKED, EVERYONE), 0)
    hello = server.seal(Message("hello"), EVERYONE)
    assert server.open(hello, holder.seal(holder.open(hello, 0), REPLY)).kind == "given"


def test_a_node_cannot_pose_as_the_server_nor_as_another_node(folder, server, holder):
    other = SignedHolder(Own.node(folder / "n2"))
    sent = server.seal(ASKED, "n1")
    with pytest.raises(Untrusted, match="not signed by that node"):
        server.open(sent, other.seal(sent, REPLY))
    forged = other.seal(sent, REPLY).but(**{"from": "n1"})
    with pytest.raises(Untrusted, match="not signed by that node"):
        server.open(sent, forged)
    own = Own.node(folder / "n2")
    posed = ASKED.but(to="n1", number=10**20, certificate=own.certificate)
    with pytest.raises(Untrusted, match="another use"):
        holder.open(posed.but(signature=own.sign(digest(posed)).hex()), 0)


def test_an_answer_to_another_question_is_refused(server, holder):
    first, second = server.seal(ASKED, "n1"), server.seal(ASKED, "n1")
    with pytest.raises(Untrusted, match="another question"):
        server.open(second, holder.seal(first, REPLY))


def test_another_authority_is_not_trusted(tmp_path, holder):
    pki.make(tmp_path / "foreign", ["10.0.0.1"], ["n1"])
    nodes = {"n1": (tmp_path / "foreign" / "n1" / "node.crt").read_text()}
    with pytest.raises(Untrusted, match="authority"):
        holder.open(SignedServer(Own.server(tmp_path / "foreign" / "server"), nodes).seal(ASKED, "n1"), 0)


def test_expired_certificates_are_refused(tmp_path, monkeypatch):
    class Past(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.datetime.now(tz) - datetime.timedelta(days=3)

    class Then:
        UTC, datetime, timedelta = datetime.UTC, Past, datetime.timedelta

    with monkeypatch.context() as patch:
        patch.setattr(pki, "datetime", Then)
        pki.make(tmp_path / "old", ["10.0.0.1"], ["n1"], days=1)
    for load, where in ((Own.node, "n1"), (Own.server, "server")):
        with pytest.raises(Untrusted, match="not valid now"):
            load(tmp_path / "old" / where)


def test_no_signature_at_all_is_refused(holder, server):
    bare = Message("work", {"to": "n1", "number": 1})
    with pytest.raises(MalformedMessage):
        holder.open(bare, 0)
    sent = server.seal(ASKED, "n1")
    for signature in ("zz", None, 5):
        with pytest.raises((MalformedMessage, Untrusted)):
            holder.open(sent.but(signature=signature), 0)


def test_keys_are_readable_by_their_owner_alone(folder):
    for path in (folder / "ca.key", folder / "server" / "server.key", folder / "n1" / "node.key"):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_odd_requests_for_certificates_are_refused(folder, tmp_path):
    for nodes in ([], ["a", "a"], ["server"], ["../up"], [""]):
        with pytest.raises(BadInput):
            pki.make(tmp_path / "x", ["localhost"], nodes)
    with pytest.raises(BadInput, match="already"):
        pki.make(folder, ["localhost"], ["n9"])
    with pytest.raises(BadInput, match="sordino certs"):
        Own.node(tmp_path)
    with pytest.raises(BadInput, match="no authority"):
        pki.add_nodes(tmp_path, ["n1"])
    with pytest.raises(BadInput, match="exists"):
        pki.add_nodes(folder, ["n1"])


def test_nodes_may_be_added_later(tmp_path, server):
    pki.make(tmp_path, ["localhost"], ["n1"])
    (made,) = pki.add_nodes(tmp_path, ["n2"])
    nodes = {name: (tmp_path / "server" / "nodes" / f"{name}.crt").read_text() for name in ("n1", "n2")}
    own = SignedServer(Own.server(tmp_path / "server"), nodes)
    sent = own.seal(ASKED, "n2")
    new = SignedHolder(Own.node(made))
    assert own.open(sent, new.seal(new.open(sent, 0), REPLY)).kind == "given"


def test_a_key_that_is_not_that_of_the_certificate_is_refused(folder, tmp_path):
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    for name, source in (("ca.crt", "n1"), ("node.crt", "n1"), ("node.key", "n2")):
        (mixed / name).write_bytes((folder / source / name).read_bytes())
    with pytest.raises(BadInput, match="not the key"):
        Own.node(mixed)
