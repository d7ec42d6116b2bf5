"""Fork one child into a sandbox and return its handles to the zygote.

Trusted code. `launch` returns twice: in the zygote with a `Launched`, and in the confined grandchild with a `Confined`
after all restrictions are active. The process between them is the supervisor and never returns. Forking keeps the
imported torch, which bubblewrap's exec would discard (3 to 5 s). See guides/design/sandbox.md.
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
    """Handles of a starting supervisor, in the zygote.

    `ready` yields one JSON object; closing `alive` ends the child.
    """

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
    """Fork a child.

    The caller keeps its descriptors.

    Args:
        target: Function that the child runs.
        policy: Isolation and limits.
        ground: Facts about the machine.
        channel: Descriptor of the child's channel.
        fds: Further descriptors for the child.
        log_file: Descriptor of the child's log.
        scratch: Folder for a child without a mount namespace; None asks for the private root.
        scratch_reason: Reason for the missing mount namespace.
        cgroup: The child's cgroup.
        cgroup_lack: Reason for a missing cgroup.
        forget: Closes the zygote's own descriptors, in the fork.

    Returns:
        `Launched` in the zygote, `Confined` in the confined process.

    Raises:
        OSError: The process or its namespace cannot be created.
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
    """Return the zygote's future forks to its own pid namespace."""
    if ground.pid_namespace is not None:
        syscalls.setns(ground.pid_namespace, syscalls.CLONE_NEWPID)
