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


WAIT_S = 60.0


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


def stand(pids: list[int]) -> bool:
    """Whether all of them come to stand still, without being told again."""
    deadline = time.monotonic() + WAIT_S
    while not all(states(pid) == {"T"} for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.005)
    return all(states(pid) == {"T"} for pid in pids)


def test_what_is_told_stops_while_nobody_waits_and_goes_on_when_recalled(root: int) -> None:
    below = descendants(root)
    told = freeze.tell(root)
    assert sorted(told) == sorted(below)
    assert stand(below)
    freeze.recall(root, told)
    assert not any("T" in states(pid) for pid in below)
    freeze.tell(root)
    freeze.recall(root, told)  # at once: what has not stopped yet must not do so later
    assert not any("T" in states(pid) for pid in below)


def test_being_told_is_undone_for_nobody_else(root: int) -> None:
    """Ids of processes that were ending when they were told may be another sandbox's now, which is held still."""
    with subprocess.Popen(["sleep", "600"]) as other:
        try:
            other.send_signal(signal.SIGSTOP)
            assert stand([other.pid])
            freeze.recall(root, (*freeze.tell(root), other.pid))
            assert states(other.pid) == {"T"}
            assert not any("T" in states(pid) for pid in descendants(root))
        finally:
            other.kill()


def test_all_below_is_told_stopped_or_going(root: int) -> None:
    below, everything = descendants(root), freeze.Below(root)
    everything.go_on()
    everything.tell()
    everything.tell()
    assert stand(below)
    everything.go_on()
    assert not any("T" in states(pid) for pid in below)
    everything.tell()
    assert stand(below)
    everything.stop()
    assert all(states(pid) == {"T"} for pid in below)
    everything.tell()
    everything.go_on()
    everything.go_on()
    assert not any("T" in states(pid) for pid in below)


def test_what_could_not_be_stopped_in_time_can_go_on(root: int, monkeypatch: pytest.MonkeyPatch) -> None:
    below, everything = descendants(root), freeze.Below(root)
    with monkeypatch.context() as patch:
        patch.setattr(freeze, "STOP_TIMEOUT_S", 0.01)
        patch.setattr(freeze, "_running", lambda pid: True)
        with pytest.raises(freeze.StopError):
            everything.stop()
    assert stand(below)
    everything.go_on()
    assert not any("T" in states(pid) for pid in below)


def test_what_is_gone_counts_as_stopped() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
        assert freeze.stop(ended.pid, [])[1] == ()
