"""A memory and pids cgroup (version 2) for one child, where this machine lets the harness make one.

Imports nothing of the harness. Trusted code, in the zygote and, to join, in the fork on its way into the sandbox.

Only the hierarchy this process already lives in is used, and only if its controllers can be handed on from there:
version 1, or a cgroup that other processes share and that does not delegate, is left alone with a reason.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_CONTROLLERS = ("memory", "pids")


class CgroupUnavailable(Exception):
    """No cgroup can be made here; the message says why."""


class ChildCgroup:
    """One cgroup with its limits set. `enter` is called by the child, the rest by the zygote."""

    def __init__(self, base: Path, name: str, *, max_memory_bytes: int, max_processes: int) -> None:
        """Raises `CgroupUnavailable`."""
        self.path = base / name
        try:
            self.path.mkdir()
            _write(self.path / "memory.max", max_memory_bytes)
            _write(self.path / "pids.max", max_processes + 8)  # the supervisor, and room for the fork itself
            # The whole group or nothing: else a child that spreads its memory over many processes goes on for ever.
            for extra, value in (("memory.swap.max", 0), ("memory.oom.group", 1)):
                with suppress(OSError):
                    _write(self.path / extra, value)
        except OSError as error:
            self.remove()
            raise CgroupUnavailable(f"{self.path} can't be set up: {error.strerror}") from error

    def enter(self) -> None:
        """Move the calling process in. Raises `OSError`."""
        _write(self.path / "cgroup.procs", 0)

    def peak_bytes(self) -> int | None:
        """The most memory it ever used (Linux 5.19), or None."""
        with suppress(OSError, ValueError):
            return int((self.path / "memory.peak").read_text())
        return None

    def out_of_memory(self) -> bool:
        """Whether the kernel killed something in it because this cgroup was at its own limit.

        `oom_kill` alone counts what was killed for want of the machine's memory, or of a cgroup above, as well.
        """
        counts: dict[str, int] = {}
        with suppress(OSError, ValueError):
            for line in (self.path / "memory.events").read_text().splitlines():
                name, _, count = line.partition(" ")
                counts[name] = int(count)
        return counts.get("oom", 0) > 0 and counts.get("oom_kill", 0) > 0

    def kill(self) -> None:
        """Kill whatever is left in it (Linux 5.14)."""
        with suppress(OSError):
            _write(self.path / "cgroup.kill", 1)

    def remove(self) -> None:
        """Remove it; a moment is given to processes that are still on their way out."""
        for _ in range(20):
            try:
                self.path.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.005)


def find_base(root: Path = _ROOT, membership: str = "/proc/self/cgroup") -> Path:
    """A cgroup below which children can be made, its controllers switched on.

    Raises `CgroupUnavailable` with the reason. May switch `memory` and `pids` on for the children of this process's
    own cgroup, which the kernel allows only where that is a root or holds no processes itself.
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
        raise CgroupUnavailable(f"{base} can't be read: {error.strerror}") from error
    if absent := [name for name in _CONTROLLERS if name not in offered]:
        raise CgroupUnavailable(f"the cgroup of this process does not offer the controllers {', '.join(absent)}")
    if not os.access(base, os.W_OK):
        raise CgroupUnavailable("the cgroup of this process belongs to another user and is not delegated")
    wanted = [name for name in _CONTROLLERS if name not in handed_on]
    if wanted:
        try:
            _write(base / "cgroup.subtree_control", " ".join(f"+{name}" for name in wanted))
        except OSError as error:
            raise CgroupUnavailable(f"{base} can't hand on {', '.join(wanted)}: {error.strerror}") from error
    return base


def _write(path: Path, value: int | str) -> None:
    # One write call, no truncation: what these files expect.
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, str(value).encode())
    finally:
        os.close(fd)
