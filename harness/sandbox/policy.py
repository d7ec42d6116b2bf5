"""What a sandbox is asked to be, what it turned out to be, and how the process in it ended.

Imports nothing of the harness. Pure values; trusted side makes the policies and reads the reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from harness.core.choices import SandboxMode

Strength = Literal["full", "partial", "none"]

Cause = Literal["exited", "signalled", "killed", "memory_limit", "machine_memory", "disk_limit", "lost"]
"""`exited` and `signalled`: by itself; `killed`: the owner asked; `memory_limit`, `disk_limit`: over its allowance;
`lost`: nobody can say, because its zygote or its supervisor died."""

GIB = 1024**3
MIB = 1024**2

OPTIONAL_MECHANISMS = frozenset({"memory_cgroup", "cgroup_namespace", "landlock"})
"""Mechanisms whose absence leaves the sandbox at full strength: the cgroup has the memory watchdog as its stand-in,
and Landlock is a second layer behind the mount namespace. Everything else that is missing makes it partial."""


class SandboxUnavailable(Exception):
    """The sandbox can't be had at the strength asked for. The message says what is missing and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPolicy:
    """Walls and limits for one child.

    `writable` folders keep what the child leaves in them (and, where the owner is root, belong to the child's user
    from then on); `readable` paths are shown beside the system's own; `hidden` paths are blanked even below a
    readable one. `env` is added to the scrubbed environment. Limits: `max_processes` counts threads too (the kernel
    does); `max_file_bytes` bounds one file; `max_disk_bytes` all that lies in `writable`; `max_scratch_bytes` each
    of the private `/tmp`, home and `/dev/shm`, whose use counts as memory; `max_cpu_s` is a backstop per process.
    `gpu_minor` is the number of the one GPU (/dev/nvidia<number>) whose node is shown where `gpu` is true; None: all.
    `under_tool` leaves the child in its zygote's network, with the variables that the tool around the zygote set; only
    for a zygote that is enclosed.
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
            raise ValueError(f"sandbox mode {self.mode!r}; it is one of {', '.join(get_args(SandboxMode))}")
        for name in _PATHS:
            for path in getattr(self, name):
                if not path.is_absolute():
                    raise ValueError(f"{name} path {path} of a sandbox policy must be absolute")
        for name in _LIMITS:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} of a sandbox policy must be positive, not {getattr(self, name)}")

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {name: getattr(self, name) for name in ("mode", "gpu", "gpu_minor", "under_tool")}
        value["env"] = dict(self.env)
        value |= {name: [str(path) for path in getattr(self, name)] for name in _PATHS}
        return value | {name: getattr(self, name) for name in _LIMITS}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SandboxPolicy:
        """The inverse of `to_json`; both ends are the harness's own. Raises `KeyError`, `ValueError`."""
        fields: dict[str, Any] = {name: tuple(Path(path) for path in value[name]) for name in _PATHS}
        fields |= {name: int(value[name]) for name in _LIMITS}
        fields |= {name: bool(value[name]) for name in ("gpu", "under_tool")}
        fields["gpu_minor"] = None if value["gpu_minor"] is None else int(value["gpu_minor"])
        return cls(mode=value["mode"], env=dict(value["env"]), **fields)


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
class SandboxReport:
    """What was in force (`mechanisms`) and what was not, with the reason (`missing`)."""

    strength: Strength
    mechanisms: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "strength": self.strength,
            "mechanisms": list(self.mechanisms),
            "missing": dict(self.missing),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SandboxReport:
        return cls(
            strength=value["strength"],
            mechanisms=tuple(value["mechanisms"]),
            missing=dict(value["missing"]),
        )

    def weakness(self) -> str:
        """One line on what keeps this sandbox below full strength; empty where nothing does."""
        essential = {name: why for name, why in self.missing.items() if name not in OPTIONAL_MECHANISMS}
        return "; ".join(f"{name}: {why}" for name, why in essential.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitReport:
    """How a child ended. `exit_code` exists where it exited, `signal` where a signal ended it.

    `cause`: `memory_limit` where it took more than it may; `machine_memory` where the kernel ended it, or seems to
    have, because the whole machine ran out; `killed` where the harness did; `lost` where its zygote died.

    `wall_s` runs from the fork to the end of everything it had started; `peak_memory_bytes` is the largest host
    memory seen (of all its processes together where a cgroup or the watchdog saw more than the largest one).
    """

    exit_code: int | None
    signal: int | None
    cause: Cause
    wall_s: float
    peak_memory_bytes: int | None = None
    log_truncated: bool = False

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ExitReport:
        return cls(**value)


class Findings:
    """Collects, while a sandbox is entered, what worked and what did not."""

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
        """The outcome; `walled` is false where the policy's mode is `off`."""
        walls = [name for name in self.mechanisms if name in WALLS]
        if not walled:
            self.lack("walls", "switched off")
        if not walled or not walls:
            strength: Strength = "none"
        elif set(self.missing) <= OPTIONAL_MECHANISMS | ({"user_namespace"} & {*_stand_in(self.mechanisms)}):
            strength = "full"
        else:
            strength = "partial"
        return SandboxReport(strength=strength, mechanisms=tuple(self.mechanisms), missing=dict(self.missing))


def _stand_in(mechanisms: list[str]) -> tuple[str, ...]:
    """What need not be there because something as strong is: root's change of user is worth a user namespace."""
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
"""Mechanisms that separate; limits alone are no sandbox."""
