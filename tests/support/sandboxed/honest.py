"""Targets that do what a builder or contestant does, or look around. They run inside the sandbox under test only."""

from __future__ import annotations

import ctypes
import os
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.protocol.channel import Channel


def echo(channel: Channel, fds: list[int]) -> None:
    """Send back what comes, and the bytes readable on each descriptor."""
    message = channel.receive(30).message
    channel.send({"got": message, "read": [os.read(fd, 100).decode() for fd in fds]})


def speak(channel: Channel, fds: list[int]) -> None:
    """One line on each stream, from Python and from C."""
    sys.stdout.write("python on stdout\n")
    sys.stderr.write("python on stderr\n")
    ctypes.CDLL(None).printf(b"C on stdout\n")


def look(channel: Channel, fds: list[int]) -> None:
    """What this process is and sees."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    channel.send(
        {
            "uid": os.getuid(),
            "cwd": os.getcwd(),
            "in_cwd": os.listdir("."),
            "home": os.path.expanduser("~"),
            "tmp": tempfile.gettempdir(),
            "environment": dict(os.environ),
            "status": {name: value.strip() for name, value in status.items()},
            "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd")),
            "channel": channel.fileno(),
            "fds": list(fds),
            "processes": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
            "interfaces": [line.split(":")[0].strip() for line in _lines("/proc/net/dev")[2:]],
            "host_name": socket.gethostname(),
            "dev": sorted(os.listdir("/dev")),
            "limits": {
                name: resource.getrlimit(getattr(resource, name))[0]
                for name in ("RLIMIT_CORE", "RLIMIT_NPROC", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_CPU")
            },
            "stdin": os.read(0, 10).decode(),
            "callers": _callers(),
        }
    )


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def _callers() -> list[str]:
    names: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (frame := frame.f_back):
        names.append(frame.f_code.co_name)
    return names


def see(channel: Channel, fds: list[int]) -> None:
    """Which of the paths named in the message can be listed or read."""
    paths = channel.receive(30).message["paths"]
    channel.send({"seen": {path: _seen(path) for path in paths}})


def _seen(path: str) -> list[str] | str | None:
    try:
        if os.path.isdir(path):
            return sorted(os.listdir(path))
        with open(path, "rb") as file:
            return file.read(100).decode(errors="replace")
    except OSError:
        return None


def write_files(channel: Channel, fds: list[int]) -> None:
    """Write a file into each folder named."""
    folders = channel.receive(30).message["folders"]
    for folder in folders:
        Path(folder, "made inside").write_text("by the child")
    channel.send({"done": True})


def compile_and_load(channel: Channel, fds: list[int]) -> None:
    """What a builder does: start a compiler, then load what it made; with many threads and processes."""
    Path("answer.cpp").write_text('extern "C" int answer() { return 42; }\n')
    subprocess.run(["g++", "-shared", "-fPIC", "-o", "answer.so", "answer.cpp"], check=True, text=True)
    threads = [threading.Thread(target=time.sleep, args=(0.01,)) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with tempfile.TemporaryFile() as file:
        file.write(b"x" * 2**20)
    ninja = subprocess.run(["ninja", "--version"], capture_output=True, text=True, check=True).stdout
    channel.send({"answer": ctypes.CDLL(os.path.abspath("answer.so")).answer(), "ninja": ninja})


def nvcc_version(channel: Channel, fds: list[int]) -> None:
    """Whether the CUDA compiler can be started and makes an object file."""
    Path("kernel.cu").write_text("__global__ void k(float* x) { x[threadIdx.x] = 1.0f; }\n")
    done = subprocess.run(["nvcc", "-c", "-o", "kernel.o", "kernel.cu"], capture_output=True, text=True, check=False)
    channel.send({"returncode": done.returncode, "said": done.stdout + done.stderr})


def use_torch(channel: Channel, fds: list[int]) -> None:
    """Whether torch, imported before the fork, computes here, in threads and in shared memory too."""
    import torch

    torch.set_num_threads(2)
    total = (torch.ones(300, 300) @ torch.ones(300, 300)).sum().item()
    shared = torch.zeros(1000).share_memory_()
    channel.send({"sum": total, "shared": shared.is_shared(), "preloaded": "torch" in sys.modules})


def double_shared(channel: Channel, fds: list[int]) -> None:
    """Map memory that the owner made, say what was in it, and double it in place."""
    from harness.core.choices import DeviceKind
    from harness.devices.device import open_device

    message = channel.receive(30).message
    device = open_device(DeviceKind(message["kind"]))
    arena = device.attach(fds[0], message["nbytes"])
    import torch

    shared = arena.tensor(0, (1000,), torch.float32)
    was = shared.mean().item()
    shared.mul_(2.0)
    device.synchronize()
    channel.send({"was": was})


def use_gpu(channel: Channel, fds: list[int]) -> None:
    """What a contestant needs of CUDA: a context, memory, kernels, page-locked memory, the driver's files."""
    import torch

    if not os.path.exists("/dev/nvidiactl") or not torch.cuda.is_available():
        channel.send({"available": False})
        return
    total = (torch.ones(300, 300, device="cuda") @ torch.ones(300, 300, device="cuda")).sum().item()
    pinned = torch.ones(1000).pin_memory().to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    channel.send(
        {
            "available": True,
            "sum": total,
            "pinned": pinned.mean().item(),
            "driver": os.path.exists("/proc/driver/nvidia/version"),
            "cache": os.environ["CUDA_CACHE_PATH"],
            "dev": os.listdir("/dev"),
            "free_bytes": torch.cuda.mem_get_info()[0],
        }
    )


def compute(channel: Channel, fds: list[int]) -> None:
    """Answer after as much processor time as was asked for, in seconds."""
    seconds = channel.receive(30).message["seconds"]
    while time.process_time() < seconds:
        pass
    channel.send({"done": True})


def sleep(channel: Channel, fds: list[int]) -> None:
    """Say so, then wait to be ended."""
    channel.send({"pid": os.getpid()})
    time.sleep(600)


def use_memory(channel: Channel, fds: list[int]) -> None:
    """Touch 64 MiB and give it back."""
    block = bytearray(64 * 2**20)
    for index in range(0, len(block), 4096):
        block[index] = 1
    channel.send({"done": True})
    channel.receive(30)


def leave_with_text(channel: Channel, fds: list[int]) -> None:
    sys.exit("a reason in words")


def leave_with_code(channel: Channel, fds: list[int]) -> None:
    sys.exit(7)


def fail(channel: Channel, fds: list[int]) -> None:
    raise RuntimeError("the target raised")
