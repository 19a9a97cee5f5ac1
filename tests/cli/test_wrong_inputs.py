"""Thirty wrong inputs and more: each gets one sentence that names the value and the remedy, and costs nothing."""

from __future__ import annotations

import numpy as np
import pytest

from sordino.cli.main import main

GOOD = "user,a,b,kind\n" + "".join(f"u{k % 3},{k % 7},{k % 5},{'yn'[k % 2]}\n" for k in range(30))
TRAIN = ["--label", "kind", "--client-column", "user", "--rounds", "1", "--quiet", "--engine", "in-process"]
SECRET = "70341"  # a number of somebody's: no sentence may repeat it

FILES = {
    "t.csv": GOOD,
    "test.csv": "a,b,kind\n1,2,y\n3,4,n\n",
    "empty.csv": "",
    "heading.csv": "user,a,b,kind\n",
    "short.csv": GOOD + f"u1,{SECRET},3\n",
    "text.csv": GOOD + f"u1,x{SECRET},3,y\n",
    "gap.csv": GOOD + f"u1,,{SECRET},y\n",
    "infinite.csv": GOOD + f"u1,inf,{SECRET},y\n",
    "nobody.csv": GOOD + f",1,{SECRET},y\n",
    "unlabelled.csv": GOOD + f"u1,1,{SECRET},\n",
    "twice.csv": GOOD.replace("user,a,b,kind", "user,a,a,kind"),
    "index.csv": GOOD.replace("user,a,b,kind", ",a,b,kind"),
    "same.csv": GOOD.replace(",n\n", ",y\n"),
    "narrow.csv": "user,kind\nu1,y\nu2,n\n",
    "two.csv": "a\n1\n2\n",
    "renamed.csv": "A,b,kind\n1,2,y\n",
    "other.csv": "a,b,kind\n1,2,maybe\n3,4,y\n",
    "table.xlsx": "PK",
    "binary.csv": "a,b\0c\n",
    "bad.npz": "nonsense",
    "bad.parquet": "nonsense",
    "open.toml": 'label = "kind"\n[features.a]\nrange = []\n',
    "torn.toml": 'label = "kind\n',
    "unknown.toml": 'label = "kind"\nscales = 1\n[features.a]\nas_is = true\n',
    "reversed.toml": 'label = "kind"\n[features.a]\nrange = [5, 1]\n',
    "lacking.toml": 'label = "kind"\nclasses = ["n", "y"]\nclient = "user"\n[features.c]\nas_is = true\n',
    "classes.toml": 'label = "kind"\nclasses = ["n", "m"]\nclient = "user"\n[features.a]\nas_is = true\n',
    "missing.toml": 'label = "kind"\n[features.a]\nas_is = true\nmissing = "guess"\n',
    "both.toml": 'label = "kind"\n[features.a]\nmean = 1\nrange = [0, 1]\n',
}

WRONG = [
    (["--data", "nowhere.csv"], "there is no file or folder 'nowhere.csv': check the path"),
    (["--data", "./nowhere"], "there is no file or folder './nowhere': check the path"),
    (["--data", "minst"], "'minst' is not a data set: choose one of digits"),
    (["--data", "t.csv", "--test", "holdout=10"], "test 'holdout=10' must hold out a share above 0 and up to 0.5"),
    (
        ["--data", "t.csv", "--test", "holdout=0.1", "--method", "fedmap"],
        "figures of a held-out share could be part of",
    ),
    (["--data", "t.csv", "--ignore", "z"], "there is no column 'z' to ignore: the data has"),
    (["--data", "t.csv", "--ignore", "kind", "--label", "kind"], "column 'kind' is to be ignored, and it is the label"),
    (["--data", "empty.csv"], "empty.csv is empty: leave it out"),
    (["--data", "heading.csv"], "heading.csv has a heading but no examples"),
    (["--data", "short.csv"], "row 32 of short.csv has 3 fields instead of 4 (fields are separated by commas)"),
    (["--data", "text.csv"], "row 32 of text.csv, column 'a', holds text, not a number"),
    (["--data", "gap.csv"], "row 32 of gap.csv, column 'a', is empty: fill it in"),
    (["--data", "infinite.csv"], "row 32 of infinite.csv, column 'a', is infinite"),
    (["--data", "nobody.csv"], "row 32 of nobody.csv, column 'user', is empty: every row needs its client"),
    (["--data", "unlabelled.csv"], "row 32 of unlabelled.csv, column 'kind', is empty: every row needs a label"),
    (["--data", "twice.csv"], "twice.csv has two columns called 'a'"),
    (["--data", "index.csv"], "column 1 of index.csv has no name"),
    (["--data", "same.csv"], "every label in column 'kind' is the same"),
    (["--data", "narrow.csv"], "the schema has no features: name at least one column"),
    (["--data", "table.xlsx"], "table.xlsx is none of .npz, .csv"),
    (["--data", "binary.csv"], "binary.csv is not a text file"),
    (["--data", "bad.npz"], "bad.npz cannot be read as .npz"),
    (["--data", "bad.parquet"], "bad.parquet cannot be read as Parquet"),
    (["--data", "t.csv", "--label", "sort"], "t.csv has no column 'sort': name one of user, a, b, kind"),
    (["--data", "t.csv", "--client-column", "who"], "t.csv has no column 'who': name one of user, a, b, kind"),
    (["--data", "t.csv", "--label", "kind,a"], "the schema of a classification names 2 label columns: name one"),
    (["--data", "t.csv", "--test", "none.csv"], "there is no file 'none.csv': check the path"),
    (["--data", "t.csv", "--test", "renamed.csv"], "has no column 'A'"),
    (
        ["--data", "t.csv", "--task", "ranking"],
        "task must be one of classification, regression, multi-label, not 'ranking'",
    ),
    (["--data", "t.csv", "--task", "regression"], "column 'kind', holds text, not a number"),
    (["--data", "t.csv", "--classes", "1"], "classes must be a whole number of at least 2, not 1"),
    (
        ["--data", "t.csv", "--schema", "none.toml"],
        "there is no schema file 'none.toml': sordino data describe writes one",
    ),
    (["--data", "t.csv", "--schema", "open.toml"], "the schema does not say the range of 'a' yet"),
    (["--data", "t.csv", "--schema", "torn.toml"], "the schema file 'torn.toml' is not valid TOML"),
    (["--data", "t.csv", "--schema", "unknown.toml"], "a schema has no entry 'scales'"),
    (["--data", "t.csv", "--schema", "reversed.toml"], "the range of 'a' must be two finite numbers, low before high"),
    (["--data", "t.csv", "--schema", "lacking.toml"], "t.csv has no column 'c': add it, or rename it"),
    (["--data", "t.csv", "--schema", "classes.toml"], "holds a label that is not declared (n, m)"),
    (["--data", "t.csv", "--schema", "missing.toml"], "missing of 'a' must be one of refuse, fill, flag, not 'guess'"),
    (
        ["--data", "t.csv", "--schema", "both.toml"],
        "the schema must say one of range, mean with std, or as_is = true for 'a'",
    ),
    (["--data", "t.csv", "--scale", "public"], "scale must be one of private, not 'public'"),
    (["--data", "t.csv", "--device", "gpu"], "device 'gpu' cannot be used here"),
    (["--data", "t.csv", "--account", "no/such/place"], "the account no/such/place cannot be written"),
    (["--data", "digits", "--model", "<Net>"], "the model '<Net>' was handed over in Python"),
    (["--data", "<arrays>"], "the plan's data <arrays> was handed over in Python"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wrong")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(("words", "sentence"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_one_sentence_and_nothing_is_charged(words, sentence, place, monkeypatch, capsys):
    if any(word.endswith(".parquet") for word in words):
        pytest.importorskip("pyarrow")
    monkeypatch.chdir(place)
    extra = ["--rounds", "1", "--quiet"] if words[1] in ("digits", "minst", "<arrays>") else TRAIN
    assert main(["train", *extra, *words]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    errors = [line for line in said if line.startswith("sordino: ") and not line.startswith("sordino: warning")]
    assert len(errors) == 1 and sentence in errors[0], said
    assert SECRET not in "\n".join(said)
    assert not list(place.glob("runs/*/ledger.jsonl"))


def test_a_folder_names_the_client_and_the_missing_join_file_is_called_missing(tmp_path):
    from sordino.deployment.joining import own_records
    from sordino.errors import BadInput

    with pytest.raises(BadInput, match="there is no file or folder '.*records.csv': check --data"):
        own_records(tmp_path / "records.csv", "north")
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 2)), y=[0, 1])
    np.savez(tmp_path / "b.npz", x=np.zeros((2, 3)), y=[0, 1])
    with pytest.raises(BadInput, match="has 2 files of records"):
        own_records(tmp_path, "north")


def test_all_that_is_wrong_is_said_at_once(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    (place / "folder").mkdir()
    for name in ("short.csv", "t.csv", "gap.csv"):
        (place / "folder" / name).write_text(FILES[name].replace("user,", "who,"))
    assert main(["data", "check", "folder", "--label", "kind"]) == 2
    said = capsys.readouterr().out
    assert "short.csv has 3 fields" in said and "'who', holds text" in said and SECRET not in said
    assert main(["data", "check", "nowhere"]) == 2
    assert "there is no file or folder 'nowhere'" in capsys.readouterr().err
