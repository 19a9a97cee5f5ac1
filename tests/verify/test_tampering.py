"""One thing is changed, and the sentence names the file and what is wrong."""

from __future__ import annotations

import json
import shutil

import pytest

from sordino.errors import BadInput
from sordino.verify import check, manifest

from .runs import SCHEMES, edit_statement, failed, finish, reseal


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    torch = pytest.importorskip("torch")
    return finish(torch.nn.Linear(5, 3), tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def folder(finished, tmp_path):
    """A copy that may be spoiled."""
    return shutil.copytree(finished, tmp_path / "run")


def lines(folder) -> list[str]:
    return (folder / "ledger.jsonl").read_text().splitlines(keepends=True)


def test_untouched(folder):
    assert failed(folder) == {} and check(folder).ok


def test_an_edited_ledger_line(folder):
    kept = lines(folder)
    kept[2] = kept[2].replace('"multiplier":1.0', '"multiplier":9.0')
    (folder / "ledger.jsonl").write_text("".join(kept))
    assert failed(folder) == {
        "ledger": "line 3 of ledger.jsonl does not have the hash of its content: the line was changed."
    }


@pytest.mark.parametrize("at", [1, 3])
def test_a_deleted_ledger_line(folder, at):
    kept = lines(folder)
    del kept[at]
    (folder / "ledger.jsonl").write_text("".join(kept))
    wanted = f"line {at + 1} of ledger.jsonl does not follow the line before it: a line was deleted, added or moved."
    assert failed(folder) == {"ledger": wanted}


def test_a_ledger_line_deleted_at_the_end(folder):
    """The chain alone would not show it."""
    (folder / "ledger.jsonl").write_text("".join(lines(folder)[:-1]))
    found = failed(folder)
    assert set(found) == {"ledger head", "checkpoint", "rounds"}
    assert "ledger.jsonl has 5 lines and manifest.json knows 6" in found["ledger head"]
    assert "saw line 6 of a ledger that is not this ledger.jsonl" in found["checkpoint"]
    assert found["rounds"] == "statement.json claims 5 rounds and 0 lost ones, and ledger.jsonl grants 4."


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (
            lambda kept: [kept[0], kept[2], kept[1], *kept[3:]],
            "line 2 of ledger.jsonl does not follow the line before it",
        ),
        (lambda kept: [*kept[:2], *kept[1:]], "line 3 of ledger.jsonl does not follow the line before it"),
        (lambda kept: kept[1:], "line 1 of ledger.jsonl does not follow the line before it"),
        (lambda kept: [*kept[:-1], kept[-1][:40]], "line 6 of ledger.jsonl is cut short"),
        (lambda kept: [*kept[:3], "nonsense\n", *kept[3:]], "line 4 of ledger.jsonl is not JSON"),
        (lambda kept: [*kept[:3], '{"seq":3}\n', *kept[3:]], "line 4 of ledger.jsonl does not end with the hashes"),
        (lambda kept: [*kept[:3], "[" * 100_000 + "\n"], "line 4 of ledger.jsonl is not JSON"),
        (lambda kept: [], "ledger.jsonl is empty"),
    ],
)
def test_other_ways_to_spoil_a_ledger(folder, spoil, sentence):
    (folder / "ledger.jsonl").write_text("".join(spoil(lines(folder))))
    assert failed(folder)["ledger"].startswith(sentence)


def test_a_model_without_its_ledger(folder):
    (folder / "ledger.jsonl").unlink()
    assert failed(folder)["ledger"].startswith("ledger.jsonl is missing: a model without its ledger proves nothing")


def test_a_checkpoint_without_its_ledger(folder, tmp_path):
    (tmp_path / "other").mkdir()
    shutil.copytree(folder / "checkpoint", tmp_path / "other" / "checkpoint")
    assert "ledger.jsonl is missing" in failed(tmp_path / "other")["ledger"]


def test_the_ledger_of_another_run(folder, linear, tmp_path):
    other = finish(linear(), tmp_path / "other", rounds=5, seed=1)
    shutil.copy(other / "ledger.jsonl", folder / "ledger.jsonl")
    found = failed(folder)
    assert "plan.toml is not the plan that ledger.jsonl was made for" in found["plan digest"]
    assert "ledger head" in found and "checkpoint" in found


def test_an_edited_model(folder):
    with open(folder / "model.safetensors", "r+b") as file:
        file.seek(-1, 2)
        byte = file.read(1)
        file.seek(-1, 2)
        file.write(bytes([byte[0] ^ 1]))
    wanted = "model.safetensors was changed after training: its hash is not the one in manifest.json."
    assert failed(folder) == {"model.safetensors": wanted}


def test_a_missing_model(folder):
    (folder / "model.safetensors").unlink()
    assert failed(folder) == {"model.safetensors": "model.safetensors is missing; bring back the file of this run."}


def test_an_edited_plan(folder):
    file = folder / "plan.toml"
    file.write_text(file.read_text().replace("lr = 0.3", "lr = 0.4"))
    found = failed(folder)
    assert set(found) == {"plan.toml", "plan digest"}
    assert "plan.toml was changed after training" in found["plan.toml"]
    assert "plan.toml is not the plan that ledger.jsonl was made for" in found["plan digest"]


def test_a_plan_that_cannot_be_read(folder):
    (folder / "plan.toml").write_text("not toml")
    assert "plan.toml cannot be used" in failed(folder)["plan"]


def test_an_edited_statement(folder):
    file = folder / "statement.json"
    file.write_text(file.read_text().replace('"delta": 1e-05', '"delta": 1e-06'))
    found = failed(folder)
    assert "statement.json was changed after training" in found["statement.json"]
    assert "statement.json says delta 1e-06 and the budget in ledger.jsonl 1e-05" in found["promise"]


def test_an_edited_page(folder):
    file = folder / "statement.txt"
    printed = file.read_text().split("PROVEN: epsilon ")[1].split(",")[0]
    file.write_text(file.read_text().replace(f"epsilon {printed},", "epsilon 0.1,"))
    found = failed(folder)
    assert set(found) == {"statement.txt", "signed page"} and "statement.txt prints epsilon 0.1" in found["signed page"]


def test_a_missing_statement_and_a_missing_manifest(folder):
    (folder / "statement.json").unlink()
    assert "statement.json is missing: the run has not ended" in failed(folder)["statement"]
    (folder / "manifest.json").unlink()
    assert failed(folder)["manifest"].startswith("manifest.json is missing")


# --- hands that rewrite the hashes too --------------------------------------------------------------------------------


def test_an_epsilon_that_is_too_small_is_found_whatever_the_hashes_say(folder):
    edit_statement(folder, epsilon=2.0)
    found = failed(folder)
    assert "and statement.json says 2: too little is claimed." in found["epsilon"]
    assert "ledger.jsonl was opened for" in found["schedule"] and "signed page" in found


def test_a_whole_forged_budget_is_found_by_the_accountant(folder):
    """Statement, page, schedule and hashes agree on a smaller epsilon; only the events contradict it."""
    printed = json.loads((folder / "statement.json").read_text())["epsilon"]

    def cheaper(rows):
        rows[0]["filter"]["epsilon"] = printed * 0.99
        return rows

    reseal(folder, cheaper)
    page = folder / "statement.txt"
    text = page.read_text()
    shown = text.split("PROVEN: epsilon ")[1].split(",")[0]
    page.write_text(text.replace(f"PROVEN: epsilon {shown},", f"PROVEN: epsilon {printed * 0.99!r},"))
    edit_statement(folder, epsilon=printed * 0.99)
    assert set(failed(folder)) == {"epsilon"}


@pytest.mark.parametrize(
    ("change", "name", "sentence"),
    [
        ({"unit": "example"}, "promise", "statement.json says unit 'example' and ledger.jsonl 'client'"),
        (
            {"relation": "add-remove"},
            "promise",
            "statement.json says relation 'add-remove' and ledger.jsonl 'zero-out'",
        ),
        ({"observer": "server"}, "promise", "statement.json says observer 'server' and ledger.jsonl 'public'"),
        ({"secure": True}, "promise", "statement.json says secure True and plan.toml 'False'"),
        ({"rounds": 6}, "rounds", "statement.json claims 6 rounds and 0 lost ones, and ledger.jsonl grants 5."),
        ({"rounds": 4}, "rounds", "statement.json claims 4 rounds and 0 lost ones, and ledger.jsonl grants 5."),
        ({"lost": 1, "rounds": 4}, "rounds", "statement.json tells 1 lost rounds and ledger.jsonl 0."),
        ({"rounds": "many"}, "rounds", "statement.json claims 'many' rounds"),
        ({"epsilon": None}, "epsilon", "statement.json holds no epsilon and delta that can be read."),
        ({"epsilon": float("nan")}, "epsilon", "statement.json holds no epsilon and delta that can be read."),
        ({"epsilon": "inf"}, "signed page", "statement.txt does not give the verdict of statement.json."),
    ],
)
def test_a_statement_that_does_not_fit_the_ledger(folder, change, name, sentence):
    edit_statement(folder, **change)
    assert failed(folder)[name].startswith(sentence)


def test_a_grant_outside_of_the_schedule(folder):
    def louder(rows):
        rows[3]["event"]["event"]["multiplier"] = 0.5
        return rows

    reseal(folder, louder)
    found = failed(folder)
    assert found["schedule"].startswith("line 4 of ledger.jsonl grants another release than the schedule")
    assert "too little is claimed" in found["epsilon"]


def test_more_noise_than_settled_is_within_the_schedule(folder):
    def quieter(rows):
        rows[3]["event"]["event"]["multiplier"] = 2.0
        return rows

    reseal(folder, quieter)
    assert failed(folder) == {}


def test_a_release_without_noise_makes_a_finite_epsilon_false(folder):
    def bare(rows):
        rows[2]["event"] = {"kind": "nonprivate", "reason": "norms"}
        return rows

    reseal(folder, bare)
    assert "ledger.jsonl grants a release without noise: epsilon is infinite." in failed(folder)["epsilon"]


@pytest.mark.parametrize(
    "row",
    [
        {"kind": "grant", "round": 1, "step": 0, "attempt": 1, "event": {"kind": "nothing"}},  # granted before
        {"kind": "lost", "round": 99},
        {"kind": "reuse", "round": 99, "step": 0, "attempt": 1},
        {"kind": "gift", "round": 1},
        {"kind": "grant", "round": True, "step": 0, "attempt": 1, "event": {"kind": "nothing"}},
    ],
)
def test_lines_that_no_ledger_writes(folder, row):
    with pytest.raises(Exception, match=r"line 7 of ledger\.jsonl"):
        reseal(folder, lambda rows: [*rows, row])
    assert failed(folder)["ledger"].startswith("line 7 of ledger.jsonl")


@pytest.mark.parametrize(
    "event", [{"kind": "gift"}, {"kind": "gaussian", "multiplier": -1}, {"kind": "repeated", "count": 0}, 7]
)
def test_events_that_cannot_be_followed_never_pass(folder, event):
    def strange(rows):
        rows[2]["event"] = event
        return rows

    reseal(folder, strange)
    found = failed(folder)
    assert "epsilon" in found and "schedule" in found and not check(folder).ok


def test_rounds_that_were_lost_stay_paid_for_and_are_told(folder):
    reseal(folder, lambda rows: [*rows, {"kind": "lost", "round": 3}])
    assert failed(folder)["rounds"] == "statement.json tells 0 lost rounds and ledger.jsonl 1."
    edit_statement(folder, lost=1, rounds=4)
    assert failed(folder) == {}


# --- exposures --------------------------------------------------------------------------------------------------------


@pytest.fixture
def visible(linear, tmp_path):
    """Six of twelve clients a round, seen by the server."""
    return finish(linear(), tmp_path / "visible", **SCHEMES["client, server"])


def exposed(folder, told):
    def put(rows):
        rows[0]["about"]["exposures"] = told
        return rows

    reseal(folder, put)
    return failed(folder)


def test_exposures_of_the_ledger_are_taken_and_may_not_be_too_few(visible):
    assert exposed(visible, 4) == {}  # what the draws of the plan give
    assert (
        "no unit takes part in more than 3 rounds, and by plan.toml one takes part in 4"
        in exposed(visible, 3)["exposures"]
    )
    assert "exposures True, which is no number of rounds" in exposed(visible, True)["exposures"]


def test_more_exposures_than_were_accounted_cost_more_than_is_printed(visible):
    assert "too little is claimed" in exposed(visible, 5)["epsilon"]


# --- FedMAP -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def budgets(linear, tmp_path):
    return finish(linear(), tmp_path / "fedmap", **SCHEMES["fedmap"])


def test_a_client_that_was_granted_more_than_its_budget(budgets):
    def generous(rows):
        again = {**rows[-1], "round": 6}
        return [*rows, again, {**again, "round": 7}]

    reseal(budgets, generous)
    edit_statement(budgets, rounds=7)
    found = failed(budgets)
    assert "is epsilon" in found["epsilon"] and "and statement.json says 4." in found["epsilon"]
    assert found["rounds"] == "ledger.jsonl grants 7 rounds and plan.toml asks for 5."


def test_costs_above_the_event_and_costs_that_cannot_be_read(budgets):
    def above(rows):
        rows[1]["costs"] = 100.0
        return rows

    reseal(budgets, above)
    assert "line 2 of ledger.jsonl grants a client more than its event costs" in failed(budgets)["epsilon"]

    def broken(rows):
        rows[1]["costs"] = {"n": 3, "planes": "eA=="}
        return rows

    reseal(budgets, broken)
    assert "line 2 of ledger.jsonl does not say what each client was granted" in failed(budgets)["epsilon"]


def test_a_budget_that_the_statement_does_not_print(budgets):
    edit_statement(budgets, epsilon=3.0)
    found = failed(budgets)
    assert "ledger.jsonl gives each client 4.0" in found["schedule"] and "says 3" in found["epsilon"]


# --- no run -----------------------------------------------------------------------------------------------------------


def test_no_run_is_bad_input(tmp_path):
    with pytest.raises(BadInput, match="there is no run folder"):
        check(tmp_path / "nowhere")
    with pytest.raises(BadInput, match="is not a run folder"):
        check(tmp_path)


def test_the_manifest_names_what_made_the_run(folder):
    held = json.loads((folder / "manifest.json").read_text())
    assert set(held["files"]) == {*manifest.FILES, "data.json", "evaluation.json"} and held["ledger"]["lines"] == 6
    assert {"python", "sordino", "numpy", "dp-accounting", "torch"} <= set(held["software"])
    assert held["date"].endswith("+00:00")
