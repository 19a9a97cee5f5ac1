"""What Flower's SuperNode has to say, for the person who started it: one sentence each time that something changes.

A SuperNode that cannot reach its server tries for ever and does not say why; one that is refused ends, and says so in a page
of its log. Here the log is followed, and the network is asked what is wrong.
"""

from __future__ import annotations

import socket
from pathlib import Path

from sordino.engines.flower.address import split_address

CONNECTED = ("SuperNode ID:", "Connection successful")
AWAY = ("Connection attempt failed",)
REASONS = (
    (
        "code: 2004",
        "the server refuses this node: its key is not admitted there, or is still in use by a node that went away",
    ),
    ("code: 2001", "the server does not know this node's key"),
    ("certificate has expired", "the server's certificate has expired"),
    ("mismatch, certificate is not valid for", "the server's certificate is made out to another name or address"),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "the server's certificate is not to be trusted: another authority than that of ca.crt signed it",
    ),
    ("[SSL", "what listens at the server's address does not speak TLS"),
    ("terminated gracefully", "the server was started anew"),
)


class NodeStatus:
    """Follows the log of one node. `look` and `end` give a sentence, or None if it was said before."""

    def __init__(self, address: str, log_file: Path) -> None:
        self.address, self._file, self._said = address, log_file, ""
        self._at = self._begin = 0
        self._mute = False
        self.begin()

    def begin(self) -> None:
        """The node was started (again)."""
        self._begin = self._at = self._file.stat().st_size if self._file.exists() else 0

    def look(self) -> str | None:
        """What has changed since the last look."""
        text = self._read(self._at)
        self._at += len(text)
        here, away = (max(text.rfind(sign.encode()) for sign in signs) for signs in (CONNECTED, AWAY))
        if here > away:
            return self._once(f"connected to {self.address}")
        if away > here:
            why = unreachable(self.address)
            if why is None and not self._mute:  # perhaps it has only just come up
                self._mute = True
                return None
            self._mute = False
            return self._once(f"{why or f'the server at {self.address} is not ready yet'}; trying again")
        return None

    def end(self) -> str | None:
        """Why the node ended."""
        text = self._read(self._begin).decode(errors="replace")
        why = next((said for sign, said in REASONS if sign in text), f"it ended; see {self._file}")
        return self._once(f"{why}; trying again")

    def _read(self, start: int) -> bytes:
        if not self._file.exists():
            return b""
        with open(self._file, "rb") as file:
            file.seek(start)
            return file.read()

    def _once(self, said: str) -> str | None:
        new, self._said = said != self._said, said
        return said if new else None


def unreachable(address: str, seconds: float = 3.0) -> str | None:
    """Why nothing can be sent to an address; None if something listens there."""
    host, port = split_address(address)
    try:
        socket.create_connection((host, port), seconds).close()
        return None
    except socket.gaierror:
        return f"no machine is known under the name {host}"
    except ConnectionRefusedError:
        return f"nothing listens at {address} yet"
    except TimeoutError:
        return f"no answer comes from {address}"
    except OSError as error:
        return f"{address} cannot be reached ({error.strerror or type(error).__name__})"
