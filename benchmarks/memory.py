"""The memory of a command with all its processes, without counting a page twice.

Forked processes share pages, so their resident sizes do not add up. Proportional sizes do: a page that k processes map
counts one k-th in each (PSS, from /proc/PID/smaps_rollup). They are summed over the command's process and its descendants
every few milliseconds; the largest sum is the peak. Reading them takes time, so that runs that are watched are not timed. A
library that other programs use as well counts less: measure on a machine at rest.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from tempfile import TemporaryFile

EVERY = 0.02  # seconds


def peak(command: list[str], timeout: float) -> tuple[str, str, float]:
    """Run it; what it wrote (standard output, error) and its peak in MB."""
    most, end = 0, time.monotonic() + timeout
    with TemporaryFile("w+") as said, TemporaryFile("w+") as complaint:  # a pipe that nobody reads would fill up
        running = subprocess.Popen(command, stdout=said, stderr=complaint)
        try:
            while running.poll() is None and time.monotonic() < end:
                most = max(most, sum(map(proportional, family(running.pid))))
                time.sleep(EVERY)
        finally:
            running.kill()
            running.wait()
        said.seek(0), complaint.seek(0)
        return said.read(), complaint.read(), most / 1024


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    parents = {int(p.name): _parent(p) for p in Path("/proc").iterdir() if p.name.isdigit()}
    found = [pid]
    for one in found:  # grows while it is read
        found += [child for child, parent in parents.items() if parent == one]
    return found


def proportional(pid: int) -> int:
    """PSS in kB; 0 once the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
