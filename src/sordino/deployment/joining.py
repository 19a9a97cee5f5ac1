"""What `sordino join` does: the resident holder, its socket, and a SuperNode that is kept running.

Flower refuses a node that was killed for up to a minute, and a node leaves when the server forgets it: both pass, so the
node is started again until it is accepted or told to stop. What went wrong is told here in a sentence.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from sordino.data.folder import SUFFIXES
from sordino.data.ingest import Records, read_records
from sordino.data.table import Table
from sordino.deployment.control import environment
from sordino.engines.flower.holder import Holder
from sordino.engines.flower.local import SOCKET, Listener
from sordino.engines.flower.node_status import NodeStatus
from sordino.engines.flower.pki import Own
from sordino.engines.flower.policy import Policy
from sordino.engines.flower.seals import SignedHolder
from sordino.errors import BadInput

log = logging.getLogger("sordino.holder")


def own_records(path: Path, name: str, label: str | None = None) -> Records:
    """The records of this holder: a file, or the one file in a folder (or the one called like the node).

    `label`: how the column that is predicted is called here, if it is not called as in the run's schema.
    """
    if not path.exists():
        raise BadInput(f"there is no file or folder {str(path)!r}: check --data.")
    if path.is_file():
        return _labelled(read_records(path), label)
    files = [f for f in path.iterdir() if f.suffix in SUFFIXES and f.stem != "test"] if path.is_dir() else []
    named = [f for f in files if f.stem == name]
    chosen = named or files
    if len(chosen) != 1:
        raise BadInput(
            f"{path} has {len(chosen)} files of records; give one .npz, .csv or .parquet file, or call it {name}."
        )
    return _labelled(read_records(chosen[0]), label)


def _labelled(records: Records, label: str | None) -> Records:
    if label is None or not isinstance(records, Table):
        return records
    if label not in records:
        raise BadInput(f"{records.where} has no column {label!r}: name one of {', '.join(records.names[:8])}.")
    return records.with_label(label)


class Joined:
    """A holder on the air. `stop` may be set from anywhere; `wait` returns when it is.

    With a `listen` path it only serves that socket, for a SuperNode that is run by others.
    """

    def __init__(
        self,
        address: str,
        data: Records,
        certs: Path,
        policy: Policy,
        state: Path,
        once: bool = False,
        listen: Path | None = None,
    ) -> None:
        self.address, self.certs, self.state = address, certs, state
        own = Own.node(certs)
        self.name = own.name
        self.stop = threading.Event()
        self.holder = Holder(own.name, data, policy, state, SignedHolder(own), own)
        if once:  # a moment later, so that the last answer still leaves
            self.holder.on_done = lambda: threading.Timer(3.0, self.stop.set).start()
        # Paths of sockets are short by law of the system, and paths of states are not.
        self._place = Path(tempfile.mkdtemp(prefix="sordino-"))
        self._listener = Listener(listen or self._place / "holder", self.holder.handle)
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper = threading.Thread(target=self._keep, name="sordino-node", daemon=True)
        if listen is None:
            self._keeper.start()

    def wait(self) -> None:
        """Take part until somebody stops it."""
        while not self.stop.wait(0.2):
            pass
        self.close()

    def close(self) -> None:
        """Leave: no further request is answered."""
        self.stop.set()
        if self._keeper.ident is not None:
            self._keeper.join()
        self._listener.close()
        self.holder.close()
        shutil.rmtree(self._place, ignore_errors=True)

    # ---- the node --------------------------------------------------------------------------------

    def _keep(self) -> None:
        """Run the node, and run it again."""
        log_file = self.state / "supernode.log"
        tidings = NodeStatus(self.address, log_file)
        while not self.stop.is_set():
            tidings.begin()
            self._process = self._start(log_file)
            while self._process.poll() is None and not self.stop.wait(0.5):
                self._tell(tidings.look())
            if self._process.poll() is None:
                self._process.terminate()  # lets it say goodbye; a node that is killed is refused for a minute
                try:
                    self._process.wait(8)
                except subprocess.TimeoutExpired:
                    self._process.kill()
                    self._process.wait()
                return
            self._tell(tidings.end())
            self.stop.wait(2.0)

    def _tell(self, said: str | None) -> None:
        if said is not None:
            log.info("%s", said)

    def _start(self, log_file: Path) -> subprocess.Popen[bytes]:
        secret = self._place / "secret"
        secret.touch(mode=0o600)
        secret.write_text(secrets.token_hex(32))
        command = [sys.executable, "-m", "sordino.deployment.supernode", str(secret)]
        command += ["--superlink", self.address, "--root-certificates", str(self.certs / "ca.crt")]
        command += ["--auth-supernode-private-key", str(self.certs / "node.key"), "--isolation", "process"]
        command += ["--host", "127.0.0.1", "--port", str(_free_port()), "--superexec-auth-secret-file", str(secret)]
        command += ["--node-config", f'{SOCKET}="{self._listener.path}"']
        with open(log_file, "ab") as out:
            return subprocess.Popen(command, stdout=out, stderr=out, env=environment(self.state / "flwr"))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as trial:
        return trial.getsockname()[1]
