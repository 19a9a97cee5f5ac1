"""The train command as a user meets it."""

from __future__ import annotations

import json

import pytest

from sordino.cli.main import main


def run(capsys, *words):
    code = main(["train", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_one_json_object_and_nothing_else(capsys, tmp_path):
    code, out, err = run(capsys, "--rounds", "3", "--json", "--out", str(tmp_path / "run"), "--engine", "in-process")
    assert code == 0 and err == ""
    said = json.loads(out)
    assert said["method"] == "adact" and said["unit"] == "example" and said["observer"] == "secagg-server"
    assert 3.9 < said["epsilon"] <= 4.0 and said["delta"] == 1e-5 and said["rounds"] == 3
    for key in (
        "variant",
        "data",
        "relation",
        "epsilon_claimed",
        "reasons",
        "multiplier",
        "accuracy",
        "seconds_per_round",
    ):
        assert key in said
    assert said["run"] == str(tmp_path / "run")


def test_the_statement_is_printed(capsys, tmp_path):
    code, out, _ = run(capsys, "--rounds", "2", "--out", str(tmp_path / "run"), "--engine", "in-process")
    assert code == 0 and "PROVEN: epsilon 4" in out and "report.html" in out and "simulation" in out


def test_published_says_not_private(capsys, tmp_path):
    words = (
        "--rounds",
        "2",
        "--variant",
        "published",
        "--json",
        "--out",
        str(tmp_path / "run"),
        "--engine",
        "in-process",
    )
    code, out, _ = run(capsys, *words)
    said = json.loads(out)
    assert code == 0 and said["epsilon"] == "inf" and len(said["reasons"]) >= 3
    assert said["epsilon_claimed"] == pytest.approx(4.0, rel=0.01)
    assert "NOT PRIVATE" in (tmp_path / "run" / "statement.txt").read_text().upper()


def test_a_refused_budget_is_exit_code_3(capsys, tmp_path):
    words = ("--epsilon", "4", "--multiplier", "1.5", "--rounds", "300", "--json", "--engine", "in-process")
    code, out, _ = run(capsys, *words, "--out", str(tmp_path / "run"))
    said = json.loads(out)
    assert code == 3 and said["epsilon"] <= 4 and 0 < said["rounds"] < 300 and "refused" in said["stopped"]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--epsilon", "0"], "epsilon must be a number above 0"),
        (["--epsilon", "nan"], "epsilon must be a number above 0"),
        (["--epsilon", "four"], "--epsilon must be a number, not 'four'"),
        (["--delta", "1"], "delta must lie between 0 and 1"),
        (["--rounds", "2.5"], "--rounds must be a whole number"),
        (["--data", "nowhere"], "nowhere"),
        (["--model", "gpt"], "gpt"),
        (["--method", "magic"], "method 'magic' is not known"),
        (["--option", "tau"], "--option takes NAME=NUMBER"),
        (["--option", "tua=1"], "no option 'tua'"),
        (["--option", "tau=1.5"], "tau must lie between 0 and 1"),
        (["--method", "fedavg", "--epsilon", "4"], "method fedavg has no privacy"),
        (["--method", "fedavg", "--without-privacy"], "method fedavg has no privacy already"),
        (["--plan", "/"], "cannot be read (Is a directory)"),
        (["--resume", "somewhere", "--rounds", "50", "--out", "else"], "leave out --rounds, --out"),
        (["--plan", "missing.toml"], "there is no plan file"),
        (["--resume", "missing"], "is not a run folder"),
        (["--engine", "steam"], "engine must be one of"),
        (["--clients", "5000"], "5000"),
        (["--survivors", "11"], "survivors 11 is more than the 10 clients of a cohort"),
        (["--survivors", "0"], "survivors must be"),
        (["--survivors", "5", "--observer", "public"], "use observer secagg-server"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(capsys, tmp_path, monkeypatch, words, part):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *words)
    assert code == 2 and out == ""
    assert part in err and err.startswith("sordino: ") and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_noise_shared_by_fewer_survivors_is_said_and_more(capsys, tmp_path):
    words = ("--rounds", "2", "--survivors", "5", "--engine", "in-process", "--out", str(tmp_path / "run"))
    code, out, _ = run(capsys, *words)
    assert code == 0 and "at least 5 clients" in out and "survivors = 5" in (tmp_path / "run" / "plan.toml").read_text()


def test_a_run_is_resumed(capsys, tmp_path):
    out = str(tmp_path / "run")
    assert run(capsys, "--rounds", "3", "--json", "--out", out, "--engine", "in-process")[0] == 0
    first = (tmp_path / "run" / "model.safetensors").read_bytes()
    assert run(capsys, "--resume", out, "--json", "--engine", "in-process")[0] == 0
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == first


def test_noise_that_will_drown_the_model_is_said_beforehand(capsys, tmp_path):
    words = ("--unit", "client", "--rounds", "1", "--engine", "in-process")
    code, _, err = run(capsys, *words, "--out", str(tmp_path / "loud"), "--model", "linear", "--epsilon", "0.1")
    assert code == 0 and err.startswith("sordino: Learning is implausible") and err.count("\n") == 1
    code, _, err = run(capsys, "--rounds", "1", "--engine", "in-process", "--out", str(tmp_path / "well"))
    assert code == 0 and err == ""


def test_what_was_chosen_is_printed_with_its_reason(capsys, tmp_path):
    words = ("--rounds", "2", "--engine", "in-process", "--lr", "0.3", "--out", str(tmp_path / "run"))
    code, out, _ = run(capsys, *words)
    assert code == 0 and out.startswith("Chosen     epsilon 4.0: ")
    head = out[: out.index("PRIVACY STATEMENT")]
    assert "for pictures of 8 x 8" in head and "model head: " in head and "batch-size 144: " in head
    assert "lr 0.3" not in head and "rounds" not in head.replace("last rounds", "")  # what was given is not chosen


def test_the_price_of_privacy_is_in_the_report(capsys, tmp_path):
    words = ("--rounds", "40", "--epsilon", "1", "--engine", "in-process", "--out", str(tmp_path / "run"))
    code, out, _ = run(capsys, *words, "--price", "--json")
    said = json.loads(out)
    assert code == 0 and said["without_privacy"] > 0.95 > said["accuracy"] > 0.5
    page = (tmp_path / "run" / "report.html").read_text()
    assert "privacy costs" in page and "No epsilon covers this figure" in page and "Majority class" in page
    assert not list((tmp_path / "run").rglob("twin*"))  # weights that nothing protects are not kept


def test_the_twin_has_the_network_of_the_private_run(capsys, tmp_path):
    words = ("--without-privacy", "--epsilon", "1", "--engine", "in-process", "--json", "--out", str(tmp_path / "run"))
    code, out, _ = run(capsys, *words)
    assert code == 0 and json.loads(out)["epsilon"] == "inf" and json.loads(out)["accuracy"] > 0.95
    assert 'model = "head"' in (tmp_path / "run" / "plan.toml").read_text()


def test_scalars_go_into_the_run_folder(capsys, tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "--rounds", "1", "--tensorboard", "--json", "--engine", "in-process")[0] == 0
    assert list((tmp_path / "runs" / "digits-adact-1" / "tensorboard").iterdir())


@pytest.mark.parametrize("path", ["wards", "./wards", "wards/", "{here}/wards"])
def test_runs_on_a_folder_are_called_after_it(path, tmp_path, monkeypatch):
    from sordino.federation.folder import claim
    from sordino.plan import Plan

    monkeypatch.chdir(tmp_path)
    plan = Plan(data=path.format(here=tmp_path), epsilon=1.0)
    assert str(claim(plan)) == "runs/wards-adact-1"


def test_a_folder_of_files_is_a_federation(capsys, tmp_path):
    import numpy as np

    rng = np.random.Generator(np.random.PCG64(0))
    (tmp_path / "wards").mkdir()
    for name in ("north", "south", "test"):
        x = rng.normal(size=(300, 3))
        rows = np.column_stack([x, (x[:, 0] > 0).astype(int)])
        head = "a,b,c,label"
        np.savetxt(tmp_path / "wards" / f"{name}.csv", rows, delimiter=",", header=head, comments="", fmt="%.4f")
    words = (
        "--data",
        str(tmp_path / "wards"),
        "--rounds",
        "30",
        "--batch-size",
        "40",
        "--epsilon",
        "8",
        "--method",
        "dp-fedavg",
    )
    code, out, _ = run(capsys, *words, "--json", "--out", str(tmp_path / "run"), "--engine", "in-process")
    assert code == 0 and json.loads(out)["accuracy"] > 0.8


def test_a_run_that_diverges_says_so_and_what_to_change(tmp_path, capsys, recwarn):
    assert main(["train", "--recipe", "none", "--lr", "1e300", "--rounds", "3", "--out", str(tmp_path / "run")]) == 2
    told = capsys.readouterr().err
    assert "round 1 left weights that are not finite" in told and "lower lr (1e+300)" in told
    assert not [w for w in recwarn if issubclass(w.category, RuntimeWarning)]
    assert len((tmp_path / "run" / "ledger.jsonl").read_text().splitlines()) == 2  # the round is paid for, and no other


def test_a_seed_is_not_rounded(tmp_path, capsys):
    assert main(["train", "--seed", str(2**53 + 1), "--rounds", "1", "--json", "--out", str(tmp_path / "run")]) == 0
    assert f"seed = {2**53 + 1}\n" in (tmp_path / "run" / "plan.toml").read_text()


def test_delta_alone_may_cover_a_run(tmp_path, capsys):
    settings = ["--delta", "0.9", "--rounds", "1", "--json", "--out", str(tmp_path / "run")]
    assert main(["train", *settings]) == 0
    assert json.loads(capsys.readouterr().out)["epsilon"] == 0
    assert "not below 1 in 1,437 records" in " ".join((tmp_path / "run" / "statement.txt").read_text().split())
