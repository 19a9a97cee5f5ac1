"""flower-supernode, quicker and stricter: it runs the relay itself instead of a new process for each message.

Stock Flower sleeps up to 3 s between looks at the server and starts an interpreter for every message; that is most of the
6 s that an exchange takes. Here the node looks more often while there is something to do, and a thread of this process takes
each task: it checks that the run's bundle is the one that this installation would have made, executes nothing of it, and
calls the installed relay. Start it with ``python -m sordino.deployment.supernode SECRET-FILE`` and the arguments of
flower-supernode, which must include ``--isolation process`` and the same secret.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import logging
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

from sordino.engines.flower.watching import follow_parent, log_to_stderr

SOON, LATER = 0.05, 1.0  # seconds between looks at the server: while messages come, and after a quiet minute
log = logging.getLogger("sordino.supernode")
_message_came = threading.Event()


class Pace:
    """How long to sleep instead of Flower's fixed times."""

    def __init__(self) -> None:
        self._quiet_since = time.monotonic()

    def busy(self) -> None:
        """Note that there was work just now."""
        self._quiet_since = time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait for the next look: shortly after work, longer the longer nothing came."""
        if seconds < 1:  # waits for a reply that is being made on this machine
            time.sleep(min(seconds, 0.02))
            return
        quiet = time.monotonic() - self._quiet_since
        time.sleep(min(seconds, max(SOON, min(LATER, quiet / 60))))


def quicken() -> None:
    """Put our pace in place of the sleeps in Flower's main loop, and have it ring when a message is there."""
    node: Any = importlib.import_module("flwr.supernode.start_client_internal")
    clientapp: Any = importlib.import_module("flwr.supernode.runtime.run_clientapp")
    retry: Any = importlib.import_module("flwr.supercore.retry.http_retry")
    retry.MAX_RETRY_DELAY = 3.0  # seconds between looks for a server that is gone
    pace = Pace()
    node.time = types.SimpleNamespace(**{**vars(time), "sleep": pace.sleep})
    stock = node._pull_and_store_message

    def pull(**arguments: Any) -> Any:
        run = stock(**arguments)
        if run is not None:
            pace.busy()
            _message_came.set()
        return run

    node._pull_and_store_message = pull
    quick = {"initial_backoff": 0.02, "backoff_cap": 1.0}
    node.pull_objects = functools.partial(node.pull_objects, **quick)
    clientapp.pull_and_inflate_object_from_tree = functools.partial(
        clientapp.pull_and_inflate_object_from_tree, **quick
    )


class Tasks(threading.Thread):
    """Takes tasks from this node's own runtime interface, and runs the relay for each."""

    def __init__(self, address: str, secret: bytes) -> None:
        super().__init__(name="sordino-tasks", daemon=True)
        from sordino.engines.flower.bundle import build

        self.address, self.secret = address, secret
        self.pinned = build()[1]

    def run(self) -> None:
        from flwr.proto.runtime_pb2 import AcquireTaskRequest
        from flwr.supercore.interceptors import SuperExecAuthHttpInterceptor

        protected = frozenset({"/flwr.proto.Runtime/AcquireTask"})
        guard = SuperExecAuthHttpInterceptor(master_secret=self.secret, protected_methods=protected)
        client = self._client("SuperExec", guard)
        while True:
            _message_came.wait(timeout=2.0)
            _message_came.clear()
            try:
                while True:
                    task = client.AcquireTask(AcquireTaskRequest(supported_task_types=["flwr-clientapp"]))
                    if not (task.HasField("task") and task.token):
                        break
                    self._do(task.token)
            except Exception as error:  # noqa: BLE001 - the node must outlive any task
                log.error("a task failed: %s", error, exc_info=error)

    def _client(self, component: str, interceptor: Any) -> Any:
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
        from flwr.supercore.runtime import RuntimeHttpClient

        return RuntimeHttpClient.from_server_address(
            server_address=self.address,
            insecure=True,
            root_certificates=None,
            interceptors=[RuntimeVersionHttpInterceptor(component_name=component), interceptor],
        )

    def _do(self, token: str) -> None:
        """One message: pull it, relay it, push the answer. The bundle is looked at, and not run."""
        from flwr.app import Message
        from flwr.app.error import Error
        from flwr.common.constant import ErrorCode, SubStatus
        from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor
        from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

        from sordino.deployment.apps import client_app

        client = self._client("flwr-clientapp", RuntimeTokenHttpInterceptor(token))
        beat = Heartbeat(client)
        context, status = None, SubStatus.FAILED
        try:
            message, context, _, bundle = pull_task_input(client)
            try:
                found = hashlib.sha256(bundle.content).hexdigest()
                if found != self.pinned:
                    raise PermissionError(f"the bundle {found[:12]} is not that of this version of sordino")
                reply = client_app(message=message, context=context)
                status = SubStatus.COMPLETED
            except Exception as error:  # noqa: BLE001 - the text stays here; the server gets the class
                log.error("the relay failed: %s", error, exc_info=error)
                problem = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, type(error).__name__)
                reply = Message(problem, reply_to=message)
            push_message(client, reply, context)
        finally:
            push_task_output(client, context, status, "")
            beat.stop()
            client.close()


class Heartbeat(threading.Thread):
    """Tells the node that a long task is still being worked on."""

    def __init__(self, client: Any, every: float = 20.0) -> None:
        super().__init__(name="sordino-heartbeat", daemon=True)
        self._client, self._every, self._over = client, every, threading.Event()
        self.start()

    def run(self) -> None:
        from flwr.proto.runtime_pb2 import SendTaskHeartbeatRequest

        while not self._over.wait(self._every):
            try:
                self._client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
            except Exception as error:  # noqa: BLE001 - the next beat may get through
                log.warning("a heartbeat was not heard: %s", type(error).__name__)

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._over.set()
        self.join()


def main() -> None:
    """Start Flower's SuperNode, and answer its tasks in this process."""
    from flwr.supernode.cli import flower_supernode
    from flwr.supernode.cli.flower_supernode import _parse_args_run_supernode

    log_to_stderr()
    secret = Path(sys.argv.pop(1)).read_bytes()
    sys.argv[0] = "flower-supernode"
    args = _parse_args_run_supernode().parse_args()
    quicken()
    follow_parent()
    Tasks(f"{args.host}:{args.port}", secret).start()
    flower_supernode()


if __name__ == "__main__":
    main()
