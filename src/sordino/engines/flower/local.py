"""The socket between a holder and Flower's client app on the same machine: whole messages, one after the other.

The socket lies in a folder that only its owner can enter, and the holder also asks the kernel who calls. The side that
parses what came over the network (Flower's) holds no data, and the side that holds data gets one kind of message.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

from sordino.errors import SordinoError

SOCKET = "sordino-socket"  # the entry of a node's configuration that names the socket
_MOST = 1 << 34  # bytes of one message
log = logging.getLogger("sordino.holder")


class Unreachable(SordinoError):
    """There is no holder behind the socket."""


def call(path: str | Path, message: bytes) -> bytes:
    """Ask the holder behind `path`."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as pipe:
            pipe.connect(str(path))
            _send(pipe, message)
            return _receive(pipe)
    except (OSError, EOFError) as error:
        raise Unreachable(f"no holder answers at {path} ({type(error).__name__}); is `sordino join` running?") from None


class Listener:
    """Serves `handle` at a socket until it is closed."""

    def __init__(self, path: Path, handle: Callable[[bytes], bytes]) -> None:
        self.path, self._handle = path, handle
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(str(path))
        except OSError as error:
            self._socket.close()
            raise SordinoError(
                f"no socket can be made at {path} ({error}); choose a shorter path for --state."
            ) from None
        os.chmod(path, 0o600)
        self._socket.listen(8)
        threading.Thread(target=self._serve, name="holder-socket", daemon=True).start()

    def close(self) -> None:
        """Stop listening, and remove the socket."""
        self.path.unlink(missing_ok=True)
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                pipe, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(pipe,), daemon=True).start()

    def _answer(self, pipe: socket.socket) -> None:
        with pipe:
            try:
                if not _same_user(pipe):
                    log.error("another user of this machine tried to reach the holder and was refused")
                    return
                _send(pipe, self._handle(_receive(pipe)))
            except (OSError, EOFError) as error:
                log.warning("a caller went away: %s", type(error).__name__)


def _same_user(pipe: socket.socket) -> bool:
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # elsewhere than on Linux the folder's permissions must do
    _, user, _ = struct.unpack("3i", pipe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return user == os.getuid()


def _send(pipe: socket.socket, message: bytes) -> None:
    pipe.sendall(struct.pack("<Q", len(message)))
    pipe.sendall(message)


def _receive(pipe: socket.socket) -> bytes:
    (length,) = struct.unpack("<Q", _exactly(pipe, 8))
    if length > _MOST:
        raise EOFError("a message is too long")
    return _exactly(pipe, length)


def _exactly(pipe: socket.socket, count: int) -> bytes:
    out, at = bytearray(count), 0
    view = memoryview(out)
    while at < count:
        got = pipe.recv_into(view[at:])
        if not got:
            raise EOFError("the other side hung up")
        at += got
    return bytes(out)
