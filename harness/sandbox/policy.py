"""Policy of a sandbox, report of its isolation, and report of a child's end.

Values only. The trusted side makes policies and reads reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from harness.core.choices import SandboxMode
from harness.core.json_value import JsonObject

Strength = Literal["full", "partial", "none"]

Cause = Literal["exited", "signalled", "killed", "memory_limit", "machine_memory", "disk_limit", "lost"]
"""Why a child ended.

* `exited`, `signalled`: by itself.
* `killed`: the owner ended it.
* `memory_limit`, `disk_limit`: it exceeded its limit.
* `machine_memory`: the kernel killed it, or seems to have, because the machine was out of memory.
* `lost`: unknown, because its zygote or its supervisor died.
"""

GIB = 1024**3
MIB = 1024**2

OPTIONAL_MECHANISMS = frozenset({"memory_cgroup", "cgroup_namespace", "landlock"})
"""Mechanisms that full strength does not need. The memory watchdog replaces the cgroup, and Landlock is a second layer
behind the mount namespace. Any other missing mechanism makes the sandbox partial.
"""


class SandboxUnavailable(Exception):
    """This machine cannot build the requested sandbox; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPolicy(JsonObject):
    """Isolation and limits of one child.

    Attributes:
        mode: `auto`, `strict` or `off` (`SandboxMode`).
        gpu: Whether GPU device nodes are visible.
        gpu_minor: Number of the only visible GPU node (/dev/nvidia<number>); None shows all.
        writable: Folders that keep the child's files. If the owner is root, they belong to the child's user from then
            on.
        readable: Paths to show besides the system's.
        hidden: Paths to blank, even below a readable one.
        max_processes: Processes and threads.
        max_file_bytes: Size of one file.
        max_memory_bytes: Host memory of all processes together.
        max_log_bytes: Size of the log.
        env: Variables to add to the allowed environment.
        max_disk_bytes: Total size of the `writable` folders.
        max_scratch_bytes: Size of each of the private `/tmp`, home and `/dev/shm`; their use also counts as memory.
        max_open_files: Open descriptors of one process.
        max_cpu_s: Processor seconds of one process, a last resort.
        under_tool: Keep the child in its zygote's network, with the variables of the tool around the zygote. Only for
            an enclosed zygote.
    """

    mode: SandboxMode = "auto"
    gpu: bool = False
    gpu_minor: int | None = None
    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    max_processes: int = 1024
    max_file_bytes: int = 4 * GIB
    max_memory_bytes: int = 16 * GIB
    max_log_bytes: int = 4 * MIB
    env: Mapping[str, str] = field(default_factory=dict)
    max_disk_bytes: int = 8 * GIB
    max_scratch_bytes: int = 4 * GIB
    max_open_files: int = 4096
    max_cpu_s: int = 6 * 3600
    under_tool: bool = False

    def __post_init__(self) -> None:
        if self.mode not in get_args(SandboxMode):
            raise ValueError(f"unknown sandbox mode {self.mode!r}; use one of {', '.join(get_args(SandboxMode))}")
        for name in _PATHS:
            for path in getattr(self, name):
                if not path.is_absolute():
                    raise ValueError(f"{name}: the path {path} of a sandbox policy must be absolute")
        for name in _LIMITS:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} of a sandbox policy must be positive, not {getattr(self, name)}")


_PATHS = ("writable", "readable", "hidden")
_LIMITS = (
    "max_processes",
    "max_file_bytes",
    "max_memory_bytes",
    "max_log_bytes",
    "max_disk_bytes",
    "max_scratch_bytes",
    "max_open_files",
    "max_cpu_s",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxReport(JsonObject):
    """Isolation of a child.

    Attributes:
        strength: `full`, `partial` or `none`.
        mechanisms: Active mechanisms.
        missing: Reason for each missing mechanism.
    """

    strength: Strength
    mechanisms: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)

    def weakness(self) -> str:
        """Return one line about the mechanisms missing for full strength, else ""."""
        essential: dict[str, list[str]] = {}
        for name, why in self.missing.items():
            if name not in OPTIONAL_MECHANISMS:
                essential.setdefault(why, []).append(name)
        return "; ".join(f"{', '.join(names)}: {why}" for why, names in essential.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitReport(JsonObject):
    """How a child ended.

    Attributes:
        exit_code: Exit code, if it exited.
        signal: Signal, if one ended it.
        cause: Why it ended (`Cause`).
        wall_s: Seconds from the fork to the end of all its processes.
        peak_memory_bytes: Largest host memory, of all processes together if a cgroup or the watchdog measured more than
            the largest process.
        log_truncated: Whether the log exceeded its limit.
    """

    exit_code: int | None
    signal: int | None
    cause: Cause
    wall_s: float
    peak_memory_bytes: int | None = None
    log_truncated: bool = False


class Findings:
    """Collects active and missing mechanisms while a sandbox is entered."""

    def __init__(self) -> None:
        self.mechanisms: list[str] = []
        self.missing: dict[str, str] = {}

    def have(self, name: str) -> None:
        if name not in self.mechanisms:
            self.mechanisms.append(name)
        self.missing.pop(name, None)

    def lack(self, name: str, reason: object) -> None:
        if name not in self.mechanisms:
            self.missing[name] = str(reason)

    def report(self, *, walled: bool) -> SandboxReport:
        """Return the report; `walled` is False for the mode `off`."""
        walls = [name for name in self.mechanisms if name in WALLS]
        if not walled:
            self.lack("walls", "switched off by the sandbox mode off")
        if not walled or not walls:
            strength: Strength = "none"
        elif set(self.missing) <= OPTIONAL_MECHANISMS | ({"user_namespace"} & {*_stand_in(self.mechanisms)}):
            strength = "full"
        else:
            strength = "partial"
        return SandboxReport(strength=strength, mechanisms=tuple(self.mechanisms), missing=dict(self.missing))


def _stand_in(mechanisms: list[str]) -> tuple[str, ...]:
    """Return mechanisms with a replacement: another user id for a user namespace."""
    return ("user_namespace",) if "other_user" in mechanisms else ()


WALLS = frozenset(
    {
        "user_namespace",
        "other_user",
        "mount_namespace",
        "pid_namespace",
        "ipc_namespace",
        "network_namespace",
        "uts_namespace",
        "landlock",
        "seccomp",
    }
)
"""Mechanisms that isolate; a child with limits alone has strength `none`."""
