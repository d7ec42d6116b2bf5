"""The zygote process: preload modules, then fork sandboxed children on request.

Trusted code without secrets: its children have all of its memory, so no seed, input, reference or verdict comes here.
It has one thread and one loop. Setup happens in the fork, so a slow child does not delay the others.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.protocol.channel import Channel, ChannelClosed
from harness.sandbox import capabilities, cleanup, limits, supervisor, wrapped_tool
from harness.sandbox.cgroup import CgroupUnavailable, ChildCgroup
from harness.sandbox.confine import Confined, Ground
from harness.sandbox.launch import Launched, launch
from harness.sandbox.policy import Cause, ExitReport, SandboxPolicy

_GPU_NODE = "/dev/nvidia"
_GRACE_S = 2.0
"""Time in seconds for a supervisor without a pid namespace to end its child; then it is killed itself."""


@dataclass(slots=True, kw_only=True)
class _Child:
    """One child from request to end, in the zygote."""

    id: int
    target: str
    policy: SandboxPolicy
    channel: int
    log_file: int
    fds: tuple[int, ...]
    launched: Launched
    pidfd: int
    started_s: float
    oom_kills: int
    scratch: str | None
    answer: bytearray = field(default_factory=bytearray)
    settled: bool = False
    failed: bool = False
    killed: bool = False
    kill_by_s: float | None = None
    retry_reason: str = ""


def serve(channel_fd: int, preload: tuple[str, ...], *, place: str) -> Confined | None:
    """Run a zygote.

    Args:
        channel_fd: Descriptor of the connection to the owner.
        preload: Modules to import.
        place: `own`, or `enclosed:PID` inside `pid_namespace` (process PID outside).

    Returns:
        None after the owner is gone; in each confined child, its target.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner handles Ctrl-C
    os.umask(0o022)  # children enter these folders as another user
    channel = Channel(socket.socket(fileno=channel_fd))
    _, enclosed, outer = place.partition("enclosed:")
    entered = capabilities.enclosed(int(outer)) if enclosed else capabilities.enter(channel.close)
    began_s = time.monotonic()
    gc.disable()  # collections find nothing and take 10 % of torch's import
    try:
        for name in preload:
            importlib.import_module(name)
        base = capabilities.survey(entered)
        _refuse_open_gpu()
    except BaseException:
        with suppress(ChannelClosed):
            channel.send({"event": "broken", "reason": traceback.format_exc()})
        return None
    # Keeps a child's collections from copying the pages of all imports. A collection first would take longer than all
    # imports except torch's, and find some thousand small objects.
    gc.freeze()
    gc.enable()
    threads = len(os.listdir("/proc/self/task"))
    with suppress(ChannelClosed):
        ready_s = time.monotonic() - began_s
        channel.send({"event": "ready", "host_pid": entered.host_pid, "threads": threads, "wall_s": ready_s})
        return _Server(channel, base).run()
    return None


def _refuse_open_gpu() -> None:
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith(_GPU_NODE):
                raise RuntimeError("a preloaded module opened the GPU, but a CUDA context does not survive a fork")


class _Server:
    def __init__(self, channel: Channel, base: Ground) -> None:
        self._channel = channel
        self._ground = base
        self._children: dict[int, _Child] = {}
        self._leaving = False

    def run(self) -> Confined | None:
        while True:
            poll = select.poll()
            poll.register(self._channel, select.POLLIN)
            by_ready = {c.launched.ready: c for c in self._children.values() if not c.settled}
            by_pid = {c.pidfd: c for c in self._children.values()}
            for fd in (*by_ready, *by_pid):
                poll.register(fd, select.POLLIN)
            impatient = any(c.kill_by_s is not None for c in self._children.values())
            happened = [fd for fd, _ in poll.poll(50 if impatient else None)]
            for fd in happened:
                if fd in by_ready and (confined := self._hear(by_ready[fd])):
                    return confined
            for fd in happened:
                if fd in by_pid and (confined := self._bury(by_pid[fd])):
                    return confined
            self._lose_patience()
            if self._channel.fileno() in happened:
                try:
                    confined = self._obey()
                except ChannelClosed:
                    self._end_all()
                    return None
                if confined:
                    return confined

    def _obey(self) -> Confined | None:
        received = self._channel.receive()
        message = received.message
        if message["do"] == "kill":
            if child := self._children.get(message["id"]):
                self._kill(child)
            return None
        channel, log_file, *fds = received.fds
        return self._start(
            id=message["id"],
            target=message["target"],
            policy=SandboxPolicy.from_json(message["policy"]),
            channel=channel,
            log_file=log_file,
            fds=tuple(fds),
        )

    def _start(
        self,
        *,
        id: int,
        target: str,
        policy: SandboxPolicy,
        channel: int,
        log_file: int,
        fds: tuple[int, ...],
        retry_reason: str = "",
    ) -> Confined | None:
        policy = wrapped_tool.policy_under(policy)
        own = capabilities.for_child(self._ground, id, policy)
        reason = retry_reason or ("" if own.admin else own.admin_lack)
        scratch = tempfile.mkdtemp(prefix="harness-") if reason or policy.mode == "off" else None
        cgroup, cgroup_lack = self._make_cgroup(id, policy)
        oom_kills = limits.out_of_memory_kills()
        began_s = time.monotonic()
        try:
            launched = launch(
                target=target,
                policy=policy,
                ground=own,
                channel=channel,
                fds=fds,
                log_file=log_file,
                scratch=scratch,
                scratch_reason=reason,
                cgroup=cgroup,
                cgroup_lack=cgroup_lack,
                forget=self._forget,
            )
        except OSError as error:
            for fd in (channel, log_file, *fds):
                os.close(fd)
            self._clean(scratch, cgroup)
            self._tell({"event": "failed", "id": id, "reason": f"cannot start a process: {error}"})
            return None
        if isinstance(launched, Confined):
            return launched
        self._children[id] = _Child(
            id=id,
            target=target,
            policy=policy,
            channel=channel,
            log_file=log_file,
            fds=fds,
            launched=launched,
            pidfd=os.pidfd_open(launched.pid),
            started_s=began_s,
            oom_kills=oom_kills,
            scratch=scratch,
            retry_reason=retry_reason,
        )
        return None

    def _make_cgroup(self, id: int, policy: SandboxPolicy) -> tuple[ChildCgroup | None, str]:
        base = self._ground.cgroup_base
        if base is None:
            return None, self._ground.cgroup_lack
        try:
            memory, processes = policy.max_memory_bytes, policy.max_processes
            name = f"harness-{self._ground.host_pid}-{id}"
            return ChildCgroup(base, name, max_memory_bytes=memory, max_processes=processes), ""
        except CgroupUnavailable as error:
            return None, str(error)

    def _forget(self) -> None:
        """Drop the zygote's own objects in a fork, before descriptor numbers are reused."""
        self._channel.close()
        for child in self._children.values():
            child.launched.page.close()
        self._children.clear()

    def _hear(self, child: _Child) -> Confined | None:
        """Read a starting child's message about its sandbox."""
        data = os.read(child.launched.ready, 65536)
        child.answer += data
        if data:
            return None
        child.settled = True
        try:
            said: dict[str, Any] = json.loads(child.answer.decode())
        except ValueError:
            said = {"error": "could not set up the sandbox: its first process died"}
        os.close(child.launched.ready)
        if "retry" in said and not child.retry_reason:
            child.failed = True
            child.retry_reason = said["retry"]
            return None
        for fd in (child.channel, child.log_file, *child.fds):
            os.close(fd)
        if "report" in said and "refused" not in said:
            self._tell({"event": "spawned", "id": child.id, "report": said["report"]}, (child.pidfd,))
        else:
            child.failed = True
            event = {"event": "failed", "id": child.id, "refused": said.get("refused")}
            self._tell(event | {"reason": said.get("error") or said.get("retry") or ""})
        return None

    def _bury(self, child: _Child) -> Confined | None:
        """Report the child of an ended supervisor; start it again if it needs a retry."""
        if not child.settled:
            while not child.settled:
                self._hear(child)
        del self._children[child.id]
        _, _, _ = os.wait4(child.launched.pid, 0)
        os.close(child.pidfd)
        os.close(child.launched.alive)
        wall_s = time.monotonic() - child.started_s
        if self._ground.pid_namespace is None:
            self._end_strays()
        if not child.failed:
            self._tell({"event": "exited", "id": child.id, "exit": _report(child, wall_s).to_json()})
        child.launched.page.close()
        self._clean(child.scratch, child.launched.cgroup)
        if child.failed and child.retry_reason and not self._leaving:
            return self._retry(child)
        return None

    def _retry(self, child: _Child) -> Confined | None:
        return self._start(
            id=child.id,
            target=child.target,
            policy=child.policy,
            channel=child.channel,
            log_file=child.log_file,
            fds=child.fds,
            retry_reason=child.retry_reason,
        )

    def _kill(self, child: _Child) -> None:
        child.killed = True
        if self._ground.pid_namespace is not None:
            _kill_process(child.pidfd)
        elif child.kill_by_s is None:
            # Only its supervisor knows its other processes, so it must end them.
            child.kill_by_s = time.monotonic() + _GRACE_S
            null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
            os.dup2(null, child.launched.alive, inheritable=False)
            os.close(null)

    def _lose_patience(self) -> None:
        now = time.monotonic()
        for child in self._children.values():
            if child.kill_by_s is not None and now > child.kill_by_s:
                _kill_process(child.pidfd)

    def _end_all(self) -> None:
        self._leaving = True
        for child in list(self._children.values()):
            self._kill(child)
        deadline = time.monotonic() + _GRACE_S
        while self._children and time.monotonic() < deadline:
            for child in list(self._children.values()):
                if select.select([child.pidfd], [], [], 0.01)[0]:
                    child.failed, child.settled = True, True
                    self._bury(child)

    def _end_strays(self) -> None:
        """Kill orphans, which this process has adopted without pid namespaces."""
        known = {child.launched.pid for child in self._children.values()}
        strays = [pid for pid in limits.children_of(os.getpid()) if pid not in known]
        supervisor.kill_each(strays)
        for pid in strays:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)

    def _clean(self, scratch: str | None, cgroup: ChildCgroup | None) -> None:
        if scratch is not None:
            cleanup.remove(Path(scratch))
        if cgroup is not None:
            cgroup.kill()
            cgroup.remove()

    def _tell(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        with suppress(ChannelClosed):  # the loop notices it at the next receive
            self._channel.send(message, fds)


def _kill_process(pidfd: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def cause_of(
    account: supervisor.Account,
    code: int | None,
    number: int | None,
    *,
    killed: bool,
    over_cgroup: bool,
    kills_elsewhere: bool,
) -> Cause:
    """Decide why a child ended.

    Args:
        account: The supervisor's report.
        code: Exit code, if it exited.
        number: Signal, if one ended it.
        killed: Whether the harness ended it.
        over_cgroup: Whether the kernel killed a process of its cgroup because of the cgroup's limit.
        kills_elsewhere: Whether the kernel killed any process of the machine for lack of memory; it may have been this
            child, below its own limit.

    Returns:
        The cause.
    """
    by_kill = code is None and number in (None, signal.SIGKILL)
    if account.over_memory or (over_cgroup and number in (None, signal.SIGKILL)):
        return "memory_limit"
    if account.over_disk:
        return "disk_limit"
    if killed and by_kill:
        return "killed"
    if kills_elsewhere and by_kill:
        return "machine_memory"
    if code is not None:
        return "exited"
    return "lost" if number is None else "signalled"


def _report(child: _Child, wall_s: float) -> ExitReport:
    """Combine the supervisor's report and the circumstances."""
    account = child.launched.page.read()
    cgroup = child.launched.cgroup
    peaks = [account.peak_bytes, account.largest_process_bytes, (cgroup.peak_bytes() or 0) if cgroup else 0]
    code: int | None = None
    number: int | None = None
    if account.wait_status is not None:
        ended = os.waitstatus_to_exitcode(account.wait_status)
        code, number = (ended, None) if ended >= 0 else (None, -ended)
    return ExitReport(
        exit_code=code,
        signal=number,
        cause=cause_of(
            account,
            code,
            number,
            killed=child.killed,
            over_cgroup=cgroup is not None and cgroup.out_of_memory(),
            kills_elsewhere=limits.out_of_memory_kills() > child.oom_kills,
        ),
        wall_s=wall_s,
        peak_memory_bytes=max(peaks) or None,
        log_truncated=account.log_truncated,
    )
