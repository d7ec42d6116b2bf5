"""Stopping every process below another one, and letting them go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from harness.sandbox import freeze
from harness.sandbox.limits import descendants

FAMILY = """
import subprocess, sys, threading, time
def spin():
    while True:
        pass
threading.Thread(target=spin, daemon=True).start()
subprocess.run([sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(600)"])
"""
"""A child with a thread that is busy, and a grandchild that sleeps."""


@pytest.fixture
def root() -> Iterator[int]:
    """A shell with two generations below it, all of them running."""
    command = ["sh", "-c", '"$0" -c "$1"; true', sys.executable, FAMILY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == "ready\n"
        yield shell.pid
        os.killpg(shell.pid, signal.SIGKILL)


def states(pid: int) -> set[str]:
    """The states of all threads of a process."""
    held = set()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            held.add((thread / "stat").read_text().rpartition(")")[2].split()[0])
    return held


def busy_ns(pids: list[int]) -> int:
    """Processor time that these processes have used."""
    return sum(time.clock_gettime_ns((~pid << 3) | 2) for pid in pids)


def test_everything_below_stands_still_until_it_may_go_on(root: int) -> None:
    below = descendants(root)
    assert len(below) == 2
    before = time.perf_counter()
    told_s, stopped = freeze.stop(root)
    assert before <= told_s <= time.perf_counter()
    assert sorted(stopped) == sorted(below)
    assert [states(pid) for pid in below] == [{"T"}, {"T"}]
    assert "T" not in states(root)
    stopped_ns = busy_ns(below)
    time.sleep(0.05)
    assert busy_ns(below) == stopped_ns
    freeze.resume(stopped)
    assert not any("T" in states(pid) for pid in below)
    while busy_ns(below) == stopped_ns:
        time.sleep(0.005)
    told_again_s, stopped_again = freeze.stop(root, stopped)
    assert told_again_s > told_s
    assert set(stopped_again) == set(stopped)
    assert all(states(pid) == {"T"} for pid in below)


def test_what_is_gone_counts_as_stopped() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
        assert freeze.stop(ended.pid, [])[1] == ()
