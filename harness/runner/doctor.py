"""What this machine has of what the harness needs, what each thing enables, and what to do where one is missing.

Outside layer; trusted side. Imports `environment` and the sandbox's probe. Findings are values; `cli` shows them.
"""

from __future__ import annotations

import importlib.metadata
import re
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from harness.core.choices import DeviceKind
from harness.core.environment import Environment, cuda_unusable
from harness.core.executables import find_nvcc, output_of
from harness.referee.audit.auditor import find_sanitizer
from harness.runner.profile.ncu import find_ncu
from harness.sandbox import SandboxReport

MIN_GXX = (9, 0)
"""torch's headers are C++17; GCC 9 is the oldest that torch's extension builder accepts."""


class CheckState(StrEnum):
    """Whether a thing is there."""

    ok = "ok"
    limited = "limited"
    missing = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCheck:
    """One thing looked for. `found` is what is there, `enables` what it is for, `remedy` what to do if it is not."""

    name: str
    state: CheckState
    found: str
    enables: str
    remedy: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All checks; per device why it can't be used (None: it can); the device that `auto` means here."""

    checks: tuple[MachineCheck, ...]
    unusable: dict[DeviceKind, str | None]

    @property
    def device(self) -> DeviceKind | None:
        """What `--device auto` would take; None where no device can be used."""
        return next((kind for kind in (DeviceKind.CUDA, DeviceKind.HOST) if self.unusable[kind] is None), None)

    def to_json(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "unusable": {kind.value: why for kind, why in self.unusable.items()},
            "checks": [asdict(item) for item in self.checks],
        }


def diagnose(
    environment: Environment,
    sandbox: SandboxReport,
    *,
    ninja: str | None,
    sanitizer: str | None,
    ncu: str | None,
    cache_dir: Path,
    cache_fault: str | None,
    shares_cxx: bool | None = None,
) -> Diagnosis:
    """Judge what was found. `ninja`, `sanitizer` and `ncu` are versions (None: missing), see `ninja_version`,
    `sanitizer_version` and `ncu_version`; `cache_fault` is why `cache_dir` can't hold caches (None: it can), without
    which no device evaluates anything; `shares_cxx` is what `cxx_runtime` says of the C++ compiler.
    """
    checks = (
        *_gpu_checks(environment),
        _nvcc(environment),
        _sanitizer(environment, sanitizer),
        _ncu(environment, ncu),
        _torch(environment),
        _gxx(environment, shares_cxx),
        _ninja(ninja),
        _sandbox(sandbox),
        _cache(cache_dir, cache_fault),
    )
    host = next(
        (item.remedy for item in checks if item.name in ("torch", "g++") and item.state is CheckState.missing), None
    )
    unusable = {DeviceKind.CUDA: cuda_unusable(environment) or cache_fault, DeviceKind.HOST: host or cache_fault}
    return Diagnosis(checks=checks, unusable=unusable)


def ninja_version() -> str | None:
    """Of the Python package or the program on PATH; None where there is neither."""
    try:
        return importlib.metadata.version("ninja")
    except importlib.metadata.PackageNotFoundError:
        return (output_of(["ninja", "--version"]) or "").strip() or None


def sanitizer_version() -> str | None:
    """Of compute-sanitizer, beside nvcc or on PATH; None where it is missing or does not run."""
    path = find_sanitizer(find_nvcc())
    found = re.search(r"[Vv]ersion (\d+(?:\.\d+)+)", output_of([path, "--version"]) or "") if path else None
    return found[1] if found else None


def ncu_version() -> str | None:
    """Of Nsight Compute's command line, beside nvcc or on PATH; None where it is missing or does not run."""
    path = find_ncu(find_nvcc())
    found = re.search(r"[Vv]ersion (\d+(?:\.\d+)+)", output_of([path, "--version"]) or "") if path else None
    return found[1] if found else None


def cxx_runtime(gxx: Path | None) -> bool | None:
    """Whether what this compiler links shares the process's libstdc++ (or libc++), by a library made with it; None
    where that can't be told: there is no compiler, or it makes none.
    """
    if gxx is None:
        return None
    with tempfile.TemporaryDirectory() as held:
        source, library = Path(held) / "throws.cpp", Path(held) / "throws.so"
        source.write_text(_THROWS)
        if output_of([str(gxx), "-shared", "-fPIC", "-O0", "-o", str(library), str(source)]) is None:
            return None
        try:
            linked = library.read_bytes()
        except OSError:
            return None
    return any(name in linked for name in _CXX_RUNTIMES)


_THROWS = """#include <stdexcept>
extern "C" void fail(int number) { if (number) throw std::runtime_error("failed"); }
"""

_CXX_RUNTIMES = (b"libstdc++.so", b"libc++.so")
"""One of these stands in a library's list of what it needs, unless it holds a copy of its own."""


def _gpu_checks(environment: Environment) -> Sequence[MachineCheck]:
    enables = "verdicts at full size and GPU times (--device cuda)"
    if not environment.gpus:
        why = environment.absent.get("gpus", "none listed")
        hint = "values can be checked without one, on the host device; times need an NVIDIA GPU and its driver"
        return [MachineCheck(name="GPU", state=CheckState.missing, found=why, enables=enables, remedy=hint)]
    checks = []
    remedy: str | None
    for gpu in environment.gpus:
        memory = f"{gpu.memory_bytes / 2**30:.0f} GiB, " if gpu.memory_bytes else ""
        found = f"{gpu.name}, {memory}driver {environment.driver} (up to CUDA {environment.driver_cuda})"
        state, remedy = CheckState.ok, None
        if gpu.mig:
            found += ", MIG on"
            state, remedy = CheckState.limited, "times are of a slice of the GPU: compare only with the same slice"
        checks.append(MachineCheck(name=f"GPU {gpu.index}", state=state, found=found, enables=enables, remedy=remedy))
    return checks


def _nvcc(environment: Environment) -> MachineCheck:
    remedy = None
    state = CheckState.ok
    if environment.nvcc is None:
        state = CheckState.missing
        remedy = "install the CUDA toolkit, or set CUDA_HOME to it" if environment.gpus else "needed with a GPU only"
    elif environment.torch_cuda and environment.nvcc.split(".")[0] != environment.torch_cuda.split(".")[0]:
        state = CheckState.limited
        remedy = f"torch was built for CUDA {environment.torch_cuda}: install that toolkit and set CUDA_HOME to it"
    found = environment.nvcc or environment.absent.get("nvcc", "not found")
    return MachineCheck(name="nvcc", state=state, found=found, enables="compiling CUDA for the GPU", remedy=remedy)


def _sanitizer(environment: Environment, version: str | None) -> MachineCheck:
    remedy = None
    if version is None:
        remedy = "part of the CUDA toolkit: install it whole" if environment.gpus else "needed with a GPU only"
    return MachineCheck(
        name="compute-sanitizer",
        state=CheckState.ok if version else CheckState.missing,
        found=version or "not beside nvcc, nor on PATH",
        enables="finding races and bad accesses on the GPU (the host device has its own checks)",
        remedy=remedy,
    )


def _ncu(environment: Environment, version: str | None) -> MachineCheck:
    remedy = None
    if version is None:
        remedy = "install Nsight Compute (package nsight-compute)" if environment.gpus else "needed with a GPU only"
    return MachineCheck(
        name="ncu",
        state=CheckState.ok if version else CheckState.missing,
        found=version or "not beside nvcc, nor on PATH",
        enables="hardware counters of kernels (harness profile --ncu)",
        remedy=remedy,
    )


def _torch(environment: Environment) -> MachineCheck:
    state, remedy = CheckState.ok, None
    if environment.torch is None:
        state, remedy = CheckState.missing, "install torch 2.6 or newer: make does"
    elif environment.torch_cuda is None and environment.gpus:
        state, remedy = CheckState.limited, cuda_unusable(environment)
    built = f"for CUDA {environment.torch_cuda}" if environment.torch_cuda else "for the CPU"
    found = f"{environment.torch}, built {built}" if environment.torch else "not installed"
    return MachineCheck(
        name="torch", state=state, found=found, enables="everything: problems and solutions", remedy=remedy
    )


def _gxx(environment: Environment, shares_cxx: bool | None) -> MachineCheck:
    state, remedy = CheckState.ok, None
    if environment.gxx is None:
        state, remedy = CheckState.missing, "install a C++ compiler (on Debian: g++), or name one by CXX"
    elif _numbers(environment.gxx) < MIN_GXX:
        state, remedy = CheckState.limited, f"install GCC {MIN_GXX[0]} or newer, or name one by CXX"
    elif shares_cxx is False:
        state = CheckState.limited
        remedy = (
            "it links libstdc++ statically, so that C++ exceptions of modules crash or lose their text: take "
            "-static-libstdc++ out of its settings (its specs, a wrapper's), or name another compiler by CXX"
        )
    found = environment.gxx or environment.absent.get("gxx", "not found")
    return MachineCheck(
        name="g++",
        state=state,
        found=found + (", a C++ library of its own in each module" if shares_cxx is False else ""),
        enables="compiling bindings and C++ solutions, and CUDA sources for the host device",
        remedy=remedy,
    )


def _ninja(version: str | None) -> MachineCheck:
    return MachineCheck(
        name="ninja",
        state=CheckState.ok if version else CheckState.missing,
        found=version or "neither the Python package nor on PATH",
        enables="builds by torch's own extension builder",
        remedy=None if version else "pip install ninja: make does",
    )


def _sandbox(report: SandboxReport) -> MachineCheck:
    state = {"full": CheckState.ok, "partial": CheckState.limited, "none": CheckState.missing}[report.strength]
    found = f"{report.strength}: {', '.join(report.mechanisms) or 'no mechanism'}"
    remedy = None
    if state is not CheckState.ok:
        remedy = f"evaluate only code you trust, or provide what is missing ({report.weakness()})"
    return MachineCheck(
        name="sandbox",
        state=state,
        found=found,
        enables="running submissions that nobody has read (--sandbox strict insists on it)",
        remedy=remedy,
    )


def _cache(folder: Path, fault: str | None) -> MachineCheck:
    return MachineCheck(
        name="caches",
        state=CheckState.ok if fault is None else CheckState.missing,
        found=fault or str(folder),
        enables="built modules, precompiled headers and measured peaks: no evaluation begins without",
        remedy=None if fault is None else "make it writable, or name another by --cache or HARNESS_CACHE",
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
