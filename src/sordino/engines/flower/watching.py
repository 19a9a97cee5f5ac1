"""What Flower's processes get from us: they leave when their parent is gone, and log what we have to say."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time

PARENT = "SORDINO_PARENT"


def follow_parent() -> None:
    """End this process, in good order, when the process that started it is no more."""
    parent = int(os.environ.get(PARENT, "0"))
    if parent:
        threading.Thread(target=_watch, args=(parent,), name="sordino-parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)


def log_to_stderr() -> None:
    """Our own lines only; Flower writes its own."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    logging.getLogger("sordino").addHandler(handler)
