"""``sordino methods``."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from sordino.cli import methods
from sordino.methods import TABLE


def listed(capsys, *words):
    parser = argparse.ArgumentParser()
    methods.add_parser(parser.add_subparsers())
    args = parser.parse_args(["methods", *words])
    assert args.func(args) == 0
    told = capsys.readouterr()
    assert told.err == ""
    return told.out


def test_json_is_one_object_of_the_agreed_shape(capsys):
    told = json.loads(listed(capsys, "--json"))
    assert list(told) == ["methods"]
    assert [row["name"] for row in told["methods"]] == [m.name for m in TABLE]
    for row in told["methods"]:
        assert set(row) == {"name", "paper", "variants", "units", "private_as_published", "reasons", "guess"}
        assert row["private_as_published"] in (True, False, None) and isinstance(row["paper"], str)
        assert set(row["variants"]) <= {"certified", "published"} and set(row["units"]) <= {"client", "example"}
        assert row["private_as_published"] == (None if row["guess"] else row["reasons"] == [])
    adact = next(row for row in told["methods"] if row["name"] == "adact")
    assert adact["variants"] == ["certified", "published"] and adact["units"] == ["client", "example"]
    assert len(adact["reasons"]) >= 3


def test_text_names_every_method_its_options_and_its_flaws(capsys):
    text = listed(capsys)
    words = " ".join(text.split())
    for m in TABLE:
        assert m.name in text and " ".join(m.paper.split()) in words
        assert all(reason in words for reason in m.reasons) and all(f"{option}=" in text for option in m.options)
    assert max(map(len, text.splitlines())) <= 120


def test_nothing_heavy_is_imported():
    code = (
        "import sys, sordino.cli.methods; "
        "print([m for m in ('torch', 'scipy', 'dp_accounting', 'sklearn', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
