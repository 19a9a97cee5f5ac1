"""Every scheme verifies: the printed epsilon is confirmed by another accountant from the ledger alone."""

from __future__ import annotations

import json
import math

import pytest

from sordino.verify import after_training, check

from .runs import SCHEMES, finish, said


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_verifies(scheme, linear, tmp_path):
    folder = finish(linear(), tmp_path / "run", **SCHEMES[scheme])
    verdict = check(folder)
    assert verdict.ok and all(one.ok for one in verdict.checks), verdict.text()
    printed = json.loads((folder / "statement.json").read_text())["epsilon"]
    if printed == "inf":
        assert math.isinf(verdict.epsilon_printed) and verdict.epsilon_recomputed in (None, math.inf)
        assert "not private" in verdict.line
    else:
        assert verdict.epsilon_printed == printed
        assert 0.97 * printed <= verdict.epsilon_recomputed <= printed * 1.01
        assert verdict.line.startswith(f"Verified: epsilon {printed:.6g} is printed, dp-accounting gives ")


def test_the_accountants_are_those_of_the_library(linear, tmp_path):
    used = {}
    for i, scheme in enumerate(("client, public", "client, secagg", "client, public, fixed size", "fedmap")):
        used[scheme] = check(finish(linear(), tmp_path / str(i), **SCHEMES[scheme])).accountant
    assert used == {
        "client, public": "pld",
        "client, secagg": "gaussian",
        "client, public, fixed size": "rdp",
        "fedmap": "rdp",
    }


def test_what_cannot_be_followed_is_said_and_a_bound_is_checked_all_the_same(linear, tmp_path):
    """Sampled Laplace noise under replace-one: the library has neither loss distribution nor Renyi bound."""
    settings = {"mechanism": "laplace", "method": "dp-fedavg", "relation": "replace-one", "multiplier": 2.0}
    folder = finish(linear(), tmp_path / "run", **settings)
    verdict = check(folder)
    (found,) = (one for one in verdict.checks if one.name == "epsilon")
    assert (
        verdict.ok and found.ok is None and "no loss distribution for laplace noise on a poisson sample" in found.said
    )
    assert "not followed: epsilon" in verdict.line and verdict.epsilon_recomputed is None


def test_steps_of_fedmap_are_named_as_beyond_the_library(linear, tmp_path):
    verdict = check(finish(linear(), tmp_path / "run", **SCHEMES["fedmap"]))
    assert "cannot be followed" in said(verdict, "epsilon") and verdict.accountant == "rdp"


def test_a_unit_is_charged_for_its_own_rounds_only(linear, tmp_path):
    """Six of twelve clients a round, towards a server that sees them: the busiest takes part in fewer than all rounds."""
    folder = finish(linear(), tmp_path / "run", **SCHEMES["client, server"] | {"rounds": 8})
    told = said(check(folder), "epsilon")
    assert "costliest of 8 rounds" in told


def test_training_may_ask_for_one_line_and_is_never_made_to_fail(linear, tmp_path):
    folder = finish(linear(), tmp_path / "run")
    (folder / "manifest.json").unlink()
    assert after_training(folder).startswith("Verified: epsilon ") and (folder / "manifest.json").exists()
    (folder / "ledger.jsonl").write_text("nonsense\n")
    assert after_training(folder).startswith("Not verified: the check came to no end (Broken: line 1 of ledger.jsonl")
    assert after_training(tmp_path / "nowhere").startswith("Not verified: ")
