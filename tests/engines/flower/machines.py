"""Hosts for tests with real Flower processes: network namespaces where they may be made, else addresses of this machine.

The first host is the server's; the others reach it over a bridge and have no other way out.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

SORDINO = [sys.executable, "-m", "sordino"]


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def namespaces_work() -> bool:
    name = f"sd{uuid.uuid4().hex[:6]}"
    try:
        _ip("netns", "add", name)
        _ip("netns", "del", name)
        return True
    except (OSError, subprocess.CalledProcessError):
        return False


class Machines:
    """A server host and `count` others, with processes on them; everything is gone after `close`."""

    def __init__(self, folder: Path, count: int, namespaces: bool) -> None:
        self.folder, self.count, self.apart = folder, count, namespaces
        self.tag = f"sd{uuid.uuid4().hex[:5]}"
        self.processes: dict[str, subprocess.Popen] = {}
        self.address = "10.77.0.1" if namespaces else "127.0.0.1"
        self.port = 8443 if namespaces else _free_port()
        if namespaces:
            self._wire()

    def _wire(self) -> None:
        hub = f"{self.tag}-0"
        _ip("netns", "add", hub)
        for words in (
            ("link", "set", "lo", "up"),
            ("link", "add", "br0", "type", "bridge"),
            ("addr", "add", f"{self.address}/24", "dev", "br0"),
            ("link", "set", "br0", "up"),
        ):
            _ip("-n", hub, *words)
        for k in range(1, self.count + 1):
            host = f"{self.tag}-{k}"
            _ip("netns", "add", host)
            _ip("-n", host, "link", "set", "lo", "up")
            _ip("-n", hub, "link", "add", f"v{k}", "type", "veth", "peer", "name", "eth0", "netns", host)
            _ip("-n", hub, "link", "set", f"v{k}", "master", "br0", "up")
            _ip("-n", host, "addr", "add", f"10.77.0.{10 + k}/24", "dev", "eth0")
            _ip("-n", host, "link", "set", "eth0", "up")

    @property
    def server(self) -> str:
        return f"{self.address}:{self.port}"

    def command(self, host: int, words: list[str]) -> list[str]:
        return ["ip", "netns", "exec", f"{self.tag}-{host}", *words] if self.apart else words

    def start(self, name: str, host: int, *words: str) -> subprocess.Popen:
        """A `sordino` command on a host; what it says is in `name.out` and `name.err`."""
        with open(self.folder / f"{name}.out", "ab") as out, open(self.folder / f"{name}.err", "ab") as err:
            process = subprocess.Popen(
                self.command(host, [*SORDINO, *words]),
                stdout=out,
                stderr=err,
                cwd=self.folder,
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        self.processes[name] = process
        return process

    def join(self, k: int, *words: str, name: str | None = None, certs: str | None = None) -> subprocess.Popen:
        said = [
            "join",
            self.server,
            "--data",
            f"data{k}",
            "--certs",
            certs or f"pki/n{k}",
            "--state",
            f"state{k}",
            *words,
        ]
        return self.start(name or f"n{k}", k, *said)

    def serve(self, *words: str, name: str = "serve") -> subprocess.Popen:
        said = ["serve", "--certs", "pki/server", "--address", f"{self._listen}:{self.port}", "--quiet", *words]
        return self.start(name, 0, *said)

    @property
    def _listen(self) -> str:
        return "0.0.0.0" if self.apart else self.address

    def said(self, name: str, kind: str = "err") -> str:
        return (self.folder / f"{name}.{kind}").read_text(errors="replace")

    def wait(self, name: str, seconds: float = 240.0) -> int:
        try:
            return self.processes[name].wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{name} is not done after {seconds} s:\n{self.said(name)[-3000:]}") from None

    def until(self, condition, what: str, seconds: float = 120.0) -> None:
        limit = time.monotonic() + seconds
        while not condition():
            logs = "\n".join(f"--- {name}\n{self.said(name)[-1500:]}" for name in self.processes)
            assert time.monotonic() < limit, f"{what} did not happen within {seconds} s\n{logs}"
            time.sleep(0.1)

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to the process itself; its children notice by themselves."""
        self.processes[name].send_signal(number)
        self.processes[name].wait(30)

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        limit = time.monotonic() + 15
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, limit - time.monotonic()))
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # whatever of its own session is left
            process.wait()
        if self.apart:
            for k in range(self.count + 1):
                with contextlib.suppress(subprocess.CalledProcessError):
                    _ip("netns", "del", f"{self.tag}-{k}")


def _free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as trial:
        return trial.getsockname()[1]
