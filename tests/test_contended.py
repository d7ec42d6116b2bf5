"""Who waits for a processor, and whether its own company is to blame: real processes on one processor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from harness.sandbox.contended import NOTHING, Contended, look
from harness.sandbox.limits import descendants

BUSY = """
import os
os.sched_setaffinity(0, {int(os.environ["PROCESSOR"])})
print("ready", flush=True)
while True:
    pass
"""
FORKS = """
import os, time
print("ready", flush=True)
while True:
    if os.fork() == 0:
        end = time.process_time() + 0.05
        while time.process_time() < end:
            pass
        os._exit(0)
    os.wait()
"""
WAIT_S = 60.0

counted = pytest.mark.skipif(look(os.getppid(), os.getpid()) == NOTHING, reason="this kernel counts no waiting")


def wait_until_more(
    supervisor: int, first: int, *, waited_s: float = 0.0, others_ran_s: float = 0.0
) -> tuple[Contended, Contended]:
    """The counts before and after so much has been added to them."""
    before = now = look(supervisor, first)
    deadline = time.monotonic() + WAIT_S
    while (now.waited_s < before.waited_s + waited_s) or (now.others_ran_s < before.others_ran_s + others_ran_s):
        assert time.monotonic() < deadline, (before, now)
        time.sleep(0.01)
        now = look(supervisor, first)
    return before, now


@pytest.fixture
def started(request: pytest.FixtureRequest) -> Iterator[int]:
    """A shell with a process below it that runs this code."""
    command = ["sh", "-c", '"$0" -c "$1"; true', sys.executable, request.param]
    own = os.environ | {"PROCESSOR": str(min(os.sched_getaffinity(0)))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, env=own) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == "ready\n"
        yield shell.pid
        os.killpg(shell.pid, signal.SIGKILL)


@counted
@pytest.mark.parametrize("started", [BUSY], indirect=True)
def test_who_shares_a_processor_with_another_waits_for_it(started: int) -> None:
    (first,) = descendants(started)
    own = os.environ | {"PROCESSOR": str(min(os.sched_getaffinity(0)))}
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.DEVNULL, env=own) as neighbour:
        try:
            before, now = wait_until_more(started, first, waited_s=0.2)
        finally:
            neighbour.kill()
    assert now.since(before) >= 0.15
    assert now.others_ran_s - before.others_ran_s < 0.05


@counted
@pytest.mark.parametrize("started", [FORKS], indirect=True)
def test_what_its_children_ran_counts_when_they_are_gone(started: int) -> None:
    (first, *_) = descendants(started)
    before, now = wait_until_more(started, first, others_ran_s=0.5)
    assert now.others_ran_s >= before.others_ran_s + 0.5


@pytest.mark.parametrize(
    ("waited_s", "others_ran_s", "granted_s"), [(0.3, 0.0, 0.3), (0.3, 0.1, 0.2), (0.3, 0.4, 0.0), (0.3, -0.1, 0.3)]
)
def test_waiting_for_ones_own_company_is_not_granted(waited_s: float, others_ran_s: float, granted_s: float) -> None:
    before = Contended(waited_s=1.0, others_ran_s=2.0)
    now = Contended(waited_s=1.0 + waited_s, others_ran_s=2.0 + others_ran_s)
    assert now.since(before) == pytest.approx(granted_s)


def test_a_process_that_is_gone_has_waited_for_nothing() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    assert look(os.getpid(), ended.pid) == NOTHING
