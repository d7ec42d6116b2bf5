"""Build extensions with g++ and nvcc as torch's `load_inline` does, in less time.

Trusted side. Writes files; runs only version queries and, in `warm_up`, the compiler on torch's own headers. Sources,
flags and their order are torch's, so that messages and line numbers are the usual ones; nvcc also writes line tables
and resource usage, which do not change the code. See guides/design/split_builds.md.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.core.environment import MachineError
from harness.core.executables import find_gxx, find_nvcc, gxx_version, nvcc_version
from harness.core.preparing import TellPreparing, untold
from harness.core.status import Failure, Status, one_line
from harness.core.visible_gpus import Capability
from harness.toolchain import fast_paths
from harness.toolchain.diagnostics import Diagnostics, first_error, kernel_resources
from harness.toolchain.headers import lean
from harness.toolchain.headers.shared import SharedHeaders
from harness.toolchain.ninja_file import OWN, SCRIPT, Recipe, try_lean
from harness.toolchain.spec import ExtensionSpec
from harness.toolchain.toolchain import Plan
from harness.toolchain.torchinfo import TorchBuild, find_torch, python_include
from harness.toolchain.units import Unit, units_of

FORMAT = 3
"""Version of the build rules; part of the fingerprint."""

PRODUCT = "module.so"
NO_NVCC = "nvcc not found: install the CUDA toolkit, or set CUDA_HOME to its folder"
_LEAN_BUILD = f"{OWN}/build.ninja"
_FULL_BUILD = f"{OWN}/full.ninja"
_LEAN_FLAGS = "flags"
_STANDARD_HEADERS = Path("/usr/include")

_ARCH_NAMES = {
    "Volta": "7.0",
    "Turing": "7.5",
    "Ampere": "8.0;8.6",
    "Ada": "8.9",
    "Hopper": "9.0",
    "Blackwell": "10.0;12.0",
}
"""Names that `TORCH_CUDA_ARCH_LIST` may contain besides numbers."""


class NvccToolchain:
    """Toolchain of g++ and nvcc.

    Args:
        capabilities: Compute capabilities of the visible GPUs; modules get code for each, as in torch. If empty, only
            C++ can be built.
        cache: Folder that holds the files that builds share.
        torch: The torch to build for; None: this interpreter's.
        lean_headers: False: always use the full headers.
        quick_ways: The fast paths to try, from `fast_paths.WAYS`.
        jobs: Compilers per extension at the same time; None: `MAX_JOBS`, else 8.
        last_includes: Folders of headers that are read only if no other folder has them.
        tell: Receives the progress of `warm_up`.

    Raises:
        MachineError: A compiler, ninja or the CUDA headers are missing.
    """

    def __init__(
        self,
        capabilities: Collection[Capability],
        cache: Path,
        *,
        torch: TorchBuild | None = None,
        lean_headers: bool = True,
        quick_ways: Collection[str] = fast_paths.WAYS,
        jobs: int | None = None,
        last_includes: Collection[Path] = (),
        tell: TellPreparing = untold,
    ) -> None:
        self._tell = tell
        self._torch = torch or find_torch()
        self._capabilities = sorted(set(capabilities))
        cxx = find_gxx()
        if cxx is None:
            raise MachineError("no C++ compiler found: install g++, or set CXX to one")
        self._cxx = cxx
        self._nvcc: Path | None = None
        self._cuda_home: Path | None = None
        if self._capabilities:
            self._nvcc = find_nvcc()
            if self._nvcc is None:
                raise MachineError(NO_NVCC)
            self._cuda_home = cuda_home(self._nvcc)
        self._ninja = _find_ninja()
        self._jobs = jobs or _max_jobs()
        self._last_includes = tuple(last_includes)
        self._ways = tuple(sorted(quick_ways)) if lean_headers else ()
        cuda = None if self._cuda_home is None else (self._cuda_home / "include", str(nvcc_version(self._nvcc)))
        self._headers = (
            SharedHeaders(cache / "headers", self._torch, self._cxx, self._compiler(), cuda) if lean_headers else None
        )

    @functools.cached_property
    def fingerprint(self) -> str:
        """Everything except the specification that changes the result."""
        arch = ",".join(f"{major}.{minor}" for major, minor in self._capabilities) or "none"
        return " ".join(
            (
                f"native {FORMAT}",
                self._compiler(),
                f"nvcc {nvcc_version(self._nvcc)} arch {arch}",
                f"lean headers {'off' if self._headers is None else lean.FORMAT} quick {self._ways}",
                f"cuda libraries {self._torch.has_cuda_libraries}",
            )
        )

    @property
    def runtime(self) -> tuple[Path, ...]:
        """Folders that built modules need at run time: none."""
        return ()

    def _compiler(self) -> str:
        return " ".join(
            (
                f"torch {self._torch.version} {self._torch.cxx_standard}",
                f"{self._cxx.name} {gxx_version(self._cxx)}",
                f"{sysconfig.get_config_var('SOABI')} {platform.machine()}",
            )
        )

    def key(self, spec: ExtensionSpec) -> str:
        """Return the content address of the module for `spec`."""
        native = any("native" in flag for flag in (*spec.extra_cflags, *spec.extra_cuda_cflags))
        return spec.key(f"{self.fingerprint} cpu {_cpu_flags()}" if native else self.fingerprint)

    def refuse(self, spec: ExtensionSpec) -> Failure | None:
        """Return why `spec` can't be built, or None."""
        if spec.uses_cuda and self._nvcc is None:
            reason = f"extension {spec.name} needs CUDA, but only C++ can be built here"
            return Failure(status=Status.unsupported, reason=one_line(reason), evidence={"extension": spec.name})
        return None

    def prepare(self, spec: ExtensionSpec, folder: Path) -> Plan:
        """Write sources and build files into the empty `folder`."""
        units = units_of(spec)
        for file in spec.files:
            _write(folder / file.path, file.text)
        lean_options: dict[str, str] = {}
        quick_commands: dict[str, str] = {}
        joined = self._joined(spec, units)
        for unit in units:
            _write(folder / unit.file, unit.text)
            if (header := self._stand_in(spec, unit)) is not None:
                own = f"{OWN}/unit-{unit.file}"  # a folder per unit: a source may be named `build.ninja`
                _write(folder / own / lean.UNIT, header)
                _write(folder / own / _LEAN_FLAGS, self._lean_flags(spec, unit, own))
                lean_options[unit.file] = (
                    f"--options-file={own}/{_LEAN_FLAGS}" if unit.cuda else f"@{own}/{_LEAN_FLAGS}"
                )
                if (command := self._quick_command(spec, unit, folder, joined)) is not None:
                    quick_commands[unit.file] = command
        after: dict[str, str] = {}
        if joined is not None and len(quick_commands) == len(units):
            main, cuda = units
            quick_commands[main.file] = fast_paths.joined_command(cuda, main, quick_commands[main.file])
            after[main.file] = cuda.object
        recipe = Recipe(
            cxx=str(self._cxx),
            cxx_flags=self._cxx_flags(spec),
            nvcc=str(self._nvcc) if spec.uses_cuda else None,
            nvcc_flags=self._nvcc_flags(spec),
            link_flags=self._link_flags(spec),
        )
        bindings = None if self._headers is None or not quick_commands else self._headers.bindings
        libraries = () if bindings is None else (bindings,)
        first = replace(recipe, link_flags=self._quick_link_flags(spec) or recipe.link_flags)
        tried = first.build_file(units, PRODUCT, lean_options, quick=quick_commands, after=after, libraries=libraries)
        _write(folder / _LEAN_BUILD, tried)
        _write(folder / _FULL_BUILD, recipe.build_file(units, PRODUCT, {}, prefix=f"{OWN}/"))
        searched = [path for path in (*self._system_includes(spec.uses_cuda), _STANDARD_HEADERS) if path.exists()]
        _write(folder / SCRIPT, try_lean(searched))
        ninja = (str(self._ninja), "-v", "-j", str(self._jobs), "-f")
        return Plan(
            commands=((*ninja, _LEAN_BUILD),),
            second_try=((*ninja, _FULL_BUILD),) if lean_options else (),
            product=PRODUCT,
            headers={unit.file: _first_way(unit, lean_options, quick_commands) for unit in units},
            readable=(self._headers.folder,) if self._headers is not None and self._headers.folder.exists() else (),
        )

    def prepare_cuda(self, spec: ExtensionSpec, folder: Path) -> Plan:
        """Write the files of `prepare`; the plan compiles CUDA units, without a link."""
        plan = self.prepare(spec, folder)
        objects = [unit.object for unit in units_of(spec) if unit.cuda]
        return replace(plan, commands=((*plan.commands[0], *objects),), second_try=())

    @property
    def cuda_include(self) -> Path | None:
        """The CUDA toolkit's include folder; None without GPUs to compile for."""
        return None if self._cuda_home is None else self._cuda_home / "include"

    def interpret(self, spec: ExtensionSpec, log: str, *, solution: str | None = None) -> Diagnostics:
        """Parse what the commands printed."""
        maps = [unit.map for unit in units_of(spec)]
        # The log may hold a solution's text: without nvcc no line in it can come from ptxas.
        kernels = kernel_resources(log) if spec.has_cuda_sources else ()
        return Diagnostics(error=first_error(log, maps, solution), kernels=kernels)

    def warm_up(self, *, wait: bool = True) -> Mapping[str, Any]:
        """Precompile headers and bindings that builds share."""
        return {"precompiled": []} if self._headers is None else self._headers.warm_up(wait=wait, tell=self._tell)

    def close(self) -> None:
        """Do nothing: no process is kept."""

    # -- torch's flags ---------------------------------------------------------------------------------------

    def _common_flags(self, spec: ExtensionSpec) -> list[str]:
        abi = self._torch.abi_defines()
        flags = [f"-DTORCH_EXTENSION_NAME={spec.name}", *(flag for flag in self._torch.defines() if flag not in abi)]
        flags += (f"-I{shlex.quote(path)}" for path in spec.extra_include_paths)
        flags += (f"-isystem {shlex.quote(str(path))}" for path in self._system_includes(spec.uses_cuda))
        return [*flags, *abi]

    def _system_includes(self, cuda: bool) -> list[Path]:
        found = list(self._torch.include_folders())
        if cuda and self._cuda_home is not None and (include := self._cuda_home / "include") != Path("/usr/include"):
            found.append(include)
        return [*found, python_include(), *self._last_includes]

    def _cxx_flags(self, spec: ExtensionSpec) -> list[str]:
        return [*self._common_flags(spec), "-fPIC", f"-std={self._torch.cxx_standard}", *_given(spec.extra_cflags)]

    def _nvcc_flags(self, spec: ExtensionSpec) -> list[str]:
        given = _given(spec.extra_cuda_cflags)
        flags = [*self._common_flags(spec), *self._torch.nvcc_flags, *self._arch_flags(spec)]
        flags += ["--compiler-options", "'-fPIC'", "-lineinfo", "-Xptxas -v", *given]
        if not any(flag.startswith("-std=") for flag in given):
            flags.append(f"-std={self._torch.cxx_standard}")
        if compiler := os.environ.get("CC"):
            flags = ["-ccbin", compiler, *flags]
        return flags

    def _arch_flags(self, spec: ExtensionSpec) -> list[str]:
        if any("arch" in flag for flag in spec.extra_cuda_cflags) or not self._capabilities:
            return []
        if spec.cuda_arch_list and spec.cuda_arch_list != "native":
            return _arch_flags_of(spec.cuda_arch_list)
        numbers = [f"{major}{minor}" for major, minor in self._capabilities]
        return [f"-gencode=arch=compute_{number},code=sm_{number}" for number in numbers]

    def _link_flags(self, spec: ExtensionSpec) -> list[str]:
        names = self._torch.libraries(cuda=spec.uses_cuda)
        torch = [f"-L{self._torch.lib}", *(f"-l{name}" for name in names)]
        return ["-shared", *_given(spec.extra_ldflags), *torch, *self._cuda_link_flags(spec)]

    def _quick_link_flags(self, spec: ExtensionSpec) -> list[str] | None:
        """Return the linker flags with stubs of torch's libraries; None without stubs.

        The author's own flags may need torch's definitions (`-z defs`), so any of them rules stubs out.
        """
        if self._headers is None or _given(spec.extra_ldflags):
            return None
        stubs = self._headers.link_flags(self._torch.libraries(cuda=spec.uses_cuda))
        return None if stubs is None else ["-shared", *stubs, *self._cuda_link_flags(spec)]

    def _cuda_link_flags(self, spec: ExtensionSpec) -> list[str]:
        if not spec.uses_cuda or self._cuda_home is None:
            return []
        lib = next((self._cuda_home / name for name in ("lib64", "lib") if (self._cuda_home / name).exists()), None)
        return [f"-L{lib}", "-lcudart"]

    def _stand_in(self, spec: ExtensionSpec, unit: Unit) -> str | None:
        if self._headers is None:
            return None
        text = "\n".join([unit.text, *(file.text for file in spec.files if file.path != unit.file)])
        return self._headers.unit(text, python=not unit.cuda)

    def _lean_flags(self, spec: ExtensionSpec, unit: Unit, folder: str) -> str:
        assert self._headers is not None
        given = None if unit.cuda else spec.extra_cflags
        return _options(self._headers.flags(folder, kind="python", precompiled_for=given))

    def _joined(self, spec: ExtensionSpec, units: Sequence[Unit]) -> dict[str, Any] | None:
        """Return what binds `main.cpp`'s functions in the host part of `cuda.cu`.

        None if `main.cpp` is compiled alone.
        """
        ready = self._headers is not None and self._headers.bindings is not None
        if not ready or set(self._ways) != set(fast_paths.WAYS) or [unit.cuda for unit in units] != [False, True]:
            return None
        return fast_paths.joined_bindings(spec, *units)

    def _quick_command(
        self, spec: ExtensionSpec, unit: Unit, folder: Path, joined: Mapping[str, Any] | None
    ) -> str | None:
        """Write the files of a unit's fast path and return its command, or None."""
        if self._headers is None or ("split" if unit.cuda else "prebuilt") not in self._ways:
            return None
        own = f"{OWN}/quick-{unit.file}"
        text = unit.text if unit.cuda else fast_paths.bound_text(spec, unit)
        # Not of the unit's text: its bindings mention pybind11, whose headers cost more than this way saves.
        header = None if text is None else self._headers.unit(text, python=False)
        if unit.cuda:
            given = fast_paths.host_flags(_given(spec.extra_cuda_cflags))
            own_headers = spec.files or spec.extra_include_paths  # they may hold kernels and can't be split
            if given is None or own_headers or header is None or self._cuda_home is None:
                return None
            flags = self._headers.flags(own, kind="cuda", precompiled_for=given)
            cccl = self._cuda_home / "include" / "cccl"
            include = (cccl,) if cccl.exists() else ()
            settings = fast_paths.split_settings(self._cxx, flags, self._torch.include_folders(), include, joined)
            command, files = fast_paths.split_command(unit, f"{own}/settings.json"), {"settings.json": settings}
        else:
            if text is None or header is None or self._headers.bindings is None:
                return None
            flags = self._headers.flags(own, kind="core", precompiled_for=spec.extra_cflags)
            files = {"bound.cpp": text, _LEAN_FLAGS: _options(flags)}
            command = fast_paths.bound_command(unit, f"{own}/{_LEAN_FLAGS}", f"{own}/bound.cpp")
        for name, held in {lean.UNIT: header, **files}.items():
            _write(folder / own / name, held)
        return command


def _options(flags: tuple[str, ...]) -> str:
    """Format a file of options. nvcc 13.0 does not understand single quotes there."""
    return "".join(f'"{flag}"\n' for flag in flags)


def _first_way(unit: Unit, lean_options: Mapping[str, str], quick_commands: Mapping[str, str]) -> str:
    """Return the first way to build a unit, as a word of `BuildReport.headers`."""
    if unit.file in quick_commands:
        return "split" if unit.cuda else "prebuilt"
    return "lean" if unit.file in lean_options else "full"


def cuda_home(nvcc: Path) -> Path:
    """Return the CUDA toolkit's folder.

    Raises:
        MachineError: No folder has CUDA's headers.
    """
    named = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    for folder in (*map(Path, named), nvcc.resolve().parent.parent, Path("/usr/local/cuda")):
        if (folder / "include" / "cuda_runtime.h").exists():
            return folder
    raise MachineError(f"no CUDA headers found for {nvcc}: set CUDA_HOME to the toolkit's folder")


def _find_ninja() -> Path:
    beside = Path(sys.executable).parent / "ninja"
    found = beside if beside.exists() else shutil.which("ninja")
    if found is None:
        raise MachineError("ninja not found: run pip install ninja")
    return Path(found)


def _max_jobs() -> int:
    """Return how many compilers an extension may use: `MAX_JOBS`, as in torch, else 8."""
    given = os.environ.get("MAX_JOBS", "")
    return int(given) if given.isdigit() and int(given) > 0 else 8


@functools.cache
def _cpu_flags() -> str:
    """Return a digest of the CPU features that `-march=native` depends on."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.machine()
    wanted = re.findall(r"^(?:vendor_id|cpu family|model|flags)\s*:.*$", text.partition("\n\n")[0], re.MULTILINE)
    return hashlib.sha256("\n".join(wanted).encode()).hexdigest()[:16]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="surrogatepass")


def _given(flags: tuple[str, ...]) -> list[str]:
    return [flag for flag in flags if flag.strip()]


def _arch_flags_of(listed: str) -> list[str]:
    """Return nvcc's flags for a `TORCH_CUDA_ARCH_LIST`, as torch does.

    nvcc reports invalid entries.
    """
    text = listed.replace(" ", ";")
    for name, numbers in _ARCH_NAMES.items():
        text = text.replace(name, numbers)
    flags = []
    for arch in filter(None, text.split(";")):
        number = shlex.quote(arch.removesuffix("+PTX").replace(".", ""))
        flags.append(f"-gencode=arch=compute_{number},code=sm_{number}")
        if arch.endswith("+PTX"):
            flags.append(f"-gencode=arch=compute_{number},code=compute_{number}")
    return sorted(set(flags))
