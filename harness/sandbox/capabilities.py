"""What a zygote stands on: finds out, once, which walls this machine lets it build for its children.

Imports the rest of this package. Trusted code, run while the zygote starts, before anything is preloaded:
`enter` must see a single thread, or the kernel refuses a user namespace.
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
"""Users where ids end at 65535: the range that systemd sets aside for short-lived ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entered:
    """How `enter` went; in the server only. `host_pid` tells this zygote from every other on the machine."""

    admin: bool
    admin_lack: str
    host_pid: int
    enclosed: bool = False


def enter(on_fork: Callable[[], None]) -> Entered:
    """Make this a process that can make namespaces: as root it is one, else in a user namespace of its own.

    Forks: the caller goes on in a pid namespace whose first process waits for it, so that its end is the end of every
    child, while the process that called waits for that (after `on_fork`) and ends with the same status. It is not the
    first process itself, since libraries know a fork by a new process id, and every child is the first in a namespace
    of its own. Where no pid namespace can be made, nothing is forked.
    """
    lack = ""
    admin = syscalls.has_capability(_CAP_SYS_ADMIN)
    if not admin:
        refusal = _try_user_namespace()
        if refusal:
            lack = f"not root, and user namespaces are not allowed here ({refusal})"
        else:
            syscalls.enter_user_namespace(os.geteuid(), os.getegid())
            admin = True
    if admin:
        try:
            syscalls.unshare(syscalls.CLONE_NEWPID)
        except OSError as error:
            admin, lack = False, f"no pid namespace can be made ({error})"
    if admin:
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        for _ in range(2):  # the first process of the namespace, and the one that goes on
            if pid := os.fork():
                on_fork()
                _wait_for(pid)
            syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    return Entered(admin=admin, admin_lack=lack, host_pid=int(os.readlink("/proc/self")))


def _wait_for(pid: int) -> NoReturn:
    """End as the child `pid` does; until then, take care of what loses its parent."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def enclosed(outer_pid: int) -> Entered:
    """Go on inside `enclosure`, whose process outside is `outer_pid`.

    Children get no process ids of their own, by which the tool around them would lose them.
    """
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    return Entered(admin=True, admin_lack="", host_pid=outer_pid, enclosed=True)


def survey(entered: Entered) -> Ground:
    """Look at the machine; called after the preload, whose libraries count among what children need to see."""
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
    """The ground of child `number`: no two at a time share a user id, unless hundreds run."""
    if ground.other_user is None:
        return ground
    if closed := mounts.closed_devices(ground.view, policy):
        return replace(ground, other_user=None, other_user_lack=f"{closed} is closed to other users")
    return replace(ground, other_user=ground.other_user + number % _USERS_PER_ZYGOTE)


def _other_user(entered: Entered, shown: mounts.SystemView) -> tuple[int | None, str]:
    """The first of the user ids for this zygote's children, or why there is none (empty: never to be expected)."""
    if os.geteuid() != 0:
        return None, ""
    for number, name in ((_CAP_CHOWN, "CAP_CHOWN"), (_CAP_SETGID, "CAP_SETGID"), (_CAP_SETUID, "CAP_SETUID")):
        if not syscalls.has_capability(number):
            return None, f"root without {name}"
    if closed := mounts.unreadable_for_others(shown):
        return None, f"{closed} can't be read by other users; chmod o+rX it"
    large = _USER_BASE + entered.host_pid * _USERS_PER_ZYGOTE
    small = _SMALL_USER_BASE + entered.host_pid * 16 % (_SMALL_USERS - _USERS_PER_ZYGOTE)
    for first in (large, small):
        if first + _USERS_PER_ZYGOTE < 2**31 and all(_is_mapped(kind, first) for kind in ("uid", "gid")):
            return first, ""
    return None, "this user namespace maps no user ids to spare"


def _is_mapped(kind: str, first: int) -> bool:
    with suppress(OSError), open(f"/proc/self/{kind}_map", encoding="utf-8") as file:
        for line in file:
            start, _, count = (int(word) for word in line.split())
            if start <= first and first + _USERS_PER_ZYGOTE <= start + count:
                return True
    return False


def _try_user_namespace() -> str:
    """Why no user namespace can be entered, or empty; tried in a fork, since half-entered there is no way back."""
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
