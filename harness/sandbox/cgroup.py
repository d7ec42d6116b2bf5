"""Create a memory and pids cgroup (version 2) for one child, if possible.

Trusted code, in the zygote; `enter` runs in the fork. Only the cgroup of this process is used, and only if it can
delegate its controllers. Version 1 and shared cgroups without delegation are left alone, with a reason.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_CONTROLLERS = ("memory", "pids")


class CgroupUnavailable(Exception):
    """No cgroup can be created; the message says why."""


class ChildCgroup:
    """One cgroup with limits; the child calls `enter`, the zygote the rest."""

    def __init__(self, base: Path, name: str, *, max_memory_bytes: int, max_processes: int) -> None:
        """Create the cgroup; raise `CgroupUnavailable` if that fails."""
        self.path = base / name
        try:
            self.path.mkdir()
            _write(self.path / "memory.max", max_memory_bytes)
            _write(self.path / "pids.max", max_processes + 8)  # supervisor and fork
            # Kill the whole group: otherwise a child with its memory in many processes survives.
            for extra, value in (("memory.swap.max", 0), ("memory.oom.group", 1)):
                with suppress(OSError):
                    _write(self.path / extra, value)
        except OSError as error:
            self.remove()
            raise CgroupUnavailable(f"cannot set up the cgroup {self.path}: {error.strerror}") from error

    def enter(self) -> None:
        """Move the calling process into the cgroup; raise `OSError` on failure."""
        _write(self.path / "cgroup.procs", 0)

    def peak_bytes(self) -> int | None:
        """Return the peak memory in bytes (Linux 5.19), or None."""
        with suppress(OSError, ValueError):
            return int((self.path / "memory.peak").read_text())
        return None

    def out_of_memory(self) -> bool:
        """Return whether the kernel killed a process because of this cgroup's own limit.

        `oom_kill` alone also counts kills because of the machine's memory or of an outer cgroup.
        """
        counts: dict[str, int] = {}
        with suppress(OSError, ValueError):
            for line in (self.path / "memory.events").read_text().splitlines():
                name, _, count = line.partition(" ")
                counts[name] = int(count)
        return counts.get("oom", 0) > 0 and counts.get("oom_kill", 0) > 0

    def kill(self) -> None:
        """Kill all remaining processes in it (Linux 5.14)."""
        with suppress(OSError):
            _write(self.path / "cgroup.kill", 1)

    def remove(self) -> None:
        """Remove the cgroup; waits up to 0.1 s for processes that are ending."""
        for _ in range(20):
            try:
                self.path.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.005)


def find_base(root: Path = _ROOT, membership: str = "/proc/self/cgroup") -> Path:
    """Return a cgroup below which children can be made, with its controllers enabled.

    May enable `memory` and `pids` for children of this process's cgroup. The kernel allows that only for a root or for
    a cgroup without processes. Raises `CgroupUnavailable` with the reason.
    """
    if not (root / "cgroup.controllers").exists():
        raise CgroupUnavailable(f"cgroup version 2 is not mounted at {root}")
    own = ""
    for line in Path(membership).read_text().splitlines():
        if line.startswith("0::"):
            own = line[3:].lstrip("/")
    base = root / own
    try:
        offered = (base / "cgroup.controllers").read_text().split()
        handed_on = (base / "cgroup.subtree_control").read_text().split()
    except OSError as error:
        raise CgroupUnavailable(f"cannot read the cgroup {base}: {error.strerror}") from error
    if absent := [name for name in _CONTROLLERS if name not in offered]:
        raise CgroupUnavailable(f"the cgroup of this process does not offer the controllers {', '.join(absent)}")
    if not os.access(base, os.W_OK):
        raise CgroupUnavailable("the cgroup of this process belongs to another user and is not delegated")
    wanted = [name for name in _CONTROLLERS if name not in handed_on]
    if wanted:
        try:
            _write(base / "cgroup.subtree_control", " ".join(f"+{name}" for name in wanted))
        except OSError as error:
            raise CgroupUnavailable(f"cannot enable {', '.join(wanted)} in {base}: {error.strerror}") from error
    return base


def _write(path: Path, value: int | str) -> None:
    # These files expect one write call without truncation.
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, str(value).encode())
    finally:
        os.close(fd)
