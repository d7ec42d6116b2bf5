"""Check this machine: which parts are present, what each enables, how to add it.

Trusted side. Findings are values; the command line shows them.
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
from harness.runner.container import Surroundings, withheld
from harness.runner.profile.ncu import find_ncu
from harness.sandbox import SandboxReport

MIN_GXX = (9, 0)
"""Oldest supported GCC. torch's headers are C++17, and torch's extension builder accepts GCC 9 or newer."""


class CheckState(StrEnum):
    """Result of one check."""

    ok = "ok"
    limited = "limited"
    missing = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCheck:
    """One checked part of the machine.

    Attributes:
        name: The part.
        state: Whether it is usable.
        found: What is installed.
        enables: What the harness needs it for.
        remedy: What to do if it is missing or limited; None if nothing needs to be done.
    """

    name: str
    state: CheckState
    found: str
    enables: str
    remedy: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All checks of a machine.

    Attributes:
        checks: The checks, in the order in which they are shown.
        unusable: Per device, why it can't be used; None if it can.
    """

    checks: tuple[MachineCheck, ...]
    unusable: dict[DeviceKind, str | None]

    @property
    def device(self) -> DeviceKind | None:
        """The device that `--device auto` selects; None if no device can be used."""
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
    around: Surroundings,
    shares_cxx: bool | None = None,
) -> Diagnosis:
    """Check every part of the machine.

    Args:
        environment: The machine's GPUs, compilers and packages.
        sandbox: Result of the sandbox's probe.
        ninja: Version from `ninja_version`; None if it is missing.
        sanitizer: Version from `sanitizer_version`; None if it is missing.
        ncu: Version from `ncu_version`; None if it is missing.
        cache_dir: The cache folder.
        cache_fault: Why `cache_dir` can't hold caches; None if it can. Without caches no device is usable.
        around: What a container or the machine's settings decide.
        shares_cxx: Result of `cxx_runtime` for the C++ compiler.

    Returns:
        The checks, and per device why it can't be used.
    """
    checks = (
        *_gpu_checks(environment, around),
        *_driver_libraries(environment, around),
        _nvcc(environment),
        _sanitizer(environment, sanitizer),
        _ncu(environment, ncu),
        _torch(environment),
        _gxx(environment, shares_cxx),
        _ninja(ninja),
        _sandbox(sandbox),
        *_surroundings(around, sandbox),
        _cache(cache_dir, cache_fault),
    )
    host = next(
        (item.remedy for item in checks if item.name in ("torch", "g++") and item.state is CheckState.missing), None
    )
    libcuda = next((item.remedy for item in checks if item.name == "libcuda"), None)
    unusable = {
        DeviceKind.CUDA: cuda_unusable(environment) or libcuda or cache_fault,
        DeviceKind.HOST: host or cache_fault,
    }
    return Diagnosis(checks=checks, unusable=unusable)


def ninja_version() -> str | None:
    """Return the version of the Python package ninja, or of ninja on PATH.

    None if both are missing.
    """
    try:
        return importlib.metadata.version("ninja")
    except importlib.metadata.PackageNotFoundError:
        return (output_of(["ninja", "--version"]) or "").strip() or None


def sanitizer_version() -> str | None:
    """Return the version of compute-sanitizer, next to nvcc or on PATH.

    None if it is missing or does not run.
    """
    path = find_sanitizer(find_nvcc())
    found = re.search(r"[Vv]ersion (\d+(?:\.\d+)+)", output_of([path, "--version"]) or "") if path else None
    return found[1] if found else None


def ncu_version() -> str | None:
    """Return the version of Nsight Compute's ncu, next to nvcc or on PATH.

    None if it is missing or does not run.
    """
    path = find_ncu(find_nvcc())
    found = re.search(r"[Vv]ersion (\d+(?:\.\d+)+)", output_of([path, "--version"]) or "") if path else None
    return found[1] if found else None


def cxx_runtime(gxx: Path | None) -> bool | None:
    """Return whether modules of this compiler share the process's C++ runtime.

    A small library is compiled to find out. None if there is no compiler or it fails.
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
"""A library that does not contain its own copy names one of these as a dependency."""


def _gpu_checks(environment: Environment, around: Surroundings) -> Sequence[MachineCheck]:
    enables = "evaluation at full size and GPU times (--device cuda)"
    if not environment.gpus:
        why = environment.absent.get("gpus", "none found")
        hint = "install an NVIDIA GPU and its driver to measure times; the host device checks correctness without a GPU"
        if around.container and around.gpu_nodes:
            hint = (
                "the container has a GPU's device nodes, but not the driver's library: add "
                "-e NVIDIA_DRIVER_CAPABILITIES=compute,utility"
            )
        elif around.container:
            hint = f"if the machine has an NVIDIA GPU, start the container with --gpus all; else {hint}"
        return [MachineCheck(name="GPU", state=CheckState.missing, found=why, enables=enables, remedy=hint)]
    checks = []
    remedy: str | None
    for gpu in environment.gpus:
        memory = f"{gpu.memory_bytes / 2**30:.0f} GiB, " if gpu.memory_bytes else ""
        found = f"{gpu.name}, {memory}driver {environment.driver} (up to CUDA {environment.driver_cuda})"
        state, remedy = CheckState.ok, None
        if gpu.mig:
            found += ", MIG on"
            state, remedy = (
                CheckState.limited,
                "times are of a MIG slice: compare them only with the same kind of slice",
            )
        checks.append(MachineCheck(name=f"GPU {gpu.index}", state=state, found=found, enables=enables, remedy=remedy))
    return checks


def _driver_libraries(environment: Environment, around: Surroundings) -> Sequence[MachineCheck]:
    """Check for libraries that a GPU needs beside NVML, which found it."""
    checks = []
    if environment.gpus and not around.libcuda:
        remedy = (
            "add -e NVIDIA_DRIVER_CAPABILITIES=compute,utility to docker run"
            if around.container
            else "install the driver's library of CUDA (on Debian: libcuda1)"
        )
        checks.append(
            MachineCheck(
                name="libcuda",
                state=CheckState.missing,
                found="libcuda.so.1 can't be loaded",
                enables="every use of the GPU",
                remedy=remedy,
            )
        )
    if environment.gpus and not around.libcupti:
        checks.append(
            MachineCheck(
                name="CUPTI",
                state=CheckState.missing,
                found="libcupti is neither beside torch nor on the loader's path",
                enables="telling which kernels a solution runs (labels, harness profile)",
                remedy="install a CUDA build of torch from packages, or the complete CUDA toolkit",
            )
        )
    return checks


def _nvcc(environment: Environment) -> MachineCheck:
    remedy = None
    state = CheckState.ok
    if environment.nvcc is None:
        state = CheckState.missing
        remedy = (
            "install the CUDA toolkit, or set CUDA_HOME to its folder" if environment.gpus else "only needed with a GPU"
        )
    elif environment.torch_cuda and environment.nvcc.split(".")[0] != environment.torch_cuda.split(".")[0]:
        state = CheckState.limited
        remedy = (
            f"torch was built for CUDA {environment.torch_cuda}: install that toolkit and set CUDA_HOME to its folder"
        )
    found = environment.nvcc or environment.absent.get("nvcc", "not found")
    return MachineCheck(name="nvcc", state=state, found=found, enables="compiling CUDA for the GPU", remedy=remedy)


def _sanitizer(environment: Environment, version: str | None) -> MachineCheck:
    remedy = None
    if version is None:
        remedy = (
            "install the complete CUDA toolkit, which contains it" if environment.gpus else "only needed with a GPU"
        )
    return MachineCheck(
        name="compute-sanitizer",
        state=CheckState.ok if version else CheckState.missing,
        found=version or "neither next to nvcc nor on PATH",
        enables="detecting data races and invalid memory accesses on the GPU (the host device has its own checks)",
        remedy=remedy,
    )


def _ncu(environment: Environment, version: str | None) -> MachineCheck:
    remedy = None
    if version is None:
        remedy = "install Nsight Compute (package nsight-compute)" if environment.gpus else "only needed with a GPU"
    return MachineCheck(
        name="ncu",
        state=CheckState.ok if version else CheckState.missing,
        found=version or "neither next to nvcc nor on PATH",
        enables="hardware counters per kernel (harness profile --ncu)",
        remedy=remedy,
    )


def _torch(environment: Environment) -> MachineCheck:
    state, remedy = CheckState.ok, None
    if environment.torch is None:
        state, remedy = CheckState.missing, "install torch 2.6 or newer, for example by running make"
    elif environment.torch_cuda is None and environment.gpus:
        state, remedy = CheckState.limited, cuda_unusable(environment)
    built = f"for CUDA {environment.torch_cuda}" if environment.torch_cuda else "for the CPU"
    found = f"{environment.torch}, built {built}" if environment.torch else "not installed"
    return MachineCheck(
        name="torch", state=state, found=found, enables="everything: problems and solutions use it", remedy=remedy
    )


def _gxx(environment: Environment, shares_cxx: bool | None) -> MachineCheck:
    state, remedy = CheckState.ok, None
    if environment.gxx is None:
        state, remedy = CheckState.missing, "install a C++ compiler (on Debian: g++), or set CXX to one"
    elif _numbers(environment.gxx) < MIN_GXX:
        state, remedy = CheckState.limited, f"install GCC {MIN_GXX[0]} or newer, or set CXX to one"
    elif shares_cxx is False:
        state = CheckState.limited
        remedy = (
            "it links libstdc++ statically, so C++ exceptions in modules crash or lose their text; remove "
            "-static-libstdc++ from its specs or wrapper, or set CXX to another compiler"
        )
    found = environment.gxx or environment.absent.get("gxx", "not found")
    return MachineCheck(
        name="g++",
        state=state,
        found=found + (", puts a copy of the C++ library into each module" if shares_cxx is False else ""),
        enables="compiling bindings, C++ solutions, and CUDA sources for the host device",
        remedy=remedy,
    )


def _ninja(version: str | None) -> MachineCheck:
    return MachineCheck(
        name="ninja",
        state=CheckState.ok if version else CheckState.missing,
        found=version or "no Python package and not on PATH",
        enables="builds with torch's own extension builder",
        remedy=None if version else "run pip install ninja (make does so, too)",
    )


def _sandbox(report: SandboxReport) -> MachineCheck:
    state = {"full": CheckState.ok, "partial": CheckState.limited, "none": CheckState.missing}[report.strength]
    found = f"{report.strength}: {', '.join(report.mechanisms) or 'no mechanism'}"
    remedy = None
    if state is not CheckState.ok:
        remedy = f"evaluate only code that you trust, or add the missing mechanisms ({report.weakness()})"
    return MachineCheck(
        name="sandbox",
        state=state,
        found=found,
        enables="running untrusted solutions (--sandbox strict requires it)",
        remedy=remedy,
    )


def _surroundings(around: Surroundings, sandbox: SandboxReport) -> Sequence[MachineCheck]:
    """Check what a container or the machine's settings withhold from the sandbox."""
    causes = withheld(around, sandbox)
    if around.container is None and not causes:
        return []
    remedy = None
    if causes:
        flags = " ".join(cause.remedy for cause in causes if cause.remedy.startswith("--"))
        settings = [cause.remedy for cause in causes if not cause.remedy.startswith("--")]
        remedy = "; ".join(([f"start the container with {flags}"] if flags else []) + settings)
    found = "; ".join(cause.what for cause in causes) or "withholds nothing that the sandbox needs"
    if "memory_cgroup" in sandbox.missing:
        found += "; no memory cgroup for each solution, which the memory watchdog replaces"
    return [
        MachineCheck(
            name="container" if around.container else "user namespaces",
            state=CheckState.limited if causes else CheckState.ok,
            found=f"{around.container}: {found}" if around.container else found,
            enables="full strength of the sandbox (see the guide of containers)",
            remedy=remedy,
        )
    ]


def _cache(folder: Path, fault: str | None) -> MachineCheck:
    return MachineCheck(
        name="caches",
        state=CheckState.ok if fault is None else CheckState.missing,
        found=fault or str(folder),
        enables="every evaluation: holds built modules, precompiled headers and measured peak rates",
        remedy=None if fault is None else "make it writable, or name another folder with --cache or HARNESS_CACHE",
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
