"""Find out what a container withholds, and the flags that give it back.

Trusted side. The flags are those of `docker run` or `podman run`; guides/container.md explains them.
`Surroundings.collect` looks at this process, `withheld` draws the conclusions.
"""

from __future__ import annotations

import ctypes
import glob
import os
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.sandbox import SandboxReport

SMALL_SHM_BYTES = 2**30
_ROOT_NEEDS = {"CAP_CHOWN": 0, "CAP_SETGID": 6, "CAP_SETUID": 7, "CAP_SETFCAP": 31}
"""Capabilities with which root makes user namespaces and gives each child another user id."""
_MARKS = {"docker": "/.dockerenv", "podman": "/run/.containerenv"}
_UNMASK = {"podman": "--security-opt unmask=ALL"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What was decided outside of this process.

    Attributes:
        container: `docker`, `podman` or another name; None outside of a container.
        root_lacks: Capabilities that root needs and does not have; empty for another user.
        seccomp: Whether a seccomp filter is active.
        apparmor: AppArmor's profile if it confines this process, else None.
        covered_proc: Whether parts of /proc are covered or it is read-only. The kernel then refuses a new /proc.
        max_user_namespaces: The machine's limit.
        apparmor_restricts: Whether AppArmor refuses capabilities in user namespaces of ordinary users (Ubuntu 24.04).
        shm_bytes: Size of /dev/shm; None if there is none.
        gpu_nodes: Whether there are device nodes of NVIDIA GPUs.
        libcuda: Whether the driver's libcuda can be loaded.
        libcupti: Whether CUPTI is installed.
    """

    container: str | None
    root_lacks: tuple[str, ...] = ()
    seccomp: bool = False
    apparmor: str | None = None
    covered_proc: bool = False
    max_user_namespaces: int = 2**31 - 1
    apparmor_restricts: bool = False
    shm_bytes: int | None = None
    gpu_nodes: bool = False
    libcuda: bool = False
    libcupti: bool = False

    @staticmethod
    def collect() -> Surroundings:
        """Look at this process and its machine."""
        status = _status()
        profile = _read("/proc/self/attr/apparmor/current") or ""
        return Surroundings(
            container=_container(os.environ),
            root_lacks=_root_lacks(int(status.get("CapEff", "0"), 16)) if os.geteuid() == 0 else (),
            seccomp=status.get("Seccomp") == "2",
            apparmor=profile if profile and profile != "unconfined" else None,
            covered_proc=_covered_proc(_read("/proc/self/mountinfo") or ""),
            max_user_namespaces=int(_read("/proc/sys/user/max_user_namespaces") or 0),
            apparmor_restricts=_read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1",
            shm_bytes=_size("/dev/shm"),
            gpu_nodes=bool(glob.glob("/dev/nvidia[0-9]*") or glob.glob("/dev/dxg")),
            libcuda=_loads("libcuda.so.1"),
            libcupti=_has_cupti(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """One thing that the sandbox lacks, and the flag or setting that returns it."""

    what: str
    remedy: str


def withheld(around: Surroundings, sandbox: SandboxReport) -> list[Withheld]:
    """List what the surroundings take from the sandbox; empty at full strength.

    Several causes may refuse the same thing, and the kernel reports only the first. So every cause that is present is
    listed if it could explain what is missing.
    """
    if sandbox.strength == "full":
        return []
    missing = set(sandbox.missing)
    namespaces, mounts = "pid_namespace" in missing, "mount_namespace" in missing
    causes = []
    if namespaces and around.max_user_namespaces == 0:
        causes.append(("the machine allows no user namespaces", "sysctl user.max_user_namespaces=10000 on the machine"))
    if mounts and around.apparmor_restricts:
        what = "AppArmor takes the capabilities of user namespaces away"
        causes.append((what, "sysctl kernel.apparmor_restrict_unprivileged_userns=0 on the machine"))
    if around.container is None:
        return [Withheld(what=what, remedy=remedy) for what, remedy in causes]
    if (namespaces or "other_user" in missing) and around.root_lacks:
        causes.append((f"root lacks {', '.join(around.root_lacks)}", "--user 1000:1000"))
    if namespaces and around.seccomp:
        causes.append(("a seccomp filter refuses user namespaces", "--security-opt seccomp=seccomp.json"))
    if mounts and around.apparmor:
        what = f"AppArmor's profile {around.apparmor} refuses mounts"
        causes.append((what, "--security-opt apparmor=unconfined"))
    if (mounts or "private_proc" in missing) and around.covered_proc:
        remedy = _UNMASK.get(around.container, "--security-opt systempaths=unconfined")
        causes.append(("parts of /proc are covered, so no other can be mounted", remedy))
    if mounts and around.shm_bytes is not None and around.shm_bytes < SMALL_SHM_BYTES:
        what = f"/dev/shm, which all solutions share then, has only {around.shm_bytes // 2**20} MiB"
        causes.append((what, "if you can't, add at least --shm-size 2g"))
    return [Withheld(what=what, remedy=remedy) for what, remedy in causes]


def _root_lacks(capabilities: int) -> tuple[str, ...]:
    return tuple(name for name, number in _ROOT_NEEDS.items() if not capabilities >> number & 1)


def _container(environment: Mapping[str, str]) -> str | None:
    """Name the kind of container, by the file that marks it or by a variable."""
    for name, path in _MARKS.items():
        if os.path.exists(path):
            return name
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "kubernetes"
    return environment.get("container") or None


def _status() -> dict[str, str]:
    lines = (_read("/proc/self/status") or "").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _covered_proc(mountinfo: str) -> bool:
    for line in mountinfo.splitlines():
        fields = line.split()
        if fields[4].startswith("/proc/") or (fields[4] == "/proc" and "ro" in fields[5].split(",")):
            return True
    return False


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _size(folder: str) -> int | None:
    try:
        facts = os.statvfs(folder)
    except OSError:
        return None
    return facts.f_blocks * facts.f_frsize


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _has_cupti() -> bool:
    """Return whether CUPTI is installed: beside torch, or where the loader looks."""
    packages = sysconfig.get_path("purelib")
    beside = glob.glob(f"{glob.escape(packages)}/nvidia/*/lib/libcupti.so*")
    return bool(beside) or any(_loads(f"libcupti.so{version}") for version in (".13", ".12", ""))
