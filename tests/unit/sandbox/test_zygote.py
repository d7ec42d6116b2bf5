"""The zygote: many children at once from many threads, ends that are always reported, and deaths at bad moments."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from harness.protocol.channel import ChannelClosed, FrameMalformed, FrameTimeout, FrameTooLarge, WireError
from harness.sandbox import SandboxPolicy, probe, suspend
from harness.sandbox.limits import descendants
from harness.sandbox.zygote import Child, Zygote, ZygoteError
from tests.support.paths import ROOT, SUPPORT

TARGETS = SUPPORT / "sandboxed"
POLICY = SandboxPolicy(readable=(TARGETS,))
WAIT_S = 60.0

MACHINE = probe()
needs_network = pytest.mark.skipif(
    MACHINE.strength != "full", reason=f"this machine can't build every wall: {MACHINE.weakness()}"
)


@pytest.fixture
def zygote() -> Iterator[Zygote]:
    with Zygote(env={"PYTHONPATH": str(TARGETS)}) as started:
        yield started


def is_alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def dies(pid: int) -> bool:
    deadline = time.monotonic() + WAIT_S
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_alive(pid)


def gone(pipe: int) -> bool:
    """Whether nobody holds the writing end any more, within the usual wait."""
    while select.select([pipe], [], [], WAIT_S)[0]:
        if not os.read(pipe, 65536):
            return True
    return False


class Heartbeat:
    """A child whose daemon writes into a pipe as long as it lives."""

    def __init__(self, zygote: Zygote, log: Path) -> None:
        self.reading, writing = os.pipe()
        waiting, self.release = os.pipe()
        self.child = zygote.spawn("attacks:daemon", POLICY, log, fds=(writing, waiting))
        os.close(writing)
        os.close(waiting)
        assert os.read(self.reading, 1) == b"."

    def close(self) -> None:
        os.close(self.reading)
        os.close(self.release)
        self.child.channel.close()


def test_a_child_talks_and_gets_its_descriptors(zygote: Zygote, tmp_path: Path) -> None:
    pipes = [os.pipe() for _ in range(3)]
    for index, (_, writing) in enumerate(pipes):
        os.write(writing, f"text {index}".encode())
    reading = [reading for reading, _ in pipes]
    with zygote.spawn("honest:echo", POLICY, tmp_path / "log", fds=reading) as child:
        child.channel.send({"number": 1})
        answer = child.channel.receive(WAIT_S).message
        report = child.wait(WAIT_S)
    assert answer == {"got": {"number": 1}, "read": ["text 0", "text 1", "text 2"]}
    assert report is not None
    assert (report.cause, report.exit_code, report.signal) == ("exited", 0, None)
    assert report.wall_s > 0
    for pair in pipes:
        for fd in pair:
            os.close(fd)


def test_torch_is_there_without_being_imported_again(tmp_path: Path) -> None:
    with Zygote(["torch"], env={"PYTHONPATH": str(TARGETS)}) as own:
        own.wait_ready()
        assert own.threads == 1
        with own.spawn("honest:use_torch", POLICY, tmp_path / "log") as child:
            assert child.channel.receive(WAIT_S).message == {
                "sum": 300.0**3,
                "shared": True,
                "preloaded": True,
            }


def test_process_ids_are_the_owners(zygote: Zygote, tmp_path: Path) -> None:
    with zygote.spawn("honest:sleep", POLICY, tmp_path / "log") as child:
        child.channel.receive(WAIT_S)
        target = child.target_pid()
        assert child.pid is not None
        assert target is not None
        assert is_alive(child.pid)
        assert is_alive(target)
        child.kill()
        assert not is_alive(child.pid)
        assert not is_alive(target)
        assert child.target_pid() is None


def test_twenty_children_at_once_from_eight_threads(zygote: Zygote, tmp_path: Path) -> None:
    def one(index: int) -> tuple[int, str]:
        with zygote.spawn("honest:echo", POLICY, tmp_path / f"log{index}") as child:
            together.wait(WAIT_S)
            child.channel.send({"index": index})
            answer = child.channel.receive(WAIT_S).message["got"]["index"]
            report = child.wait(WAIT_S)
            assert report is not None
            return answer, report.cause

    together = threading.Barrier(20)
    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(one, range(20))) == [(index, "exited") for index in range(20)]


def test_killing_one_leaves_its_neighbours(zygote: Zygote, tmp_path: Path) -> None:
    children = [zygote.spawn("honest:sleep", POLICY, tmp_path / "log") for _ in range(6)]
    with ThreadPoolExecutor(3) as pool:
        killed = list(pool.map(Child.kill, children[::2]))
    assert [report.cause for report in killed] == ["killed"] * 3
    assert all(child.wait(0) is None for child in children[1::2])
    for child in children:
        child.close()


def receive_all(child: Child) -> None:
    while True:
        child.channel.receive(WAIT_S)


def test_a_child_that_lies_on_the_wire_harms_its_own_channel_only(zygote: Zygote, tmp_path: Path) -> None:
    with zygote.spawn("attacks:scribble", POLICY, tmp_path / "log") as child:
        with pytest.raises((FrameMalformed, FrameTooLarge)):
            receive_all(child)
        report = child.wait(WAIT_S)
    assert report is not None
    assert report.cause == "exited"
    assert zygote.alive


def test_a_closed_channel_is_seen(zygote: Zygote, tmp_path: Path) -> None:
    with zygote.spawn("attacks:close_channel", POLICY, tmp_path / "log") as child, pytest.raises(ChannelClosed):
        child.channel.receive(WAIT_S)


@pytest.mark.parametrize("victim", ["the process started", "the one that forks"])
def test_a_killed_zygote_takes_its_children_along(zygote: Zygote, tmp_path: Path, victim: str) -> None:
    beat = Heartbeat(zygote, tmp_path / "log")
    server = parent_of(beat.child.pid)
    os.kill(zygote.pid if victim == "the process started" else server, signal.SIGKILL)
    report = beat.child.wait(WAIT_S)
    assert report is not None
    assert report.cause == "lost"
    assert gone(beat.reading)
    assert dies(server)
    assert not zygote.alive
    with pytest.raises(WireError):
        beat.child.channel.receive(WAIT_S)
    with pytest.raises(ZygoteError, match="died"):
        zygote.spawn("honest:sleep", POLICY, tmp_path / "log")
    assert beat.child.kill().cause == "lost"
    beat.close()
    zygote.restart()
    with zygote.spawn("honest:echo", POLICY, tmp_path / "log") as child:
        child.channel.send({})
        assert child.channel.receive(WAIT_S).message["got"] == {}


def parent_of(pid: int | None) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_zygote_killed_while_it_starts_children_is_an_error_not_a_hang(zygote: Zygote, tmp_path: Path) -> None:
    zygote.wait_ready()

    def keep_spawning() -> str:
        while True:
            try:
                children.append(zygote.spawn("honest:sleep", POLICY, tmp_path / "log"))
            except ZygoteError as error:
                return str(error)

    children: list[Child] = []

    with ThreadPoolExecutor(4) as pool:
        spawning = [pool.submit(keep_spawning) for _ in range(4)]
        time.sleep(0.1)
        os.kill(zygote.pid, signal.SIGKILL)
        for one in spawning:
            assert "zygote" in one.result(WAIT_S)
    for child in children:
        assert child.kill().cause == "lost"
        child.channel.close()


def test_a_stopped_zygote_does_not_stop_its_owner_from_closing(tmp_path: Path) -> None:
    own = Zygote(env={"PYTHONPATH": str(TARGETS)})
    beat = Heartbeat(own, tmp_path / "log")
    os.kill(parent_of(beat.child.pid), signal.SIGSTOP)
    own.close()
    assert gone(beat.reading)
    beat.close()


def test_restart_ends_what_ran(zygote: Zygote, tmp_path: Path) -> None:
    beat = Heartbeat(zygote, tmp_path / "log")
    zygote.restart()
    assert gone(beat.reading)
    assert beat.child.kill().cause == "lost"
    beat.close()
    assert zygote.alive


def test_nothing_survives_its_owner(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    waiting, release = os.pipe()
    command = [sys.executable, str(TARGETS / "doomed.py"), str(writing), str(waiting), str(tmp_path / "log")]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, pass_fds=(writing, waiting)
    ) as owner:
        os.close(writing)
        os.close(waiting)
        assert owner.stdout is not None
        pids = [int(word) for word in owner.stdout.readline().split()]
        assert len(pids) == 2
        assert all(is_alive(pid) for pid in pids)
        owner.kill()
    assert gone(reading)
    assert all(dies(pid) for pid in pids)
    os.close(reading)
    os.close(release)


def test_a_zygote_outlives_the_thread_that_made_it(tmp_path: Path) -> None:
    made: list[Zygote] = []
    thread = threading.Thread(target=lambda: made.append(Zygote(env={"PYTHONPATH": str(TARGETS)})))
    thread.start()
    thread.join()
    with made[0] as own, own.spawn("honest:echo", POLICY, tmp_path / "log") as child:
        child.channel.send({})
        assert child.channel.receive(WAIT_S).message["got"] == {}


@needs_network
def test_a_tool_around_the_zygote_is_reached_and_the_machine_is_not(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ports = {"tool": 4242, "machine": server.getsockname()[1]}
        wrapper = (sys.executable, str(TARGETS / "tool.py"), str(ports["tool"]))
        with Zygote(env={"PYTHONPATH": str(TARGETS)}, wrapper=wrapper, enclosed=True) as own:
            shared = SandboxPolicy(readable=(TARGETS,), under_tool=True)
            with own.spawn("attacks:call_tool", shared, tmp_path / "log") as child:
                assert child.report.strength == "full"
                child.channel.send(ports)
                outcome = child.channel.receive(WAIT_S).message["outcome"]
            with own.spawn("attacks:call_tool", POLICY, tmp_path / "log") as child:
                child.channel.send(ports)
                walled = child.channel.receive(WAIT_S).message["outcome"]
    assert outcome == {"tool": "the tool", "machine": "ECONNREFUSED"}
    assert walled == {"tool": "EAFNOSUPPORT", "machine": "EAFNOSUPPORT"}


@needs_network
@pytest.mark.parametrize("target", ["hog_sockets", "hog_tcp"])
def test_buffers_of_sockets_count_beside_a_tool_too(tmp_path: Path, target: str) -> None:
    wrapper = (sys.executable, str(TARGETS / "tool.py"), "4242")
    with Zygote(env={"PYTHONPATH": str(TARGETS)}, wrapper=wrapper, enclosed=True) as own:
        shared = SandboxPolicy(readable=(TARGETS,), under_tool=True, max_memory_bytes=160 * 2**20)
        with own.spawn(f"attacks:{target}", shared, tmp_path / "log") as child:
            child.channel.receive(WAIT_S)
            report = child.wait(WAIT_S)
    assert report is not None
    assert report.cause == "memory_limit"


def test_sharing_the_machines_network_is_not_full_strength(zygote: Zygote, tmp_path: Path) -> None:
    shared = SandboxPolicy(readable=(TARGETS,), under_tool=True)
    with zygote.spawn("honest:sleep", shared, tmp_path / "log") as child:
        assert child.report.strength != "full"
        assert "network" in child.report.missing["network_namespace"]


def test_a_preload_that_fails_says_what(tmp_path: Path) -> None:
    with Zygote(["no_such_module_anywhere"]) as own:
        with pytest.raises(ZygoteError, match="No module named 'no_such_module_anywhere'"):
            own.wait_ready()
        with pytest.raises(ZygoteError, match="no_such_module_anywhere"):
            own.spawn("honest:echo", POLICY, tmp_path / "log")


def test_threads_of_a_preload_are_counted() -> None:
    with Zygote(["threaded"], env={"PYTHONPATH": str(TARGETS)}) as own:
        own.wait_ready()
        assert own.threads == 2


def test_what_knows_a_fork_by_its_process_id_notices_each(tmp_path: Path) -> None:
    with Zygote(["numbered"], env={"PYTHONPATH": str(TARGETS)}) as own:
        for _ in range(2):
            with own.spawn("numbered:count", POLICY, tmp_path / "log") as child:
                told = child.channel.receive(WAIT_S).message
            assert told["forks"] >= 1
            assert told["noticed"] == told["forks"]


@pytest.mark.parametrize("target", ["honest", "honest:", ":echo", "honest:not a name"])
def test_a_target_is_a_module_and_a_function(zygote: Zygote, tmp_path: Path, target: str) -> None:
    with pytest.raises(ValueError, match="target"):
        zygote.spawn(target, POLICY, tmp_path / "log")


def test_a_log_that_cannot_be_opened_is_the_callers_error(zygote: Zygote, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        zygote.spawn("honest:echo", POLICY, tmp_path / "nowhere" / "log")


def test_descriptors_and_processes_do_not_pile_up(zygote: Zygote, tmp_path: Path) -> None:
    def held() -> int:
        return len(os.listdir("/proc/self/fd")) + len(os.listdir(f"/proc/{server}/fd"))

    with zygote.spawn("honest:sleep", POLICY, tmp_path / "log") as child:
        server = parent_of(child.pid)
    before = held()
    for _ in range(10):
        with zygote.spawn("honest:sleep", POLICY, tmp_path / "log"):
            pass
    deadline = time.monotonic() + WAIT_S
    while held() != before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert held() == before
    assert Path(f"/proc/{server}/task/{server}/children").read_text() == ""


def test_closing_twice_is_fine() -> None:
    own = Zygote()
    own.close()
    own.close()
    assert not own.alive


def test_all_children_can_be_held_still_those_to_come_too(zygote: Zygote, tmp_path: Path) -> None:
    """What was paused stays so after the release."""
    talking, paused = (zygote.spawn("honest:echo", POLICY, tmp_path / "log") for _ in range(2))
    paused.pause()
    zygote.hold()
    zygote.hold()
    later = zygote.spawn("honest:echo", POLICY, tmp_path / "log")
    for child in (talking, paused, later):
        child.channel.send({"n": 1})
    talking.pause()
    talking.resume()  # takes effect with the release
    for child in (talking, paused, later):
        with pytest.raises(FrameTimeout):
            child.channel.receive(0.2)
    zygote.release()
    for child in (talking, later):
        assert child.channel.receive(WAIT_S).message["got"] == {"n": 1}
    with pytest.raises(FrameTimeout):
        paused.channel.receive(0.2)
    paused.resume()
    assert paused.channel.receive(WAIT_S).message["got"] == {"n": 1}
    for child in (talking, paused, later):
        child.close()


def test_what_runs_away_is_caught_or_ended(zygote: Zygote, tmp_path: Path) -> None:
    """After a hold nothing of a sandbox gets a processor, also where each process ends as soon as it has a child."""
    away = zygote.spawn("attacks:run_away", POLICY, tmp_path / "log")
    beside = zygote.spawn("honest:echo", POLICY, tmp_path / "log")
    assert away.channel.receive(WAIT_S).message == {"ready": True}
    zygote.hold()
    if away.ran_away:
        assert away.wait(WAIT_S) is not None
    else:
        assert away.pid is not None
        held = states_below(away.pid)
        assert set(held.values()) == {"T"}
        time.sleep(0.3)
        assert states_below(away.pid) == held
    beside.channel.send({"n": 1})
    with pytest.raises(FrameTimeout):
        beside.channel.receive(0.2)
    zygote.release()
    assert beside.channel.receive(WAIT_S).message["got"] == {"n": 1}
    away.close()
    beside.close()


@contextmanager
def busy(zygote: Zygote, target: str, log: Path, count: int = 1) -> Iterator[list[int]]:
    """The supervisors of so many children that are at it."""
    children = [zygote.spawn(f"busy:{target}", POLICY, log) for _ in range(count)]
    try:
        assert [child.channel.receive(WAIT_S).message for child in children] == [{"ready": True}] * count
        yield [child.pid for child in children if child.pid is not None]
    finally:
        for child in children:
            child.close()


def test_all_are_told_to_stop_before_any_is_waited_for(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is in a call that no stop interrupts: those that are waited for later must not begin another meanwhile."""
    stop, first = suspend.stop, threading.Event()
    with busy(zygote, "in_long_calls", tmp_path / "log", 3) as supervisors:

        def stop_alone(root: int, known: Sequence[int] = ()) -> suspend.Stopped:
            if not first.is_set():
                first.set()
                assert stand(supervisors)
            return stop(root, known)

        monkeypatch.setattr(suspend, "stop", stop_alone)
        zygote.hold()
        assert first.is_set()
        assert all(set(states_below(pid).values()) == {"T"} for pid in supervisors)
        zygote.release()
        assert all(goes_on(pid) for pid in supervisors)


def test_what_is_announced_stops_by_itself_and_is_undone_by_a_release(zygote: Zygote, tmp_path: Path) -> None:
    with busy(zygote, "in_long_calls", tmp_path / "log", 2) as supervisors:
        zygote.announce()
        zygote.announce()
        assert stand(supervisors)
        zygote.release()
        assert all(goes_on(pid) for pid in supervisors)
        zygote.announce()
        zygote.hold()
        assert all(set(states_below(pid).values()) == {"T"} for pid in supervisors)
        zygote.release()
        assert all(goes_on(pid) for pid in supervisors)


def test_an_announcement_spares_nobody_who_would_go_on_or_is_to_come(zygote: Zygote, tmp_path: Path) -> None:
    """As a hold does: what its owner lets go on waits for the release, and what was paused before stays so."""
    asked, paused = (zygote.spawn("honest:echo", POLICY, tmp_path / "log") for _ in range(2))
    asked.pause()
    paused.pause()
    zygote.announce()
    later = zygote.spawn("honest:echo", POLICY, tmp_path / "log")
    asked.resume()
    for child in (asked, paused, later):
        child.channel.send({"n": 1})
        with pytest.raises(FrameTimeout):
            child.channel.receive(0.2)
    zygote.release()
    for child in (asked, later):
        assert child.channel.receive(WAIT_S).message["got"] == {"n": 1}
    with pytest.raises(FrameTimeout):
        paused.channel.receive(0.2)
    for child in (asked, paused, later):
        child.close()


def test_an_announcement_waits_for_nobody_who_stops_a_child(zygote: Zygote, tmp_path: Path) -> None:
    """What it could not tell then is held all the same, and let go on."""
    with busy(zygote, "in_long_calls", tmp_path / "log") as (supervisor,):
        taken, over = threading.Event(), threading.Event()

        def stop_somebody() -> None:
            with zygote._life.stopping:
                taken.set()
                assert over.wait(WAIT_S)

        stopping = threading.Thread(target=stop_somebody)
        stopping.start()
        assert taken.wait(WAIT_S)
        zygote.announce()
        later = ThreadPoolExecutor(1).submit(zygote.spawn, "honest:echo", POLICY, tmp_path / "log")
        over.set()
        stopping.join()
        child = later.result(WAIT_S)
        child.channel.send({"n": 1})
        with pytest.raises(FrameTimeout):
            child.channel.receive(0.2)
        zygote.hold()
        assert set(states_below(supervisor).values()) == {"T"}
        zygote.release()
        assert goes_on(supervisor)
        assert child.channel.receive(WAIT_S).message["got"] == {"n": 1}
        child.close()


@pytest.mark.parametrize("target", ["busy:forks", "attacks:run_away"])
def test_what_forks_while_it_is_told_is_stopped_whole_and_goes_on_whole(
    zygote: Zygote, tmp_path: Path, target: str
) -> None:
    with zygote.spawn(target, POLICY, tmp_path / "log") as child:
        assert child.channel.receive(WAIT_S).message == {"ready": True}
        assert child.pid is not None
        for _ in range(20):
            zygote.announce()
            zygote.release()
            assert goes_on(child.pid)
        assert not any(state == "T" for state in states_below(child.pid).values())
        zygote.announce()
        zygote.hold()
        if not child.ran_away:
            assert stand([child.pid]), "a process inside the kernel (D) stops at the end of its call"
            held = states_below(child.pid)
            time.sleep(0.3)
            assert states_below(child.pid) == held


def stand(supervisors: Sequence[int]) -> bool:
    """Whether all that is below them comes to stand still."""
    deadline = time.monotonic() + WAIT_S
    while not (still := all(set(states_below(pid).values()) == {"T"} for pid in supervisors)):
        if time.monotonic() > deadline:
            break
        time.sleep(0.005)
    return still


def goes_on(supervisor: int) -> bool:
    """Whether nothing below it stands still, or comes to do so."""
    deadline = time.monotonic() + WAIT_S
    while "T" in states_below(supervisor).values() and time.monotonic() < deadline:
        time.sleep(0.005)
    return "T" not in states_below(supervisor).values()


def states_below(root: int) -> dict[int, str]:
    """The processes of a sandbox and their states, less those that have ended."""
    found = {}
    for pid in descendants(root):
        with suppress(OSError):
            found[pid] = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return {pid: state for pid, state in found.items() if state not in "ZX"}
