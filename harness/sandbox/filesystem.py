"""Build a private root file system and switch to it.

Trusted code, in the fork that becomes the sandbox, in its own mount namespace with CAP_SYS_ADMIN. It changes nothing
outside except the owner of the policy's writable folders. The child sees only:

* the view and `policy.readable`, read-only; `policy.writable`;
* a private `/tmp`, home and `/dev/shm`;
* a `/dev` of a few nodes, and a `/proc` of its own pid namespace with the kernel's controls masked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress

from harness.sandbox import syscalls
from harness.sandbox.mounts import HOME, SystemView, gpu_devices, is_below, outermost
from harness.sandbox.policy import Findings, SandboxPolicy

_STAGE = "/tmp"
"""Existing folder to build under; its contents stay reachable through the old root."""

SCRATCH = ("/tmp", HOME, "/dev/shm")
"""Private folders of a child, in memory."""

_OCTAL = re.compile(r"\\([0-7]{3})")
"""Escapes of blanks and backslashes in mountinfo. Decoding them with a codec would import a module whose file is out of
reach.
"""

_MASKED_FILES = (
    *("kcore", "keys", "key-users", "kmsg", "kallsyms", "kpagecount", "kpageflags", "kpagecgroup"),
    *("sched_debug", "slabinfo", "sysrq-trigger", "timer_list", "latency_stats", "vmallocinfo", "config.gz"),
)
_MASKED_FOLDERS = ("acpi", "asound", "bus", "fs", "irq", "scsi", "dynamic_debug", "pressure", "tty")
_PASSWD = "root:x:0:0:root:/:/usr/sbin/nologin\n"
_PASSWD_LINE = "sandbox:x:{id}:{id}:sandbox:{home}:/bin/sh\n"
_GROUP = "root:x:0:\n"
_GROUP_LINE = "sandbox:x:{id}:\n"
_NSSWITCH = "passwd: files\ngroup: files\nhosts: files\n"
_HOSTS = "127.0.0.1 localhost\n"


class PathMissing(Exception):
    """A file or folder of the policy does not exist; the policy's author must fix it."""


def build_root(
    policy: SandboxPolicy, view: SystemView, *, owner: tuple[int, int], ids: tuple[int, ...], findings: Findings
) -> None:
    """Build the private root and switch to it; the new working directory is the home.

    Args:
        policy: Folders to show, and limits.
        view: Parts of the system to show.
        owner: User and group of the child, as this process sees them.
        ids: User ids that the child may see as its own.
        findings: Receives the active and missing mechanisms.

    Raises:
        PathMissing: A path of the policy does not exist; nothing was changed.
        OSError: A necessary step failed. The process must exit, because it may be between two roots.
    """
    sources = [os.path.realpath(path) for path in policy.readable]
    writable = [os.path.realpath(path) for path in policy.writable]
    hidden = [os.path.realpath(path) for path in policy.hidden]
    for asked in (*policy.readable, *policy.writable):
        if not asked.exists():
            raise PathMissing(f"the sandbox policy names {asked}, but it does not exist")
    syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.mount("tmpfs", _STAGE, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "mode=755,size=1m,nr_inodes=4k")
    os.mkdir(f"{_STAGE}/new")
    os.mkdir(f"{_STAGE}/old")
    syscalls.pivot_root(_STAGE, f"{_STAGE}/old")
    os.chdir("/")
    syscalls.mount("tmpfs", "/new", "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "mode=755,size=4m,nr_inodes=16k")
    for folder in SCRATCH:  # first, because the policy may name folders below /tmp
        flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
        size = f"mode=700,uid={owner[0]},gid={owner[1]},size={policy.max_scratch_bytes},nr_inodes=1m"
        os.makedirs(f"/new{folder}", exist_ok=True)
        syscalls.mount("tmpfs", f"/new{folder}", "tmpfs", flags, size)
    for path, shown in arrange([*view.readable, *sources], view.private):
        if not shown:
            _cover(f"/new{path}")
        elif os.path.lexists(f"/old{path}"):  # a module may have been deleted since the view was made
            _bind(path, read_only=True)
    for path in sorted(writable):
        _bind(path, read_only=False)
    _make_etc(view, ids)
    _make_dev(view, policy)
    _make_sys(view, policy)
    _make_proc(findings)
    for path in hidden:
        _blank(path)
    names = [(str(path), os.path.realpath(path)) for path in (*policy.readable, *policy.writable)]
    for name, real in (*view.aliases, *names):
        _alias(name, real)
    _lock_read_only("/new", only_top=True)
    os.chdir("/new")
    syscalls.pivot_root(".", ".")
    syscalls.unmount(".", syscalls.MNT_DETACH)
    os.chdir(HOME)


def arrange(readable: Iterable[str], private: Iterable[str]) -> list[tuple[str, bool]]:
    """List the paths to bind (True) and to cover (False), outer folders first.

    A readable folder inside a visible one needs no bind. A private folder that is not visible needs no cover.
    """
    shown = set(readable)
    steps: list[tuple[str, bool]] = []
    for path in sorted(shown | set(private), key=lambda path: path.split("/")):
        around = [visible for outer, visible in steps if is_below(path, outer)]
        visible = bool(around) and around[-1]
        if (path in shown) != visible:
            steps.append((path, path in shown))
    return steps


def give_folders(policy: SandboxPolicy, owner: tuple[int, int]) -> None:
    """Make `owner` the owner of the writable folders and their contents.

    Links are not followed. A file with several names keeps its owner, because another name may belong to the harness (a
    cached build). Files too deep for a path also keep their owner: they come from an earlier child and belong to
    `owner` already.
    """
    for root in policy.writable:
        os.chown(root, *owner)
        waiting = [os.fspath(root)] if os.path.isdir(root) else []
        while waiting:  # no recursion: an earlier child may have nested thousands of folders
            with suppress(OSError), os.scandir(waiting.pop()) as listing:
                for entry in listing:
                    is_folder = entry.is_dir(follow_symlinks=False)
                    if is_folder or entry.stat(follow_symlinks=False).st_nlink == 1:
                        os.chown(entry.path, *owner, follow_symlinks=False)
                    if is_folder:
                        waiting.append(entry.path)


def _bind(path: str, *, read_only: bool, devices: bool = False) -> None:
    """Show the old root's `path`, with all mounts below it, at the same place."""
    source, target = f"/old{path}", f"/new{path}"
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.lexists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    syscalls.mount(source, target, None, syscalls.MS_BIND | syscalls.MS_REC)
    attributes = syscalls.MOUNT_ATTR_NOSUID | (0 if devices else syscalls.MOUNT_ATTR_NODEV)
    attributes |= syscalls.MOUNT_ATTR_RDONLY if read_only else 0
    try:
        syscalls.mount_setattr(target, attributes)
    except OSError:
        _restrict_each(target, attributes)


def _restrict_each(target: str, attributes: int) -> None:
    """Remount each mount at or below `target`: `mount_setattr` for Linux before 5.12."""
    flags = syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_NOSUID
    flags |= syscalls.MS_NODEV if attributes & syscalls.MOUNT_ATTR_NODEV else 0
    flags |= syscalls.MS_RDONLY if attributes & syscalls.MOUNT_ATTR_RDONLY else 0
    kept = {"ro": syscalls.MS_RDONLY, "nodev": syscalls.MS_NODEV, "noexec": syscalls.MS_NOEXEC}
    with open("/old/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        mounts = [line.split() for line in file]
    for fields in mounts:
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
        if is_below(point, target):
            own = [kept.get(option, 0) for option in fields[5].split(",")]
            combined = flags
            for flag in own:
                combined |= flag
            syscalls.mount(None, point, None, combined)


def _make_etc(view: SystemView, ids: tuple[int, ...]) -> None:
    os.makedirs("/new/etc", exist_ok=True)
    for path in view.etc:
        if os.path.islink(f"/old{path}"):
            os.symlink(os.readlink(f"/old{path}"), f"/new{path}")
        else:
            _bind(path, read_only=True)
    texts = {
        "passwd": _PASSWD + "".join(_PASSWD_LINE.format(id=number, home=HOME) for number in ids),
        "group": _GROUP + "".join(_GROUP_LINE.format(id=number) for number in ids),
        "nsswitch.conf": _NSSWITCH,
        "hosts": _HOSTS,
    }
    for name, text in texts.items():
        with open(f"/new/etc/{name}", "w", encoding="utf-8") as file:
            file.write(text)


def _make_dev(view: SystemView, policy: SandboxPolicy) -> None:
    os.makedirs("/new/dev", exist_ok=True)
    for path in (*view.devices, *gpu_devices(view, policy)):
        _bind(path, read_only=False, devices=True)
    links = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
    for name, target in links.items():
        os.symlink(target, f"/new/dev/{name}")


def _make_sys(view: SystemView, policy: SandboxPolicy) -> None:
    for path in outermost([*view.sys, *(view.gpu_sys if policy.gpu else ())]):
        with suppress(OSError):  # optional: libraries only read the topology
            _bind(path, read_only=True)


def _make_proc(findings: Findings) -> None:
    """Mount a /proc of this pid namespace and mask it; else show the machine's /proc."""
    os.makedirs("/new/proc", exist_ok=True)
    try:
        syscalls.mount("proc", "/new/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC)
    except OSError as error:
        findings.lack("private_proc", f"{error}; the sandbox shows the machine's /proc instead")
        syscalls.mount("/old/proc", "/new/proc", None, syscalls.MS_BIND | syscalls.MS_REC)
    else:
        findings.have("private_proc")
    for name in _MASKED_FILES:
        if os.path.exists(f"/new/proc/{name}"):
            with suppress(OSError):  # the ids and dropped capabilities protect the rest
                syscalls.mount("/old/dev/null", f"/new/proc/{name}", None, syscalls.MS_BIND)
    for name in _MASKED_FOLDERS:
        if os.path.isdir(f"/new/proc/{name}"):
            with suppress(OSError):
                _empty(f"/new/proc/{name}")
    syscalls.mount("/new/proc/sys", "/new/proc/sys", None, syscalls.MS_BIND | syscalls.MS_REC)
    _lock_read_only("/new/proc/sys")


def _cover(target: str) -> None:
    """Hide the contents of `target` behind an empty folder that can hold mount points."""
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
    syscalls.mount("tmpfs", target, "tmpfs", flags, "mode=755,size=1m,nr_inodes=4k")


def _empty(target: str) -> None:
    flags = syscalls.MS_RDONLY | syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount("tmpfs", target, "tmpfs", flags, "mode=000,size=4k,nr_inodes=2")


def _blank(path: str) -> None:
    target = f"/new{path}"
    if os.path.isdir(target):
        _empty(target)
    elif os.path.exists(target):
        syscalls.mount("/old/dev/null", target, None, syscalls.MS_BIND)


def _alias(name: str, real: str) -> None:
    """Make the link `name` to `real` unless `name` exists."""
    link = f"/new{name}"
    if name == real or os.path.lexists(link):
        return
    with suppress(OSError):  # its parent is bound read-only and has the machine's own link, or none
        os.makedirs(os.path.dirname(link), exist_ok=True)
        os.symlink(real, link)


def _lock_read_only(target: str, *, only_top: bool = False) -> None:
    if only_top:
        flags = syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_RDONLY | syscalls.MS_NOSUID | syscalls.MS_NODEV
        syscalls.mount(None, target, None, flags)
        return
    try:
        syscalls.mount_setattr(target, syscalls.MOUNT_ATTR_RDONLY)
    except OSError:
        _restrict_each(target, syscalls.MOUNT_ATTR_RDONLY | syscalls.MOUNT_ATTR_NODEV)
