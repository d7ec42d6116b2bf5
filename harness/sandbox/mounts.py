"""Select the parts of the file system that a sandbox shows.

Trusted code; reads only. Computed once in a zygote after its imports, because the mapped files show the libraries'
folders. This is an allow-list: system, Python, torch, toolchain, driver, and only the `harness` package of a checkout
(pinned by `test_the_checkout_is_not_there`). See guides/design/sandbox.md.
"""

from __future__ import annotations

import glob
import importlib.machinery
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import harness
from harness.sandbox.policy import SandboxPolicy

HOME = "/home/sandbox"
"""Home and working directory inside the sandbox."""

_SYSTEM = ("/usr", "/nix/store", "/run/opengl-driver", "/run/current-system/sw", "/opt/nvidia")
_TOP_LEVEL = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "alternatives", "localtime", "OpenCL")
_COMPILERS = ("cc", "c++", "gcc", "g++", "clang++", "ld", "as", "nvcc")
_NAMED_COMPILERS = ("CC", "CXX", "CUDAHOSTCXX", "NVCC_CCBIN")
"""Variables that may name a compiler outside of the search path."""
_TOOLS = ("ninja", "cmake", "make", "sh")
_HOST_DEVICES = ("null", "zero", "full", "random", "urandom")
_GPU_DEVICES = ("nvidia[0-9]*", "nvidiactl", "nvidia-uvm", "dxg")
"""Nodes that CUDA opens.

Without nvidia-uvm-tools, through which a process may watch the page faults of others, and which only profilers open.
"""
_MIG_NODES = "nvidia-caps/nvidia-cap[0-9]*"
"""Nodes that give access to a part of a GPU."""
_MIG_MANAGEMENT = ("nvidia-cap1", "nvidia-cap2")
"""Nodes to configure and to monitor parts, by their fixed numbers in `/proc/driver/nvidia-caps/mig-minors`."""
_ONE_GPU = re.compile(r"/dev/nvidia[0-9]+")
_SYS_HOST = ("/sys/devices/system/cpu", "/sys/devices/system/node")
_SYS_GPU = ("/sys/devices", "/sys/bus/pci", "/sys/class/drm", "/sys/module/nvidia", "/sys/module/nvidia_uvm")


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemView:
    """Paths that every sandbox on this machine shows, read-only, and links to them.

    `private` folders (home, checkout, installed problems and examples) are covered if they are inside a readable one.
    Readable paths inside them stay visible.
    """

    readable: tuple[str, ...]
    private: tuple[str, ...]
    aliases: tuple[tuple[str, str], ...]
    etc: tuple[str, ...]
    devices: tuple[str, ...]
    gpu_devices: tuple[str, ...]
    sys: tuple[str, ...]
    gpu_sys: tuple[str, ...]


def discover() -> SystemView:
    """Examine this process and machine; called in the zygote after the preload."""
    readable: list[str] = []
    aliases: list[tuple[str, str]] = []
    for name in _TOP_LEVEL:
        if os.path.islink(name):
            aliases.append((name, os.path.realpath(name)))
        elif os.path.isdir(name):
            readable.append(name)
    for path in _wanted():
        real = os.path.realpath(path)
        if os.path.exists(real) and not _too_broad(real):
            readable.append(real)
            if real != path:
                aliases.append((path, real))
    return SystemView(
        readable=tuple(sorted(set(readable))),
        private=(*_private(), *_shipped()),
        aliases=tuple(dict.fromkeys(aliases)),
        etc=tuple(f"/etc/{name}" for name in _ETC if os.path.exists(f"/etc/{name}")),
        devices=tuple(f"/dev/{name}" for name in _HOST_DEVICES if os.path.exists(f"/dev/{name}")),
        gpu_devices=_gpu_nodes("/dev"),
        sys=tuple(path for path in _SYS_HOST if os.path.isdir(path)),
        gpu_sys=tuple(path for path in _SYS_GPU if os.path.isdir(path)),
    )


def _gpu_nodes(dev: str) -> tuple[str, ...]:
    nodes = [path for pattern in _GPU_DEVICES for path in glob.glob(f"{dev}/{pattern}")]
    parts = [
        path
        for path in glob.glob(f"{dev}/{_MIG_NODES}")
        if os.path.basename(path) not in _MIG_MANAGEMENT and not closed_to_others(path)
    ]
    return tuple(sorted((*nodes, *parts)))


def package_folder() -> str:
    """Return the folder of the `harness` package."""
    return str(Path(harness.__file__).resolve().parent)


def outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the sorted `paths` without those below another one."""
    kept: list[str] = []
    for path in sorted(set(paths)):
        if not kept or not is_below(path, kept[-1]):
            kept.append(path)
    return tuple(kept)


def is_below(path: str, folder: str) -> bool:
    """Return whether `path` is `folder` or below it; both absolute and normalised."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def unreadable_for_others(view: SystemView) -> str | None:
    """Return the first shown folder that another user cannot enter, or None.

    Such a folder prevents the change of user.
    """
    return next((path for path in view.readable if closed_to_others(path)), None)


def closed_to_others(path: str) -> bool:
    """Return whether another user cannot read the file, or enter and list the folder."""
    mode = os.stat(path).st_mode
    needed = stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
    return mode & needed != needed


def closed_devices(view: SystemView, policy: SandboxPolicy) -> str | None:
    """Return the first device node that another user cannot open, or None."""
    for path in gpu_devices(view, policy):
        mode = os.stat(path).st_mode
        needed = stat.S_IROTH if "/nvidia-caps/" in path else stat.S_IROTH | stat.S_IWOTH
        if stat.S_ISCHR(mode) and mode & needed != needed:
            return path
    return None


def gpu_devices(view: SystemView, policy: SandboxPolicy) -> tuple[str, ...]:
    """Return the GPU device nodes that a sandbox with `policy` shows."""
    if not policy.gpu:
        return ()
    if policy.gpu_minor is None:
        return view.gpu_devices
    own = f"/dev/nvidia{policy.gpu_minor}"
    return tuple(path for path in view.gpu_devices if path == own or not _ONE_GPU.fullmatch(path))


def _wanted() -> list[str]:
    """List all paths to show besides the top-level folders; may repeat or not exist."""
    wanted = [*_SYSTEM, sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, package_folder()]
    wanted += [path for entry in sys.path if os.path.isabs(entry) for path in importable(entry)]
    wanted += [value for name in ("CUDA_HOME", "CUDA_PATH") if (value := os.environ.get(name))]
    wanted += glob.glob("/usr/local/cuda*")
    wanted += [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if os.path.isabs(p)]
    found = {tool: path for tool in (*_COMPILERS, *_TOOLS) if (path := shutil.which(tool))}
    named = [path for name in _NAMED_COMPILERS if (path := shutil.which(os.environ.get(name, "")))]
    compilers = [*(found[tool] for tool in _COMPILERS if tool in found), *named]
    wanted += [os.path.dirname(path) for path in (*found.values(), *named)]
    wanted += [prefix for path in compilers for prefix in (_prefix_of(path), _prefix_of(os.path.realpath(path)))]
    wanted += [os.path.dirname(library) for library in _mapped_libraries()]
    return [os.path.normpath(path) for path in wanted]


def importable(entry: str) -> list[str]:
    """List the parts of a search path's folder to show.

    An installation is shown whole. `PYTHONPATH` may also name a project with results, problems and submissions. Of a
    project, only the packages and modules directly in it are shown; of the checkout and the home, nothing.
    """
    real = os.path.realpath(entry)
    if not os.path.isdir(real) or _is_installation(real):
        return [entry]
    if real in _private():
        return []
    try:
        with os.scandir(real) as found:
            # An unreadable path would prevent the change of user, and the sandbox's user could not use it.
            modules = [each for each in found if _is_module(each) and not closed_to_others(each.path)]
            return [os.path.join(entry, each.name) for each in modules]
    except OSError:  # no process can import from it
        return []


def _is_installation(folder: str) -> bool:
    prefixes = (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)
    return (
        os.path.basename(folder) in ("site-packages", "dist-packages")
        or any(is_below(folder, os.path.realpath(prefix)) for prefix in prefixes)
        or bool(glob.glob(os.path.join(glob.escape(folder), "*.dist-info")))
    )


def _is_module(found: os.DirEntry[str]) -> bool:
    if not found.name.split(".")[0].isidentifier():  # names of problems and solutions; not importable
        return False
    if found.is_dir():
        return os.path.isfile(os.path.join(found.path, "__init__.py"))
    return found.name.endswith(tuple(importlib.machinery.all_suffixes()))


def _private() -> tuple[str, ...]:
    """Return the user's home and the checkout, if the package runs from one."""
    project = os.path.dirname(package_folder())
    installed = os.path.basename(project) in ("site-packages", "dist-packages")
    return (os.path.realpath(os.path.expanduser("~")), *(() if installed else (project,)))


def _shipped() -> list[str]:
    """Return the problems and examples in an installed package.

    In a checkout they are links.
    """
    folders = [f"{package_folder()}/catalog/shipped/{name}" for name in ("problems", "examples")]
    return [path for path in folders if os.path.isdir(path) and not os.path.islink(path)]


def _prefix_of(tool: str) -> str:
    """Return a tool's installation: the parent of its `bin`, else its folder."""
    folder = os.path.dirname(tool)
    return os.path.dirname(folder) if os.path.basename(folder) == "bin" else folder


def _mapped_libraries() -> set[str]:
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        paths = {line.split(maxsplit=5)[5].rstrip("\n") for line in file if line.count("/") and ".so" in line}
    return {path for path in paths if path.startswith("/") and os.path.isfile(path)}


def _too_broad(path: str) -> bool:
    """Return whether showing `path` would show a home, a checkout or the machine.

    This drops the entry of `sys.path` that leads to an uninstalled package.
    """
    local = os.path.realpath(os.path.expanduser("~/.local"))
    private = ["/tmp", "/var", "/home", "/etc", "/opt", "/dev", "/proc", "/sys", local, *_private()]
    return path not in _SYSTEM and any(is_below(folder, path) for folder in private)
