"""What the host device needs once a machine: the runtime library, the torch bridge and precompiled headers, in a
cache folder.

Charter: keys, flags and the compilers of the preparation. Trusted side; reads nothing of a solution's. Imports
`machine`, `macros` and `housekeeping` beside it, `harness.lean` and `harness.stublibs`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from pathlib import Path

from harness import lean, stublibs
from harness.config import cache_root as default_cache
from harness.crew import Crew
from harness.disk import open_to_others

from .housekeeping import hold, remove_old
from .machine import BuildError, ask_torch, compiler, processor_flags
from .macros import TORCH_SWITCHES, defines, macros

__all__ = [
    "BuildError",
    "Precompiled",
    "PreparedHeaders",
    "default_cache",
    "fingerprint",
    "header_name",
    "prepare_headers",
    "variant_flags",
]

_HERE = Path(__file__).resolve().parent
_PRELUDE = "include/hostcuda/prelude.h"
_LIBRARIES, _HEADERS, _LEAN = "libraries", "headers", "lean"
_RUNTIME = "libhostcuda.so"
_BRIDGE = "hostcuda_bridge.so"
_STUBS = "stubs"
_TORCH = ("torch_python", "torch_cpu", "torch", "c10")
"""Libraries of torch's that every module is linked with."""

_TRIES = 5
_PREPARE_JOBS = 2
"""Compilers at a time: each of the large ones takes more than a GiB of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedHeaders:
    """A finished preparation: `folder` holds the libraries and the headers that stand in for CUDA's, `headers` torch's
    precompiled, and what stands in for those; the rest is for compiling and linking."""

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
        """What all lean units find first on their include path."""
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
    return _digest((_LEAN, "include"), ("../lean.py",), _machine())


@cache
def _libraries_key() -> str:
    return _digest(("runtime", "bridge", "include"), ("lean/index_list.h",), _machine())


_SOURCES_THAT_DECIDE = (
    "bindings.py",
    "build.py",
    "compile.py",
    "configurations.py",
    "declarations.py",
    "edits.py",
    "lacking.py",
    "macros.py",
    "preparation.py",
    "rewrite.py",
    "syntax.py",
    "tokens.py",
)


@cache
def fingerprint() -> str:
    """Identifies everything of ours and of the machine's that decides what a build gives: sources of this folder,
    torch, compiler, processor."""
    return _digest(
        ("ptx",),
        _SOURCES_THAT_DECIDE,
        (_headers_key(), _libraries_key()),
    )


def _common_flags() -> tuple[str, ...]:
    torch = ask_torch()
    return (
        f"-std={max(torch.cxx_standard, 'c++20')}",
        "-fPIC",
        "-fno-plt",
        "-g1",
        "-gdwarf-4",  # of version 5, GNU addr2line names the wrong file for code before the first change of file
        f"-D_GLIBCXX_USE_CXX11_ABI={torch.abi}",
        "-DTORCH_API_INCLUDE_EXTENSION_H",
        "-Wno-unknown-pragmas",
        "-Wno-deprecated",
        "-fno-strict-aliasing",
        *processor_flags(),
    )


def _prepared(root: Path) -> PreparedHeaders:
    torch = ask_torch()
    folder, headers = root / f"{_LIBRARIES}-{_libraries_key()}", root / f"{_HEADERS}-{_headers_key()}"
    include = (f"-I{folder / 'include'}", *(f"-isystem{p}" for p in torch.include), f"-isystem{torch.python_include}")
    libraries = stublibs.flags(folder / _STUBS, _TORCH) or [f"-L{torch.lib}", *(f"-l{name}" for name in _TORCH)]
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
    """Compiler flags of the two modes. Checked code is instrumented; g++'s own thread sanitizer is never linked."""
    if checked:
        return (
            "-O1",
            "-fsanitize=thread",
            "--param=tsan-distinguish-volatile=1",
            "-fno-sanitize=all",
            "-fsanitize=thread,alignment,bounds",
            "-DHOSTCUDA_CHECKED=1",
        )
    return ("-O2", "-ffp-contract=fast")


class Precompiled(StrEnum):
    """What is precompiled, for each of the two modes."""

    LEAN = "lean"
    """What lean units share of torch, and CUDA's headers as torch's own switches leave them."""
    SWITCHED = "switched"
    """The same without CUDA's headers, for units whose switches are others."""
    FULL = "full"
    """All of torch."""


def header_name(kind: Precompiled, *, checked: bool) -> str:
    return f"{kind}-{'checked' if checked else 'unchecked'}"


def prepare_headers(cache_dir: Path | None = None, *, full: bool = True) -> PreparedHeaders:
    """The preparation for this machine, made now if it isn't there: minutes the first time, nothing later. Safe for
    concurrent callers.

    `full` also precompiles torch's complete headers, for sources that the lean ones don't suffice for, and what units
    with switches of their own share. Raises BuildError.
    """
    root = (cache_dir or default_cache()).resolve()
    prepared = _prepared(root)
    for _ in range(_TRIES):
        # Between looking and holding another process may have cleared up, so it is looked for again.
        if _complete(prepared, full=full) and _hold(prepared) and _complete(prepared, full=full):
            return _prepared(root)  # with stubs, where there are any by now
        root.mkdir(parents=True, exist_ok=True)
        with _locked(root / "lock"):
            if not _complete(prepared, full=full):
                _make(prepared, full=full)
            _hold(prepared)
            remove_old(root, (_LIBRARIES, _HEADERS))
    raise BuildError(f"{root} is cleared while the host device is being prepared in it; choose another cache folder")


def _hold(prepared: PreparedHeaders) -> bool:
    return all([hold(prepared.folder), hold(prepared.headers)])


def _precompiled(prepared: PreparedHeaders, *, full: bool) -> list[tuple[Path, bool, Precompiled]]:
    """The precompiled headers wanted: place, checked, kind. What takes longest comes first."""
    return [
        (prepared.headers / header_name(kind, checked=checked), checked, kind)
        for kind in ((Precompiled.FULL, Precompiled.LEAN, Precompiled.SWITCHED) if full else (Precompiled.LEAN,))
        for checked in (True, False)
    ]


def _complete(prepared: PreparedHeaders, *, full: bool) -> bool:
    return prepared.bridge.exists() and all(
        (place / "prelude.h.gch").exists() for place, _, _ in _precompiled(prepared, full=full)
    )


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(crew: Crew, command: Sequence[str]) -> None:
    done = crew.run(command)
    if done.returncode != 0:
        raise BuildError(
            f"preparing the host device failed: {' '.join(command[:1])} on {command[-1]}\n{done.stderr[-4000:]}"
        )


def _precompile_lean(crew: Crew, command: Sequence[str], boxed_lists: Path) -> None:
    """Run it; where this torch's headers don't go with the stand-in for its lists, again without it: slower builds."""
    try:
        _run(crew, command)
    except BuildError:
        boxed_lists.unlink(missing_ok=True)
        _run(crew, command)


def _make(prepared: PreparedHeaders, *, full: bool) -> None:
    with Crew(_PREPARE_JOBS) as crew:
        _make_with(crew, prepared, full=full)


def _make_with(crew: Crew, prepared: PreparedHeaders, *, full: bool) -> None:
    _copy(_HERE / "include", prepared.folder / "include")
    stand_ins = lean.LeanHeaders(prepared.torch_include)
    _stand_in(stand_ins, prepared.lean)
    prelude = (prepared.folder / _PRELUDE).read_text()
    objects = prepared.folder / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    jobs: list[Callable[[], None]] = []
    made: list[tuple[Path, Path]] = []
    texts = {
        Precompiled.FULL: "#define HOSTCUDA_FULL 1\n" + prelude,
        Precompiled.SWITCHED: stand_ins.precompiled("core") + prelude,
    }
    of_cuda = defines(macros(TORCH_SWITCHES)) + '#include "hostcuda/headers.h"\n'
    texts[Precompiled.LEAN] = texts[Precompiled.SWITCHED] + of_cuda
    for place, checked, kind in _precompiled(prepared, full=full):
        if (place / "prelude.h.gch").exists():
            continue
        place.mkdir(exist_ok=True)
        header = place / "prelude.h"
        header.write_text(texts[kind])
        is_lean = kind is not Precompiled.FULL
        command = [
            prepared.compiler,
            *prepared.common_flags,
            *variant_flags(checked=checked),
            *([lean.DEFINE, f"-I{prepared.lean}"] if is_lean else []),
            *prepared.include_flags[0 if kind is Precompiled.LEAN else 1 :],  # the first has CUDA's
            "-x",
            "c++-header",
            "-o",
            str(place / "prelude.h.new"),
            str(header),
        ]
        lists = prepared.lean / "ATen" / "core" / "List.h"
        jobs.append(partial(_precompile_lean, crew, command, lists) if is_lean else partial(_run, crew, command))
        made.append((place / "prelude.h.new", place / "prelude.h.gch"))
    sources = sorted([*(_HERE / "runtime").glob("*.cpp"), *(_HERE / "bridge").glob("*.cpp")])
    if not prepared.bridge.exists():
        common = [flag for flag in prepared.common_flags if not flag.startswith("-g")]
        base = [prepared.compiler, *common, *prepared.include_flags, "-O2"]
        for source in sources:
            made_of = str(objects / f"{source.parent.name}-{source.stem}.o")
            jobs.append(partial(_run, crew, [*base, "-c", "-o", made_of, str(source)]))
    open_to_others(prepared.folder)
    open_to_others(prepared.headers)
    for running in [crew.submit(job) for job in jobs]:
        running.result()
    for fresh, final in made:
        fresh.rename(final)
    if not prepared.bridge.exists():
        _link_libraries(crew, prepared, objects)


def _copy(source: Path, target: Path) -> None:
    if target.exists():
        return
    fresh = target.with_name(target.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(source, fresh)
    fresh.rename(target)


def _stand_in(stand_ins: lean.LeanHeaders, target: Path) -> None:
    """Lean units' headers, and on top of them what stands in for torch's on the host device alone."""
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


def _link_libraries(crew: Crew, prepared: PreparedHeaders, objects: Path) -> None:
    stublibs.make(crew.run, prepared.compiler, Path(ask_torch().lib), prepared.folder / _STUBS, _TORCH)
    runtime = [str(p) for p in sorted(objects.glob("runtime-*.o"))]
    link = [prepared.compiler, "-shared"]
    _run(crew, [*link, f"-Wl,-soname,{_RUNTIME}", "-o", str(prepared.runtime), *runtime, "-lpthread", "-ldl"])
    bridge = [str(p) for p in sorted(objects.glob("bridge-*.o"))]
    links = [flag for flag in prepared.link_flags if _BRIDGE not in flag]
    fresh = prepared.bridge.with_name(_BRIDGE + ".new")
    _run(crew, [*link, f"-Wl,-soname,{_BRIDGE}", "-o", str(fresh), *bridge, *links])
    fresh.rename(prepared.bridge)
