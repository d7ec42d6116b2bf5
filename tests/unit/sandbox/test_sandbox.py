"""The walls: what attack programs get from inside a real sandbox, and what honest ones still can do."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.core.choices import DeviceKind
from harness.devices.device import open_device
from harness.devices.nvml import GpuMonitor
from harness.protocol.channel import FrameMalformed
from harness.sandbox import ExitReport, SandboxPolicy, SandboxUnavailable, cleanup, limits, mounts, probe, seccomp
from harness.sandbox.cgroup import CgroupUnavailable, ChildCgroup, find_base
from harness.sandbox.environment import inside, only_visible, scrub
from harness.sandbox.filesystem import arrange, give_folders
from harness.sandbox.policy import Findings
from harness.sandbox.supervisor import BoundedLog
from harness.sandbox.zygote import Child, Zygote, ZygoteError
from tests.support.paths import ROOT, SUPPORT

TARGETS = SUPPORT / "sandboxed"
MIB = 2**20
WAIT_S = 60.0

MACHINE = probe()
full = pytest.mark.skipif(
    MACHINE.strength != "full", reason=f"this machine can't build every wall: {MACHINE.weakness()}"
)


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote(env={"PYTHONPATH": str(TARGETS)}) as started:
        yield started


def policy(**changes: Any) -> SandboxPolicy:
    changes["readable"] = (TARGETS, *changes.get("readable", ()))
    return SandboxPolicy(**changes)


def ask(child: Child, message: dict[str, Any] | None = None) -> dict[str, Any]:
    """Send `message` if there is one, and return the first answer."""
    if message is not None:
        child.channel.send(message)
    return child.channel.receive(WAIT_S).message


def end(child: Child) -> ExitReport:
    report = child.wait(WAIT_S)
    assert report is not None, "the child did not end"
    return report


class Run:
    """One child, started, asked and ended."""

    def __init__(self, zygote: Zygote, tmp_path: Path) -> None:
        self.zygote = zygote
        self.log = tmp_path / "log.txt"

    def __call__(self, target: str, message: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
        with self.zygote.spawn(target, policy(**changes), self.log) as child:
            return ask(child, message)


@pytest.fixture
def run(zygote: Zygote, tmp_path: Path) -> Run:
    return Run(zygote, tmp_path)


# What a child sees


@full
def test_a_child_is_nobody_in_an_empty_place(zygote: Zygote, run: Run) -> None:
    seen = run("honest:look")
    assert seen["uid"] != 0
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(seen["status"][kind], 16) == 0
    assert seen["status"]["NoNewPrivs"] == "1"
    assert seen["status"]["Seccomp"] == "2"
    assert seen["cwd"] == seen["home"]
    assert seen["in_cwd"] == []
    assert seen["tmp"] == "/tmp"
    assert seen["host_name"] == "sandbox"
    assert seen["processes"] == [1, 2]
    assert seen["interfaces"] == ["lo"]
    assert set(seen["dev"]) <= {
        *("fd", "stdin", "stdout", "stderr", "null", "zero", "full", "random", "urandom", "shm")
    }


def test_a_child_holds_its_own_descriptors_and_callers_only(zygote: Zygote, run: Run) -> None:
    seen = run("honest:look")
    # One more, for the listing itself.
    assert len(set(seen["descriptors"]) - {0, 1, 2, seen["channel"]}) == 1
    assert seen["stdin"] == ""
    assert seen["callers"] == ["_run", "_main", "<module>", "_run_code", "_run_module_as_main"]


def test_secrets_of_the_owner_do_not_reach_the_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_TOKEN", "s3cret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with (
        Zygote(env={"PYTHONPATH": str(TARGETS)}) as own,
        own.spawn("honest:look", policy(env={"EXTRA": "1"}), tmp_path / "log") as child,
    ):
        environment = ask(child)["environment"]
    assert "SOME_API_TOKEN" not in environment
    assert environment["CUDA_VISIBLE_DEVICES"] == "0"
    assert environment["EXTRA"] == "1"


@full
def test_the_checkout_is_not_there(run: Run, tmp_path: Path) -> None:
    home = os.path.expanduser("~")
    hidden = [*(ROOT / name for name in ("problems", "solutions", "results", ".git", "pyproject.toml")), tmp_path]
    paths = [str(path) for path in (ROOT, ROOT / "harness", TARGETS.parent, *hidden, "/var", "/mnt", "/srv", home)]
    seen = run("honest:see", {"paths": [*paths, "/etc/shadow", "/home", "/proc/1/environ"]})["seen"]
    assert set(seen[str(ROOT)]) <= {"harness", "tests", ".venv"}
    assert "sandbox" in seen[str(ROOT / "harness")]
    assert seen[str(TARGETS.parent)] == ["sandboxed"]
    for path in (*hidden, "/var", "/mnt", "/srv", "/etc/shadow", "/proc/1/environ"):
        assert seen[str(path)] is None, path
    assert seen["/home"] == ["sandbox"]
    # Of the home, at most the way to a Python that lives in it.
    assert set(seen[home] or ()) <= {part for part in Path(sys.base_prefix).parts if part.startswith(".")}


@full
def test_a_module_of_a_project_that_is_gone_takes_no_wall_down(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name in ("gone.py", "stays.py"):
        (project / name).write_text("pass")
    with Zygote(env={"PYTHONPATH": os.pathsep.join(map(str, (TARGETS, project)))}) as own:
        own.wait_ready()
        (project / "gone.py").unlink()
        with own.spawn("honest:see", policy(), tmp_path / "log") as child:
            assert child.report.strength == "full", child.report
            assert ask(child, {"paths": [str(project)]})["seen"] == {str(project): ["stays.py"]}


@full
def test_of_a_project_on_the_search_path_only_what_can_be_imported_is_there(tmp_path: Path) -> None:
    project, installed = tmp_path / "project", tmp_path / "installed"
    for folder in (project / "results", project / "lib", project / "solutions", installed / "torchless-1.0.dist-info"):
        folder.mkdir(parents=True)
    shown = ("lib/__init__.py", "mine.py")
    for file in (*shown, "results/records.jsonl", "solutions/other.py", "16_other.py", "notes.txt"):
        (project / file).write_text("pass")
    (installed / "data.bin").write_text("shown")
    (project / "private.py").write_text("pass")
    (project / "private.py").chmod(0o600)
    places = [*(project / name for name in ("results", "solutions", "notes.txt")), project, project / "lib", installed]
    search = os.pathsep.join(map(str, (TARGETS, project, installed)))
    with (
        Zygote(env={"PYTHONPATH": search}) as own,
        own.spawn("honest:see", policy(), tmp_path / "log") as child,
    ):
        seen = ask(child, {"paths": [str(place) for place in places]})["seen"]
    assert [seen[str(place)] for place in places[:3]] == [None, None, None]
    assert sorted(seen[str(project)]) == ["lib", "mine.py"]
    assert seen[str(project / "lib")] == ["__init__.py"]
    assert sorted(seen[str(installed)]) == ["data.bin", "torchless-1.0.dist-info"]


@full
def test_hidden_paths_are_blank_even_below_readable_ones(run: Run, tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    (shown / "secret").mkdir(parents=True)
    (shown / "secret" / "inner").write_text("hidden")
    (shown / "key").write_text("hidden")
    (shown / "open").write_text("visible")
    (tmp_path / "other").write_text("neighbour")
    paths = [str(shown / name) for name in ("secret", "secret/inner", "key", "open")] + [str(tmp_path / "other")]
    seen = run("honest:see", {"paths": paths}, readable=(shown,), hidden=(shown / "secret", shown / "key"))["seen"]
    assert list(seen.values()) == [None, None, "", "visible", None]


def test_a_policy_that_names_a_missing_path_is_refused(zygote: Zygote, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        zygote.spawn("honest:look", policy(writable=(tmp_path / "nowhere",)), tmp_path / "log")


def test_a_folder_closed_to_other_users_is_refused_with_the_remedy(zygote: Zygote, tmp_path: Path) -> None:
    if "other_user" not in MACHINE.mechanisms:
        pytest.skip("only root's children run as another user")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(ZygoteError, match=r"cannot read .*/closed: run chmod o\+rX on it"):
        zygote.spawn("honest:look", policy(readable=(closed,)), tmp_path / "log")


def test_writable_folders_keep_what_is_written(run: Run, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    (kept / "sub").mkdir(parents=True)
    run("honest:write_files", {"folders": [str(kept), str(kept / "sub")]}, writable=(kept,))
    assert (kept / "made inside").read_text() == "by the child"
    assert (kept / "sub" / "made inside").read_text() == "by the child"
    shutil.rmtree(kept)


@full
def test_a_file_with_a_second_name_outside_stays_its_owners(run: Run, tmp_path: Path) -> None:
    cached = tmp_path / "cached.so"
    cached.write_text("cached")
    given = tmp_path / "given"
    given.mkdir()
    os.link(cached, given / "linked.so")
    (given / "out").symlink_to(tmp_path / "cached.so")
    outcome = run(
        "attacks:write_everywhere", {"paths": [str(given / "linked.so"), str(given / "out")]}, writable=(given,)
    )
    if os.geteuid() == 0:
        assert outcome["outcome"][str(given / "linked.so")] != "ok"
    assert outcome["outcome"][str(given / "out")] != "ok"
    assert cached.read_text() == "cached"
    assert cached.stat().st_uid == os.geteuid()


def test_honest_work_is_not_disturbed(run: Run) -> None:
    done = run("honest:compile_and_load")
    assert done["answer"] == 42
    assert re.match(r"\d+\.", done["ninja"])


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_the_cuda_compiler_works_inside(run: Run) -> None:
    done = run("honest:nvcc_version")
    assert done["returncode"] == 0, done["said"]


@pytest.mark.parametrize("kind", [DeviceKind.HOST, pytest.param(DeviceKind.CUDA, marks=pytest.mark.gpu)])
def test_memory_given_by_descriptor_is_shared(kind: DeviceKind, tmp_path: Path) -> None:
    """What the referee does with inputs and outputs, across every wall."""
    preload = ["torch", "harness.devices.device", *(["cuda.bindings.driver"] if kind is DeviceKind.CUDA else [])]
    arena = open_device(kind).allocate(2**20)
    mine = arena.tensor(0, (1000,), torch.float32)
    mine.fill_(3.0)
    with Zygote(preload, env={"PYTHONPATH": str(TARGETS), "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}) as own:
        given = policy(gpu=kind is DeviceKind.CUDA)
        with own.spawn("honest:double_shared", given, tmp_path / "log", fds=(arena.fd,)) as child:
            answer = ask(child, {"kind": kind.value, "nbytes": arena.nbytes})
            end(child)
    assert answer == {"was": pytest.approx(3.0, rel=1e-6)}
    assert mine.mean().item() == pytest.approx(6.0, rel=1e-6)
    arena.close()


@pytest.mark.gpu
def test_the_gpu_works_behind_every_wall(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(TARGETS), "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    with Zygote(["torch"], env=environment) as own:
        with own.spawn("honest:use_gpu", policy(gpu=True), tmp_path / "log") as child:
            seen = ask(child)
            assert child.report.strength == "full", child.report.weakness()
            assert end(child).cause == "exited"
        with own.spawn("honest:use_gpu", policy(gpu=False), tmp_path / "log") as child:
            assert ask(child)["available"] is False
    assert seen["available"]
    assert seen["sum"] == 300.0**3
    assert seen["pinned"] == 1.0
    assert seen["driver"]
    assert seen["cache"].startswith("/tmp/")
    assert {name for name in seen["dev"] if name.startswith("nvidia")} <= {
        *(f"nvidia{index}" for index in range(16)),
        *("nvidiactl", "nvidia-uvm"),
    }


@pytest.mark.gpu
def test_only_the_gpu_that_it_is_for_has_a_node(tmp_path: Path) -> None:
    """With several GPUs in the machine the others' nodes are not there, and CUDA does without them."""
    device = open_device(DeviceKind.CUDA, torch.cuda.device_count() - 1)
    minor = GpuMonitor(device.uuid).minor()
    assert minor is not None
    environment = {"PYTHONPATH": str(TARGETS), "CUDA_VISIBLE_DEVICES": f"GPU-{device.uuid}"}
    given = policy(gpu=True, gpu_minor=minor)
    with Zygote(["torch"], env=environment) as own, own.spawn("honest:use_gpu", given, tmp_path / "log") as child:
        seen = ask(child)
    assert seen["available"]
    assert seen["sum"] == 300.0**3
    assert {name for name in seen["dev"] if re.fullmatch(r"nvidia\d+", name)} == {f"nvidia{minor}"}


@pytest.mark.gpu
@pytest.mark.exclusive_gpu
@pytest.mark.parametrize("target", ["attacks:spin_gpu", "attacks:hold_gpu_memory"])
def test_a_busy_gpu_is_free_again_after_a_kill(tmp_path: Path, target: str) -> None:
    environment = {"PYTHONPATH": str(TARGETS), "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    with Zygote(["torch"], env=environment) as own:
        with own.spawn(target, policy(gpu=True), tmp_path / "log") as child:
            free = ask(child)["free_bytes"]
            assert child.kill().cause == "killed"
        with own.spawn("honest:use_gpu", policy(gpu=True), tmp_path / "log") as child:
            seen = ask(child)
    assert seen["sum"] == 300.0**3
    assert seen["free_bytes"] > free


# Ends


@pytest.mark.parametrize(
    ("target", "cause", "exit_code", "signal"),
    [
        ("attacks:leave_at_once", "exited", 0, None),
        ("attacks:segfault", "signalled", None, 11),
        ("attacks:abort", "signalled", None, 6),
        ("honest:leave_with_text", "exited", 1, None),
        ("honest:leave_with_code", "exited", 7, None),
        ("honest:fail", "exited", 1, None),
        ("honest:no_such_function", "exited", 1, None),
        ("no_such_module:main", "exited", 1, None),
    ],
)
def test_every_end_is_reported(
    zygote: Zygote, tmp_path: Path, target: str, cause: str, exit_code: int | None, signal: int | None
) -> None:
    child = zygote.spawn(target, policy(), tmp_path / "log")
    report = end(child)
    child.channel.close()
    assert (report.cause, report.exit_code, report.signal) == (cause, exit_code, signal)
    assert not report.log_truncated
    assert child.kill() == report


def test_a_shortage_of_the_whole_machine_is_not_the_childs_limit(tmp_path: Path) -> None:
    with Zygote(["starving"], env={"PYTHONPATH": str(TARGETS)}) as own:
        with own.spawn("starving:die", policy(), tmp_path / "log") as child:
            assert end(child).cause == "machine_memory"
        with own.spawn("honest:use_memory", policy(), tmp_path / "log") as child:
            ask(child, None)
            assert child.kill().cause == "killed"
        with own.spawn("honest:leave_with_code", policy(), tmp_path / "log") as child:
            assert end(child).cause == "exited"
        with own.spawn("attacks:segfault", policy(), tmp_path / "log") as child:
            assert end(child).cause == "signalled"


def test_streams_of_python_and_c_reach_the_log(zygote: Zygote, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("earlier\n")
    for target in ("honest:speak", "honest:fail"):
        with zygote.spawn(target, policy(), log) as child:
            end(child)
    text = log.read_text()
    for line in ("earlier", "python on stdout", "python on stderr", "C on stdout", "RuntimeError: the target raised"):
        assert line in text


@pytest.mark.parametrize("target", ["attacks:spin", "attacks:stop_itself", "attacks:close_channel", "honest:sleep"])
def test_what_does_not_end_is_killed(zygote: Zygote, tmp_path: Path, target: str) -> None:
    child = zygote.spawn(target, policy(), tmp_path / "log")
    assert child.wait(0.2) is None
    report = child.kill()
    child.channel.close()
    assert report.cause == "killed"
    assert report.exit_code is None


def gone(pipe: int) -> bool:
    """Whether nobody holds the writing end any more, within the usual wait."""
    while select.select([pipe], [], [], WAIT_S)[0]:
        if not os.read(pipe, 65536):
            return True
    return False


@pytest.mark.parametrize("how", ["leaves", "is killed"])
def test_no_daemon_outlives_its_child(zygote: Zygote, tmp_path: Path, how: str) -> None:
    reading, writing = os.pipe()
    wait_read, wait_write = os.pipe()
    child = zygote.spawn("attacks:daemon", policy(), tmp_path / "log", fds=(writing, wait_read))
    os.close(writing)
    os.close(wait_read)
    assert os.read(reading, 1) == b"."
    if how == "leaves":
        os.close(wait_write)
        assert end(child).cause == "exited"
    else:
        assert child.kill().cause == "killed"
        os.close(wait_write)
    child.channel.close()
    assert gone(reading)
    os.close(reading)


def test_a_fork_bomb_is_bounded(zygote: Zygote, tmp_path: Path) -> None:
    with zygote.spawn("attacks:fork_bomb", policy(max_processes=64), tmp_path / "log") as child:
        answer = ask(child)
        assert answer["refused"] == "EAGAIN"
        assert answer["made"] < 64
        assert child.kill().cause == "killed"


def test_a_runaway_fork_bomb_is_ended(zygote: Zygote, tmp_path: Path) -> None:
    child = zygote.spawn("attacks:runaway_fork_bomb", policy(max_processes=48), tmp_path / "log")
    ask(child)
    child.wait(0.5)
    assert child.kill().cause == "killed"
    child.channel.close()


def test_a_flood_fills_neither_disk_nor_pipe(zygote: Zygote, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with zygote.spawn("attacks:flood", policy(max_log_bytes=MIB), log) as child:
        assert ask(child)["written"] == 1024 * MIB
        report = end(child)
    assert report.log_truncated
    assert MIB <= log.stat().st_size < MIB + 200
    assert log.read_bytes().endswith(b"[log cut after 1048576 bytes]\n")


@full
@pytest.mark.parametrize("target", ["hog_private", "hog_shared", "hog_in_children", "hog_files"])
def test_a_memory_hog_is_ended(zygote: Zygote, tmp_path: Path, target: str) -> None:
    limit = 512 * MIB
    with zygote.spawn(f"attacks:{target}", policy(max_memory_bytes=limit), tmp_path / "log") as child:
        ask(child)
        report = end(child)
    assert report.cause == "memory_limit"
    assert report.peak_memory_bytes is not None
    assert limit * 0.9 < report.peak_memory_bytes < 4 * limit


@full
@pytest.mark.parametrize("target", ["hog_page_tables", "hog_inodes", "hog_sockets"])
def test_who_has_the_kernel_hoard_memory_is_ended(zygote: Zygote, tmp_path: Path, target: str) -> None:
    """What the kernel takes on a process's behalf is resident nowhere."""
    with zygote.spawn(f"attacks:{target}", policy(max_memory_bytes=160 * MIB), tmp_path / "log") as child:
        ask(child)
        assert end(child).cause == "memory_limit"


@full
@pytest.mark.parametrize("target", ["hog_pipes", "hog_behind_an_ended_thread"])
def test_memory_that_no_process_shows_is_counted(zygote: Zygote, tmp_path: Path, target: str) -> None:
    """In pipes beyond the share of a user, and in a process whose first thread has ended."""
    with zygote.spawn(f"attacks:{target}", policy(max_memory_bytes=320 * MIB), tmp_path / "log") as child:
        ask(child)
        assert end(child).cause == "memory_limit"


@full
def test_no_thread_has_descriptors_of_its_own(run: Run) -> None:
    assert run("attacks:threads_of_a_kind")["outcome"] == {"own": "EPERM", "unshared": "EPERM", "usual": "ok"}


def test_huge_pages_and_pipes_count_as_memory() -> None:
    text = (
        b"Name:\tx\nFDSize:\t%d\nVmPTE:\t      40 kB\nRssAnon:\t  100 kB\nRssShmem:\t 20 kB\nHugetlbPages:\t  %d kB\n"
    )
    plain = limits.bytes_in_status(text % (64, 0))
    assert plain == 160 * 1024
    assert limits.bytes_in_status(text % (64, 4096)) == plain + 4 * MIB
    assert limits.bytes_in_status(text % (4096, 0)) == plain + (4096 - 64) * limits.pipe_bytes()
    assert limits.pipe_bytes() >= 8192
    assert limits.bytes_in_status(b"") == 0


def test_a_modest_use_of_memory_is_measured(zygote: Zygote, tmp_path: Path) -> None:
    with zygote.spawn("honest:use_memory", policy(max_memory_bytes=512 * MIB), tmp_path / "log") as child:
        ask(child, None)
        child.channel.send({})
        report = end(child)
    assert report.cause == "exited"
    assert report.peak_memory_bytes is not None
    assert 64 * MIB < report.peak_memory_bytes < 512 * MIB


def test_a_disk_hog_is_ended(zygote: Zygote, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    limited = policy(writable=(folder,), max_disk_bytes=32 * MIB)
    with zygote.spawn("attacks:hog_disk", limited, tmp_path / "log") as child:
        ask(child, {"folder": str(folder)})
        assert end(child).cause == "disk_limit"
    shutil.rmtree(folder)


def test_a_folder_that_the_child_closes_counts_as_full(zygote: Zygote, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with zygote.spawn("attacks:hide_on_disk", policy(writable=(folder,)), tmp_path / "log") as child:
        ask(child, {"folder": str(folder)})
        assert end(child).cause == "disk_limit"
    (folder / "closed").chmod(0o700)


def nest(top: Path, levels: int) -> None:
    """Folders in one another, the innermost of which holds a file; far beyond the longest path there may be."""
    inner = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=inner)
        inner, outer = os.open("d", os.O_RDONLY, dir_fd=inner), inner
        os.close(outer)
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=inner))
    os.close(inner)


def test_folders_in_one_another_without_end_are_removed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("kept")
    folder = tmp_path / "folder"
    folder.mkdir()
    nest(folder, 3000)
    (folder / "link").symlink_to(tmp_path)
    (folder / "full" / "of" / "folders").mkdir(parents=True)
    (folder / "closed").mkdir()
    (folder / "closed" / "inner").mkdir(mode=0o000)
    (folder / "closed").chmod(0o000)
    cleanup.remove(folder)
    assert not folder.exists()
    assert kept.read_text() == "kept"
    cleanup.remove(folder)
    cleanup.remove(kept)
    assert kept.exists(), "no folder"


def test_folders_in_one_another_without_end_count_as_full(tmp_path: Path) -> None:
    """No path leads to what lies in the innermost, so that nobody could add it up."""
    nest(tmp_path, 1500)
    assert limits.folder_bytes([str(tmp_path)], 10**9) < 10**9
    folder = tmp_path / "folder"
    folder.mkdir()
    nest(folder, 3000)
    assert limits.folder_bytes([str(tmp_path)], 10**9) > 10**9
    give_folders(policy(writable=(folder,)), (os.geteuid(), os.getegid()))
    cleanup.remove(tmp_path / "d")
    cleanup.remove(folder)


def test_one_file_is_bounded(run: Run) -> None:
    assert run("attacks:big_file", {"bytes": MIB}, max_file_bytes=MIB)["outcome"] == "EFBIG"
    assert run("attacks:big_file", {"bytes": MIB // 2}, max_file_bytes=MIB)["outcome"] == "ok"


# Attacks on the outside


@full
def test_nothing_outside_can_be_written(run: Run, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    paths = [victim, tmp_path, ROOT, ROOT / "harness", ROOT / "harness" / "wire.py", sys.prefix, TARGETS]
    paths += ["/", "/usr", "/etc", "/etc/passwd", "/etc/ld.so.cache", "/dev", "/proc/sys/kernel/core_pattern", "/sys"]
    paths += [os.path.dirname(os.__file__), os.path.expanduser("~"), "/var/tmp", "/proc/sysrq-trigger"]
    outcome = run("attacks:write_everywhere", {"paths": [str(path) for path in paths]})["outcome"]
    for path, what in outcome.items():
        assert what in ("EROFS", "EACCES", "ENOENT", "EPERM"), path
    assert victim.read_text() == "untouched"
    own = run("attacks:write_everywhere", {"paths": [".", "/tmp", "/dev/shm", "/dev/null"]})["outcome"]
    assert set(own.values()) == {"ok"}


@full
def test_no_network(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = tmp_path / "shown"
    shown.mkdir()
    monkeypatch.chdir(shown)  # a socket's name may have 107 bytes
    name = f"harness-test-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as path,
    ):
        abstract.bind(f"\0{name}")
        abstract.listen()
        path.bind(name)
        path.listen()
        where = {"port": server.getsockname()[1], "abstract": name, "path": str(shown / name)}
        outcome = run("attacks:network", where, readable=(shown,))["outcome"]
    assert outcome.pop("pair") == "ok"
    assert outcome.pop("path") in ("EACCES", "EROFS")
    assert outcome.pop("abstract") in ("ECONNREFUSED", "EPERM")
    assert set(outcome.values()) == {"EAFNOSUPPORT"}


@full
def test_nobody_else_can_be_killed(zygote: Zygote, tmp_path: Path) -> None:
    with (
        subprocess.Popen(["sleep", "600"]) as bystander,
        zygote.spawn("honest:sleep", policy(), tmp_path / "a") as other,
    ):
        pids = [bystander.pid, os.getpid(), zygote.pid, other.pid]
        with zygote.spawn("attacks:kill_others", policy(), tmp_path / "log") as child:
            outcome = ask(child, {"pids": pids})["outcome"]
            end(child)
        assert other.wait(0.1) is None
        assert zygote.alive
        assert bystander.poll() is None
        bystander.kill()
    assert {what for name, what in outcome.items() if name.startswith("outside")} == {"ESRCH"}


def test_garbage_on_every_descriptor_reaches_nobody_but_the_reader(zygote: Zygote, tmp_path: Path) -> None:
    with (
        zygote.spawn("attacks:scribble", policy(), tmp_path / "log") as child,
        zygote.spawn("honest:echo", policy(), tmp_path / "other") as other,
    ):
        report = end(child)
        assert (report.cause, report.exit_code) == ("exited", 0)
        assert ask(other, {"still": "well"})["got"] == {"still": "well"}


@full
def test_the_supervisor_is_out_of_reach(run: Run) -> None:
    outcome = run("attacks:reach_into_init")["outcome"]
    # Where its memory lies may be looked at; nothing may be read or changed.
    assert {name for name, what in outcome.items() if what not in ("EPERM", "EACCES", "ESRCH")} <= {"maps"}


@full
def test_no_power_can_be_gained(run: Run) -> None:
    outcome = run("attacks:gain_power")["outcome"]
    allowed = {name: what for name, what in outcome.items() if what == "ok"}
    assert allowed == {}


@full
def test_every_denied_call_is_denied(run: Run) -> None:
    numbers = system_calls()
    column = seccomp.column()
    for table, error in ((seccomp.DENIED, "EPERM"), (seccomp.ABSENT, "ENOSYS")):
        names = {name: call[column] for name, call in table.items() if call[column] is not None}
        assert not {name: call for name, call in names.items() if numbers.get(name, call) != call}
        outcome = run("attacks:denied_calls", {"numbers": names})["outcome"]
        assert {name: what for name, what in outcome.items() if what != error} == {}


@full
def test_descriptors_send_no_signals_of_ones_choice_and_keep_nobody_waiting(run: Run) -> None:
    outcome = run("attacks:arrange_signals")["outcome"]
    assert outcome == {"signal": "EPERM", "lease": "EPERM", "notice": "EPERM", "flags": "ok", "lock": "ok"}


def system_calls() -> dict[str, int]:
    """This architecture's system calls by the compiler's headers."""
    source = "#include <sys/syscall.h>\n"
    text = subprocess.run(
        ["cpp", "-dM", "-"], input=source, capture_output=True, text=True, check=True, timeout=300
    ).stdout
    found = re.findall(r"#define __NR_(\w+) (\d+)$", text, re.MULTILINE)
    return {name: int(number) for name, number in found}


def test_keeping_the_log_pipe_open_does_not_hold_up_the_end(zygote: Zygote, tmp_path: Path) -> None:
    child = zygote.spawn("attacks:send_descriptors", policy(), tmp_path / "log")
    with pytest.raises(FrameMalformed, match="descriptors"):
        child.channel.receive(WAIT_S)
    child.channel.send({})
    # The channel still holds what came along; the owner's end of a child takes none, so that none can be left behind.
    assert end(child).cause == "exited"
    child.channel.close()


# Modes and strength


def test_strict_is_kept_or_refused(zygote: Zygote, tmp_path: Path) -> None:
    if MACHINE.strength == "full":
        with zygote.spawn("honest:sleep", policy(mode="strict"), tmp_path / "log") as child:
            assert child.report.strength == "full"
            assert child.report.weakness() == ""
    else:
        with pytest.raises(SandboxUnavailable, match="below full strength"):
            zygote.spawn("honest:sleep", policy(mode="strict"), tmp_path / "log")


def test_off_still_ends_everything_and_says_so(zygote: Zygote, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    wait_read, wait_write = os.pipe()
    child = zygote.spawn("attacks:daemon", policy(mode="off"), tmp_path / "log", fds=(writing, wait_read))
    os.close(writing)
    os.close(wait_read)
    assert child.report.strength == "none"
    assert "switched off" in child.report.weakness()
    assert os.read(reading, 1) == b"."
    os.close(wait_write)
    assert end(child).exit_code == 0
    child.channel.close()
    assert gone(reading)
    os.close(reading)


def test_a_machine_that_grants_nothing_gives_a_partial_sandbox_that_says_why(tmp_path: Path) -> None:
    """Root without capabilities: no namespace can be made, the rest must hold and nothing may outlive the child."""
    if os.geteuid() != 0:
        pytest.skip("only root can give its capabilities up")
    seen = elsewhere(["setpriv", "--bounding-set=-all", "--inh-caps=-all"], tmp_path)
    assert seen["strength"] == "partial"
    assert {"seccomp", "no_new_privileges", "limits", "memory_watchdog"} <= set(seen["mechanisms"])
    assert {"mount_namespace", "pid_namespace", "network_namespace", "user_namespace"} <= set(seen["missing"])
    assert seen["strict"].startswith("SandboxUnavailable")
    assert seen["daemon"] == "exited"
    assert seen["killed"] == "killed"
    assert seen["memory"] == "memory_limit"
    assert seen["daemons_left"] == 0
    assert seen["network"]["tcp"] == "EAFNOSUPPORT"
    assert seen["written"] == {str(tmp_path): "EACCES", "/etc": "EACCES", ".": "ok"}


def test_an_ordinary_user_gets_a_full_sandbox(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("this whole file runs as an ordinary user already")
    if MACHINE.strength != "full":
        pytest.skip(f"not even root can build every wall here: {MACHINE.weakness()}")
    if Path("/proc/sys/user/max_user_namespaces").read_text().strip() == "0":
        pytest.skip("user namespaces are switched off on this machine")
    seen = elsewhere(["unshare", "-m", "sh", str(TARGETS / "as_nobody.sh"), sys.base_prefix], tmp_path)
    assert seen["strength"] == "full"
    assert {"user_namespace", "mount_namespace", "pid_namespace"} <= set(seen["mechanisms"])
    assert seen["strict"] == "full"
    assert seen["daemon"] == "exited"
    assert seen["killed"] == "killed"
    assert seen["memory"] == "memory_limit"
    assert seen["daemons_left"] == 0
    assert seen["network"]["tcp"] == "EAFNOSUPPORT"
    assert set(seen["written"].values()) <= {"EACCES", "EROFS", "ENOENT", "ok"}
    assert seen["written"]["."] == "ok"


def elsewhere(prefix: list[str], tmp_path: Path) -> dict[str, Any]:
    """What the owner in `sandboxed/owner.py` reports when started behind `prefix`."""
    # Not below pytest's folder, which the next pytest that starts closes to other users again.
    open_to_all = next(place for place in map(Path, (tempfile.gettempdir(), "/tmp", "/var/tmp")) if may_enter(place))
    with tempfile.TemporaryDirectory(dir=open_to_all) as made:
        folder = Path(made)
        folder.chmod(0o777)
        command = [*prefix, sys.executable, str(TARGETS / "owner.py"), made, str(tmp_path)]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads((folder / "seen.json").read_text())  # type: ignore[no-any-return]


def may_enter(folder: Path) -> bool:
    """Whether other users may."""
    return all(outer.stat().st_mode & 0o001 for outer in (folder, *folder.parents))


def test_probe_tries_the_real_thing() -> None:
    report = probe()
    assert report.strength in ("full", "partial", "none")
    assert {"limits", "memory_watchdog"} <= set(report.mechanisms)
    assert "bubblewrap" not in report.missing, "nothing uses it, so it is not missing"


def test_an_older_kernel_gets_the_same_read_only_root(tmp_path: Path) -> None:
    """Without `mount_setattr` (before Linux 5.12) each mount is remounted by itself."""
    if os.geteuid() != 0:
        pytest.skip("building a root without the rest of the sandbox needs root")
    (tmp_path / "kept").mkdir()
    (tmp_path / "shown").mkdir()
    script = TARGETS / "old_kernel.py"
    command = [sys.executable, str(script), str(tmp_path / "shown"), str(tmp_path / "kept")]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome.pop(str(tmp_path / "kept")) == "ok"
    assert outcome.pop("/tmp") == "ok"
    assert set(outcome.values()) == {"EROFS"}


@pytest.mark.parametrize(
    ("files", "membership", "reason"),
    [
        ({}, "0::/", "not mounted"),
        (
            {"cgroup.controllers": "cpu", "cgroup.subtree_control": ""},
            "0::/",
            "does not offer the controllers memory, pids",
        ),
        ({"cgroup.controllers": "memory pids"}, "0::/", "cannot read"),
        ({"cgroup.controllers": "memory pids", "cgroup.subtree_control": ""}, "0::/deeper", "cannot read"),
    ],
)
def test_a_machine_without_usable_cgroups_says_why(
    tmp_path: Path, files: dict[str, str], membership: str, reason: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    own = tmp_path / "membership"
    own.write_text(f"4:memory:/old\n{membership}\n")
    with pytest.raises(CgroupUnavailable, match=reason):
        find_base(tmp_path, str(own))


def test_a_cgroup_that_hands_its_controllers_on_is_used(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
    (tmp_path / "cgroup.subtree_control").write_text("memory")
    own = tmp_path / "membership"
    own.write_text("0::/\n")
    assert find_base(tmp_path, str(own)) == tmp_path
    assert (tmp_path / "cgroup.subtree_control").read_text().startswith("+pids")
    with pytest.raises(CgroupUnavailable, match="cannot set up"):
        ChildCgroup(tmp_path, "child", max_memory_bytes=1, max_processes=1)
    assert not (tmp_path / "child").exists()


@pytest.mark.parametrize(
    ("events", "own"),
    [
        ("low 0\nhigh 0\nmax 0\noom 0\noom_kill 0", False),
        ("low 0\nhigh 0\nmax 31\noom 1\noom_kill 1\noom_group_kill 1", True),
        ("low 0\nhigh 0\nmax 0\noom 0\noom_kill 1\noom_group_kill 1", False),  # the whole machine ran out
        ("low 0\nhigh 0\nmax 2\noom 1\noom_kill 0", False),
        (None, False),
    ],
)
def test_who_is_killed_for_the_machine_s_memory_did_not_take_too_much(
    tmp_path: Path, events: str | None, own: bool
) -> None:
    held = object.__new__(ChildCgroup)  # such files can be made nowhere but in a cgroup
    held.path = tmp_path
    if events is not None:
        (tmp_path / "memory.events").write_text(events)
    assert held.out_of_memory() is own


# Pieces


def test_nodes_of_other_gpus_are_left_out() -> None:
    nodes = ("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia10", "/dev/nvidiactl")
    machine = replace(mounts.discover(), gpu_devices=nodes)
    assert mounts.gpu_devices(machine, SandboxPolicy(gpu=True)) == nodes
    assert mounts.gpu_devices(machine, SandboxPolicy(gpu=True, gpu_minor=1)) == (nodes[0], nodes[2], nodes[4])
    assert mounts.gpu_devices(machine, SandboxPolicy(gpu_minor=1)) == ()


def test_nodes_that_only_profilers_and_administrators_open_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "nvidia-caps").mkdir()
    modes = {"nvidia0": 0o666, "nvidiactl": 0o666, "nvidia-uvm": 0o666, "nvidia-uvm-tools": 0o666}
    modes |= {"nvidia-caps/nvidia-cap1": 0o400, "nvidia-caps/nvidia-cap2": 0o444, "nvidia-caps/nvidia-cap30": 0o444}
    for name, mode in modes.items():
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    found = {os.path.relpath(path, tmp_path) for path in mounts._gpu_nodes(str(tmp_path))}
    assert found == {"nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap30"}


@pytest.mark.parametrize("minor", [None, 3])
def test_a_policy_survives_its_journey(minor: int | None) -> None:
    sent = SandboxPolicy(
        mode="strict", gpu=True, gpu_minor=minor, writable=(Path("/a"),), env={"A": "b"}, max_log_bytes=7
    )
    assert SandboxPolicy.from_json(json.loads(json.dumps(sent.to_json()))) == sent
    report = ExitReport(exit_code=1, signal=None, cause="exited", wall_s=0.5)
    assert ExitReport.from_json(json.loads(json.dumps(report.to_json()))) == report


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "medium"}, "mode"),
        ({"writable": (Path("relative"),)}, "absolute"),
        ({"max_processes": 0}, "positive"),
    ],
)
def test_an_impossible_policy_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SandboxPolicy(**changes)


@pytest.mark.parametrize(
    ("have", "lack", "walled", "strength"),
    [
        (["mount_namespace", "seccomp"], [], True, "full"),
        (["mount_namespace"], ["memory_cgroup", "landlock"], True, "full"),
        (["mount_namespace"], ["seccomp"], True, "partial"),
        (["mount_namespace"], ["user_namespace"], True, "partial"),
        (["mount_namespace", "other_user"], ["user_namespace"], True, "full"),
        (["limits"], ["seccomp"], True, "none"),
        (["pid_namespace"], [], False, "none"),
    ],
)
def test_strength_follows_from_what_is_missing(have: list[str], lack: list[str], walled: bool, strength: str) -> None:
    findings = Findings()
    for name in have:
        findings.have(name)
    for name in lack:
        findings.lack(name, "because")
    assert findings.report(walled=walled).strength == strength


def test_the_environment_is_an_allow_list() -> None:
    owner = {"PATH": "/bin", "AWS_SECRET_ACCESS_KEY": "x", "HTTPS_PROXY": "y", "LC_ALL": "C", "SSH_AUTH_SOCK": "z"}
    assert scrub(owner) == {"PATH": "/bin", "LC_ALL": "C"}
    made = inside(owner, {"LC_ALL": "de"}, home="/h", tmp="/t")
    assert made["LC_ALL"] == "de"
    assert made["HOME"] == "/h"
    caches = {
        made[name] for name in ("CUDA_CACHE_PATH", "TRITON_CACHE_DIR", "CUTE_DSL_CACHE_DIR", "TILELANG_CACHE_DIR")
    }
    assert len(caches) == 4
    assert all(folder.startswith("/t/") for folder in caches)


def test_search_paths_and_what_is_preloaded_are_cut_down_to_what_is_there(tmp_path: Path) -> None:
    library = tmp_path / "tool.so"
    library.touch()
    gone = tmp_path / "gone"
    made = only_visible({"PATH": f"{gone}:{tmp_path}", "LD_PRELOAD": f"{gone}/pages.so:{library} {gone}/x.so", "A": ""})
    assert made == {"PATH": str(tmp_path), "LD_PRELOAD": str(library), "A": ""}
    assert only_visible({"LD_PRELOAD": f"{gone}/pages.so"}) == {}


def test_covers_and_binds_are_arranged_outside_in() -> None:
    readable = ["/usr", "/usr/lib", "/home/me/venv", "/home/me/code/harness", "/usr/src/project/harness"]
    private = ["/home/me", "/home/me/code", "/usr/src/project"]
    assert arrange(readable, private) == [
        ("/home/me/code/harness", True),
        ("/home/me/venv", True),
        ("/usr", True),
        ("/usr/src/project", False),
        ("/usr/src/project/harness", True),
    ]


def test_paths_are_compared_by_component() -> None:
    assert mounts.is_below("/usr/lib", "/usr")
    assert mounts.is_below("/usr", "/usr")
    assert mounts.is_below("/usr", "/")
    assert not mounts.is_below("/usrlocal", "/usr")
    assert mounts.outermost(["/b/c", "/a", "/a/b", "/b"]) == ("/a", "/b")


def test_the_filter_is_known_for_both_architectures_and_no_other() -> None:
    for machine in ("x86_64", "aarch64"):
        program = seccomp.program(machine)
        assert len(program) % 8 == 0
        assert len(program) // 8 < 4096  # the kernel's limit on instructions
    with pytest.raises(OSError, match="riscv64"):
        seccomp.program("riscv64")


def test_a_bounded_log_goes_on_emptying_the_pipe(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    file = os.open(tmp_path / "log", os.O_CREAT | os.O_WRONLY)
    log = BoundedLog(reading, file, 10)
    os.write(writing, b"12345678")
    assert log.drain()
    assert not log.truncated
    os.write(writing, b"abcdef")
    os.write(writing, b"never seen")
    os.close(writing)
    assert not log.drain()
    assert log.truncated
    os.close(reading)
    os.close(file)
    assert (tmp_path / "log").read_bytes() == b"12345678ab\n[log cut after 10 bytes]\n"


def test_folders_are_added_up_without_following_links(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "file").write_bytes(b"x" * 100_000)
    (inner / "away").symlink_to("/usr")
    assert 100_000 <= limits.folder_bytes([str(tmp_path)], 10**9) < 200_000
    assert limits.folder_bytes([str(tmp_path)], 50_000) > 50_000


def test_memory_is_looked_at_more_often_the_closer_the_limit() -> None:
    watch = limits.MemoryWatch(limits.FILL_RATE_BYTES_PER_S, ())
    assert not watch.over([os.getpid()])
    relaxed = watch.pause_s()
    tight = limits.MemoryWatch(1, ())
    assert tight.over([os.getpid()])
    assert tight.pause_s() < relaxed
    assert watch.peak_bytes == pytest.approx(limits.resident_bytes(os.getpid()), rel=0.5)
