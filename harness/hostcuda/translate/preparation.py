"""Prepare the host device once per machine: libraries and precompiled headers.

Trusted side; reads nothing of a solution. The runtime library, the torch bridge and the precompiled headers lie in a
cache folder. This module has their keys, flags and compiler calls. See guides/design/host_device.md.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from harness.core.atomic_file import open_to_others
from harness.core.cache_dir import hold, remove_old
from harness.core.config import cache_root as default_cache
from harness.core.preparing import Preparing, TellPreparing, untold
from harness.core.subprocesses import CommandPool
from harness.hostcuda.translate.kinds import Precompiled, header_name
from harness.hostcuda.translate.machine import BuildError, ask_torch, compiler, processor_flags
from harness.hostcuda.translate.macros import TORCH_SWITCHES, defines, macros
from harness.toolchain.headers import lean, stub_libs

__all__ = [
    "BuildError",
    "PreparedHeaders",
    "default_cache",
    "fingerprint",
    "precompile",
    "prepare_headers",
    "variant_flags",
]

_HERE = Path(__file__).resolve().parents[1]
_PRELUDE = "include/hostcuda/prelude.h"
_LIBRARIES, _HEADERS, _LEAN = "libraries", "headers", "lean"
_RUNTIME = "libhostcuda.so"
_BRIDGE = "hostcuda_bridge.so"
_STUBS = "stubs"
_TORCH = ("torch_python", "torch_cpu", "torch", "c10")
"""Libraries of torch that every module is linked with."""

_TRIES = 5
_PREPARE_JOBS = 2
"""Compilers at a time; each of the large ones takes more than 1 GiB of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedHeaders:
    """A finished preparation: folders and flags for compiling and linking.

    `folder` has the libraries and the headers that replace CUDA's. `headers` has torch's precompiled headers and their
    replacements.
    """

    folder: Path
    headers: Path
    torch_include: Path
    compiler: str
    common_flags: tuple[str, ...]
    include_flags: tuple[str, ...]
    link_flags: tuple[str, ...]

    @property
    def runtime(self) -> Path:
        return self.folder / _RUNTIME

    @property
    def bridge(self) -> Path:
        return self.folder / _BRIDGE

    @property
    def lean(self) -> Path:
        """The folder that lean units have first on their include path."""
        return self.headers / _LEAN


def _digest(folders: Sequence[str], files: Sequence[str], parts: Sequence[str]) -> str:
    digest = hashlib.sha256()
    paths = [
        p
        for folder in folders
        for p in sorted((_HERE / folder).rglob("*"))
        if p.is_file() and p.suffix not in (".pyc", ".md")
    ]
    for path in [*paths, *(_HERE / name for name in files)]:
        digest.update(os.path.relpath(path, _HERE).encode() + b"\0" + path.read_bytes() + b"\0")
    for part in parts:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:20]


def _machine() -> tuple[str, ...]:
    torch = ask_torch()
    return (
        torch.version,
        torch.lib,
        torch.python_include,
        *compiler(),
        *_common_flags(),
        *variant_flags(checked=True),
        *variant_flags(checked=False),
    )


@cache
def _headers_key() -> str:
    return _digest((_LEAN, "include"), ("../toolchain/headers/lean.py",), _machine())


@cache
def _libraries_key() -> str:
    return _digest(("runtime", "bridge", "include"), ("lean/index_list.h",), _machine())


_FOLDERS_THAT_DECIDE = ("translate", "../toolchain/cuda_source")
"""Sources of the harness that decide what a build gives, besides headers and libraries."""


@cache
def fingerprint() -> str:
    """Identify everything that decides what a build gives, except the solution.

    That is: the sources of this folder, torch, the compiler and the processor.
    """
    return _digest(_FOLDERS_THAT_DECIDE, ("../toolchain/headers/fallback.py",), (_headers_key(), _libraries_key()))


def _common_flags() -> tuple[str, ...]:
    torch = ask_torch()
    return (
        f"-std={max(torch.cxx_standard, 'c++20')}",
        "-fPIC",
        "-fno-plt",
        "-g1",
        "-gdwarf-4",  # with version 5, GNU addr2line names the wrong file for code before the first change of file
        f"-D_GLIBCXX_USE_CXX11_ABI={torch.abi}",
        "-DTORCH_API_INCLUDE_EXTENSION_H",
        "-Wno-unknown-pragmas",
        "-Wno-deprecated",
        "-fno-strict-aliasing",
        "-fwrapv",  # as on a GPU
        "-fno-isolate-erroneous-paths-dereference",  # a division by zero does not end the kernel
        *processor_flags(),
    )


def _prepared(root: Path) -> PreparedHeaders:
    torch = ask_torch()
    folder, headers = root / f"{_LIBRARIES}-{_libraries_key()}", root / f"{_HEADERS}-{_headers_key()}"
    include = (f"-I{folder / 'include'}", *(f"-isystem{p}" for p in torch.include), f"-isystem{torch.python_include}")
    libraries = stub_libs.flags(folder / _STUBS, _TORCH) or [f"-L{torch.lib}", *(f"-l{name}" for name in _TORCH)]
    link = (f"-L{folder}", f"-l:{_BRIDGE}", f"-l:{_RUNTIME}", f"-Wl,-rpath,{folder}", *libraries)
    return PreparedHeaders(
        folder=folder,
        headers=headers,
        torch_include=Path(torch.include[0]),
        compiler=compiler()[0],
        common_flags=_common_flags(),
        include_flags=include,
        link_flags=link,
    )


def variant_flags(*, checked: bool) -> tuple[str, ...]:
    """Compiler flags of the two modes.

    Checked code is instrumented by g++, but its thread sanitizer is never linked.
    """
    if checked:
        return (
            "-O1",
            "-fexpensive-optimizations",  # without it no product is fused with a sum
            "-ffp-contract=fast",
            "-fsanitize=thread",
            "--param=tsan-distinguish-volatile=1",
            "-fno-sanitize=all",
            "-fsanitize=thread,alignment,bounds,shift-exponent,float-cast-overflow",
            "-DHOSTCUDA_CHECKED=1",
        )
    return ("-O2", "-ffp-contract=fast")


def made_for() -> str:
    """Return the torch and the compiler that a preparation is made for, in words."""
    version = compiler()[1].split()
    return f"once for torch {ask_torch().version} and g++ {version[-1] if version else ''}".rstrip()


def prepare_headers(cache_dir: Path | None = None, tell: TellPreparing = untold) -> PreparedHeaders:
    """Return the preparation for this machine; make it if it does not exist.

    The first time takes one to three minutes. Safe for concurrent callers. Both modes of the headers that most units
    use are precompiled; `precompile` makes the others.

    Args:
        cache_dir: The cache folder; None takes the default one.
        tell: Receives the progress, if something is made.

    Returns:
        The finished preparation.

    Raises:
        BuildError: The machine can't prepare the host device.
    """
    root = (cache_dir or default_cache()).resolve()
    prepared = _prepared(root)
    for _ in range(_TRIES):
        # Another process may have cleared the cache between check and hold, so check again.
        if _complete(prepared) and _hold(prepared) and _complete(prepared):
            return _prepared(root)  # with stubs if they exist now
        root.mkdir(parents=True, exist_ok=True)
        steps = _Steps(f"the host device, {made_for()}", tell)
        with _locked(root / "lock"):  # another process may be making it
            if not _complete(prepared):
                _make(prepared, steps)
            steps.end()
            _hold(prepared)
            remove_old(root, (_LIBRARIES, _HEADERS))
    raise BuildError(
        f"another process clears {root} while the host device is being prepared there; choose another cache folder"
    )


class _Steps:
    """Count the steps of a preparation for `tell`.

    Before their number is known, there is one.
    """

    def __init__(self, what: str, tell: TellPreparing) -> None:
        self._what = what
        self._tell = tell
        self._done, self._total = 0, 1
        self._say()

    def expect(self, total: int) -> None:
        self._total = total
        self._say()

    def advance(self) -> None:
        self._done += 1
        self._say()

    def end(self) -> None:
        if self._done < self._total:
            self._done = self._total
            self._say()

    def _say(self) -> None:
        self._tell(Preparing(what=self._what, done=self._done, total=self._total))


def precompile(
    crew: CommandPool, prepared: PreparedHeaders, kind: Precompiled, *, checked: bool, tell: TellPreparing = untold
) -> None:
    """Precompile the headers of this kind for one mode, unless they exist.

    Safe for concurrent callers. Made on demand, because few sources have their own switches and fewer need all of
    torch. See guides/design/host_device.md.

    Raises:
        BuildError: The compiler failed.
        CommandPoolClosed: The pool was closed.
    """
    if _is_there(prepared, kind, checked=checked):
        return
    steps = _Steps(f"further headers of the host device, {made_for()}", tell)
    with _locked(prepared.headers.parent / "lock"):
        if not _is_there(prepared, kind, checked=checked):
            _precompile(crew, prepared, kind, checked=checked)
        steps.end()


def _hold(prepared: PreparedHeaders) -> bool:
    return all([hold(prepared.folder), hold(prepared.headers)])


def _is_there(prepared: PreparedHeaders, kind: Precompiled, *, checked: bool) -> bool:
    return (prepared.headers / header_name(kind, checked=checked) / "prelude.h.gch").exists()


def _complete(prepared: PreparedHeaders) -> bool:
    modes = (True, False)
    return prepared.bridge.exists() and all(_is_there(prepared, Precompiled.LEAN, checked=mode) for mode in modes)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(crew: CommandPool, command: Sequence[str]) -> None:
    done = crew.run(command)
    if done.returncode != 0:
        raise BuildError(
            f"preparing the host device failed: {' '.join(command[:1])} on {command[-1]}\n{done.stderr[-4000:]}"
        )


def _precompile_lean(crew: CommandPool, command: Sequence[str], boxed_lists: Path) -> None:
    """Precompile; if torch's headers reject the list replacement, retry without it.

    Builds are slower then.
    """
    try:
        _run(crew, command)
    except BuildError:
        boxed_lists.unlink(missing_ok=True)
        _run(crew, command)


def _make(prepared: PreparedHeaders, steps: _Steps) -> None:
    with CommandPool(_PREPARE_JOBS) as crew:
        _copy(_HERE / "include", prepared.folder / "include")
        _stand_in(lean.LeanHeaders(prepared.torch_include), prepared.lean)
        objects = prepared.folder / "objects"
        objects.mkdir(parents=True, exist_ok=True)
        open_to_others(prepared.folder)
        open_to_others(prepared.headers)
        # The longest jobs come first.
        jobs: list[Callable[[], None]] = [
            partial(_precompile, crew, prepared, Precompiled.LEAN, checked=checked)
            for checked in (True, False)
            if not _is_there(prepared, Precompiled.LEAN, checked=checked)
        ]
        if not prepared.bridge.exists():
            common = [flag for flag in prepared.common_flags if not flag.startswith("-g")]
            base = [prepared.compiler, *common, *prepared.include_flags, "-O2"]
            for source in sorted([*(_HERE / "runtime").glob("*.cpp"), *(_HERE / "bridge").glob("*.cpp")]):
                made_of = str(objects / f"{source.parent.name}-{source.stem}.o")
                jobs.append(partial(_run, crew, [*base, "-c", "-o", made_of, str(source)]))
        link = not prepared.bridge.exists()
        steps.expect(len(jobs) + link)
        for finished in as_completed([crew.submit(job) for job in jobs]):
            finished.result()
            steps.advance()
        if link:
            _link_libraries(crew, prepared, objects)


def _precompile(crew: CommandPool, prepared: PreparedHeaders, kind: Precompiled, *, checked: bool) -> None:
    place = prepared.headers / header_name(kind, checked=checked)
    place.mkdir(exist_ok=True)
    header, fresh = place / "prelude.h", place / "prelude.h.new"
    prelude = (prepared.folder / _PRELUDE).read_text()
    header.write_text(_text_of(kind, prelude, lean.LeanHeaders(prepared.torch_include)))
    open_to_others(place)
    is_lean = kind is not Precompiled.FULL
    command = [
        prepared.compiler,
        *prepared.common_flags,
        *variant_flags(checked=checked),
        *([lean.DEFINE, f"-I{prepared.lean}"] if is_lean else []),
        *prepared.include_flags[0 if kind is Precompiled.LEAN else 1 :],  # the first has CUDA's headers
        "-x",
        "c++-header",
        "-o",
        str(fresh),
        str(header),
    ]
    if kind is Precompiled.LEAN:  # compiled first; failures of later kinds have other reasons
        _precompile_lean(crew, command, prepared.lean / "ATen" / "core" / "List.h")
    else:
        _run(crew, command)
    fresh.rename(place / "prelude.h.gch")


def _text_of(kind: Precompiled, prelude: str, stand_ins: lean.LeanHeaders) -> str:
    """The text to precompile for units of a kind."""
    if kind is Precompiled.FULL:
        return "#define HOSTCUDA_FULL 1\n" + prelude
    shared = stand_ins.precompiled("core") + prelude
    if kind is Precompiled.SWITCHED:
        return shared
    cuda = ("headers.h", "bind.h", "torch_unit.h")
    return shared + defines(macros(TORCH_SWITCHES)) + "".join(f'#include "hostcuda/{name}"\n' for name in cuda)


def _copy(source: Path, target: Path) -> None:
    if target.exists():
        return
    fresh = target.with_name(target.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(source, fresh)
    fresh.rename(target)


def _stand_in(stand_ins: lean.LeanHeaders, target: Path) -> None:
    """Write the headers of lean units, then the host device's replacements."""
    if target.exists():
        return
    fresh = target.with_name(target.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    for name, text in stand_ins.shared().items():
        path = fresh / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    shutil.copytree(_HERE / _LEAN, fresh, dirs_exist_ok=True)
    fresh.rename(target)


def _link_libraries(crew: CommandPool, prepared: PreparedHeaders, objects: Path) -> None:
    stub_libs.make(crew.run, prepared.compiler, Path(ask_torch().lib), prepared.folder / _STUBS, _TORCH)
    runtime = [str(p) for p in sorted(objects.glob("runtime-*.o"))]
    link = [prepared.compiler, "-shared"]
    _run(crew, [*link, f"-Wl,-soname,{_RUNTIME}", "-o", str(prepared.runtime), *runtime, "-lpthread", "-ldl"])
    bridge = [str(p) for p in sorted(objects.glob("bridge-*.o"))]
    links = [flag for flag in prepared.link_flags if _BRIDGE not in flag]
    fresh = prepared.bridge.with_name(_BRIDGE + ".new")
    _run(crew, [*link, f"-Wl,-soname,{_BRIDGE}", "-o", str(fresh), *bridge, *links])
    fresh.rename(prepared.bridge)
