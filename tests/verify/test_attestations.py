"""Signatures of data holders: made with a node's key, checked against the federation's authority."""

from __future__ import annotations

import json

import pytest

from sordino.engines.flower import pki
from sordino.errors import BadInput
from sordino.verify import chain, check
from sordino.verify.attestations import NAME, attest

from .runs import edit_statement, failed, finish, said


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pki")
    pki.make(folder, ["127.0.0.1"], ["north", "south"])
    return folder


@pytest.fixture
def run(linear, certs, tmp_path):
    """A finished deployment under which both holders signed."""
    folder = finish(linear(), tmp_path / "run")
    edit_statement(folder, simulated=False)
    (folder / "deployment.json").write_text(json.dumps({"names": ["north", "south"]}))
    (folder / "ca.crt").write_bytes((certs / "ca.crt").read_bytes())
    put(folder, [signed(folder, certs, "north"), signed(folder, certs, "south")])
    return folder


def signed(folder, certs, name, **changes):
    ledger, statement = chain.read(folder / "ledger.jsonl"), json.loads((folder / "statement.json").read_text())
    fields = {
        "plan": ledger.header["plan"],
        "ledger_head": ledger.head,
        "rounds": statement["rounds"],
        "epsilon": statement["epsilon"],
        "delta": statement["delta"],
    }
    return attest(pki.Own.node(certs / name), **(fields | changes))


def put(folder, rows) -> None:
    (folder / NAME).write_text(json.dumps(rows))


def test_signatures_that_hold(run, certs):
    verdict = check(run)
    assert verdict.ok and "signed by north, south under the authority in the run folder" in said(verdict, "signatures")
    (run / "ca.crt").unlink()
    assert "give --authority FILE" in said(check(run), "signatures")
    assert "under the given authority" in said(check(run, certs / "ca.crt"), "signatures")


def test_a_holder_that_did_not_sign_is_named(run, certs):
    put(run, [signed(run, certs, "north")])
    (found,) = (one for one in check(run).checks if one.name == "signatures")
    assert found.ok is None and found.said.endswith("not signed by south.")


def test_no_signatures_at_all(run):
    (run / NAME).unlink()
    (found,) = (one for one in check(run).checks if one.name == "signatures")
    assert found.ok is None and "no data holder has signed" in found.said


def test_a_simulation_needs_none(run):
    (run / NAME).unlink()
    edit_statement(run, simulated=True)
    assert not any(one.name == "signatures" for one in check(run).checks)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"plan": "0" * 64}, "'north' signed for another plan"),
        ({"ledger_head": "0" * 32}, "'north' signed for another ledger"),
        ({"rounds": 99}, "'north' signed for 99 rounds"),
        ({"epsilon": 0.5}, "'north' signed for epsilon 0.5"),
        ({"delta": 0.5}, "'north' signed for delta 0.5"),
        ({"epsilon": float("inf")}, "'north' signed for epsilon 'inf'"),
    ],
)
def test_a_signature_for_something_else(run, certs, changes, sentence):
    put(run, [signed(run, certs, "north", **changes), signed(run, certs, "south")])
    assert failed(run)["signatures"].startswith(sentence)


def test_an_edited_field_breaks_the_signature(run):
    rows = json.loads((run / NAME).read_text())
    for change in ({"rounds": rows[0]["rounds"] + 1}, {"signature": "00"}, {"signature": "zz"}):
        put(run, [rows[0] | change, rows[1]])
        assert failed(run)["signatures"] == f"the signature of 'north' in {NAME} does not fit what stands above it."


def test_a_signature_in_the_name_of_another(run, certs):
    north, south = json.loads((run / NAME).read_text())
    put(run, [north, south | {"name": "east"}])
    assert "in the name of 'east' with the certificate of 'south'" in failed(run)["signatures"]
    put(run, [north, north])
    assert "two signatures of north" in failed(run)["signatures"]


def test_holders_of_another_authority_and_the_server_cannot_sign(run, certs, tmp_path):
    pki.make(tmp_path / "foreign", ["127.0.0.1"], ["north"])
    put(run, [signed(run, tmp_path / "foreign", "north")])
    assert "was not issued by this federation's authority" in failed(run)["signatures"]
    server = pki.Own.server(certs / "server")
    row = json.loads(json.dumps(signed(run, certs, "north")))
    forged = attest(server, *(row[key] for key in ("plan", "ledger_head", "rounds", "epsilon", "delta")))
    put(run, [forged])
    assert "was issued for another use" in failed(run)["signatures"]


@pytest.mark.parametrize("rows", [{}, [1], [{"name": "north"}], "x"])
def test_what_is_no_list_of_signatures(run, rows):
    put(run, rows)
    assert NAME in failed(run)["signatures"]


def test_an_authority_that_is_not_there_is_bad_input(run, tmp_path):
    with pytest.raises(BadInput, match=r"the authority .*nowhere.* cannot be read"):
        check(run, tmp_path / "nowhere")


def test_an_authority_that_is_no_certificate_fails(run):
    (run / "ca.crt").write_text("nonsense")
    assert "was not issued by this federation's authority" in failed(run)["signatures"]
