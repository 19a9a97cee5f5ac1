"""What a SuperNode's log means, in one sentence each time that it changes."""

from __future__ import annotations

import socket

import pytest

from sordino.engines.flower.node_status import NodeStatus, unreachable


@pytest.fixture
def silent():
    """An address of this machine at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as trial:
        port = trial.getsockname()[1]
    return f"127.0.0.1:{port}"


@pytest.fixture
def listening():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def write(file, text):
    with open(file, "a") as out:
        out.write(text + "\n")


def test_why_an_address_cannot_be_reached(silent, listening):
    assert unreachable(silent) == f"nothing listens at {silent} yet"
    assert unreachable("no-such-machine.invalid:8443") == "no machine is known under the name no-such-machine.invalid"
    assert unreachable(listening) is None


def test_each_change_is_told_once(silent, tmp_path):
    file = tmp_path / "log"
    tidings = NodeStatus(silent, file)
    assert tidings.look() is None
    for _ in range(3):
        write(file, "WARNING : Connection attempt failed, retrying in 0.87 seconds")
        said = tidings.look()
        if _ == 0:
            assert said == f"nothing listens at {silent} yet; trying again"
        else:
            assert said is None
    write(file, "INFO : Connection successful after 3.00 seconds and 3 tries.")
    assert tidings.look() == f"connected to {silent}" and tidings.look() is None
    write(file, "WARNING : Connection attempt failed, retrying in 0.5 seconds")
    assert "nothing listens" in tidings.look()


def test_a_server_that_has_just_come_up_is_given_a_moment(listening, tmp_path):
    file = tmp_path / "log"
    tidings = NodeStatus(listening, file)
    write(file, "Connection attempt failed, retrying")
    assert tidings.look() is None
    write(file, "Connection attempt failed, retrying")
    assert "is not ready yet" in tidings.look()


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[code: 2004] Failed to activate SuperNode.", "its key is not admitted there"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired", "has expired"),
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] IP address mismatch, certificate is not valid for '10.0.0.1'",
            "another name or address",
        ),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] unable to get local issuer certificate", "another authority"),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", "does not speak TLS"),
        ("Killed", "it ended; see "),
    ],
)
def test_why_a_node_ended(text, part, tmp_path):
    file = tmp_path / "log"
    write(file, "[code: 2001] of an earlier start")
    tidings = NodeStatus("127.0.0.1:1", file)
    write(file, text)
    said = tidings.end()
    assert part in said and said.endswith("; trying again")
    tidings.begin()
    write(file, text)
    assert tidings.end() is None  # said before
