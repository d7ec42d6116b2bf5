"""What the host device needs once a machine: the runtime library, the torch bridge and precompiled headers, in a
cache folder.

Charter: paths, flags and the compilers of the preparation. Trusted side; reads nothing of a solution's. Imports the
standard library; torch is asked for its paths in a child process, once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.config import cache_root as default_cache

__all__ = [
    "BuildError",
    "PreparedHeaders",
    "default_cache",
    "fingerprint",
    "header_name",
    "prepare_headers",
    "variant_flags",
]

_HERE = Path(__file__).resolve().parent
_HEADER_SOURCES = ("include", "lean")
_LIBRARY_SOURCES = ("runtime", "bridge")
_RUNTIME = "libhostcuda.so"
_BRIDGE = "hostcuda_bridge.so"
_PREPARE_JOBS = 2
"""Compilers at a time: each of the large ones takes more than a GiB of memory."""


class BuildError(RuntimeError):
    """The machine can't prepare the host device: no compiler, no torch headers, or a fault of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedHeaders:
    """A finished preparation: `folder` holds the libraries, `headers` the (precompiled) headers; the rest is for
    compiling and linking."""

    folder: Path
    headers: Path
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Torch:
    version: str
    include: tuple[str, ...]
    lib: str
    python_include: str
    cxx_standard: str
    abi: int


_ASK_TORCH = """
import json, re, sysconfig, torch
from torch.utils import cpp_extension
text = open(cpp_extension.__file__).read()
standards = re.findall(r"-std=(c\\+\\+\\d+)", text)
print(json.dumps({"version": torch.__version__, "include": cpp_extension.include_paths(),
    "lib": cpp_extension.TORCH_LIB_PATH,
    "python_include": sysconfig.get_paths()["include"], "cxx_standard": max(standards, default="c++17"),
    "abi": int(torch._C._GLIBCXX_USE_CXX11_ABI)}))
"""


def _tuples(answer: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in answer.items()}


@cache
def _torch() -> _Torch:
    """Where this interpreter's torch is. Asking it takes seconds, so the answer is kept beside the preparations."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise BuildError(f"{sys.executable} has no torch")
    version_file = Path(spec.origin).with_name("version.py")
    identity = "\0".join(
        (
            sys.executable,
            sys.version,
            spec.origin,
            version_file.read_text() if version_file.exists() else "",
            _ASK_TORCH,
        )
    )
    kept = default_cache() / f"torch-{hashlib.sha256(identity.encode()).hexdigest()[:20]}.json"
    with contextlib.suppress(OSError, ValueError, TypeError):
        return _Torch(**_tuples(json.loads(kept.read_text())))
    done = subprocess.run([sys.executable, "-c", _ASK_TORCH], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"torch can't be imported by {sys.executable}: {done.stderr.strip()[-400:]}")
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    found = _Torch(**_tuples(answer))
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        fresh = kept.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(asdict(found)))
        fresh.replace(kept)
    return found


@cache
def _compiler() -> tuple[str, str]:
    path = os.environ.get("CXX") or shutil.which("g++")
    if not path:
        raise BuildError("no g++ on this machine: the host device needs one (Debian: apt-get install g++)")
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    version = (done.stdout or done.stderr).splitlines()[0] if (done.stdout or done.stderr) else ""
    if "clang" in version.lower():
        raise BuildError(f"{path} is clang: the host device's checks need GCC's instrumentation; set CXX to g++")
    return path, version


def _processor_flags() -> tuple[str, ...]:
    if platform.machine() != "x86_64":
        return ()
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ()
    line = next((x for x in text.splitlines() if x.startswith("flags")), "")
    return ("-march=x86-64-v3",) if {"avx2", "fma", "bmi2", "f16c"} <= set(line.split()) else ()


def _digest(folders: Sequence[str], files: Sequence[str], parts: Sequence[str]) -> str:
    digest = hashlib.sha256()
    paths = [p for folder in folders for p in sorted((_HERE / folder).rglob("*")) if p.is_file() and p.suffix != ".pyc"]
    for path in [*paths, *(_HERE / name for name in files)]:
        digest.update(str(path.relative_to(_HERE)).encode() + b"\0" + path.read_bytes() + b"\0")
    for part in parts:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:20]


def _machine() -> tuple[str, ...]:
    torch = _torch()
    return (
        torch.version,
        torch.lib,
        torch.python_include,
        *_compiler(),
        *_processor_flags(),
        *_common_flags(),
        *variant_flags(checked=True),
        *variant_flags(checked=False),
    )


@cache
def _headers_key() -> str:
    return _digest(_HEADER_SOURCES, (), _machine())


@cache
def _libraries_key() -> str:
    return _digest((*_LIBRARY_SOURCES, "include"), (), _machine())


@cache
def fingerprint() -> str:
    """Identifies everything of ours and of the machine's that decides what a build gives: sources of this folder,
    torch, compiler, processor."""
    return _digest(
        ("ptx",),
        ("build.py", "preparation.py", "compile.py", "rewrite.py", "tokens.py"),
        (_headers_key(), _libraries_key()),
    )


def _common_flags() -> tuple[str, ...]:
    torch = _torch()
    return (
        f"-std={max(torch.cxx_standard, 'c++20')}",
        "-fPIC",
        "-fno-plt",
        "-g1",
        f"-D_GLIBCXX_USE_CXX11_ABI={torch.abi}",
        "-DTORCH_API_INCLUDE_EXTENSION_H",
        "-Wno-unknown-pragmas",
        "-Wno-deprecated",
        "-fno-strict-aliasing",
        *_processor_flags(),
    )


def _prepared(root: Path) -> PreparedHeaders:
    torch = _torch()
    folder, headers = root / f"libraries-{_libraries_key()}", root / f"headers-{_headers_key()}"
    include = (f"-I{headers / 'include'}", *(f"-isystem{p}" for p in torch.include), f"-isystem{torch.python_include}")
    link = (
        f"-L{folder}",
        f"-l:{_BRIDGE}",
        f"-l:{_RUNTIME}",
        f"-Wl,-rpath,{folder}",
        f"-L{torch.lib}",
        "-ltorch_python",
        "-ltorch_cpu",
        "-ltorch",
        "-lc10",
    )
    return PreparedHeaders(
        folder=folder,
        headers=headers,
        compiler=_compiler()[0],
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


def header_name(*, checked: bool, full: bool) -> str:
    return f"{'full' if full else 'lean'}-{'checked' if checked else 'unchecked'}"


def prepare_headers(cache_dir: Path | None = None, *, full: bool = True) -> PreparedHeaders:
    """The preparation for this machine, made now if it isn't there: minutes the first time, nothing later. Safe for
    concurrent callers.

    `full` also precompiles torch's complete headers, for sources that the lean ones don't suffice for. Raises
    BuildError.
    """
    root = (cache_dir or default_cache()).resolve()
    prepared = _prepared(root)
    if _complete(prepared, full=full):
        return prepared
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root / "lock"):
        if not _complete(prepared, full=full):
            _make(prepared, full=full)
    return prepared


def _precompiled(prepared: PreparedHeaders, *, full: bool) -> list[tuple[Path, bool, bool]]:
    """The precompiled headers wanted: place, checked, full."""
    return [
        (prepared.headers / header_name(checked=checked, full=each), checked, each)
        for each in ((False, True) if full else (False,))
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


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(list(command), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(
            f"preparing the host device failed: {' '.join(command[:1])} on {command[-1]}\n{done.stderr[-4000:]}"
        )


def _make(prepared: PreparedHeaders, *, full: bool) -> None:
    _copy(_HERE / "include", prepared.headers / "include")
    _copy(_HERE / "lean", prepared.headers / "lean")
    objects = prepared.folder / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    jobs: list[list[str]] = []
    made: list[tuple[Path, Path]] = []
    for place, checked, is_full in _precompiled(prepared, full=full):
        if (place / "prelude.h.gch").exists():
            continue
        place.mkdir(exist_ok=True)
        header = place / "prelude.h"
        header.write_text(("#define HOSTCUDA_FULL 1\n" if is_full else "") + '#include "hostcuda/prelude.h"\n')
        lean = [] if is_full else [f"-I{prepared.headers / 'lean'}"]
        jobs.append(
            [
                prepared.compiler,
                *prepared.common_flags,
                *variant_flags(checked=checked),
                *lean,
                *prepared.include_flags,
                "-x",
                "c++-header",
                "-o",
                str(place / "prelude.h.new"),
                str(header),
            ]
        )
        made.append((place / "prelude.h.new", place / "prelude.h.gch"))
    sources = sorted([*(_HERE / "runtime").glob("*.cpp"), *(_HERE / "bridge").glob("*.cpp")])
    if not prepared.bridge.exists():
        base = [prepared.compiler, *(f for f in prepared.common_flags if f != "-g1"), *prepared.include_flags, "-O2"]
        jobs += [[*base, "-c", "-o", str(objects / f"{s.parent.name}-{s.stem}.o"), str(s)] for s in sources]
    with ThreadPoolExecutor(max_workers=_PREPARE_JOBS) as pool:
        list(pool.map(_run, jobs))
    for fresh, final in made:
        fresh.rename(final)
    if not prepared.bridge.exists():
        _link_libraries(prepared, objects)


def _copy(source: Path, target: Path) -> None:
    if target.exists():
        return
    fresh = target.with_name(target.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(source, fresh)
    fresh.rename(target)


def _link_libraries(prepared: PreparedHeaders, objects: Path) -> None:
    runtime = [str(p) for p in sorted(objects.glob("runtime-*.o"))]
    _run(
        [
            prepared.compiler,
            "-shared",
            f"-Wl,-soname,{_RUNTIME}",
            "-o",
            str(prepared.runtime),
            *runtime,
            "-lpthread",
            "-ldl",
        ]
    )
    bridge = [str(p) for p in sorted(objects.glob("bridge-*.o"))]
    links = [flag for flag in prepared.link_flags if _BRIDGE not in flag]
    fresh = prepared.bridge.with_name(_BRIDGE + ".new")
    _run([prepared.compiler, "-shared", f"-Wl,-soname,{_BRIDGE}", "-o", str(fresh), *bridge, *links])
    fresh.rename(prepared.bridge)
