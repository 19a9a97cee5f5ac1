"""The walk-through of docs/deploy.md, block by block, on four hosts with real Flower processes; and uninvited guests."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from machines import SORDINO, Machines, namespaces_work

from sordino.engines.flower import pki
from sordino.privacy.ledger import Ledger

pytest.importorskip("flwr")
DOC = Path(__file__).parents[3] / "docs" / "deploy.md"
HOSTS = {"admin": 0, "server": 0, "north": 1, "east": 2, "west": 3}


def blocks(page: Path = DOC):
    """(hosts, file or None, how, language, text) of every block that says where it belongs."""
    form = r"<!-- host: ([a-z, ]+?)(?:; file: (\S+))?(?:; (background|fails|again))? -->\n```(\w+)\n(.*?)```"
    for hosts, file, how, language, text in re.findall(form, page.read_text(), re.DOTALL):
        yield [h.strip() for h in hosts.split(",")], file, how, language, text


class Walk:
    """Runs blocks. Each host has a folder; what the page says to carry by hand is carried here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.machines = Machines(folder, 3, namespaces_work())
        for name in HOSTS:
            (folder / name).mkdir()

    def do(self, hosts, file, how, language, text) -> None:
        """`how`: in the background; again, after what ran there was stopped; or as a command that must fail."""
        text = text.replace("10.77.0.1:8443", self.machines.server).replace("10.77.0.1", self.machines.address)
        if not self.machines.apart:
            text = text.replace("sordino serve", f"sordino serve --address {self.machines.server}")
        for host in hosts:
            at = self.folder / host
            if file:
                (at / file).write_text(text)
                continue
            if how == "again":
                self.machines.kill(host, signal.SIGTERM)
            inner = [sys.executable, "-c", text] if language == "python" else ["sh", "-ec", self._shell(text)]
            command = self.machines.command(HOSTS[host], inner)
            with open(self.folder / f"{host}.out", "ab") as out, open(self.folder / f"{host}.err", "ab") as err:
                process = subprocess.Popen(command, cwd=at, stdout=out, stderr=err, start_new_session=True)
            self.machines.processes[host] = process
            if how not in ("background", "again"):
                assert process.wait(240) == (2 if how == "fails" else 0), self.machines.said(host)[-3000:]
        self._carry()

    @staticmethod
    def _shell(text: str) -> str:
        return f'sordino() {{ exec {" ".join(SORDINO)} "$@"; }}\n{text}'

    def _carry(self) -> None:
        for name in HOSTS:
            source, place = self.folder / "admin" / "pki" / name, self.folder / name / "certs"
            if source.is_dir() and not place.exists():
                shutil.copytree(source, place)
            for made, carried in ((f"{name}-records.npz", "records.npz"), (f"{name}.csv", "visits.csv")):
                records, place = self.folder / "admin" / made, self.folder / name / carried
                if records.exists() and not place.exists():
                    shutil.copy(records, place)

    def stranger(self, certs: str, host: str = "north") -> str:
        """Someone tries to join with other keys; what its log says."""
        words = [
            "join",
            self.machines.server,
            "--data",
            f"{host}/records.npz",
            "--certs",
            certs,
            "--state",
            f"{certs}-state",
        ]
        name = certs.replace("/", "-")
        self.machines.start(name, HOSTS[host], *words)
        self.machines.until(lambda: "trying again" in self.machines.said(name), f"a refusal of {certs}")
        self.machines.kill(name, 15)
        return self.machines.said(name)


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    made = Walk(tmp_path_factory.mktemp("walk"))
    try:
        yield made
    finally:
        made.machines.close()


@pytest.fixture(scope="module")
def finished(walk):
    """The whole walk. While it waits for the server's command, uninvited guests try their luck."""
    (walk.folder / "foreign").mkdir()
    pki.make(walk.folder / "foreign" / "pki", [walk.machines.address], ["north"])
    steps = list(blocks())
    assert len(steps) == 6, "the page has changed; see that every step is still run"
    for step in steps[:-1]:
        walk.do(*step)
    guests = {}

    hosts, file, _, language, text = steps[-1]
    held = walk.machines.processes["west"].pid
    os.killpg(held, signal.SIGSTOP)  # the server waits for it, so that the run cannot end before all guests were there
    walk.do(hosts, file, "background", language, text)  # in the background, to look around meanwhile
    walk.machines.until(lambda: "waiting for 3 nodes" in walk.machines.said("server"), "the server's start")
    guests["control"] = outside(walk, "/v1/control/list-runs"), outside(walk, "/docs"), outside(walk, "/health")
    guests["foreign"] = walk.stranger("foreign/pki/north")
    pki.add_nodes(walk.folder / "admin" / "pki", ["guest"])  # after the server was given its list
    guests["unknown"] = walk.stranger("admin/pki/guest", "west")
    mixed = walk.folder / "mixed"
    mixed.mkdir()
    shutil.copy(walk.folder / "north" / "certs" / "ca.crt", mixed)
    for name in ("node.crt", "node.key"):  # a key that nobody admitted, under the right authority's certificate
        shutil.copy(walk.folder / "foreign" / "pki" / "north" / name, mixed)
    guests["mixed"] = run(walk, "join", walk.machines.server, "--data", "north/records.npz", "--certs", "mixed")
    os.killpg(held, signal.SIGCONT)
    assert walk.machines.wait("server", 240) == 0, walk.machines.said("server")[-3000:]
    return guests


def outside(walk, path: str) -> int:
    """The status that another machine gets."""
    if not walk.machines.apart:
        pytest.skip("this system has no namespaces: every caller is this machine")
    script = f"""
import httpx, ssl
trusted = ssl.create_default_context(cafile={str(walk.folder / "north" / "certs" / "ca.crt")!r})
print(httpx.get("https://{walk.machines.server}{path}", verify=trusted).status_code)
"""
    command = walk.machines.command(1, [sys.executable, "-c", script])
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def run(walk, *words: str) -> str:
    command = walk.machines.command(1, [*SORDINO, *words])
    done = subprocess.run(command, cwd=walk.folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    return done.stderr


def test_the_walk_ends_with_a_model_and_a_statement(walk, finished):
    run = walk.folder / "server" / "run"
    statement = json.loads((run / "statement.json").read_text())
    assert statement["epsilon"] <= 4.0 and not statement["simulated"] and statement["secure"]
    assert "the data of each client stayed with that client" in walk.machines.said("server", "out")
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["round"] for row in metrics] == [1, 2, 3, 4, 5]
    assert metrics[-1]["accuracy"] > 0.2  # ten classes, five noisy rounds
    assert (run / "model.safetensors").exists() and (run / "report.html").exists()


def test_every_holder_kept_its_own_ledger(walk, finished):
    for name in ("north", "east", "west"):
        assert walk.machines.wait(name, 30) == 0  # --once
        state = walk.folder / name / "state"
        (kept,) = (state / "runs").iterdir()
        grants = [grant.round for grant in Ledger.read(kept / "ledger.jsonl")]
        assert grants == [0, 1, 2, 3, 4, 5]  # what features ask comes first
        assert "epsilon 4" in (kept / "statement.txt").read_text()
        assert json.loads((state / "allowance.jsonl").read_text())["epsilon"] <= 4.0


def test_nothing_left_the_machines(walk, finished):
    """No telemetry, no update check: Flower's own homes have no trace of either, and it ran without a way out."""
    for home in walk.folder.glob("*/state/flwr"):
        assert not (home / "update-check").exists()


def test_other_machines_reach_the_nodes_interface_only(finished):
    control, docs, health = finished["control"]
    assert control == 404 and docs == 404 and health == 200


def test_a_node_of_another_authority_is_refused_and_told_why(walk, finished):
    assert "certificate is not to be trusted" in finished["foreign"]


def test_a_node_that_the_server_was_not_told_of_is_refused_by_both_logs(walk, finished):
    assert "its key is not admitted there" in finished["unknown"]
    assert "412" in (walk.folder / "server" / "run" / "flower" / "superlink.log").read_text()


def test_a_certificate_of_another_authority_is_refused_at_once(finished):
    assert "was not issued by this federation's authority" in finished["mixed"]
