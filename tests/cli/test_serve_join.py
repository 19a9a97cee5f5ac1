"""serve, join and certs as an operator meets them before anything is sent: one sentence for whatever is wrong."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sordino.cli.main import main


@pytest.fixture
def place(tmp_path, monkeypatch, capsys):
    """A folder with certificates, records and a plan."""
    monkeypatch.chdir(tmp_path)
    assert main(["certs", "pki", "--server", "127.0.0.1", "--nodes", "north,east", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["folders"]) == 3
    np.savez("records.npz", x=np.zeros((4, 2), np.float32), y=np.arange(4) % 2)
    (tmp_path / "plan.toml").write_text('data = "digits"\nepsilon = 4.0\n')
    return tmp_path


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("serve --certs pki/server", "give a plan file, or --resume"),
        ("serve missing.toml --certs pki/server", "there is no plan file"),
        ("serve plan.toml --certs pki", "pki/nodes holds no certificates"),
        ("serve plan.toml --certs pki/north", "pki/north/nodes holds no certificates"),
        ("serve plan.toml --certs pki/server --deadline soon", "--deadline must be a number, not 'soon'"),
        ("serve plan.toml --certs pki/server --wait 0", "wait must be"),
        ("serve plan.toml --certs pki/server --least 1.5", "--least must be a whole number"),
        ("serve plan.toml --certs pki/server --survivors 3", "survivors 3 is more than the 2 clients"),
        ("serve plan.toml --certs pki/server --address 8443", "an address is HOST:PORT, not '8443'"),
        ("serve plan.toml --certs pki/server --test missing.npz", "missing.npz"),
        ("serve --resume records.npz --certs pki/server", "is not the folder of a run across machines"),
        ("serve --resume runs --certs pki/server --survivors 2", "leave --survivors out"),
        ("join --data records.npz --certs pki/north", "give the server's HOST:PORT, or --socket"),
        ("join 127.0.0.1 --data records.npz --certs pki/north", "an address is HOST:PORT, not '127.0.0.1'"),
        ("join 127.0.0.1:1 --data nothing.npz --certs pki/north", "nothing.npz"),
        ("join 127.0.0.1:1 --data pki --certs pki/north", "pki has 0 files of records"),
        ("join 127.0.0.1:1 --data records.npz --certs pki/server", "has no usable keys"),
        (
            "join 127.0.0.1:1 --data records.npz --certs pki/north --policy no.toml",
            "the policy 'no.toml' cannot be read",
        ),
        ("certs pki --server 127.0.0.1 --nodes west", "holds an authority already"),
        ("certs pki --nodes north", "exists already"),
        ("certs other --nodes north", "holds no authority yet"),
        ("certs other --server 127.0.0.1 --nodes server", "may not be called 'server'"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(place, capsys, words, part):
    code = main(words.split())
    said = capsys.readouterr()
    assert code == 2 and said.out == ""
    assert part in said.err and said.err.startswith("sordino: ") and said.err.count("\n") == 1, said.err
    assert not (place / "runs").exists() and not (place / "north-state").exists()
