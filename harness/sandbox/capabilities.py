"""Find out which isolation mechanisms this machine allows a zygote to use.

Trusted code. `enter` runs before the zygote preloads modules: the kernel refuses a user namespace to a process with
several threads.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NoReturn

from harness.sandbox import mounts, syscalls
from harness.sandbox.cgroup import CgroupUnavailable, find_base
from harness.sandbox.confine import Ground
from harness.sandbox.policy import SandboxPolicy

_CAP_CHOWN, _CAP_SETGID, _CAP_SETUID, _CAP_SYS_ADMIN = 0, 6, 7, 21
_USER_BASE = 0x40000000
_USERS_PER_ZYGOTE = 256
_SMALL_USER_BASE = 61184
_SMALL_USERS = 4336
"""User ids for machines whose ids end at 65535: systemd reserves this range for dynamic users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entered:
    """Result of `enter`; `host_pid` identifies this zygote on the machine."""

    admin: bool
    admin_lack: str
    host_pid: int
    enclosed: bool = False


def enter(on_fork: Callable[[], None]) -> Entered:
    """Give this process the right to make namespaces, by a user namespace unless root.

    The caller continues as a grandchild inside a new pid namespace. The first process of that namespace waits for it,
    so its end also ends every child. The calling process waits too (after `on_fork`) and exits with the same status.
    The caller is not the first process itself: libraries detect a fork by a new process id, and every child is the
    first process of its own namespace. If no pid namespace can be created, nothing is forked.
    """
    lack = ""
    admin = syscalls.has_capability(_CAP_SYS_ADMIN)
    if not admin:
        refusal = _try_user_namespace()
        if refusal:
            lack = f"not root, and this machine does not allow user namespaces ({refusal})"
        else:
            syscalls.enter_user_namespace(os.geteuid(), os.getegid())
            admin = True
    if admin:
        try:
            syscalls.unshare(syscalls.CLONE_NEWPID)
        except OSError as error:
            admin, lack = False, f"cannot create a pid namespace ({error})"
    if admin:
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        for _ in range(2):  # the namespace's first process, then the zygote
            if pid := os.fork():
                on_fork()
                _wait_for(pid)
            syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    return Entered(admin=admin, admin_lack=lack, host_pid=int(os.readlink("/proc/self")))


def _wait_for(pid: int) -> NoReturn:
    """Reap orphans until the child `pid` ends, and exit with its status."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def enclosed(outer_pid: int) -> Entered:
    """Continue inside `pid_namespace`, whose process outside is `outer_pid`.

    Children get no pid namespace of their own, because the tool around them would lose them.
    """
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    return Entered(admin=True, admin_lack="", host_pid=outer_pid, enclosed=True)


def survey(entered: Entered) -> Ground:
    """Examine the machine.

    Called after the preload, because children need the loaded libraries.
    """
    shown = mounts.discover()
    try:
        base, cgroup_lack = find_base(), ""
    except CgroupUnavailable as error:
        base, cgroup_lack = None, str(error)
    user, user_lack = _other_user(entered, shown)
    pid_namespace = None
    if entered.admin and not entered.enclosed:
        pid_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    return Ground(
        view=shown,
        admin=entered.admin,
        admin_lack=entered.admin_lack,
        pid_namespace=pid_namespace,
        other_user=user,
        other_user_lack=user_lack,
        cgroup_base=base,
        cgroup_lack=cgroup_lack,
        enclosed=entered.enclosed,
        host_pid=entered.host_pid,
    )


def for_child(ground: Ground, number: int, policy: SandboxPolicy) -> Ground:
    """Return the ground for child `number`, with its own user id.

    Only 256 children of one zygote have different user ids.
    """
    if ground.other_user is None:
        return ground
    if closed := mounts.closed_devices(ground.view, policy):
        return replace(ground, other_user=None, other_user_lack=f"other users cannot open {closed}")
    return replace(ground, other_user=ground.other_user + number % _USERS_PER_ZYGOTE)


def _other_user(entered: Entered, shown: mounts.SystemView) -> tuple[int | None, str]:
    """Return the first user id for children, or why there is none ("" if not root)."""
    if os.geteuid() != 0:
        return None, ""
    for number, name in ((_CAP_CHOWN, "CAP_CHOWN"), (_CAP_SETGID, "CAP_SETGID"), (_CAP_SETUID, "CAP_SETUID")):
        if not syscalls.has_capability(number):
            return None, f"running as root without {name}"
    if closed := mounts.unreadable_for_others(shown):
        return None, f"other users cannot read {closed}: run chmod o+rX on it"
    large = _USER_BASE + entered.host_pid * _USERS_PER_ZYGOTE
    small = _SMALL_USER_BASE + entered.host_pid * 16 % (_SMALL_USERS - _USERS_PER_ZYGOTE)
    for first in (large, small):
        if first + _USERS_PER_ZYGOTE < 2**31 and all(_is_mapped(kind, first) for kind in ("uid", "gid")):
            return first, ""
    return None, "this user namespace maps no unused user ids"


def _is_mapped(kind: str, first: int) -> bool:
    with suppress(OSError), open(f"/proc/self/{kind}_map", encoding="utf-8") as file:
        for line in file:
            start, _, count = (int(word) for word in line.split())
            if start <= first and first + _USERS_PER_ZYGOTE <= start + count:
                return True
    return False


def _try_user_namespace() -> str:
    """Return why this process cannot enter a user namespace, or an empty string.

    A fork tries it, because a process cannot undo a half-entered namespace.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            syscalls.enter_user_namespace(os.geteuid(), os.getegid())
        except OSError as error:
            os.write(writing, str(error).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        refusal = pipe.read()
    os.waitpid(pid, 0)
    return refusal
