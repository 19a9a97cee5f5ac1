"""A SuperLink of our own, from the server's side: start it, admit nodes, open a run, and talk to nodes through its grid.

The run's server app is this process itself: it takes its task from the SuperLink as an executor would. When the SuperLink
dies it is started again and the nodes are admitted again; nothing that matters lives in it.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import secrets
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sordino.deployment.supernode import Heartbeat
from sordino.engines.flower import bundle, pki
from sordino.engines.flower.watching import PARENT
from sordino.errors import SordinoError

log = logging.getLogger("sordino.server")
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}


def environment(home: Path) -> dict[str, str]:
    """For Flower's processes: no telemetry, no look for updates, no installs, and a home of their own."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    own = {"FLWR_HOME": str(home), "PATH": path, "PYTHONUNBUFFERED": "1", PARENT: str(os.getpid())}
    return {**os.environ, **QUIET, **own}


class Once:
    """Instead of Flower's retries, which end the whole process on an unknown token: one try, and the error."""

    max_tries = 1

    def invoke(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)


class Link:
    """A SuperLink on this machine, reachable for nodes at `host:port`."""

    def __init__(self, certs: Path, host: str, port: int, home: Path, nodes: Mapping[str, str]) -> None:
        self.certs, self.host, self.port, self.home, self.nodes = certs, host, port, home, dict(nodes)
        self.ids: dict[int, str] = {}  # node id -> name
        self.grid: Any = None
        self._process: subprocess.Popen[bytes] | None = None
        self._beat: Heartbeat | None = None
        self._secret = home / "executor.secret"

    @property
    def here(self) -> str:
        """As this machine itself reaches it. To its other callers the SuperLink shows the nodes' interface only."""
        return f"{'127.0.0.1' if self.host == '0.0.0.0' else self.host}:{self.port}"

    # ---- the process -----------------------------------------------------------------------------

    def open(self) -> None:
        """Start whatever is not running, and have a grid to talk through."""
        self.close()
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._secret.touch(mode=0o600)
        self._secret.write_text(secrets.token_hex(32))
        self._free()
        command = [
            sys.executable,
            "-m",
            "sordino.deployment.superlink",
            "--host",
            self.host,
            "--port",
            str(self.port),
        ]
        command += ["--ssl-ca-certfile", str(self.certs / "ca.crt"), "--ssl-certfile", str(self.certs / "server.crt")]
        command += [
            "--ssl-keyfile",
            str(self.certs / "server.key"),
            "--enable-supernode-auth",
            "--isolation",
            "process",
        ]
        command += ["--superexec-auth-secret-file", str(self._secret), "--disable-runtime-dependency-installation"]
        with open(self.home / "superlink.log", "ab") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, env=environment(self.home / "flwr"))
        self._await_health()
        self._admit()
        self._begin()

    def alive(self) -> bool:
        """Whether the process of the node still runs."""
        return self._process is not None and self._process.poll() is None

    def close(self) -> None:
        """End the node's process and its connection."""
        if self._beat is not None:
            self._beat.stop()
        if self.grid is not None:
            self.grid.close()
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process, self.grid, self._beat = None, None, None

    def _free(self) -> None:
        """The port, once nobody else has it: a SuperLink that outlived its server is in the way for a moment."""
        limit = time.monotonic() + 20
        while True:
            try:
                with socket.create_server(("" if self.host == "0.0.0.0" else self.host, self.port)):
                    return
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
                    raise SordinoError(
                        f"{self.host}:{self.port} is not to be had on this machine ({why}); give another --address."
                    ) from None
                if time.monotonic() > limit:
                    raise SordinoError(
                        f"another program listens on port {self.port}; give another --address."
                    ) from None
                time.sleep(0.2)

    def _await_health(self) -> None:
        import httpx

        trusted = ssl.create_default_context(cafile=str(self.certs / "ca.crt"))
        limit = time.monotonic() + 60
        while time.monotonic() < limit:
            if not self.alive():
                raise SordinoError(f"the SuperLink did not start; see {self.home / 'superlink.log'}.")
            try:
                if httpx.get(f"https://{self.here}/health", verify=trusted, timeout=2).status_code == 200:
                    return
            except httpx.HTTPError:
                time.sleep(0.1)
        raise SordinoError(f"the SuperLink does not answer; see {self.home / 'superlink.log'}.")

    # ---- nodes and runs --------------------------------------------------------------------------

    def _admit(self) -> None:
        from cryptography.hazmat.primitives.serialization import load_ssh_public_key
        from flwr.proto.control_pb2 import RegisterNodeRequest
        from flwr.supercore.primitives.asymmetric import public_key_to_bytes

        self.ids = {}
        with self._control() as control:
            for name, certificate in self.nodes.items():
                key: Any = load_ssh_public_key(pki.ssh_public(certificate))
                said = control.RegisterNode(RegisterNodeRequest(public_key=public_key_to_bytes(key)))
                self.ids[said.node_id] = name

    def _begin(self) -> None:
        """A run, and its server task for this process."""
        import flwr.superlink.grid.http_grid as http_grid
        from flwr.common.serde import fab_to_proto, run_from_proto
        from flwr.proto.control_pb2 import StartRunRequest
        from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullTaskInputRequest
        from flwr.supercore.fab import Fab
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
        from flwr.supercore.runtime import RuntimeHttpClient
        from flwr.supercore.task_identity import TaskIdentity

        content, digest = bundle.build()
        with self._control() as control:
            control.StartRun(StartRunRequest(fab=fab_to_proto(Fab(digest, content, {}))))
        protected = frozenset({"/flwr.proto.Runtime/AcquireTask"})
        guard = SuperExecAuthHttpInterceptor(master_secret=self._secret.read_bytes(), protected_methods=protected)
        client = RuntimeHttpClient.from_server_address(
            server_address=self.here,
            insecure=False,
            root_certificates=(self.certs / "ca.crt").read_bytes(),
            interceptors=[RuntimeVersionHttpInterceptor(component_name="SuperExec"), guard],
        )
        limit = time.monotonic() + 30
        while True:
            task = client.AcquireTask(AcquireTaskRequest(supported_task_types=["flwr-serverapp"]))
            if task.HasField("task") and task.token:
                break
            if time.monotonic() > limit:
                raise SordinoError(f"the SuperLink gives out no task; see {self.home / 'superlink.log'}.")
            time.sleep(0.05)
        client.close()
        grid: Any = http_grid.HttpGrid(
            runtime_api_address=self.here,
            insecure=False,
            root_certificates=(self.certs / "ca.crt").read_bytes(),
            token=task.token,
        )
        grid._retry_invoker = Once()
        self._beat = Heartbeat(grid._runtime_client)
        given = grid._runtime_client.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id = given.task_id, given.run.run_id
        TaskIdentity.node_id = given.context.node_id
        grid.set_run(run_from_proto(given.run))
        self.grid = grid

    def _control(self) -> Any:
        from contextlib import closing

        from flwr.supercore.control import ControlHttpClient
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

        return closing(
            ControlHttpClient.from_server_address(
                server_address=self.here,
                insecure=False,
                root_certificates=(self.certs / "ca.crt").read_bytes(),
                interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
            )
        )


def fingerprint(certificate: str) -> str:
    """Of a node's public key, for logs."""
    return hashlib.sha256(pki.ssh_public(certificate)).hexdigest()[:16]
