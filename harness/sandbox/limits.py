"""Limit a child's processes, files, time and host memory.

Rlimits are set in the child; the watches run in its supervisor, out of its reach. The supervisor adds up the resident
memory of all processes and the kernel's memory on their behalf, because no rlimit bounds it on a GPU. See
guides/design/sandbox.md.
"""

from __future__ import annotations

import errno
import functools
import os
import resource
from collections.abc import Iterable
from contextlib import suppress

from harness.sandbox.policy import SandboxPolicy

FILL_RATE_BYTES_PER_S = 16 * 1024**3
"""Assumed highest rate of touching fresh memory; page faults take about 0.3 s of a core for each GiB."""

_SHORTEST_S = 0.01
_LONGEST_S = 0.25
_INODE_BYTES = 1024
"""Kernel memory of an empty file in a tmpfs: about 0.7 KiB for the inode, plus its name."""

_FREE_SOCKETS = 64
"""Sockets that do not count as memory, more than honest code opens. Each further one counts with full buffers."""

_SOCKET_BYTES = 8 * 1024**2
"""Memory of a socket's buffers if the kernel does not report it."""

_FREE_TCP_SOCKETS = 16
"""The same for TCP, which only a child under a tool has; its buffers are larger."""

_FREE_DESCRIPTORS = 64
"""Size of the smallest table of a process's descriptors. Each further place counts as a full pipe."""

_DISK_PERIOD_S = 1.0
_HIDING = frozenset({errno.EACCES, errno.EPERM, errno.ENAMETOOLONG})
"""Errors caused only by a child that hides its files: folders closed to its own user, or nested too deep for a path."""

_DISK_ENTRIES = 100_000
"""A writable folder with more entries counts as over its limit, because adding them up takes too long."""


def set_rlimits(policy: SandboxPolicy) -> None:
    """Set this process's soft and hard limits; a lower existing limit stays.

    Raises `OSError` or `ValueError`.
    """
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: policy.max_processes,
        resource.RLIMIT_FSIZE: policy.max_file_bytes,
        resource.RLIMIT_NOFILE: policy.max_open_files,
        resource.RLIMIT_CPU: policy.max_cpu_s,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_SIGPENDING: 4096,
    }
    for kind, value in limits.items():
        hard = resource.getrlimit(kind)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bound, bound))


class MemoryWatch:
    """Adds up the host memory of processes and schedules the next look."""

    def __init__(self, limit_bytes: int, scratch: Iterable[str], *, own_network: bool = False) -> None:
        """Set the limit; `own_network` counts all sockets of this process's network."""
        self._limit_bytes = limit_bytes
        self._scratch = tuple(scratch)
        self._own_network = own_network
        self.peak_bytes = 0

    def over(self, pids: Iterable[int]) -> bool:
        """Measure once; return whether the processes together exceed the limit."""
        used = sum(resident_bytes(pid) for pid in pids)
        for folder in self._scratch:
            with suppress(OSError):
                state = os.statvfs(folder)
                used += (state.f_blocks - state.f_bfree) * state.f_frsize
                used += (state.f_files - state.f_ffree) * _INODE_BYTES
        if self._own_network:
            used += max(0, sockets() - _FREE_SOCKETS) * socket_bytes()
            used += max(0, sockets(b"TCP:") - _FREE_TCP_SOCKETS) * tcp_bytes()
        self._used = used
        self.peak_bytes = max(self.peak_bytes, used)
        return used > self._limit_bytes

    def pause_s(self) -> float:
        """Return the time until the next look: half the time needed to fill the rest."""
        left = max(0, self._limit_bytes - self._used)
        return min(_LONGEST_S, max(_SHORTEST_S, left / FILL_RATE_BYTES_PER_S / 2))

    _used = 0


class DiskWatch:
    """Adds up the contents of the writable folders once a second."""

    def __init__(self, limit_bytes: int, folders: Iterable[str]) -> None:
        self._limit_bytes = limit_bytes
        self._folders = tuple(folders)
        self._due_s = 0.0

    def over(self, now_s: float) -> bool:
        """Return whether the folders exceed the limit; looks at most once a second."""
        if not self._folders or now_s < self._due_s:
            return False
        self._due_s = now_s + _DISK_PERIOD_S
        return folder_bytes(self._folders, self._limit_bytes) > self._limit_bytes


def folder_bytes(folders: Iterable[str], enough: int) -> int:
    """Return the disk usage in bytes below `folders`; links are not followed.

    Stops beyond `enough`, and returns more than `enough` for contents that cannot be counted. A deleted file that is
    still open is missed until its process ends.
    """
    total, entries = 0, 0
    waiting = list(folders)
    while waiting:
        try:
            with os.scandir(waiting.pop()) as listing:
                for entry in listing:
                    entries += 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    with suppress(OSError):
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if total > enough or entries > _DISK_ENTRIES:
                        return max(total, enough + 1)
        except OSError as error:
            if error.errno in _HIDING:
                return max(total, enough + 1)
            continue  # it was deleted meanwhile
    return total


def resident_bytes(pid: int) -> int:
    """Return the host memory of a process in bytes.

    Private, shared-memory and huge pages, page tables, and pipes; 0 if it is gone. File pages belong to the page cache.
    """
    return bytes_in_status(_status(pid))


def _status(pid: int) -> bytes:
    """Return the status of a process that shows its memory; empty if there is none.

    If the first thread has ended, only the other threads show it.
    """
    with suppress(OSError):
        text = _content(f"/proc/{pid}/status")
        if b"\nVmPTE:" in text:
            return text
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                text = _content(f"/proc/{pid}/task/{thread}/status")
                if b"\nVmPTE:" in text:
                    return text
    return b""


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def bytes_in_status(text: bytes) -> int:
    """Return the memory that a process's status shows, in bytes.

    Its descriptors count as full pipes.
    """
    fields = (b"\nRssAnon:", b"\nRssShmem:", b"\nHugetlbPages:", b"\nVmPTE:")
    descriptors = max(0, _field(text, b"\nFDSize:", b"\n") - _FREE_DESCRIPTORS)
    return sum(_field(text, name, b"kB") for name in fields) * 1024 + descriptors * pipe_bytes()


def sockets(kind: bytes = b"sockets:") -> int:
    """Return the number of sockets in this process's network; 0 if unknown.

    `kind` begins a line of the kernel's statistics.
    """
    with suppress(OSError, ValueError, IndexError):
        lines = [line for line in _content("/proc/self/net/sockstat").splitlines() if line.startswith(kind)]
        return int(lines[0].split()[2])
    return 0


@functools.cache
def tcp_bytes() -> int:
    """Return the most bytes in both buffers of a TCP socket."""
    with suppress(OSError, ValueError, IndexError):
        return sum(int(_content(f"/proc/sys/net/ipv4/tcp_{side}mem").split()[2]) for side in "wr")
    return _SOCKET_BYTES


@functools.cache
def socket_bytes() -> int:
    """Return the most bytes in a socket's send buffer.

    The kernel grants twice the limit, for its own overhead.
    """
    with suppress(OSError, ValueError), open("/proc/sys/net/core/wmem_max", "rb") as file:
        return 2 * int(file.read())
    return _SOCKET_BYTES


@functools.cache
def pipe_bytes() -> int:
    """Return the most bytes in a pipe of a user that has used up its share.

    The share is 64 MiB by default. Without one, it is the most bytes in any pipe.
    """
    with suppress(OSError, ValueError):
        if int(_content("/proc/sys/fs/pipe-user-pages-soft")):
            return 2 * os.sysconf("SC_PAGE_SIZE")
        return int(_content("/proc/sys/fs/pipe-max-size"))
    return 2**20


def _field(text: bytes, name: bytes, end: bytes) -> int:
    """Return the number between `name` and `end`; 0 if the field is absent."""
    start = text.find(name)
    if start < 0:
        return 0
    start += len(name)
    return int(text[start : text.index(end, start)])


def all_pids() -> list[int]:
    """List all processes of the pid namespace behind this /proc."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def children_of(parent: int) -> list[int]:
    """List the direct children of all threads of `parent`, including adopted ones."""
    found: list[int] = []
    threads: list[str] = []
    with suppress(OSError):
        threads = os.listdir(f"/proc/{parent}/task")
    for thread in threads:  # a thread that has ended does not hide the others' children
        with suppress(OSError), open(f"/proc/{parent}/task/{thread}/children", encoding="utf-8") as file:
            found += [int(pid) for pid in file.read().split()]
    return found


def descendants(root: int) -> list[int]:
    """List all processes below `root`, nearest first."""
    found = children_of(root)
    for pid in found:  # the list grows during the loop
        found += children_of(pid)
    return found


def processor_s(root: int) -> float:
    """Return the processor time in seconds of all processes below `root`.

    Includes processes that have ended, but not `root`: a supervisor that looks at a sleeping process works too.
    """
    ticks = 0
    for pid in (root, *descendants(root)):
        with suppress(OSError, ValueError), open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            own_and_ended = file.read().rpartition(")")[2].split()[11:15]  # utime, stime, cutime, cstime
            ticks += sum(map(int, own_and_ended[2:] if pid == root else own_and_ended))
    return ticks / os.sysconf("SC_CLK_TCK")


def idle_s() -> float:
    """Return the time in seconds that all processors of this machine were idle."""
    with open("/proc/stat", encoding="utf-8") as file:
        idle, waiting = map(int, file.readline().split()[4:6])
    return (idle + waiting) / os.sysconf("SC_CLK_TCK")


def out_of_memory_kills() -> int:
    """Return the kernel's number of out-of-memory kills since boot (0 if unknown)."""
    with suppress(OSError), open("/proc/vmstat", encoding="utf-8") as file:
        for line in file:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
