"""Time limits of children count what they could do: one that is short of processors has more time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from harness.protocol.channel import FrameTimeout
from harness.sandbox import SandboxPolicy, child, limits
from harness.sandbox.child import Child, ProcessorsShort
from harness.sandbox.zygote import Zygote
from tests.support.paths import SUPPORT

TARGETS = SUPPORT / "sandboxed"
POLICY = SandboxPolicy(readable=(TARGETS,))
FOR_EVER_S = 1e6


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote(env={"PYTHONPATH": str(TARGETS)}) as started:
        yield started


@contextmanager
def rationed(one: Child, *, runs_s: float, of_s: float) -> Iterator[None]:
    """Let a child run only for this part of the time, as if others had the processors."""
    pid, ended = one.target_pid(), threading.Event()
    assert pid is not None

    def ration() -> None:
        with suppress(ProcessLookupError):
            while not ended.is_set():
                os.kill(pid, signal.SIGSTOP)
                ended.wait(of_s - runs_s)
                os.kill(pid, signal.SIGCONT)
                ended.wait(runs_s)

    thread = threading.Thread(target=ration)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_who_gets_a_third_of_a_processor_has_more_time(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "idle_s", lambda: 0.0)
    with zygote.spawn("honest:compute", POLICY, tmp_path / "log") as one, rationed(one, runs_s=0.03, of_s=0.1):
        one.channel.send({"seconds": 0.5})
        assert one.receive(0.6).message == {"done": True}
        assert one.starved_s > 0.3


def test_who_leaves_processors_idle_has_no_more_time(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a loop that sleeps would never be late, and its solution would get no verdict."""
    monkeypatch.setattr(limits, "idle_s", time.perf_counter)
    with zygote.spawn("honest:compute", POLICY, tmp_path / "log") as one, rationed(one, runs_s=0.03, of_s=0.1):
        one.channel.send({"seconds": FOR_EVER_S})
        begin_s = time.perf_counter()
        with pytest.raises(FrameTimeout):
            one.receive(1.0)
        assert time.perf_counter() - begin_s < 0.5 * child.PATIENCE


def test_an_answer_in_time_starves_nobody(zygote: Zygote, tmp_path: Path) -> None:
    with zygote.spawn("honest:compute", POLICY, tmp_path / "log") as one:
        one.channel.send({"seconds": 0.0})
        one.receive(60.0)
        assert one.starved_s == 0.0


def test_an_endless_loop_has_no_more_time_than_its_limit(zygote: Zygote, tmp_path: Path) -> None:
    with zygote.spawn("honest:compute", POLICY, tmp_path / "log") as one:
        one.channel.send({"seconds": FOR_EVER_S})
        with pytest.raises(FrameTimeout, match="within 1 s"):
            one.receive(1.0)


def test_who_waits_has_no_more_time_than_its_limit(zygote: Zygote, tmp_path: Path) -> None:
    with zygote.spawn("honest:sleep", POLICY, tmp_path / "log") as one:
        one.channel.receive(60.0)
        begin_s = time.perf_counter()
        with pytest.raises(FrameTimeout):
            one.receive(2.0)
        assert time.perf_counter() - begin_s < 0.5 * child.PATIENCE * 2.0


def test_a_machine_without_free_processors_is_told_apart(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "PATIENCE", 2.0)
    monkeypatch.setattr(limits, "idle_s", lambda: 0.0)
    with zygote.spawn("honest:compute", POLICY, tmp_path / "log") as one, rationed(one, runs_s=0.01, of_s=0.2):
        one.channel.send({"seconds": FOR_EVER_S})
        with pytest.raises(ProcessorsShort, match="it ran for"):
            one.receive(1.5)


def test_what_a_supervisor_does_is_no_work_of_the_process_below_it() -> None:
    """Else looking after a process that sleeps would look like a process short of processors, on a busy machine."""
    before_s, end_s = limits.processor_s(os.getpid()), time.process_time() + 0.1
    while time.process_time() < end_s:
        pass
    assert limits.processor_s(os.getpid()) == before_s
    subprocess.run([sys.executable, "-c", "while __import__('time').process_time() < 0.1: pass"], check=True)
    assert limits.processor_s(os.getpid()) >= before_s + 0.1
