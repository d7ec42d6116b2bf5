"""Enter a sandbox step by step, from the fork to the confined process.

Trusted code; no line of a submission runs before the last step. The process that `launch` forks becomes the supervisor
and forks the confined process. The order of the steps matters:

* The mounts need CAP_SYS_ADMIN, so they precede the change of user.
* A change of user clears the parent-death signal and the dumpable flag, so both are set afterwards.
* /proc/self/uid_map is writable only while the process is dumpable.
* The limits precede Landlock. Seccomp comes last, because it forbids calls of the earlier steps.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from harness.sandbox import environment, filesystem, landlock, limits, seccomp, supervisor, syscalls, wrapped_tool
from harness.sandbox import mounts as view
from harness.sandbox.cgroup import ChildCgroup
from harness.sandbox.policy import Findings, SandboxPolicy
from harness.sandbox.supervisor import AccountPage

INSIDE_ID = 1000
"""User and group id that a child sees as its own in a user namespace."""

_HOST_NAME = "sandbox"
_NAMESPACES = {
    "ipc_namespace": syscalls.CLONE_NEWIPC,
    "uts_namespace": syscalls.CLONE_NEWUTS,
    "network_namespace": syscalls.CLONE_NEWNET,
    "cgroup_namespace": syscalls.CLONE_NEWCGROUP,
}
_SPARED, _FIRST = "-1000", "1000"
"""Values of `oom_score_adj`: the kernel kills the supervisor last and the confined process first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Facts about the machine that a zygote finds once and uses for every child.

    `pid_namespace` is a descriptor of the zygote's own pid namespace if it can make others. `other_user` is the user
    and group id for a child; if None, `other_user_lack` is the reason (empty if not root). `enclosed` means that the
    zygote shares its network and processes with the tool around it only. `host_pid` identifies the zygote.
    """

    view: view.SystemView
    admin: bool
    admin_lack: str
    pid_namespace: int | None
    other_user: int | None
    other_user_lack: str
    cgroup_base: Path | None
    cgroup_lack: str
    enclosed: bool
    host_pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Confined:
    """The confined process's target, channel and descriptors."""

    target: str
    channel: int
    fds: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfinedStart:
    """Setup of one child, inside the fork."""

    target: str
    policy: SandboxPolicy
    ground: Ground
    channel: int
    fds: tuple[int, ...]
    log_file: int
    log_read: int
    log_write: int
    ready: int
    alive: int
    scratch: str | None
    page: AccountPage
    findings: Findings

    @property
    def walled(self) -> bool:
        return self.policy.mode != "off"

    @property
    def home(self) -> str:
        return view.HOME if self.scratch is None else self.scratch

    def note(self, scratch_reason: str, cgroup: ChildCgroup | None, cgroup_lack: str) -> None:
        if scratch_reason:
            self.findings.lack("mount_namespace", scratch_reason)
        if cgroup is None:
            self.findings.lack("memory_cgroup", cgroup_lack)

    def run(self, cgroup: ChildCgroup | None) -> Confined:
        """Perform all steps after the fork; only the confined process returns."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.setsid()
        _redirect("/dev/null", 0)
        os.dup2(self.log_file, 1)
        os.dup2(self.log_file, 2)
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        _rank_for_shortage(_SPARED)
        if cgroup is not None:
            try:
                cgroup.enter()
                self.findings.have("memory_cgroup")
            except OSError as error:
                self.findings.lack("memory_cgroup", error)
        self._enter_namespaces()
        self._enter_root()
        self._change_user()
        if self.ground.pid_namespace is None:
            syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        pid = os.fork()
        if pid == 0:
            return self._confine()
        self._supervise(pid)

    def _enter_namespaces(self) -> None:
        if self.ground.pid_namespace is not None:
            self.findings.have("pid_namespace")
        elif self.ground.enclosed:
            self.findings.have("pid_namespace")
            self.findings.have("pid_namespace_shared_with_zygote")
        else:
            self.findings.lack("pid_namespace", self.ground.admin_lack)
        if not self.walled:
            return
        for name, flag in _NAMESPACES.items():
            if name == "network_namespace" and self.policy.under_tool:
                self._share_network()
                continue
            if not self.ground.admin:
                self.findings.lack(name, self.ground.admin_lack)
                continue
            try:
                syscalls.unshare(flag)
                self.findings.have(name)
            except OSError as error:
                self.findings.lack(name, error)
        if "uts_namespace" in self.findings.mechanisms:
            syscalls.set_host_name(_HOST_NAME)

    def _share_network(self) -> None:
        if self.ground.enclosed:
            self.findings.have("network_namespace")
            self.findings.have("network_shared_with_zygote")
        else:
            self.findings.lack("network_namespace", "the policy shares the zygote's network: the machine's")

    def _enter_root(self) -> None:
        """Enter the private root, or mount at least a /proc for the own pid namespace."""
        owner = self._owner()
        if self.walled and self.ground.other_user is not None:
            for path in self.policy.readable:
                if view.closed_to_others(str(path)):
                    raise PermissionError(13, f"the sandbox's user cannot read {path}: run chmod o+rX on it")
            filesystem.give_folders(self.policy, owner)
        if self.scratch is None:
            try:
                syscalls.unshare(syscalls.CLONE_NEWNS)
                ids = tuple(dict.fromkeys((INSIDE_ID, owner[0])))
                filesystem.build_root(self.policy, self.ground.view, owner=owner, ids=ids, findings=self.findings)
            except filesystem.PathMissing:
                raise
            except OSError as error:
                answer(self.ready, {"retry": str(error)})
                os._exit(71)
            self.findings.have("mount_namespace")
            return
        if self.ground.pid_namespace is not None:
            with suppress(OSError):
                syscalls.unshare(syscalls.CLONE_NEWNS)
                syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
                syscalls.mount("proc", "/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC)
        if self.walled:
            os.chown(self.scratch, *owner)
        os.chdir(self.scratch)

    def _owner(self) -> tuple[int, int]:
        user = self.ground.other_user if self.walled else None
        return (os.geteuid(), os.getegid()) if user is None else (user, user)

    def _change_user(self) -> None:
        """Change the user id, enter a user namespace and drop all capabilities."""
        if not self.walled:
            return
        syscalls.drop_bounding_set()
        user = self.ground.other_user
        if user is not None:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            self.findings.have("other_user")
        elif self.ground.other_user_lack:
            self.findings.lack("other_user", self.ground.other_user_lack)
        try:
            syscalls.enter_user_namespace(INSIDE_ID, INSIDE_ID)
            self.findings.have("user_namespace")
        except OSError as error:
            self.findings.lack("user_namespace", error)
        syscalls.drop_capabilities()
        self.findings.have("no_capabilities")
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        self.findings.have("no_new_privileges")
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)

    def _confine(self) -> Confined:
        """Take the last steps in the process that will run the target."""
        self.page.close()
        os.setsid()
        os.dup2(self.log_write, 1)
        os.dup2(self.log_write, 2)
        kept = wrapped_tool.descriptors() if self.ground.enclosed else set()
        syscalls.close_descriptors({self.channel, *self.fds, self.ready, *kept})
        for fd in (self.channel, *self.fds, self.ready):
            os.set_inheritable(fd, False)
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._set_environment()
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
        _rank_for_shortage(_FIRST)
        limits.set_rlimits(self.policy)
        for name in ("limits", "memory_watchdog", "bounded_log", "clean_environment"):
            self.findings.have(name)
        if self.walled:
            self._fence()
        report = self.findings.report(walled=self.walled)
        if self.policy.mode == "strict" and report.strength != "full":
            answer(self.ready, {"refused": report.weakness(), "report": report.to_json()})
            os._exit(72)
        answer(self.ready, {"report": report.to_json()})
        return Confined(target=self.target, channel=self.channel, fds=self.fds)

    def _fence(self) -> None:
        shown = self.ground.view
        readable = [*shown.readable, *(os.path.realpath(path) for path in self.policy.readable)]
        writable = [os.path.realpath(path) for path in self.policy.writable]
        writable += filesystem.SCRATCH if self.scratch is None else [self.scratch, "/dev/shm"]
        devices = [*shown.devices, *(shown.gpu_devices if self.policy.gpu else ()), "/proc"]
        try:
            version = landlock.restrict(
                readable=[*readable, "/etc", "/sys"],
                writable=writable,
                devices=devices,
                listed=["/"] if self.scratch is None else [],
                network=self.policy.under_tool,
            )
            self.findings.have("landlock")
            self.findings.have(f"landlock_abi_{version}")
        except OSError as error:
            self.findings.lack("landlock", error)
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        self.findings.have("not_dumpable")
        try:
            seccomp.install(network=self.policy.under_tool)
            self.findings.have("seccomp")
        except OSError as error:
            self.findings.lack("seccomp", error)

    def _set_environment(self) -> None:
        tmp = "/tmp" if self.scratch is None else self.scratch
        added = dict(self.policy.env)
        if self.policy.under_tool and self.ground.enclosed:
            added = wrapped_tool.variables(os.environ) | added
        wanted = environment.inside(os.environ, added, home=self.home, tmp=tmp)
        for name in set(os.environ) - set(wanted):
            del os.environ[name]
        os.environ.update(environment.only_visible(wanted))
        tempfile.tempdir = None

    def _supervise(self, target: int) -> NoReturn:
        """Run the supervisor."""
        for fd in (self.channel, *self.fds, self.log_write, self.ready):
            os.close(fd)
        alone = self.ground.pid_namespace is not None and os.getpid() == 1
        me = int(os.readlink("/proc/self"))
        own_proc = alone and me == 1

        def others() -> list[int]:
            return [pid for pid in limits.all_pids() if pid != 1] if own_proc else limits.descendants(me)

        def end() -> None:
            if alone:
                with suppress(ProcessLookupError):
                    os.kill(-1, signal.SIGKILL)
            else:
                supervisor.kill_each(others())

        try:
            supervisor.supervise(
                target=target,
                policy=self.policy,
                log_pipe=self.log_read,
                log_file=self.log_file,
                zygote_alive=self.alive,
                page=self.page,
                scratch=filesystem.SCRATCH if self.scratch is None else (),
                own_network="network_namespace" in self.findings.mechanisms,
                list_others=others,
                end_others=end,
            )
        except BaseException:
            traceback.print_exc()
            os._exit(73)
        os._exit(0)


def _rank_for_shortage(score: str) -> None:
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="utf-8") as file:
        file.write(score)  # lowering needs root; otherwise the kernel may kill the supervisor too


def _redirect(path: str, fd: int) -> None:
    opened = os.open(path, os.O_RDWR)
    os.dup2(opened, fd)
    if opened != fd:
        os.close(opened)


def answer(fd: int, message: dict[str, object]) -> None:
    """Send the zygote one JSON object about the setup, and close the pipe."""
    data = json.dumps(message).encode()
    with suppress(OSError):
        while data:
            data = data[os.write(fd, data) :]
        os.close(fd)
