"""Extensions built by g++ and nvcc, as torch's own `load_inline` would build them, in less time.

Trusted side; writes files, runs nothing but version queries and (in `warm_up`) the compiler on torch's own headers.

The sources written are those that torch writes, with the same flags in the same order, so that messages and line
numbers are the ones people know. What differs: each unit is tried in a quick way first (`build.quick`), then with lean
headers (`harness.toolchain.headers.lean`), and nvcc is asked for line tables (`-lineinfo`) and resource usage
(`-Xptxas -v`), neither of which changes the code.
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
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.core.environment import MachineError
from harness.core.executables import find_gxx, find_nvcc, gxx_version, nvcc_version
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

FORMAT = 2
"""Version of what is built from a specification; part of the fingerprint."""

PRODUCT = "module.so"
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
"""Names that `TORCH_CUDA_ARCH_LIST` may hold beside numbers."""


class NvccToolchain:
    """g++ and nvcc. Modules get code for each of `capabilities`, as torch gives them for each visible GPU; where there
    is none, only C++ is built.

    `cache` is the folder below which what builds share is kept. `lean_headers=False` always uses the full headers,
    `quick_ways` names those of `quick.WAYS` that are tried before that.
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
    ) -> None:
        self._torch = torch or find_torch()
        self._capabilities = sorted(set(capabilities))
        cxx = find_gxx()
        if cxx is None:
            raise MachineError("no C++ compiler: install g++, or name one by CXX")
        self._cxx = cxx
        self._nvcc: Path | None = None
        self._cuda_home: Path | None = None
        if self._capabilities:
            self._nvcc = find_nvcc()
            if self._nvcc is None:
                raise MachineError("no nvcc: install the CUDA toolkit, or set CUDA_HOME to where it is")
            self._cuda_home = cuda_home(self._nvcc)
        self._ninja = _find_ninja()
        self._jobs = jobs or _max_jobs()
        self._ways = tuple(sorted(quick_ways)) if lean_headers else ()
        cuda = None if self._cuda_home is None else (self._cuda_home / "include", str(nvcc_version(self._nvcc)))
        self._headers = (
            SharedHeaders(cache / "headers", self._torch, self._cxx, self._compiler(), cuda) if lean_headers else None
        )

    @functools.cached_property
    def fingerprint(self) -> str:
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
        native = any("native" in flag for flag in (*spec.extra_cflags, *spec.extra_cuda_cflags))
        return spec.key(f"{self.fingerprint} cpu {_cpu_flags()}" if native else self.fingerprint)

    def refuse(self, spec: ExtensionSpec) -> Failure | None:
        if spec.uses_cuda and self._nvcc is None:
            reason = f"extension {spec.name} needs CUDA, and only C++ can be built here"
            return Failure(status=Status.unsupported, reason=one_line(reason), evidence={"extension": spec.name})
        return None

    def prepare(self, spec: ExtensionSpec, folder: Path) -> Plan:
        units = units_of(spec)
        for file in spec.files:
            _write(folder / file.path, file.text)
        lean_options: dict[str, str] = {}
        quick_commands: dict[str, str] = {}
        for unit in units:
            _write(folder / unit.file, unit.text)
            if (header := self._stand_in(spec, unit)) is not None:
                own = f"{OWN}/unit-{unit.file}"  # a source may be called `build.ninja`
                _write(folder / own / lean.UNIT, header)
                _write(folder / own / _LEAN_FLAGS, self._lean_flags(spec, unit, own))
                lean_options[unit.file] = (
                    f"--options-file={own}/{_LEAN_FLAGS}" if unit.cuda else f"@{own}/{_LEAN_FLAGS}"
                )
                if (command := self._quick_command(spec, unit, folder)) is not None:
                    quick_commands[unit.file] = command
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
        tried = first.build_file(units, PRODUCT, lean_options, quick=quick_commands, libraries=libraries)
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

    def interpret(self, spec: ExtensionSpec, log: str, *, solution: str | None = None) -> Diagnostics:
        maps = [unit.map for unit in units_of(spec)]
        # A log is the solution's as much as the compilers': without nvcc nothing in it speaks of kernels.
        kernels = kernel_resources(log) if spec.has_cuda_sources else ()
        return Diagnostics(error=first_error(log, maps, solution), kernels=kernels)

    def warm_up(self, *, wait: bool = True) -> Mapping[str, Any]:
        return {"precompiled": []} if self._headers is None else self._headers.warm_up(wait=wait)

    def close(self) -> None:
        pass

    # -- flags, as torch has them ----------------------------------------------------------------------------

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
        return [*found, python_include()]

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
        """The same with stubs of torch's libraries. None where there are none, or where the author's own flags might
        ask for what torch's define (`-z defs`), or for others beside them.
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

    def _quick_command(self, spec: ExtensionSpec, unit: Unit, folder: Path) -> str | None:
        """How a unit is tried before all else, its files written; None where it is not."""
        if self._headers is None or ("split" if unit.cuda else "prebuilt") not in self._ways:
            return None
        own = f"{OWN}/quick-{unit.file}"
        header = self._headers.unit(unit.text, python=False)
        if unit.cuda:
            given = fast_paths.host_flags(_given(spec.extra_cuda_cflags))
            own_headers = spec.files or spec.extra_include_paths  # which may hold kernels, and are not divided
            if given is None or own_headers or header is None or self._cuda_home is None:
                return None
            flags = self._headers.flags(own, kind="cuda", precompiled_for=given)
            cccl = self._cuda_home / "include" / "cccl"
            include = (cccl,) if cccl.exists() else ()
            settings = fast_paths.split_settings(self._cxx, flags, self._torch.include_folders(), include)
            command, files = fast_paths.split_command(unit, f"{own}/settings.json"), {"settings.json": settings}
        else:
            text = fast_paths.bound_text(spec, unit)
            if text is None or header is None or self._headers.bindings is None:
                return None
            flags = self._headers.flags(own, kind="core", precompiled_for=spec.extra_cflags)
            files = {"bound.cpp": text, _LEAN_FLAGS: _options(flags)}
            command = fast_paths.bound_command(unit, f"{own}/{_LEAN_FLAGS}", f"{own}/bound.cpp")
        for name, held in {lean.UNIT: header, **files}.items():
            _write(folder / own / name, held)
        return command


def _options(flags: tuple[str, ...]) -> str:
    """A file of options. Double quotes are what both g++ and nvcc understand there (nvcc 13.0: not single ones)."""
    return "".join(f'"{flag}"\n' for flag in flags)


def _first_way(unit: Unit, lean_options: Mapping[str, str], quick_commands: Mapping[str, str]) -> str:
    """How a unit is tried first, in the words of `BuildReport`."""
    if unit.file in quick_commands:
        return "split" if unit.cuda else "prebuilt"
    return "lean" if unit.file in lean_options else "full"


def cuda_home(nvcc: Path) -> Path:
    """The toolkit folder with CUDA's headers. Raises `MachineError` where none is found."""
    named = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    for folder in (*map(Path, named), nvcc.resolve().parent.parent, Path("/usr/local/cuda")):
        if (folder / "include" / "cuda_runtime.h").exists():
            return folder
    raise MachineError(f"no CUDA headers beside {nvcc}: set CUDA_HOME to the toolkit's folder")


def _find_ninja() -> Path:
    beside = Path(sys.executable).parent / "ninja"
    found = beside if beside.exists() else shutil.which("ninja")
    if found is None:
        raise MachineError("ninja is missing: pip install ninja")
    return Path(found)


def _max_jobs() -> int:
    """Compilers of one extension at a time: `MAX_JOBS` as torch reads it, else one for each unit."""
    given = os.environ.get("MAX_JOBS", "")
    return int(given) if given.isdigit() and int(given) > 0 else 8


@functools.cache
def _cpu_flags() -> str:
    """What `-march=native` depends on."""
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
    """Torch's reading of `TORCH_CUDA_ARCH_LIST`. What is no architecture is passed on for nvcc to refuse."""
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
