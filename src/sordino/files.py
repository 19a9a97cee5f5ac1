"""Writing a file whole or not at all.

The content goes to a new file beside the target, which is then renamed over it. A reader finds the old file or the new
one, and a process that is ended in between leaves the old one in place.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

_numbers = itertools.count()  # two threads of one process never share a draft


def write_atomically(path: str | Path, data: bytes | str, private: bool = False, durable: bool = False) -> None:
    """Replace the file at `path` by one that holds `data`; text is written as UTF-8.

    `private`: the file can be read by its owner alone, from the first byte on. `durable`: return only when content and
    name are on disk, so that the file also outlives the machine.
    """
    path = Path(path)
    content = data.encode() if isinstance(data, str) else data
    fd, draft = _draft(path, 0o600 if private else 0o666)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    if durable:
        sync(path.parent)


def sync(path: str | Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _draft(path: Path, mode: int) -> tuple[int, Path]:
    """A new file of our own beside `path`. O_EXCL: a link that someone put there is not followed."""
    while True:
        draft = path.with_name(f".{path.name}.{os.getpid()}-{next(_numbers)}")
        try:
            return os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), draft
        except FileExistsError:  # left by a dead process that had our number
            continue
