"""What the sandbox costs a child beyond its fork: `python tests/benchmarks/bench_sandbox.py [repeats]` prints a table.

The limit is 100 ms a child. The first part times whole children of a real zygote with torch imported; the second, each
step on the way in, in forks of a process with torch imported (as root, since the steps are taken one by one there).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from harness.sandbox import SandboxPolicy, filesystem, landlock, limits, mounts, seccomp, syscalls
from harness.sandbox.policy import Findings
from harness.sandbox.zygote import Zygote

LIMIT_MS = 100.0
_IDS = 0x40000000


def nothing(channel: object, fds: tuple[int, ...]) -> None:
    """The target of the benchmark."""


def main(repeats: int) -> None:
    print(f"{'whole child, median of ' + str(repeats):<44}{'ms until it runs':>18}{'ms until it is gone':>21}")
    bare = json.loads(
        subprocess.run(
            [sys.executable, __file__, "--forks", str(repeats)], check=True, capture_output=True, text=True
        ).stdout
    )
    print(f"{'fork of a process with torch, and its exit':<44}{'':>18}{bare['fork']:>21.1f}")
    here = str(Path(__file__).parent)
    with Zygote(["torch"], env={"PYTHONPATH": here}) as zygote, tempfile.TemporaryDirectory() as folder:
        zygote.wait_ready()
        for name, policy in (
            ("sandbox off (group kill and limits)", SandboxPolicy(mode="off")),
            ("sandbox", SandboxPolicy()),
            ("sandbox with GPU nodes", SandboxPolicy(gpu=True)),
            ("sandbox with a writable folder", SandboxPolicy(writable=(Path(folder),))),
        ):
            measured = [one(zygote, policy, Path(folder, "log")) for _ in range(repeats)]
            up, down = (statistics.median(times) * 1e3 for times in zip(*measured, strict=True))
            verdict = "" if down - bare["fork"] <= LIMIT_MS else f"   over {LIMIT_MS:g} ms beyond the fork"
            print(f"{name:<44}{up:>18.1f}{down:>21.1f}{verdict}")
    print(f"\n{'step inside a fork':<44}{'ms':>18}")
    for name, cost in bare.items():
        if name != "fork":
            print(f"{name:<44}{cost:>18.2f}")


def one(zygote: Zygote, policy: SandboxPolicy, log: Path) -> tuple[float, float]:
    """Seconds until a child's walls stand, and until it and everything of it is gone."""
    policy = SandboxPolicy.from_json(policy.to_json() | {"readable": [str(Path(__file__).parent)]})
    began = time.perf_counter()
    with zygote.spawn("bench_sandbox:nothing", policy, log) as child:
        up = time.perf_counter() - began
        child.wait()
        return up, time.perf_counter() - began


def steps() -> list[tuple[str, Callable[[], object]]]:
    """The steps on the way in, in their order."""
    policy, shown = SandboxPolicy(), mounts.discover()

    def root() -> None:
        syscalls.unshare(syscalls.CLONE_NEWNS)
        owner = (_IDS, _IDS)
        filesystem.build_root(policy, shown, owner=owner, ids=(1000,), findings=Findings())

    def user() -> None:
        syscalls.drop_bounding_set()
        os.setgroups([])
        os.setresgid(_IDS, _IDS, _IDS)
        os.setresuid(_IDS, _IDS, _IDS)

    def fence() -> None:
        landlock.restrict(readable=[*shown.readable, "/etc"], writable=["/tmp"], devices=["/proc"], listed=["/"])

    return [
        ("ipc, uts and cgroup namespaces", lambda: syscalls.unshare(0x0E000000)),
        ("network namespace", lambda: syscalls.unshare(syscalls.CLONE_NEWNET)),
        ("mount namespace and private root", root),
        ("another user", user),
        ("user namespace", lambda: syscalls.enter_user_namespace(1000, 1000)),
        ("no capabilities", syscalls.drop_capabilities),
        ("no new privileges", lambda: syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)),
        ("second fork", second_fork),
        ("limits", lambda: limits.set_rlimits(policy)),
        ("Landlock", fence),
        ("seccomp", seccomp.install),
    ]


def second_fork() -> None:
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        os._exit(0)


def forks(repeats: int) -> dict[str, float]:
    """Median milliseconds of a bare fork and of each step, in this process with torch imported."""
    import torch

    assert torch.__version__
    bare: list[float] = []
    costs: dict[str, list[float]] = {}
    for _ in range(repeats):
        began = time.perf_counter()
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        bare.append(time.perf_counter() - began)
    for _ in range(repeats if os.geteuid() == 0 else 0):
        reading, writing = os.pipe()
        syscalls.unshare(syscalls.CLONE_NEWPID)
        pid = os.fork()
        if pid == 0:
            timed = {}
            for name, step in steps():
                began = time.perf_counter()
                step()
                timed[name] = time.perf_counter() - began
            os.write(writing, json.dumps(timed).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            for name, cost in json.loads(pipe.read()).items():
                costs.setdefault(name, []).append(cost)
        os.waitpid(pid, 0)
        own = os.open("/proc/self/ns/pid", os.O_RDONLY)
        syscalls.setns(own, syscalls.CLONE_NEWPID)
        os.close(own)
    medians = {"fork": statistics.median(bare)} | {name: statistics.median(each) for name, each in costs.items()}
    return {name: value * 1e3 for name, value in medians.items()}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--forks"]:
        print(json.dumps(forks(int(sys.argv[2]))))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
