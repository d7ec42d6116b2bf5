"""Commands side by side: what they say, and that none of them outlives whoever gave them up."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from harness.core.executables import find_gxx
from harness.core.subprocesses import CommandPool, CommandPoolClosed
from tests.support.paths import ROOT

SLEEPING = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"
STARTS_ANOTHER = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEPING!r}, sys.argv[1]])"
IGNORES_TERM = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPING}"


def python(code: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", code, *map(str, arguments)]


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60.0
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def told_of(path: Path) -> list[bytes]:
    """The command lines of processes that name this path, or one in it."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # gone meanwhile
            found.append(process.read_bytes())
    return [line for line in found if bytes(path) in line]


def compilers(cache: Path) -> list[bytes]:
    return [line for line in told_of(cache) if b"cc1plus" in line.split(b"\0")[0]]


def test_commands_run_side_by_side_and_say_how_they_ended() -> None:
    met = threading.Barrier(2, timeout=300.0)
    found = []

    def step() -> None:
        met.wait()
        found.append(crew.run(python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")))

    with CommandPool(2) as crew:
        steps = [crew.submit(step) for _ in range(2)]
    assert [ended.exception() for ended in steps] == [None, None]
    assert [(done.returncode, done.stdout, done.stderr) for done in found] == [(3, "out\n", "err\n")] * 2


@pytest.mark.parametrize("code", [SLEEPING, STARTS_ANOTHER, IGNORES_TERM], ids=["one", "its child", "deaf"])
def test_an_interrupt_ends_what_runs_and_what_would_follow(
    tmp_path: Path, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.core.subprocesses.END_TIMEOUT_S", 0.5)
    marker, next_marker, again = tmp_path / "first", tmp_path / "next", tmp_path / "again"

    def step() -> None:
        try:
            crew.run(python(code, marker))
        finally:
            crew.run(python(SLEEPING, again))  # as where a failed compilation is tried another way

    def interrupted() -> None:
        wait_for(marker)
        raise KeyboardInterrupt

    crew = CommandPool(1)
    first = crew.submit(step)
    following = crew.submit(lambda: crew.run(python(SLEEPING, next_marker)) and None)
    with pytest.raises(KeyboardInterrupt), crew:
        interrupted()
    assert isinstance(first.exception(), CommandPoolClosed)
    assert following.cancelled()
    assert not again.exists()
    assert not next_marker.exists()
    assert not told_of(marker)


def test_one_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    with CommandPool(1) as crew, pytest.raises(subprocess.TimeoutExpired):
        crew.run(python(STARTS_ANOTHER, marker), timeout_s=0.5)
    assert not told_of(marker)


@pytest.mark.skipif(find_gxx() is None, reason="no C++ compiler to prepare headers with")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_warm_up_that_is_ended_leaves_no_compiler(tmp_path: Path, number: signal.Signals, code: int) -> None:
    command = [sys.executable, "-m", "harness", "warmup", "--device", "host", "--cache", str(tmp_path)]
    warmup = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=ROOT, text=True)
    deadline = time.monotonic() + 60.0
    while not compilers(tmp_path):
        assert time.monotonic() < deadline
        assert warmup.poll() is None
        time.sleep(0.02)
    warmup.send_signal(number)
    _, err = warmup.communicate()
    assert warmup.returncode == code, err
    assert "Traceback" not in err
    assert not compilers(tmp_path)
    assert not list(tmp_path.rglob("*.tmp"))
