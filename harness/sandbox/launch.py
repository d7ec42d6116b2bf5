"""Forks one child into a sandbox, and hands the zygote the strings to it.

Imports the rest of this package. Trusted code. `launch` is called in a zygote and returns twice: in the zygote with
a `Launched`, and in the confined grandchild with a `Confined`, once every wall stands. The process between them is
the supervisor and never returns.

Decision: own namespaces by system call, not bubblewrap, even where that is installed. bwrap starts its program by
exec, which throws away the imported torch (3 to 5 s) that forking from a zygote exists for. The walls are the same
(user, mount, pid, ipc, network and uts namespaces, a private root, no_new_privs, a seccomp filter), and as root this
adds another user id, which bwrap does not.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from harness.sandbox import filesystem, syscalls, wrapped_tool
from harness.sandbox.cgroup import ChildCgroup
from harness.sandbox.confine import Confined, ConfinedStart, Ground, answer
from harness.sandbox.policy import Findings, SandboxPolicy
from harness.sandbox.supervisor import AccountPage


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """In the zygote: a supervisor under way. `ready` yields one JSON object; closing `alive` ends the child."""

    pid: int
    ready: int
    alive: int
    page: AccountPage
    cgroup: ChildCgroup | None


def launch(
    *,
    target: str,
    policy: SandboxPolicy,
    ground: Ground,
    channel: int,
    fds: tuple[int, ...],
    log_file: int,
    scratch: str | None,
    scratch_reason: str,
    cgroup: ChildCgroup | None,
    cgroup_lack: str,
    forget: Callable[[], None],
) -> Launched | Confined:
    """Fork a child; see the module's docstring for who returns.

    `scratch` is a folder made for a child that gets no mount namespace, `scratch_reason` why; None asks for the
    private root. `forget` closes, in the fork, what belongs to the zygote alone. The caller keeps its descriptors.
    Raises `OSError` where no process or namespace can be made.
    """
    page = AccountPage()
    ready, ready_child = os.pipe()
    alive_child, alive = os.pipe()
    log_read, log_write = os.pipe()
    own = (ready_child, alive_child, log_read, log_write)
    try:
        if ground.pid_namespace is not None:
            syscalls.unshare(syscalls.CLONE_NEWPID)
        pid = os.fork()
    except OSError:
        _restore(ground)
        for fd in (ready, alive, *own):
            os.close(fd)
        raise
    if pid:
        _restore(ground)
        for fd in own:
            os.close(fd)
        return Launched(pid=pid, ready=ready, alive=alive, page=page, cgroup=cgroup)
    try:
        forget()
        kept = wrapped_tool.descriptors() if ground.enclosed else set()
        syscalls.close_descriptors({channel, *fds, log_file, *own, *kept})
        job = ConfinedStart(
            target=target,
            policy=policy,
            ground=ground,
            channel=channel,
            fds=fds,
            log_file=log_file,
            log_read=log_read,
            log_write=log_write,
            ready=ready_child,
            alive=alive_child,
            scratch=scratch,
            page=page,
            findings=Findings(),
        )
        job.note(scratch_reason, cgroup, cgroup_lack)
        return job.run(cgroup)
    except (filesystem.PathMissing, PermissionError) as error:
        answer(ready_child, {"error": str(error)})
        os._exit(70)
    except BaseException:
        answer(ready_child, {"error": traceback.format_exc(limit=-4)})
        os._exit(70)


def _restore(ground: Ground) -> None:
    """Make the zygote's next forks land in its own pid namespace again."""
    if ground.pid_namespace is not None:
        syscalls.setns(ground.pid_namespace, syscalls.CLONE_NEWPID)
