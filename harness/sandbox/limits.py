"""Limits on a child's processes, files, time and host memory, and the watch over what no rlimit can count.

Imports the policy. Rlimits are set in the child; the watch runs in its supervisor, outside its reach.

Decision: RLIMIT_AS can't bound memory where CUDA runs (the driver reserves terabytes of addresses), RLIMIT_RSS does
nothing, and a memory cgroup is often not ours to make. So the supervisor adds up what the kernel reports as resident
(private and shared-memory pages of every process, and the pages of the private file systems) and what it takes for
itself on their behalf (page tables, entries of these file systems, as much as sockets can hold), often enough that
`FILL_RATE_BYTES_PER_S` can't run far past the limit between two looks. Where a cgroup can be had it is used as well.
Neither sees what a driver allocates in the kernel on a process's behalf (page-locked memory of CUDA); there the
machine's own out-of-memory killer is the last resort, told by `oom_score_adj` to take the child first.
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
"""How fast a child is assumed to touch fresh memory at most: page faults cost a core about 0.3 s a GiB."""

_SHORTEST_S = 0.01
_LONGEST_S = 0.25
_INODE_BYTES = 1024
"""What the kernel takes for an empty file of a memory-backed file system: some 0.7 KiB for the inode, and its name."""

_FREE_SOCKETS = 64
"""Sockets that count for nothing, more than honest code has; each further one counts as if its buffers were full."""

_SOCKET_BYTES = 8 * 1024**2
"""What a socket can hold where the kernel does not say."""

_DISK_PERIOD_S = 1.0
_HIDING = frozenset({errno.EACCES, errno.EPERM, errno.ENAMETOOLONG})
"""What only a child meets us with that hides what it wrote: folders closed to its own user, or in one another so deep
that no path leads there."""

_DISK_ENTRIES = 100_000
"""A writable folder with more entries than this counts as over its limit: it can't be added up in time."""


def set_rlimits(policy: SandboxPolicy) -> None:
    """Set this process's limits, soft and hard; a limit already lower stays. Raises `OSError`, `ValueError`."""
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
    """Adds up the host memory of the processes it is told of, and says when to look again."""

    def __init__(self, limit_bytes: int, scratch: Iterable[str], *, own_network: bool = False) -> None:
        """`own_network` says that all sockets of this process's network are theirs, so that they count."""
        self._limit_bytes = limit_bytes
        self._scratch = tuple(scratch)
        self._own_network = own_network
        self.peak_bytes = 0

    def over(self, pids: Iterable[int]) -> bool:
        """Look once. Whether the processes together are over the limit."""
        used = sum(resident_bytes(pid) for pid in pids)
        for folder in self._scratch:
            with suppress(OSError):
                state = os.statvfs(folder)
                used += (state.f_blocks - state.f_bfree) * state.f_frsize
                used += (state.f_files - state.f_ffree) * _INODE_BYTES
        if self._own_network:
            used += max(0, sockets() - _FREE_SOCKETS) * socket_bytes()
        self._used = used
        self.peak_bytes = max(self.peak_bytes, used)
        return used > self._limit_bytes

    def pause_s(self) -> float:
        """How long the next look may wait: half the time that filling the rest would take."""
        left = max(0, self._limit_bytes - self._used)
        return min(_LONGEST_S, max(_SHORTEST_S, left / FILL_RATE_BYTES_PER_S / 2))

    _used = 0


class DiskWatch:
    """Adds up what lies in the writable folders, once in a while."""

    def __init__(self, limit_bytes: int, folders: Iterable[str]) -> None:
        self._limit_bytes = limit_bytes
        self._folders = tuple(folders)
        self._due_s = 0.0

    def over(self, now_s: float) -> bool:
        """Whether the folders hold more than they may; looks only when the last look is long enough ago."""
        if not self._folders or now_s < self._due_s:
            return False
        self._due_s = now_s + _DISK_PERIOD_S
        return folder_bytes(self._folders, self._limit_bytes) > self._limit_bytes


def folder_bytes(folders: Iterable[str], enough: int) -> int:
    """Bytes that the files below `folders` occupy; links are not followed.

    Stops adding up beyond `enough`, and says more than that for what can't be added up. A deleted file that is still
    open escapes it, until its holder ends.
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
            continue  # it vanished
    return total


def resident_bytes(pid: int) -> int:
    """Private and shared-memory pages of a process, and its page tables; 0 where it is gone. File pages are the page
    cache's.
    """
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            text = file.read()
    except OSError:
        return 0
    return sum(_field_kib(text, name) for name in (b"\nRssAnon:", b"\nRssShmem:", b"\nVmPTE:")) * 1024


def sockets() -> int:
    """How many sockets there are in this process's network; 0 where /proc does not tell."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/net/sockstat", "rb") as file:
        return int(file.readline().split()[2])
    return 0


@functools.cache
def socket_bytes() -> int:
    """The most that a socket's sender may have on its way: the kernel grants twice the limit, for its own overhead."""
    with suppress(OSError, ValueError), open("/proc/sys/net/core/wmem_max", "rb") as file:
        return 2 * int(file.read())
    return _SOCKET_BYTES


def _field_kib(text: bytes, name: bytes) -> int:
    start = text.find(name)
    if start < 0:
        return 0
    start += len(name)
    return int(text[start : text.index(b"kB", start)])


def all_pids() -> list[int]:
    """Every process in the pid namespace whose /proc this is."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def children_of(parent: int) -> list[int]:
    """The processes that `parent`'s threads have started or inherited, as /proc numbers them."""
    found: list[int] = []
    threads: list[str] = []
    with suppress(OSError):
        threads = os.listdir(f"/proc/{parent}/task")
    for thread in threads:  # one that has ended meanwhile hides nothing of the others'
        with suppress(OSError), open(f"/proc/{parent}/task/{thread}/children", encoding="utf-8") as file:
            found += [int(pid) for pid in file.read().split()]
    return found


def descendants(root: int) -> list[int]:
    """Every process below `root`, the nearest first; for where there is no pid namespace to list."""
    found = children_of(root)
    for pid in found:  # grows while it is walked
        found += children_of(pid)
    return found


def out_of_memory_kills() -> int:
    """How many processes the kernel has killed for want of memory since boot (0 where it does not count them)."""
    with suppress(OSError), open("/proc/vmstat", encoding="utf-8") as file:
        for line in file:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
