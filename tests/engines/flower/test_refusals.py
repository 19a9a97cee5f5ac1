"""A live deployment under attack: wrong keys, expired certificates, unknown nodes, and a relay that tampers and replays.

One real SuperLink (of `sordino serve`), two resident holders and their SuperNodes. The second one's messages pass through
a relay of the test, which spoils one message in most rounds; meanwhile uninvited guests knock. Every attempt is refused by
whoever should refuse it, is in that one's log, and costs nothing but the round of the client that it was aimed at.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from machines import SORDINO, Machines

from sordino.deployment.control import environment
from sordino.engines.flower import local, pki, wire
from sordino.engines.flower.pki import Own
from sordino.engines.flower.seals import SignedHolder, SignedServer, digest
from sordino.engines.flower.wire import Message
from sordino.privacy.ledger import Ledger

pytest.importorskip("flwr")
BIN = Path(sys.executable).parent
PLAN = """data = "points"
model = "linear"
method = "dp-fedavg"
unit = "client"
observer = "server"
sampling = "none"
multiplier = 1.0
rounds = 10
batch_size = 8
"""
HONEST, LOST = (1, 6, 10), (2, 3, 4, 5, 7, 8, 9)  # rounds in which the second client is heard, and is not


class Relay:
    """Between the second node and its holder. What it does to the message of a round is in `attack`."""

    def __init__(self, path: Path, holder: Path, certs: Path) -> None:
        self.holder, self.certs, self.first = str(holder), certs, (b"", b"")
        self._listener = local.Listener(path, self.handle)
        self.close = self._listener.close

    def handle(self, message: bytes) -> bytes:
        asked = wire.from_bytes(message)
        if asked.kind != "work":
            return local.call(self.holder, message)
        return self.attack(asked.head["request"]["round"], message)

    def attack(self, t: int, message: bytes) -> bytes:
        def ask(text: bytes) -> bytes:
            return local.call(self.holder, text)

        if t == 1:
            self.first = message, ask(message)
            return self.first[1]
        if t == 2:  # a bit of the model is flipped on the way down
            return ask(flipped(message))
        if t == 3:  # the message of an older round is played again
            return ask(self.first[0])
        if t == 4:  # a bit of the contribution is flipped on the way up
            return flipped(ask(message))
        if t == 5:  # the answer of an older round is played again
            ask(message)
            return self.first[1]
        if t == 6:  # the same message twice; the first time it is fine
            good = ask(message)
            assert wire.from_bytes(ask(message)).kind == "problem"
            return good
        if t == 7:  # an answer under another node's key
            return wire.to_bytes(self.forged(message, ask(message)))
        if t == 8:  # a message under the certificate of a server that has expired
            return ask(wire.to_bytes(self.resealed(message, self.certs / "expired")))
        if t == 9:  # a message of a server that another authority vouches for
            return ask(wire.to_bytes(self.resealed(message, self.certs / "foreign" / "server")))
        return ask(message)

    def forged(self, message: bytes, reply: bytes) -> Message:
        other, said = Own.node(self.certs / "guest"), wire.from_bytes(reply)
        return SignedHolder(dataclasses.replace(other, name="n2")).seal(wire.from_bytes(message), said)

    def resealed(self, message: bytes, folder: Path) -> Message:
        key = serialization.load_pem_private_key((folder / "server.key").read_bytes(), None)
        own = Own("server", key, (folder / "server.crt").read_text(), (folder / "ca.crt").read_text())
        made = wire.from_bytes(message).but(certificate=own.certificate)
        return made.but(signature=own.sign(digest(made)).hex())


def flipped(message: bytes) -> bytes:
    """One bit of the last array is another."""
    return message[:-1] + bytes([message[-1] ^ 1])


def expired(certs: Path, folder: Path) -> None:
    """The server's folder again, with a certificate for the same key that ended yesterday."""
    shutil.copytree(certs / "server", folder)
    authority = x509.load_pem_x509_certificate((certs / "ca.crt").read_bytes())
    key = serialization.load_pem_private_key((certs / "ca.key").read_bytes(), None)
    held = x509.load_pem_x509_certificate((folder / "server.crt").read_bytes())
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder(authority.subject, held.subject, held.public_key(), held.serial_number)
    made = made.not_valid_before(now - datetime.timedelta(days=3)).not_valid_after(now - datetime.timedelta(days=1))
    for extension in held.extensions:
        made = made.add_extension(extension.value, extension.critical)
    old = made.sign(key, hashes.SHA384())
    (folder / "server.crt").write_bytes(old.public_bytes(serialization.Encoding.PEM))


class Live:
    """The deployment, and what became of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.machines = folder, Machines(folder, 2, namespaces=False)
        self.certs, self.port, self.closing = folder / "pki", free_port(), []
        pki.make(self.certs, [self.machines.address], ["n1", "n2", "guest"])
        (self.certs / "server" / "nodes" / "guest.crt").unlink()  # the server is not told of it
        pki.make(self.certs / "foreign", [self.machines.address], ["n1"])
        expired(self.certs, self.certs / "expired")
        rng = np.random.Generator(np.random.PCG64(0))
        for k in (1, 2):
            (folder / f"data{k}").mkdir()
            x = rng.normal(size=(20, 4)).astype(np.float32)
            np.savez(folder / f"data{k}" / "records.npz", x=x, y=np.arange(20) % 3)
        (folder / "plan.toml").write_text(PLAN)
        (folder / "policy.toml").write_text("secure = false\nepsilon = 1e6\n")

    def run(self) -> None:
        machines = self.machines
        machines.serve("plan.toml", "--classes", "3", "--deadline", "60", "--wait", "120", "--out", "run")
        machines.join(1, "--policy", "policy.toml", "--once")
        machines.until(lambda: "waiting for 2 nodes" in machines.said("serve"), "the server's start")
        self.join_through_relay()
        self.knock()
        assert machines.wait("serve", 150) == 0, machines.said("serve")[-3000:]

    def join_through_relay(self) -> None:
        short = Path(self.folder.anchor, "tmp", f"sordino-{self.machines.tag}")  # paths of sockets are short
        short.mkdir(mode=0o700)
        holder, relay = short / "holder", short / "relay"
        self.closing.append(Relay(relay, holder, self.certs).close)
        self.closing.append(lambda: shutil.rmtree(short, ignore_errors=True))
        words = ("--data", "data2", "--certs", "pki/n2", "--state", "state2", "--policy", "policy.toml")
        self.machines.start("n2", 2, "join", "--socket", str(holder), *words, "--once")
        self.machines.until(holder.exists, "the second holder's start")
        self.node("node2", self.machines.port, self.certs / "n2", f'sordino-socket="{relay}"')

    def node(self, name: str, port: int, certs: Path, config: str = "") -> None:
        """A SuperNode that is run by others than `sordino join`."""
        secret = self.folder / f"{name}.secret"
        secret.write_text("0" * 64)
        words = [sys.executable, "-m", "sordino.deployment.supernode", str(secret), "--isolation", "process"]
        words += ["--superlink", f"127.0.0.1:{port}", "--root-certificates", str(certs / "ca.crt")]
        words += ["--auth-supernode-private-key", str(certs / "node.key"), "--superexec-auth-secret-file", str(secret)]
        words += ["--host", "127.0.0.1", "--port", str(free_port()), "--node-config", config or 'name="x"']
        self.process(name, words)

    def process(self, name: str, words: list[str]) -> None:
        with open(self.folder / f"{name}.err", "ab") as log:
            env = environment(self.folder / f"home-{name}")
            made = subprocess.Popen(words, stdout=log, stderr=log, env=env, start_new_session=True)
        self.machines.processes[name] = made

    def knock(self) -> None:
        """Uninvited guests, all at once."""
        server = ["--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.crt", "--ssl-keyfile", "server.key"]
        place = self.certs / "expired"
        server = [word if word.startswith("--") else str(place / word) for word in server]
        link = [sys.executable, "-m", "sordino.deployment.superlink", "--host", "127.0.0.1", "--port"]
        self.process("old", [*link, str(self.port), *server, "--enable-supernode-auth", "--isolation", "process"])
        wrong = self.certs / "wrong"  # the first node's certificate, and a key that nobody knows
        shutil.copytree(self.certs / "n1", wrong)
        shutil.copy(self.certs / "guest" / "node.key", wrong / "node.key")
        self.node("stolen", self.machines.port, wrong)
        self.guest("guest", self.machines.server, "pki/guest")
        self.machines.until(lambda: listens(self.port), "the other server's start")
        self.guest("late", f"127.0.0.1:{self.port}", "pki/n1")
        for name in ("guest", "late"):
            self.machines.until(lambda name=name: "trying again" in self.machines.said(name), f"a refusal of {name}")
            self.machines.kill(name, 15)
        self.machines.wait("stolen", 60)
        self.machines.kill("old", 15)

    def guest(self, name: str, server: str, certs: str) -> None:
        words = ("--data", "data1", "--certs", certs, "--state", f"state-{name}", "--policy", "policy.toml")
        self.machines.start(name, 1, "join", server, *words)

    def log(self, k: int) -> str:
        return (self.folder / f"state{k}" / "holder.log").read_text()

    def refused(self, *words: str) -> str:
        done = subprocess.run([*SORDINO, *words], cwd=self.folder, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    def close(self) -> None:
        self.machines.close()
        for close in self.closing:
            close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as trial:
        return trial.getsockname()[1]


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    made = Live(tmp_path_factory.mktemp("live"))
    try:
        started = time.monotonic()
        made.run()
        print(f"the deployment took {time.monotonic() - started:.0f} s")
        yield made
    finally:
        made.close()


def test_every_round_was_run_and_only_its_victim_missed_it(live):
    rows = [json.loads(line) for line in (live.folder / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == list(range(1, 11))
    said = live.machines.said("serve")
    assert "n1" not in [line.split(" was ")[0].split()[-1] for line in said.splitlines() if "refused" in line]


def test_a_tampered_message_is_refused_by_the_holder_before_it_touches_data(live):
    assert live.log(2).count("not signed by the server, or was changed on its way") == 1
    (kept,) = (live.folder / "state2" / "runs").iterdir()
    granted = [grant.round for grant in Ledger.read(kept / "ledger.jsonl")]
    assert granted == [1, 4, 5, 6, 7, 10]  # not those of rounds 2, 3, 8 and 9
    assert "n2 had a problem: Untrusted" in live.machines.said("serve")


def test_a_replayed_message_is_refused_by_the_holder(live):
    assert live.log(2).count("was played again") == 2  # of an older round, and the same one twice


def test_a_tampered_or_forged_answer_is_refused_by_the_server(live):
    assert live.machines.said("serve").count("an answer in the name of n2 is not signed by that node") == 2


def test_a_replayed_answer_is_refused_by_the_server(live):
    """The answer of an older round; and a holder's answer to a message that was played again."""
    assert live.machines.said("serve").count("an answer of n2 is to another question") == 2


def test_the_certificate_of_an_expired_server_is_refused_in_messages(live):
    assert live.log(2).count("the certificate of server is not valid now") == 1


def test_a_server_of_another_authority_is_refused_in_messages(live):
    assert live.log(2).count("was not issued by this federation's authority") == 1


def test_an_unknown_node_is_refused_and_logged_on_both_sides(live):
    assert "its key is not admitted there" in live.machines.said("guest")
    assert "412" in (live.folder / "run" / "flower" / "superlink.log").read_text()


def test_a_wrong_key_under_a_known_name_is_refused(live):
    """By the SuperLink, which knows keys and not names; by the holder's own program, before it knocks."""
    assert "code: 2004" in live.machines.said("stolen") and live.machines.processes["stolen"].returncode != 0
    said = live.refused("join", live.machines.server, "--data", "data1", "--certs", "pki/wrong")
    assert "is not the key of" in said


def test_a_server_whose_certificate_has_expired_is_not_spoken_to(live):
    assert "the server's certificate has expired" in live.machines.said("late")
    said = live.refused("serve", "plan.toml", "--classes", "3", "--certs", "pki/expired")
    assert "is not valid now" in said and "make new ones" in said


def test_seals_of_the_test_are_those_of_the_program(live):
    """What the relay re-seals is refused for the reason that it is meant to be: with the right certificate it would pass."""
    nodes = {name: (live.certs / name / "node.crt").read_text() for name in ("n1", "n2")}
    sent = SignedServer(Own.server(live.certs / "server"), nodes).seal(Message("work", {"round": 1}), "n2")
    relay = Relay.__new__(Relay)
    again = relay.resealed(wire.to_bytes(sent), live.certs / "server")
    assert SignedHolder(Own.node(live.certs / "n2")).open(again, 0).kind == "work"
