"""Supervisor: reaps processes, keeps the log, watches memory and disk, ends all.

Trusted code inside the sandbox; its first process. It forks the confined process and shares only the log pipe with it.
It reports to the zygote through one page of memory that the confined process has unmapped. In a pid namespace it is pid
1: no process inside can signal it, and its end ends all of them.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from harness.sandbox import limits
from harness.sandbox.policy import SandboxPolicy

_PAGE = struct.Struct("=QQQQQq")
_TRUNCATED, _MEMORY, _DISK, _ENDED = 1, 2, 4, 8
_CHUNK_BYTES = 65536
_SWEEP_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A supervisor's report about a child."""

    peak_bytes: int = 0
    largest_process_bytes: int = 0
    log_bytes: int = 0
    log_truncated: bool = False
    over_memory: bool = False
    over_disk: bool = False
    wait_status: int | None = None


class AccountPage:
    """An `Account` in shared memory: one supervisor writes, the zygote reads."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, mmap.PAGESIZE)

    def write(self, account: Account) -> None:
        flags = _TRUNCATED * account.log_truncated | _MEMORY * account.over_memory | _DISK * account.over_disk
        flags |= _ENDED * (account.wait_status is not None)
        values = (account.peak_bytes, account.largest_process_bytes, account.log_bytes, flags, 0)
        _PAGE.pack_into(self._map, 0, *values, account.wait_status or 0)

    def read(self) -> Account:
        peak, largest, log, flags, _, status = _PAGE.unpack_from(self._map, 0)
        return Account(
            peak_bytes=peak,
            largest_process_bytes=largest,
            log_bytes=log,
            log_truncated=bool(flags & _TRUNCATED),
            over_memory=bool(flags & _MEMORY),
            over_disk=bool(flags & _DISK),
            wait_status=status if flags & _ENDED else None,
        )

    def close(self) -> None:
        """Unmap the page; the first step of a confined process."""
        self._map.close()


class BoundedLog:
    """Copies a pipe into a file up to a limit, and keeps emptying the pipe afterwards."""

    def __init__(self, source: int, target: int, limit_bytes: int) -> None:
        os.set_blocking(source, False)
        self._source = source
        self._target = target
        self._left = limit_bytes
        self.limit_bytes = limit_bytes
        self.truncated = False
        self.written_bytes = 0

    def drain(self, chunks: int = 64) -> bool:
        """Copy up to `chunks` reads; return False if the pipe has no writer left."""
        for _ in range(chunks):
            try:
                data = os.read(self._source, _CHUNK_BYTES)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._keep(data)
        return True

    def _keep(self, data: bytes) -> None:
        if self.truncated:
            return
        kept = data[: self._left]
        if len(kept) < len(data):
            self.truncated = True
            kept += f"\n[log cut after {self.limit_bytes} bytes]\n".encode()
        self._left -= min(len(data), self._left)
        while kept:
            try:
                written = os.write(self._target, kept)
            except OSError:  # a full disk must not block the child
                self.truncated = True
                return
            self.written_bytes += written
            kept = kept[written:]


def supervise(
    *,
    target: int,
    policy: SandboxPolicy,
    log_pipe: int,
    log_file: int,
    zygote_alive: int,
    page: AccountPage,
    scratch: tuple[str, ...],
    own_network: bool,
    list_others: Callable[[], list[int]],
    end_others: Callable[[], None],
) -> None:
    """Watch `target` until it and its descendants are gone; the page has the report.

    Args:
        target: Process id of the confined process.
        policy: Limits.
        log_pipe: Read end of the child's output.
        log_file: Descriptor of the log.
        zygote_alive: Read end of a pipe that only the zygote holds open.
        page: Receives the report.
        scratch: Folders in memory.
        own_network: Whether the network belongs to this sandbox, and to the tool around it, only.
        list_others: Lists the processes of this sandbox.
        end_others: Sends SIGKILL to all of them.
    """
    log = BoundedLog(log_pipe, log_file, policy.max_log_bytes)
    memory = limits.MemoryWatch(policy.max_memory_bytes, scratch, own_network=own_network)
    disk = limits.DiskWatch(policy.max_disk_bytes, [str(path) for path in policy.writable])
    ended = os.pidfd_open(target)
    poll = select.poll()
    for fd in (ended, log_pipe, zygote_alive):
        poll.register(fd, select.POLLIN)
    over_memory = over_disk = False
    largest = 0
    status: int | None = None
    look_at = 0.0
    while status is None:
        now = time.monotonic()
        if now >= look_at:
            over_memory = memory.over(list_others())
            over_disk = disk.over(now)
            look_at = time.monotonic() + memory.pause_s()
            page.write(_account(log, memory.peak_bytes, largest, over_memory, over_disk, None))
            if over_memory or over_disk:
                break
        ready = {fd for fd, _ in poll.poll(max(0.0, look_at - time.monotonic()) * 1e3)}
        if zygote_alive in ready:
            break
        if log_pipe in ready:
            whole = not log.truncated
            if not log.drain():
                poll.unregister(log_pipe)
            if whole and log.truncated:  # at once: a kill before the next look would hide it
                page.write(_account(log, memory.peak_bytes, largest, over_memory, over_disk, None))
        status, largest = _reap(target, status, largest)
    deadline = time.monotonic() + _SWEEP_S
    while True:
        end_others()
        status, largest = _reap(target, status, largest)
        log.drain()
        if not list_others() or time.monotonic() > deadline:
            break
        time.sleep(0.001)
    while log.drain(chunks=1) and select.select([log_pipe], [], [], 0)[0]:
        pass
    page.write(_account(log, memory.peak_bytes, largest, over_memory, over_disk, status))


def _reap(target: int, status: int | None, largest: int) -> tuple[int | None, int]:
    """Reap all ended children; return the target's wait status and the largest peak."""
    with suppress(ChildProcessError):
        while True:
            pid, ended, usage = os.wait4(-1, os.WNOHANG)
            if pid == 0:
                break
            largest = max(largest, usage.ru_maxrss * 1024)
            if pid == target:
                status = ended
    return status, largest


def _account(
    log: BoundedLog, peak: int, largest: int, over_memory: bool, over_disk: bool, status: int | None
) -> Account:
    return Account(
        peak_bytes=peak,
        largest_process_bytes=largest,
        log_bytes=log.written_bytes,
        log_truncated=log.truncated,
        over_memory=over_memory,
        over_disk=over_disk,
        wait_status=status,
    )


def kill_each(pids: list[int]) -> None:
    """Send SIGKILL to each of `pids`; missing processes are ignored."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
