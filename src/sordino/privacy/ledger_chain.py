"""The file of a ledger: sealed lines, each of which carries the hash of the one before.

Every line has its number, the hash of the line before and its own, so that a line that was changed, moved or taken out is
found, and named, when the file is read. The chain guards against accidents and careless hands, not against someone who rewrites
the whole file; `head`, kept in a checkpoint, shows when lines are missing from the end.

Crashes. `append` writes one line, waits for fsync, and only then returns. A crash therefore leaves one of three things:

* the whole line: it counts;
* no trace of it: `append` had not returned, so nobody has acted on it;
* a torn last line: fsync had not returned, hence neither had `append`, and leaving the line out would not under-count. As that
  argument trusts the disk to honour fsync, the line is counted all the same whenever enough of it can be read to know what it
  grants. Its bytes are kept, in a line of kind `torn` that takes its place (`mend`).
"""

from __future__ import annotations

import base64
import os
import weakref
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from sordino.errors import BadInput, SordinoError
from sordino.privacy import ledger_format as lines
from sordino.privacy.ledger_format import Head, Row

FORMAT = "sordino-ledger-1"


class Chain:
    """Use `create`, `open` or `read`. One process at a time can hold a chain open for writing."""

    def __init__(self, path: Path, fd: int | None, text: bytes) -> None:
        self.path = path
        self._fd, self._owner = fd, os.getpid()
        self._hashes: list[str] = []  # of the lines that were followed or written
        self._split(text)
        header = lines.unseal(self._lines[0])[0] if self._lines else None
        if not header or header.get("format") != FORMAT:
            raise BadInput(f"{path} is not a ledger of the form {FORMAT}; give the ledger.jsonl of a run.")
        self.salvaged = lines.salvage(self._torn)  # what a torn last line grants
        _alive.add(self)

    # --- opening ------------------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, path: Path, header: Mapping[str, object]) -> Chain:
        """A new file with its first line."""
        line, _ = lines.seal({"seq": 0, "kind": "header", "format": FORMAT, **header}, lines.START)
        if path.exists():
            raise BadInput(f"There is a ledger at {path} already; resume that run, or give another folder.")
        with lines.told(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            # Linked into place when it is on disk, so that a ledger without a whole first line never exists. Of two
            # processes that get here, the second to link is told that the file exists.
            fd = lines.aside(path, line, os.link)
        return cls(path, fd, line)

    @classmethod
    def open(cls, path: Path) -> Chain:
        """For writing, by this process alone."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_APPEND)
        except OSError as error:
            raise BadInput(f"The ledger {path} cannot be opened ({error.strerror}); check the run's folder.") from None
        try:
            lines.lock(fd, path)
            return cls(path, fd, lines.read(fd))
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def read(cls, path: Path) -> Chain:
        """To look at a file that any process may hold; nothing is locked or written."""
        try:
            return cls(path, None, path.read_bytes())
        except OSError as error:
            raise BadInput(f"The ledger {path} cannot be read ({error.strerror}); check the run's folder.") from None

    def close(self) -> None:
        """Let go of the file and its lock."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _split(self, text: bytes) -> None:
        """Tell whole lines from a torn last one."""
        self._lines = text.split(b"\n")
        last = self._lines.pop()  # what follows the last newline
        self._ended, self._torn = True, b""
        if last and lines.unseal(last)[0] is None:
            self._torn = last
        elif last:  # only the newline is missing
            self._lines.append(last)
            self._ended = False
        elif len(self._lines) > 1 and b"\0" in self._lines[-1]:  # a page of it never reached the disk
            self._torn = self._lines.pop()
        if self._torn.count(b'{"seq":') > 1:  # no crash joins two lines
            raise self.tampered(len(self._lines), "cannot be read")
        self._good = sum(map(len, self._lines)) + len(self._lines)

    def rows(self) -> Iterator[tuple[int, Row]]:
        """The lines of the file from the header on, each with its number, checked when its turn comes."""
        for number, line in enumerate(self._lines):
            row, digest = lines.unseal(line)
            if row is None:
                raise self.tampered(number, "cannot be read")
            if row.get("hash") != digest:
                raise self.tampered(number, "was changed")
            if row["prev"] != self._hash or row["seq"] != number:
                raise self.tampered(number, "does not follow the line before it")
            self._hashes.append(digest)
            yield number, cast(Row, row)
        self._lines = []  # they are not needed a second time

    def tampered(self, number: int, what: str) -> BadInput:
        """What to raise about a line."""
        return BadInput(f"Line {number + 1} of the ledger {self.path} {what}; bring back the untouched file.")

    @property
    def seq(self) -> int:
        """The number of the last line."""
        return len(self._hashes) - 1

    @property
    def _hash(self) -> str:
        return self._hashes[-1] if self._hashes else lines.START

    @property
    def head(self) -> Head:
        """The last line's number and hash, for a checkpoint."""
        return {"seq": self.seq, "hash": self._hash}

    def holds(self, head: Head) -> bool:
        """Whether a line that `head` named before is in this file."""
        return self._hashes[head["seq"] : head["seq"] + 1] == [head["hash"]]

    # --- writing ------------------------------------------------------------------------------------------------------

    @property
    def only_read(self) -> bool:
        """Whether the file is not open for writing."""
        return self._fd is None

    def usable(self) -> int:
        """The file to write to; refused where it is not open in this process."""
        if self._fd is None or os.getpid() != self._owner:
            raise SordinoError(f"The ledger {self.path} is not open for writing in this process; open it again.")
        return self._fd

    def append(self, row: Row) -> None:
        """One line more, on disk when this returns."""
        fd = self.usable()
        line, digest = lines.seal({"seq": self.seq + 1, **row}, self._hash)
        try:
            with lines.told(self.path):
                lines.write(fd, line)
            self._hashes.append(digest)
        except BaseException:
            self.close()  # how much of the line is on disk is unknown: only a replay can tell
            raise

    def mend(self) -> Row | None:
        """Put the newline that is missing, or a line of kind `torn` in the place of a torn one; what that line grants."""
        fd = self.usable()
        with lines.told(self.path):
            if not self._ended:
                lines.write(fd, b"\n")
                self._ended = True
            if not self._torn:
                return None
            row: Row = {"seq": self.seq + 1, "kind": "torn", "bytes": _packed(self._torn)}
            if self.salvaged is not None:
                row.update(self.salvaged)
            line, digest = lines.seal(row, self._hash)
            # The file is replaced as a whole: a crash now leaves either the torn line, or the one that stands for it.
            mended = lines.aside(self.path, lines.read(fd)[: self._good] + line, os.replace)
        self.close()
        self._fd = mended
        self._hashes.append(digest)
        granted, self._torn, self.salvaged = self.salvaged, b"", None
        return None if granted is None else row


def _packed(torn: bytes) -> str:
    return base64.b64encode(zlib.compress(torn)).decode()


# A forked worker must not keep the lock of a parent that dies: it lets go of the file. The parent's own lock stays.
_alive: weakref.WeakSet[Chain] = weakref.WeakSet()


def _let_go() -> None:
    for chain in list(_alive):
        chain.close()


os.register_at_fork(after_in_child=_let_go)
