"""Cores are those that this process may use."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sordino.machine import cores


def test_at_least_one_and_no_more_than_there_are():
    assert 1 <= cores() <= (os.cpu_count() or 1)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system does not bind processes to cores")
def test_a_process_that_is_bound_to_one_core_counts_one():
    one = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, {{{one}}}); from sordino.machine import cores; print(cores())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


def test_where_the_system_does_not_say_all_cores_count(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert cores() == (os.cpu_count() or 1)
