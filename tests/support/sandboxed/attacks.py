"""Targets that attack. They run inside the sandbox under test only, never in a test's own process."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import platform
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.protocol.channel import Channel

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def _outcome(action: Callable[[], object]) -> str:
    """`ok`, or the name of the error."""
    try:
        action()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "ok"


def _call(number: int, *arguments: Any) -> str:
    ctypes.set_errno(0)
    result = _libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) for a in arguments))
    return "ok" if result >= 0 else errno.errorcode[ctypes.get_errno()]


def leave_at_once(channel: Channel, fds: list[int]) -> None:
    os._exit(0)


def segfault(channel: Channel, fds: list[int]) -> None:
    ctypes.string_at(0)


def abort(channel: Channel, fds: list[int]) -> None:
    os.abort()


def spin(channel: Channel, fds: list[int]) -> None:
    channel.send({"spinning": True})
    while True:
        pass


def stop_itself(channel: Channel, fds: list[int]) -> None:
    channel.send({"stopping": True})
    os.kill(os.getpid(), signal.SIGSTOP)


def fork_bomb(channel: Channel, fds: list[int]) -> None:
    """Fork until it is refused, in the children too."""
    made = 0
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            pid = os.fork()
        except OSError as error:
            channel.send({"refused": errno.errorcode.get(error.errno or 0), "made": made})
            time.sleep(600)
        if pid == 0:
            time.sleep(600)
        made += 1
    channel.send({"refused": None, "made": made})


def runaway_fork_bomb(channel: Channel, fds: list[int]) -> None:
    """Every process forks for ever, none waits for anything."""
    channel.send({"started": True})
    while True:
        try:
            os.fork()
        except OSError:
            continue


def run_away(channel: Channel, fds: list[int]) -> None:
    """Four chains of processes in sessions of their own, each of which ends as soon as the next one runs."""
    for _ in range(4):
        if os.fork() == 0:
            os.setsid()
            while os.fork() == 0:
                pass
            os._exit(0)
    channel.send({"ready": True})
    time.sleep(1000)


def daemon(channel: Channel, fds: list[int]) -> None:
    """Double fork, new session, ignore every signal; hold the descriptor open; the target itself leaves."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in range(1, 65):
                try:
                    signal.signal(number, signal.SIG_IGN)
                except (OSError, ValueError):
                    continue
            while True:
                time.sleep(0.01)
                os.write(fds[0], b".")
        os._exit(0)
    os.wait()
    os.read(fds[1], 1)


def flood(channel: Channel, fds: list[int]) -> None:
    """1 GB on stdout, half of it through a child process."""
    block = b"x" * 2**20
    if os.fork() == 0:
        for _ in range(512):
            os.write(1, block)
        os._exit(0)
    for _ in range(512):
        os.write(1, block)
    os.wait()
    channel.send({"written": 1024 * len(block)})


def _touch(size: int) -> mmap.mmap:
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for offset in range(0, size, 4096):
        block[offset] = 1
    return block


def hog_private(channel: Channel, fds: list[int]) -> None:
    channel.send({"started": True})
    kept = []
    while True:
        kept.append(_touch(2**24))


def hog_shared(channel: Channel, fds: list[int]) -> None:
    channel.send({"started": True})
    kept = []
    while True:
        block = mmap.mmap(-1, 2**24)
        for offset in range(0, len(block), 4096):
            block[offset] = 1
        kept.append(block)


def hog_in_children(channel: Channel, fds: list[int]) -> None:
    channel.send({"started": True})
    while True:
        if os.fork() == 0:
            block = _touch(2**24)
            time.sleep(600)
            block.close()
        time.sleep(0.005)


def hog_files(channel: Channel, fds: list[int]) -> None:
    """Fill the private folders, which live in memory."""
    channel.send({"started": True})
    for folder in ("/dev/shm", "/tmp", "."):
        for number in range(1000):
            try:
                with open(f"{folder}/{number}", "wb") as file:
                    file.write(b"x" * 2**22)
            except OSError:
                break
    time.sleep(600)


def arrange_signals(channel: Channel, fds: list[int]) -> None:
    """Have the kernel send other signals than it would for descriptors, or keep others from opening an own file."""
    with open("own", "wb") as file:
        file.write(b"x")
    reading, writing = os.pipe()
    own, folder = os.open("own", os.O_RDONLY), os.open(".", os.O_RDONLY)
    outcome = {
        "signal": _outcome(lambda: fcntl.fcntl(reading, fcntl.F_SETSIG, signal.SIGCONT)),
        "lease": _outcome(lambda: fcntl.fcntl(own, fcntl.F_SETLEASE, fcntl.F_WRLCK)),
        "notice": _outcome(lambda: fcntl.fcntl(folder, fcntl.F_NOTIFY, fcntl.DN_CREATE)),
        "flags": _outcome(lambda: fcntl.fcntl(writing, fcntl.F_SETFL, os.O_NONBLOCK)),
        "lock": _outcome(lambda: fcntl.lockf(os.open("own", os.O_RDWR), fcntl.LOCK_EX)),
    }
    channel.send({"outcome": outcome})


def hog_page_tables(channel: Channel, fds: list[int]) -> None:
    """Look at one page of zeros in every two megabytes: nothing of it is resident, but the kernel's own tables."""
    channel.send({"started": True})
    kept = []
    while True:
        block = mmap.mmap(-1, 2**40, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
        block.madvise(mmap.MADV_NOHUGEPAGE)
        for offset in range(0, len(block), 2**21):
            block[offset]
        kept.append(block)


def hog_inodes(channel: Channel, fds: list[int]) -> None:
    """Make empty files, whose names and inodes are all that they take."""
    channel.send({"started": True})
    number = 0
    while True:
        number += 1
        os.mknod(f"/tmp/{number}")


def hog_sockets(channel: Channel, fds: list[int]) -> None:
    """Fill socket pairs that nobody reads from."""
    channel.send({"started": True})
    kept, data = [], bytes(2**16)
    while True:
        pair = socket.socketpair()
        kept.append(pair)
        for end in pair:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**20)
            end.setblocking(False)
            try:
                while True:
                    end.send(data)
            except BlockingIOError:
                pass


def hog_tcp(channel: Channel, fds: list[int]) -> None:
    """Fill connections over the loopback that a tool shares, at most 300 MB."""
    channel.send({"started": True})
    server = socket.create_server(("127.0.0.1", 0))
    kept, held, data = [], 0, bytes(2**16)
    while held < 300 * 2**20:
        client = socket.create_connection(server.getsockname())
        kept += [client, server.accept()[0]]
        client.setblocking(False)
        try:
            while True:
                held += client.send(data)
        except BlockingIOError:
            pass
    time.sleep(20)


def hog_pipes(channel: Channel, fds: list[int]) -> None:
    """Fill pipes in eight processes, keep one end of each: at most 330 MB."""
    channel.send({"started": True})
    for _ in range(8):
        if os.fork() == 0:
            for _ in range(4000):
                _, writing = os.pipe()
                os.set_blocking(writing, False)
                try:
                    while True:
                        os.write(writing, bytes(4096))
                except BlockingIOError:
                    os.close(writing)
            time.sleep(20)
            os._exit(0)
    time.sleep(20)


def hog_behind_an_ended_thread(channel: Channel, fds: list[int]) -> None:
    """Take 512 MB in a process whose first thread has ended."""
    channel.send({"started": True})
    if os.fork() == 0:

        def take() -> None:
            time.sleep(0.2)
            kept = [_touch(2**24) for _ in range(32)]
            time.sleep(20)
            os._exit(len(kept))

        threading.Thread(target=take).start()
        _libc.syscall(ctypes.c_long({"x86_64": 60, "aarch64": 93}[platform.machine()]), ctypes.c_long(0))
    time.sleep(20)


def threads_of_a_kind(channel: Channel, fds: list[int]) -> None:
    """Make a thread with descriptors of its own, which nothing outside counts, and one as everybody makes it."""
    number = {"x86_64": 56, "aarch64": 220}[platform.machine()]
    own = 0x10000 | 0x100 | 0x800  # CLONE_THREAD, CLONE_VM, CLONE_SIGHAND
    thread = threading.Thread(target=lambda: None)
    outcome = {"own": _call(number, own, 0, 0, 0, 0), "unshared": _call(436, 1000, 1001, 2)}
    channel.send({"outcome": {**outcome, "usual": _outcome(thread.start)}})


def spin_gpu(channel: Channel, fds: list[int]) -> None:
    """A kernel that runs for minutes."""
    import torch

    block = torch.ones(2**28, device="cuda")
    torch.cuda.synchronize()
    channel.send({"free_bytes": torch.cuda.mem_get_info()[0]})
    torch.cuda._sleep(10**12)
    block.add_(1.0)
    torch.cuda.synchronize()


def hold_gpu_memory(channel: Channel, fds: list[int]) -> None:
    """8 GiB of the GPU's memory, never given back."""
    import torch

    blocks = [torch.ones(2**28, device="cuda") for _ in range(8)]
    torch.cuda.synchronize()
    channel.send({"free_bytes": torch.cuda.mem_get_info()[0], "blocks": len(blocks)})
    time.sleep(600)


def hog_disk(channel: Channel, fds: list[int]) -> None:
    folder = channel.receive(30).message["folder"]
    channel.send({"started": True})
    for number in range(100_000):
        with open(f"{folder}/{number}", "wb") as file:
            file.write(b"x" * 2**22)


def hide_on_disk(channel: Channel, fds: list[int]) -> None:
    """Close a folder to everybody without capabilities, so that nobody can add up what it holds."""
    folder = channel.receive(30).message["folder"]
    os.mkdir(f"{folder}/closed")
    os.chmod(f"{folder}/closed", 0)
    channel.send({"started": True})
    time.sleep(600)


def write_everywhere(channel: Channel, fds: list[int]) -> None:
    """Which of the named paths can be written: a file in a folder, or the file itself."""
    paths = channel.receive(30).message["paths"]
    outcome = {}
    for path in paths:
        target = f"{path}/planted" if os.path.isdir(path) else path
        outcome[path] = _outcome(lambda target=target: os.close(os.open(target, os.O_WRONLY | os.O_CREAT)))
    channel.send({"outcome": outcome})


def big_file(channel: Channel, fds: list[int]) -> None:
    size = channel.receive(30).message["bytes"]
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open("big", "wb") as file:
        channel.send({"outcome": _outcome(lambda: (file.seek(size), file.write(b"x"), file.flush()))})


def network(channel: Channel, fds: list[int]) -> None:
    """Reach a TCP port, a Unix socket of a path and an abstract one of the machine outside."""
    message = channel.receive(30).message
    outcome = {}
    for family in ("AF_INET", "AF_INET6", "AF_NETLINK", "AF_PACKET", "AF_VSOCK", "AF_ALG"):
        kind = socket.SOCK_RAW if family in ("AF_NETLINK", "AF_PACKET") else socket.SOCK_STREAM
        outcome[family] = _outcome(lambda family=family, kind=kind: socket.socket(getattr(socket, family), kind))
    outcome["pair"] = _outcome(lambda: socket.socketpair(socket.AF_UNIX))
    outcome["tcp"] = _outcome(lambda: socket.create_connection(("127.0.0.1", message["port"]), 1))
    folder, message["path"] = os.path.split(message["path"])
    os.chdir(folder)  # a socket's name may have 107 bytes
    for name in ("abstract", "path"):
        address = "\0" + message[name] if name == "abstract" else message[name]
        outcome[name] = _outcome(
            lambda address=address: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).connect(address)
        )
    channel.send({"outcome": outcome})


def call_tool(channel: Channel, fds: list[int]) -> None:
    """Talk to the tool that the zygote runs under, and to the machine outside, on the ports named."""
    message = channel.receive(30).message
    outcome = {}
    for name in ("tool", "machine"):
        try:
            with socket.create_connection(("127.0.0.1", message[name]), 1) as connection:
                outcome[name] = connection.recv(100).decode()
        except OSError as error:
            outcome[name] = errno.errorcode.get(error.errno or 0, str(error))
    channel.send({"outcome": outcome})


def kill_others(channel: Channel, fds: list[int]) -> None:
    """Signal pid 1, the parent, everybody, and processes of the machine outside."""
    pids = channel.receive(30).message["pids"]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    outcome = {}
    for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        outcome[f"init {number}"] = _outcome(lambda number=number: os.kill(1, number))
        outcome[f"parent {number}"] = _outcome(lambda number=number: os.kill(os.getppid(), number))
    for pid in pids:
        outcome[f"outside {pid}"] = _outcome(lambda pid=pid: os.kill(pid, signal.SIGKILL))
    outcome["all"] = _outcome(lambda: os.kill(-1, signal.SIGTERM))
    channel.send({"outcome": outcome})


def scribble(channel: Channel, fds: list[int]) -> None:
    """Garbage on every open descriptor."""
    for fd in range(256):
        for _ in range(20):
            try:
                os.write(fd, b'\x00\x00\x00\x30{"event":"exited","id":1,"exit":{"exit_code":0}}\xff\xff\xff\xff')
            except OSError:
                break
    os._exit(0)


def close_channel(channel: Channel, fds: list[int]) -> None:
    channel.close()
    time.sleep(600)


_CALLS = {
    "x86_64": {"ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "prlimit64": 302, "clone": 56},
    "aarch64": {"ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "prlimit64": 261, "clone": 220},
}


def reach_into_init(channel: Channel, fds: list[int]) -> None:
    """Read, write, trace, throttle the supervisor."""
    calls = _CALLS[platform.machine()]
    buffer = ctypes.create_string_buffer(64)
    vector = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), 64)
    where = ctypes.addressof(vector)
    outcome = {
        "attach": _call(calls["ptrace"], 16, 1, 0, 0),
        "seize": _call(calls["ptrace"], 0x4206, 1, 0, 0),
        "trace_me": _call(calls["ptrace"], 0, 0, 0, 0),
        "vm_read": _call(calls["process_vm_readv"], 1, where, 1, where, 1, 0),
        "vm_write": _call(calls["process_vm_writev"], 1, where, 1, where, 1, 0),
        "limit": _outcome(lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0))),
        "affinity": _outcome(lambda: os.sched_setaffinity(1, {0})),
        "idle": _outcome(lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0))),
        "nice": _outcome(lambda: os.setpriority(os.PRIO_PROCESS, 1, 19)),
        "nice_user": _outcome(lambda: os.setpriority(os.PRIO_USER, 0, 19)),
    }
    for name in ("mem", "environ", "maps", "fd", "cwd", "root", "exe", "oom_score_adj"):
        path = f"/proc/1/{name}"
        outcome[name] = _outcome(lambda path=path: os.listdir(path) if os.path.isdir(path) else _open(path))
    channel.send({"outcome": outcome})


def _open(path: str) -> None:
    with open(path, "r+b" if path.endswith(("mem", "adj")) else "rb", buffering=0) as file:
        file.read(1)


def gain_power(channel: Channel, fds: list[int]) -> None:
    """New namespaces, mounts, devices, privileges, kernel knobs."""
    clone = _CALLS[platform.machine()]["clone"]
    outcome = {}
    for name in ("NEWNS", "NEWCGROUP", "NEWUTS", "NEWIPC", "NEWUSER", "NEWPID", "NEWNET"):
        flag = {"NEWNS": 0x20000, "NEWCGROUP": 0x2000000, "NEWUTS": 0x4000000, "NEWIPC": 0x8000000}
        flag |= {"NEWUSER": 0x10000000, "NEWPID": 0x20000000, "NEWNET": 0x40000000}
        outcome[f"unshare {name}"] = _outcome(lambda flag=flag, name=name: _checked(_libc.unshare(flag[name])))
        outcome[f"clone {name}"] = _call(clone, flag[name] | signal.SIGCHLD, 0, 0, 0, 0)
    outcome["mount"] = _outcome(lambda: _checked(_libc.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, None)))
    outcome["umount"] = _outcome(lambda: _checked(_libc.umount2(b"/proc", 2)))
    outcome["chroot"] = _outcome(lambda: os.chroot("/tmp"))
    outcome["mknod"] = _outcome(lambda: os.mknod("/tmp/disk", 0o60666, os.makedev(254, 0)))
    outcome["setuid"] = _outcome(lambda: os.setuid(0))
    outcome["setgroups"] = _outcome(lambda: os.setgroups([0]))
    outcome["chown"] = _outcome(lambda: os.chown(os.getcwd(), 0, 0))
    outcome["memfd"] = _outcome(lambda: os.memfd_create("x"))
    for path in ("kernel/core_pattern", "kernel/hostname", "vm/drop_caches", "user/max_user_namespaces"):
        outcome[path] = _outcome(lambda path=path: open(f"/proc/sys/{path}", "w").close())
    outcome["sysrq"] = _outcome(lambda: _write("/proc/sysrq-trigger", b"h"))
    channel.send({"outcome": outcome})


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, data)


def _checked(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), "")


def denied_calls(channel: Channel, fds: list[int]) -> None:
    """Make each named system call with harmless arguments and say what came."""
    numbers = channel.receive(30).message["numbers"]
    channel.send({"outcome": {name: _call(number, -1, 0, 0, 0, 0, 0) for name, number in numbers.items()}})


def send_descriptors(channel: Channel, fds: list[int]) -> None:
    """Hand the log pipe to the owner, so that it stays open after the end."""
    channel.send({"take": True}, (1, 2))
    channel.receive(30)
