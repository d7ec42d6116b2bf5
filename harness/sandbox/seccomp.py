"""System-call filter of a sandboxed process, as classic BPF.

Trusted code, installed in the process to confine; all its descendants inherit the filter, and none can remove it. The
filter is a deny-list, because CUDA, nvcc, ninja and torch use many changing calls. Denied calls return an error, so
libraries with a fallback continue. Calls that may name pid 1, the supervisor, are checked by argument. See
guides/design/sandbox.md.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

from harness.sandbox import syscalls

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_KILL = 0x80000000

_LD_ABS = 0x20
_JEQ = 0x15
_JGE = 0x35
_JSET = 0x45
_RET = 0x06

_ARCH_OFFSET = 4
_ARGUMENTS_OFFSET = 16
_X32_BIT = 0x40000000
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_SECCOMP_SET_MODE_FILTER = 1
_SECCOMP_FILTER_FLAG_SPEC_ALLOW = 4
"""Without this flag, kernels before 5.16 slow filtered processes down (speculation control), and their timings too."""
_SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}

_NAMESPACE_FLAGS = (
    syscalls.CLONE_NEWNS
    | syscalls.CLONE_NEWCGROUP
    | syscalls.CLONE_NEWUTS
    | syscalls.CLONE_NEWIPC
    | syscalls.CLONE_NEWUSER
    | syscalls.CLONE_NEWPID
    | syscalls.CLONE_NEWNET
)

# name: (x86_64, aarch64); None if an architecture lacks the call.
DENIED: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "setns": (308, 268),
    "unshare": (272, 97),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "lookup_dcookie": (212, 18),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "create_module": (174, None),
    "reboot": (169, 142),
    "syslog": (103, 116),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "nfsservctl": (180, 42),
    "mq_open": (240, 180),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "vmsplice": (278, 75),
}
"""Calls that return EPERM. System V and POSIX queues are among them, because the memory watchdog cannot see their
contents; vmsplice, because the pages that it pins in a pipe belong to no process, and one of them keeps a huge page.
"""

ABSENT: dict[str, tuple[int | None, int | None]] = {
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "clone3": (435, 435),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "splice": (275, 76),
    "tee": (276, 77),
    "sendfile": (40, 71),
    "landlock_create_ruleset": (444, 444),
}
"""Calls that return ENOSYS, so callers use a fallback. The flags of clone3 are in memory, invisible to a filter; glibc
then uses clone. The pages of a memfd, and those of a deleted file that a pipe or socket keeps, belong to no process, so
no watchdog counts them. Neither does it count rules of Landlock, of which a process may add any number.
"""

_CLONE = (56, 220)
_SOCKET = (41, 198)
_SOCKETPAIR = (53, 199)
_PRLIMIT = (302, 261)
_SETPRIORITY = (141, 140)
_IOPRIO_SET = (251, 30)
_FCNTL = (72, 25)
_FCNTL_DENIED = (10, 1024, 1026)
"""F_SETSIG, F_SETLEASE and F_NOTIFY.

F_SETSIG selects another signal than SIGIO for events of a descriptor, also one that resumes or ends a stopped process.
The owner of a file can use a lease to delay every other `open` for most of a minute. If the harness runs as an ordinary
user, the sandbox's user also owns the harness's files.
"""
_FIRST_ARGUMENT_NOT_INIT = {
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "setpgid": (109, 154),
}
_CLOSE_RANGE = (436, 436)
_CLOSE_RANGE_UNSHARE = 2
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_PRIO_PROCESS = 0
_IOPRIO_WHO_PROCESS = 1
_INIT = 1

_Instruction = tuple[int, int, int, int]


def program(machine: str | None = None, *, network: bool = False) -> bytes:
    """Build the filter.

    Args:
        machine: Architecture; None means this machine's.
        network: Allow IP sockets.

    Returns:
        The filter as an array of `struct sock_filter`.

    Raises:
        OSError: ENOSYS for an architecture without a table of system calls.
    """
    machine = machine or platform.machine()
    column_of = column(machine)
    code: list[_Instruction] = [
        (_LD_ABS, 0, 0, _ARCH_OFFSET),
        (_JEQ, 1, 0, _AUDIT_ARCH[machine]),
        (_RET, 0, 0, _KILL),
        (_LD_ABS, 0, 0, 0),
    ]
    if machine == "x86_64":
        code += [(_JGE, 0, 1, _X32_BIT), (_RET, 0, 0, _KILL)]
    for table, number in ((DENIED, errno.EPERM), (ABSENT, errno.ENOSYS)):
        for numbers in table.values():
            if (call := numbers[column_of]) is not None:
                code += [(_JEQ, 0, 1, call), (_RET, 0, 0, _ERRNO | number)]
    # A thread with descriptors of its own: the watchdog counts those of a process.
    apart = [(_JSET, 0, 2, syscalls.CLONE_THREAD), (_JSET, 1, 0, syscalls.CLONE_FILES)]
    refuse = (_RET, 0, 0, _ERRNO | errno.EPERM)
    code += _on(_CLONE[column_of], 0, [(_JSET, 0, 1, _NAMESPACE_FLAGS), refuse, *apart, refuse])
    code += _on(_CLOSE_RANGE[column_of], 2, [(_JSET, 0, 1, _CLOSE_RANGE_UNSHARE), refuse])
    families = (_AF_UNIX, _AF_INET, _AF_INET6) if network else (_AF_UNIX,)
    for calls in (_SOCKET, _SOCKETPAIR):
        known = [(_JEQ, len(families) - index, 0, family) for index, family in enumerate(families)]
        code += _on(calls[column_of], 0, [*known, (_RET, 0, 0, _ERRNO | errno.EAFNOSUPPORT)])
    # Own process only: changing the supervisor's limits, priority or processors would disable the memory watchdog.
    code += _on(_PRLIMIT[column_of], 0, [(_JEQ, 1, 0, 0), (_RET, 0, 0, _ERRNO | errno.EPERM)])
    for calls, process in ((_SETPRIORITY, _PRIO_PROCESS), (_IOPRIO_SET, _IOPRIO_WHO_PROCESS)):
        who = [(_LD_ABS, 0, 0, _ARGUMENTS_OFFSET + 8), (_JEQ, 1, 0, 0), refuse]
        code += _on(calls[column_of], 0, [(_JEQ, 1, 0, process), refuse, *who])
    each = [((_JEQ, 0, 1, command), (_RET, 0, 0, _ERRNO | errno.EPERM)) for command in _FCNTL_DENIED]
    code += _on(_FCNTL[column_of], 1, [instruction for pair in each for instruction in pair])
    for calls in _FIRST_ARGUMENT_NOT_INIT.values():
        code += _on(calls[column_of], 0, [(_JEQ, 0, 1, _INIT), (_RET, 0, 0, _ERRNO | errno.EPERM)])
    code.append((_RET, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def column(machine: str | None = None) -> int:
    """Return the index of `machine` in the tables; raise `OSError` if unsupported."""
    machine = machine or platform.machine()
    if machine not in _AUDIT_ARCH:
        raise OSError(errno.ENOSYS, f"there is no system-call filter for {machine}; supported are x86_64 and aarch64")
    return 0 if machine == "x86_64" else 1


def _on(call: int, argument: int, body: list[_Instruction]) -> list[_Instruction]:
    """Apply `body` to the low word of an argument of `call`, then allow the call."""
    inner: list[_Instruction] = [(_LD_ABS, 0, 0, _ARGUMENTS_OFFSET + 8 * argument), *body, (_RET, 0, 0, _ALLOW)]
    return [(_JEQ, 0, len(inner), call), *inner]


def install(*, network: bool = False) -> None:
    """Confine the calling thread and its descendants for ever.

    `no_new_privs` must be set. Raises `OSError`.
    """
    filters = program(network=network)
    buffer = ctypes.create_string_buffer(filters, len(filters))
    header = struct.pack("=HxxxxxxQ", len(filters) // 8, ctypes.addressof(buffer))
    argument = ctypes.create_string_buffer(header, len(header))
    number = _SYS_SECCOMP[platform.machine()]
    flags = _SECCOMP_FILTER_FLAG_SPEC_ALLOW
    syscalls.syscall(number, "seccomp", _SECCOMP_SET_MODE_FILTER, flags, argument)
