"""Stopping every process below another one, and letting them go on."""

from __future__ import annotations

import itertools
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from harness.sandbox import suspend
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


IN_LONG_CALLS = """
import mmap
print("ready", flush=True)
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
while True:
    mmap.mmap(-1, 2**33, flags=flags, prot=mmap.PROT_READ).close()
"""
"""Maps zeros, of which 8 GiB take the kernel some 0.2 s, and no memory but for their page tables."""


WAIT_S = 60.0
ON_ITS_WAY_S = 0.05
"""A signal takes a moment to arrive, in which its receiver goes on."""


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


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel does not count that")
def test_how_long_threads_stood_in_line_for_a_processor_is_known_where_they_stand() -> None:
    """Two that never let go of one processor."""
    spin = (
        f"import os\nos.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})\nprint(flush=True)\nwhile True: pass"
    )
    command = ["sh", "-c", '"$0" -c "$1" & "$0" -c "$1"; true', sys.executable, spin]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as shell:
        assert shell.stdout is not None
        assert [shell.stdout.readline() for _ in range(2)] == ["\n"] * 2
        below = suspend.Below(shell.pid)
        assert below.in_line_s == 0.0, "nothing stands"
        below.stop()
        before_s = below.in_line_s
        assert below.in_line_s == before_s
        below.go_on()
        time.sleep(0.2)
        below.stop()
        assert below.in_line_s - before_s > 0.02
        os.killpg(shell.pid, signal.SIGKILL)


def test_everything_below_stands_still_until_it_may_go_on(root: int) -> None:
    below = descendants(root)
    assert len(below) == 2
    before = time.perf_counter()
    held = suspend.stop(root)
    stopped = held.pids
    assert before <= held.told_s <= time.perf_counter()
    assert sorted(stopped) == sorted(below)
    assert [states(pid) for pid in below] == [{"T"}, {"T"}]
    assert "T" not in states(root)
    stopped_ns = busy_ns(below)
    time.sleep(0.05)
    assert busy_ns(below) == stopped_ns
    suspend.resume(stopped)
    assert not any("T" in states(pid) for pid in below)
    while busy_ns(below) == stopped_ns:
        time.sleep(0.005)
    again = suspend.stop(root, stopped)
    assert again.told_s > held.told_s
    assert set(again.pids) == set(stopped)
    assert all(states(pid) == {"T"} for pid in below)


def stand(pids: list[int]) -> bool:
    """Whether all of them come to stand still, without being told again."""
    deadline = time.monotonic() + WAIT_S
    while not all(states(pid) == {"T"} for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.005)
    return all(states(pid) == {"T"} for pid in pids)


def test_what_is_told_stops_while_nobody_waits_and_goes_on_when_recalled(root: int) -> None:
    below = descendants(root)
    told = suspend.tell(root)
    assert sorted(told) == sorted(below)
    assert stand(below)
    suspend.recall(root, told)
    assert not any("T" in states(pid) for pid in below)
    suspend.tell(root)
    suspend.recall(root, told)  # at once: what has not stopped yet must not do so later
    assert not any("T" in states(pid) for pid in below)


def test_being_told_is_undone_for_nobody_else(root: int) -> None:
    """Ids of processes that were ending when they were told may be another sandbox's now, which is held still."""
    with subprocess.Popen(["sleep", "600"]) as other:
        try:
            other.send_signal(signal.SIGSTOP)
            assert stand([other.pid])
            suspend.recall(root, (*suspend.tell(root), other.pid))
            assert states(other.pid) == {"T"}
            assert not any("T" in states(pid) for pid in descendants(root))
        finally:
            other.kill()


def test_all_below_is_told_stopped_or_going(root: int) -> None:
    below, everything = descendants(root), suspend.Below(root)
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
    below, everything = descendants(root), suspend.Below(root)
    with monkeypatch.context() as patch:
        patch.setattr(suspend, "STARVED_S", 0.01)
        patch.setattr(suspend, "_any_runs", lambda threads: True)
        with pytest.raises(suspend.StopError) as raised:
            everything.stop()
        assert raised.value.starved
    assert stand(below)
    everything.go_on()
    assert not any("T" in states(pid) for pid in below)


def test_what_takes_its_time_to_stop_does_not_run_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in a call that the kernel does not interrupt, and has not been told again."""
    monkeypatch.setattr(suspend, "STOP_TIMEOUT_S", 0.05)
    command = ["sh", "-c", '"$0" -c "$1"; true', sys.executable, IN_LONG_CALLS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as shell:
        try:
            assert shell.stdout is not None
            assert shell.stdout.readline() == "ready\n"
            for _ in range(10):
                stopped = suspend.stop(shell.pid)
                assert [states(pid) for pid in stopped.pids] == [{"T"}]
                suspend.resume(stopped.pids)
        finally:
            os.killpg(shell.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("share", "rank", "starved"),
    [
        (0.01, lambda pid: None, True),
        (0.9, lambda pid: None, False),
        pytest.param(
            *(0.01, lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19), False),
            marks=pytest.mark.skipif(os.nice(0) == 19, reason="the tests themselves give way as far as can be"),
        ),
        (0.01, lambda pid: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)), False),
    ],
    ids=["hardly any", "much", "nice", "idle"],
)
def test_who_had_processors_for_long_did_not_want_for_one(
    root: int, monkeypatch: pytest.MonkeyPatch, share: float, rank: Callable[[int], None], starved: bool
) -> None:
    """It has the kernel at work for it, in one call after which it would stop, or in many at once; or it lets everybody
    else have them."""
    rank(descendants(root)[-1])
    look, everything, now_s = (
        suspend._threads,
        suspend.Below(root),
        itertools.count(time.perf_counter(), suspend.LOOK_S),
    )
    begin_s = next(now_s)

    def in_the_kernel(pids: Sequence[int]) -> dict[int, dict[int, suspend._Thread]]:
        more_ns = int(share * 1e9 * (next(now_s) - begin_s))
        return {
            pid: {tid: replace(held, state="R", ran_ns=held.ran_ns + more_ns) for tid, held in threads.items()}
            for pid, threads in look(pids).items()
        }

    everything.stop()
    monkeypatch.setattr(suspend, "STARVED_S", 10.0)
    monkeypatch.setattr(suspend.time, "perf_counter", lambda: next(now_s))
    monkeypatch.setattr(suspend, "_threads", in_the_kernel)
    monkeypatch.setattr(suspend, "_any_has_run", lambda before, root: None)
    monkeypatch.setattr(suspend, "_goes_on", lambda pid: False)  # the signal was not taken back
    for raises in (everything.moved, everything.stop):
        with pytest.raises(suspend.StopError, match="could not be stopped within 10 s") as raised:
            raises()
        assert raised.value.starved is starved


def test_who_stops_others_may_itself_have_stood_still(root: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For hours, while they had not begun to stop: another look is worth the while."""
    look, looks, real, hour_s = suspend._threads, 0, time.perf_counter, 3600.0

    def sees_them_run_at_first(pids: Sequence[int]) -> dict[int, dict[int, suspend._Thread]]:
        nonlocal looks
        looks += 1
        found = look(pids)
        if looks < 3:
            found = {pid: {tid: replace(held, state="R") for tid, held in each.items()} for pid, each in found.items()}
        return found

    monkeypatch.setattr(suspend, "_threads", sees_them_run_at_first)
    monkeypatch.setattr(suspend, "_goes_on", lambda pid: False)  # the signal was not taken back
    monkeypatch.setattr(suspend.time, "perf_counter", lambda: real() + looks * hour_s)
    held = suspend.stop(root)
    assert held.told_s < real() + hour_s
    assert all(states(pid) == {"T"} for pid in descendants(root))


def test_who_takes_the_signal_back_for_too_long_runs_away(root: int, monkeypatch: pytest.MonkeyPatch) -> None:
    everything, now_s = suspend.Below(root), itertools.count(time.perf_counter(), suspend.LOOK_S)
    everything.stop()
    monkeypatch.setattr(suspend.time, "perf_counter", lambda: next(now_s))
    monkeypatch.setattr(suspend, "_any_runs", lambda threads: True)
    monkeypatch.setattr(suspend, "_goes_on", lambda pid: True)
    monkeypatch.setattr(suspend, "_any_has_run", lambda before, root: None)
    assert everything.moved()
    with pytest.raises(suspend.StopError, match="could not be stopped within 5 s") as raised:
        everything.stop()
    assert not raised.value.starved


def test_what_is_gone_counts_as_stopped() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
        assert suspend.stop(ended.pid, []).pids == ()


UNDONE = """
import os, signal, struct, sys, time
page = __import__("mmap").mmap(-1, 4096)
main = os.getpid()
for _ in range(200):
    if os.fork() == 0:
        signal.pause()
if os.fork() == 0:
    while os.getppid() == main:
        os.kill(main, signal.SIGCONT)
    os._exit(0)
def work(*_):
    end = time.perf_counter() + 0.5
    while (now := time.perf_counter()) < end:
        page[:8] = struct.pack("d", now)
        if page[8]:
            continue
    with open(sys.argv[1], "wb") as file:
        file.write(page[:8])
    os.kill(main, signal.SIGSTOP)
print("ready", flush=True)
while True:
    work()
"""
"""Works half a second at a time and stops itself then; meanwhile one of its children, which is found late among many,
takes back whatever else stops it."""


def test_who_goes_on_although_it_was_told_to_stop_is_told_again(tmp_path: Path) -> None:
    """The time at which all were told is when the last work was over that nobody has stopped."""
    command = ["sh", "-c", '"$0" -c "$1" "$2"; true', sys.executable, UNDONE, str(tmp_path / "worked")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as shell:
        try:
            assert shell.stdout is not None
            assert shell.stdout.readline() == "ready\n"
            main = descendants(shell.pid)[0]
            for _ in range(5):
                stopped = suspend.stop(shell.pid, [main])
                left = tmp_path / "worked"
                if left.exists():
                    assert struct.unpack("d", left.read_bytes())[0] <= stopped.told_s + ON_ITS_WAY_S
                    left.unlink()
                suspend.resume(stopped.pids)
        finally:
            os.killpg(shell.pid, signal.SIGKILL)


WOKEN = """
import ctypes, os, signal, sys, threading, time
libc = ctypes.CDLL(None)
class Event(ctypes.Structure):
    _fields_ = [("value", ctypes.c_long), ("signo", ctypes.c_int), ("notify", ctypes.c_int), ("pad", ctypes.c_long * 6)]
timer, event = ctypes.c_void_p(), Event(signo=signal.SIGCONT)
CLOCK_MONOTONIC = 1
assert libc.timer_create(CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)) == 0
when = (ctypes.c_long * 4)(0, 0, 0, int(float(sys.argv[1]) * 1e9))
assert libc.timer_settime(timer, 0, ctypes.byref(when), None) == 0
if sys.argv[2] == "once":
    signal.signal(signal.SIGCONT, lambda *_: signal.raise_signal(signal.SIGSTOP))
if sys.argv[2] == "to its end":
    signal.signal(signal.SIGCONT, lambda *_: os._exit(0))
print("ready", flush=True)
while True:
    if sys.argv[2] != "again and again":
        signal.pause()
"""


@pytest.mark.parametrize("how", ["again and again", "once", "to its end"])
def test_who_is_woken_by_the_kernel_has_moved(how: str) -> None:
    """Whether it still runs when it is looked at, stands again, or is gone."""
    for later_s in (0.7, 5.0, 25.0):
        command = ["sh", "-c", '"$0" -c "$1" "$2" "$3"; true', sys.executable, WOKEN, str(later_s), how]
        begin_s = time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as shell:
            try:
                assert shell.stdout is not None
                assert shell.stdout.readline() == "ready\n"
                everything = suspend.Below(shell.pid)
                everything.stop()
                stood = not everything.moved()
                if time.monotonic() - begin_s > later_s:
                    continue  # on a busy machine it may have been woken before
                assert stood
                deadline = time.monotonic() + WAIT_S
                while not everything.moved() and time.monotonic() < deadline:
                    time.sleep(0.05)
                assert everything.moved()
                return
            finally:
                os.killpg(shell.pid, signal.SIGKILL)
    pytest.fail("the machine is too busy to stop a process in seconds")


def test_what_stands_still_has_not_moved(root: int) -> None:
    everything = suspend.Below(root)
    assert not everything.moved()
    for _ in range(20):
        everything.stop()
        assert not everything.moved()
        time.sleep(0.01)
        assert not everything.moved()
        everything.go_on()


@pytest.mark.parametrize("seen", ["short of one", "one too many"])
def test_threads_that_come_and_go_while_they_are_looked_at_have_not_moved(
    root: int, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, spoilt = suspend._threads, False

    def once_as_it_was(pids: Sequence[int]) -> dict[int, dict[int, suspend._Thread]]:
        """Spoils the first look at which all stand."""
        nonlocal spoilt
        found = look(pids)
        threads = next((threads for threads in found.values() if len(threads) == 2), {})
        if not spoilt and threads and not any(map(suspend._any_runs, found.values())):
            spoilt = True
            if seen == "short of one":
                threads.popitem()
            else:
                threads[max(threads) + 2**22] = next(iter(threads.values()))
        return found

    everything = suspend.Below(root)
    monkeypatch.setattr(suspend, "_threads", once_as_it_was)
    everything.stop()
    assert spoilt
    assert not everything.moved()


def held(state: str, *, exiting: bool = False, arrivals: int = 5, ran_ns: int = 10**9) -> suspend._Thread:
    return suspend._Thread(state, exiting, arrivals, ran_ns)


@pytest.mark.parametrize(
    ("before", "now", "ran"),
    [
        (held("T"), held("T"), False),
        (held("T"), held("S"), True),
        (held("T"), held("R", exiting=True), True),
        (held("T"), None, True),
        (held("T"), held("T", arrivals=6, ran_ns=10**9 + 10_000), False),
        (held("T"), held("T", arrivals=6, ran_ns=10**9 + 10_000_000), True),
        (None, held("T"), True),
        (None, held("Z"), False),
        (held("D"), held("D", arrivals=90), False),
        (held("D"), held("R", arrivals=90), None),
        (held("D"), held("T", arrivals=90), False),
        (held("R", exiting=True), None, False),
        (held("Z"), None, False),
    ],
)
def test_what_two_looks_at_a_thread_say(before: suspend._Thread | None, now: suspend._Thread | None, ran: bool) -> None:
    """One in a call that can't be interrupted stops behind it, for which it runs; one that stood can't have ended."""
    assert suspend._has_run(before, now) is ran


def test_who_is_on_the_way_out_of_a_call_is_waited_for(root: int, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = suspend.Below(root)
    everything.stop()
    looks = iter([None, None, False])
    monkeypatch.setattr(suspend, "_any_has_run", lambda before, root: next(looks))
    assert not everything.moved()
    assert next(looks, "none left") == "none left"
    monkeypatch.setattr(suspend, "_any_has_run", lambda before, root: None)
    monkeypatch.setattr(suspend, "STOP_TIMEOUT_S", 0.01)
    with monkeypatch.context() as patch:
        patch.setattr(suspend, "STARVED_S", 0.02)
        with pytest.raises(suspend.StopError) as raised:
            everything.moved()
        assert raised.value.starved
    for pid in descendants(root):
        os.kill(pid, signal.SIGCONT)
    assert everything.moved()


def test_the_id_of_what_was_ending_may_be_anothers_by_now(root: int) -> None:
    everything = suspend.Below(root)
    everything.stop()
    assert everything._still is not None
    own = os.getpid()
    was_ending = {own: {own: held("Z")}}
    everything._still = replace(everything._still, threads={**everything._still.threads, **was_ending})
    with ThreadPoolExecutor(1) as threads:
        threads.submit(int).result()
        assert not everything.moved()
