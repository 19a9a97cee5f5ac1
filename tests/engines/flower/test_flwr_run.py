"""The Flower way: `flwr run` on Ray's simulation, and on stock SuperNodes beside resident holders."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from sordino import EngineOptions, Federation, Plan, train
from sordino.assembly import assemble, complete
from sordino.deployment.control import environment
from sordino.engines.flower import bundle, pki
from sordino.plan import read_toml

pytest.importorskip("flwr")
BIN = Path(sys.executable).parent
PLAN = 'data = "digits"\nclients = 3\nmethod = "adact"\nunit = "example"\nobserver = "secagg-server"\nepsilon = 4.0\n'


def test_the_bundle_is_the_same_every_time_and_holds_no_code_of_its_own():
    content, digest = bundle.build()
    assert bundle.build() == (content, digest)
    assert b"import client_app, server_app" in bundle.files()["sordino_app/apps.py"]


class Desk:
    """A folder with an app, a plan and a Flower home; processes end with it."""

    def __init__(self, folder: Path, connection: str, plan: str) -> None:
        self.folder, self.processes = folder, []
        self.env = environment(folder / "home")
        bundle.write(folder / "app")
        (folder / "plan.toml").write_text(plan)
        (folder / "home" / "config.toml").write_text(f'[superlink]\ndefault = "here"\n[superlink.here]\n{connection}\n')

    def start(self, name: str, *words: str) -> None:
        with open(self.folder / f"{name}.log", "ab") as log:
            env = {**self.env, "FLWR_HOME": str(self.folder / f"home-{name}")}
            Path(env["FLWR_HOME"]).mkdir(exist_ok=True)
            process = subprocess.Popen(words, stdout=log, stderr=log, env=env, cwd=self.folder)
        self.processes.append(process)

    def flwr(self, *words: str) -> dict:
        done = subprocess.run(
            [str(BIN / "flwr"), *words, "--format", "json"], env=self.env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def run(self, config: dict, *words: str, seconds: float = 300) -> None:
        said = " ".join(f"{k}={json.dumps(v)}" for k, v in config.items())
        limit = time.monotonic() + seconds
        answer = self.flwr("run", str(self.folder / "app"), "here", *words, "-c", said)
        while "run-id" not in answer:  # a SuperLink that is still starting is told by a sentence, and no exit code
            assert "unavailable" in answer["error-message"] and time.monotonic() < limit, answer
            time.sleep(2.0)
            answer = self.flwr("run", str(self.folder / "app"), "here", *words, "-c", said)
        number = answer["run-id"]
        while True:
            (run,) = self.flwr("list", "here", "--run-id", number)["runs"]
            if run["status"].startswith("finished"):
                assert run["status"] == "finished:completed", run
                return
            assert time.monotonic() < limit, run
            time.sleep(1.0)

    def close(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()


def same(folder: Path) -> None:
    model, federation, plan = assemble(Plan.from_json(complete(read_toml(folder / "plan.toml"))))
    train(model, federation, plan, out=folder / "here", options=EngineOptions(engine="in-process"))
    a, b = (load_file(folder / name / "model.safetensors") for name in ("here", "run"))
    for key in a:
        np.testing.assert_allclose(a[key], b[key], atol=1e-6)


@pytest.mark.slow
def test_simulation_on_ray_gives_the_same_model(tmp_path):
    pytest.importorskip("ray")
    desk = Desk(tmp_path, 'address = ":local:"', PLAN + "rounds = 3\n")
    try:
        config = {"plan": str(tmp_path / "plan.toml"), "out": str(tmp_path / "run"), "clients": 3, "deadline": 120.0}
        desk.run(config, "--federation-config", "num-supernodes=3 client-resources-num-cpus=1")
        same(tmp_path)
        assert "A simulation" in (tmp_path / "run" / "statement.txt").read_text()
    finally:
        for number in detached(str(tmp_path / "home")):
            os.kill(number, signal.SIGTERM)


def detached(home: str) -> list[int]:
    """SuperLinks that `flwr run` left behind for this home."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                if b"flower-superlink" in command and f"FLWR_HOME={home}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as trial:
        return trial.getsockname()[1]


@pytest.mark.slow
def test_stock_supernodes_beside_resident_holders(tmp_path):
    """Stock processes, no TLS: messages are signed from end to end all the same, and the default policy is satisfied."""
    port = free_port()
    desk = Desk(tmp_path, f'address = "127.0.0.1:{port}"\ninsecure = true', PLAN + "rounds = 2\nsecure = true\n")
    pki.make(tmp_path / "pki", ["127.0.0.1"], ["n1", "n2", "n3"])
    federation = Federation.from_dataset("digits", "dirichlet", 3, 1.0, 0)
    link = ("--insecure", "--host", "127.0.0.1", "--port", str(port), "--disable-runtime-dependency-installation")
    try:
        desk.start("superlink", str(BIN / "flower-superlink"), *link)
        for k in (1, 2, 3):
            np.savez(tmp_path / f"data{k}.npz", **dict(zip("xy", federation.raw(k - 1))))
            pipe = tmp_path / f"s{k}"
            words = (
                "join",
                "--socket",
                str(pipe),
                "--data",
                f"data{k}.npz",
                "--certs",
                f"pki/n{k}",
                "--state",
                f"state{k}",
            )
            desk.start(f"holder{k}", sys.executable, "-m", "sordino", *words)
            node = ("--insecure", "--superlink", f"127.0.0.1:{port}", "--host", "127.0.0.1", "--port", str(free_port()))
            desk.start(f"node{k}", str(BIN / "flower-supernode"), *node, "--node-config", f'sordino-socket="{pipe}"')
            time.sleep(0.5)
        config = {
            "plan": str(tmp_path / "plan.toml"),
            "out": str(tmp_path / "run"),
            "clients": 3,
            "certs": str(tmp_path / "pki" / "server"),
        }
        desk.run(config, seconds=420)
        assert "A deployment" in (tmp_path / "run" / "statement.txt").read_text()
        for k in (1, 2, 3):
            assert "is over" in (tmp_path / f"state{k}" / "holder.log").read_text()
    finally:
        desk.close()
