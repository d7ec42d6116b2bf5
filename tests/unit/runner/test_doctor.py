"""What the doctor says of machines: this one, and others made of the same values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.core.choices import DeviceKind
from harness.core.environment import Environment, Gpu, collect
from harness.core.executables import find_gxx
from harness.runner.container import Surroundings
from harness.runner.doctor import CheckState, Diagnosis, cxx_runtime, diagnose, ninja_version
from harness.sandbox import SandboxReport

FULL = SandboxReport(strength="full", mechanisms=("user_namespace", "seccomp"))
H200 = Gpu(
    index=0,
    name="NVIDIA H200",
    uuid="GPU-0",
    compute_capability="9.0",
    memory_bytes=150754820096,
    sm_clock_max_mhz=1980,
    memory_clock_max_mhz=3201,
    power_limit_w=700.0,
    ecc=True,
    mig=False,
    persistence=True,
)


@pytest.fixture(scope="module")
def gpu_machine() -> Environment:
    return replace(
        collect(),
        gpus=(H200,),
        driver="580.95.05",
        driver_cuda="13.0",
        cuda_visible_devices=None,
        nvcc="13.0.88",
        gxx="12.2.0",
        torch="2.11.0",
        torch_cuda="13.0",
    )


def look(found: Environment, sandbox: SandboxReport = FULL, **tools: Any) -> Diagnosis:
    there = {"ninja": "1.13", "sanitizer": "2025.3.1", "ncu": "2025.3.1", "cache_dir": Path("c"), "cache_fault": None}
    there["around"] = Surroundings(container=None, libcuda=True, libcupti=True)
    return diagnose(found, sandbox, **{**there, **tools})


def state(diagnosis: Diagnosis, name: str) -> tuple[CheckState, str | None]:
    (check,) = [item for item in diagnosis.checks if item.name == name]
    return check.state, check.remedy


def test_a_whole_machine_needs_nothing(gpu_machine: Environment) -> None:
    diagnosis = look(gpu_machine)
    assert {item.state for item in diagnosis.checks} == {CheckState.ok}
    assert all(item.remedy is None for item in diagnosis.checks)
    assert diagnosis.device is DeviceKind.CUDA
    assert diagnosis.unusable == {DeviceKind.CUDA: None, DeviceKind.HOST: None}


def test_without_a_gpu_the_host_device_is_left(gpu_machine: Environment) -> None:
    diagnosis = look(replace(gpu_machine, gpus=(), absent={"gpus": "NVML: no library"}), sanitizer=None)
    assert diagnosis.device is DeviceKind.HOST
    assert "no GPU" in str(diagnosis.unusable[DeviceKind.CUDA])
    assert state(diagnosis, "compute-sanitizer") == (CheckState.missing, "only needed with a GPU")


@pytest.mark.parametrize(
    ("changes", "name", "expected", "said"),
    [
        ({"nvcc": None}, "nvcc", CheckState.missing, "set CUDA_HOME"),
        ({"nvcc": "12.4.131"}, "nvcc", CheckState.limited, "torch was built for CUDA 13.0"),
        ({"torch_cuda": None}, "torch", CheckState.limited, "is a CPU build"),
        ({"torch": None, "torch_cuda": None}, "torch", CheckState.missing, "install torch"),
        ({"gxx": None}, "g++", CheckState.missing, "set CXX to one"),
        ({"gxx": "8.3.0"}, "g++", CheckState.limited, "GCC 9 or newer"),
        ({"gpus": (replace(H200, mig=True),)}, "GPU 0", CheckState.limited, "slice"),
    ],
)
def test_each_gap_has_its_remedy(
    gpu_machine: Environment, changes: dict[str, Any], name: str, expected: CheckState, said: str
) -> None:
    found, remedy = state(look(replace(gpu_machine, **changes)), name)
    assert found is expected
    assert said in str(remedy)


def test_tools_and_walls_that_are_missing(gpu_machine: Environment) -> None:
    weak = SandboxReport(strength="partial", mechanisms=("seccomp",), missing={"user_namespace": "not permitted"})
    diagnosis = look(gpu_machine, weak, ninja=None, sanitizer=None)
    assert state(diagnosis, "ninja")[0] is CheckState.missing
    assert state(diagnosis, "compute-sanitizer") == (
        CheckState.missing,
        "install the complete CUDA toolkit, which contains it",
    )
    found, remedy = state(diagnosis, "sandbox")
    assert found is CheckState.limited
    assert "user_namespace: not permitted" in str(remedy)


def test_no_device_at_all(gpu_machine: Environment) -> None:
    diagnosis = look(replace(gpu_machine, torch=None, torch_cuda=None))
    assert diagnosis.device is None
    assert diagnosis.to_json()["device"] is None
    assert diagnosis.to_json()["unusable"]["host"]


def test_a_folder_that_holds_no_caches_makes_every_device_unusable(
    gpu_machine: Environment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    diagnosis = look(gpu_machine, cache_fault="c: can't hold caches: Read-only file system")
    assert state(diagnosis, "caches")[0] is CheckState.missing
    assert diagnosis.device is None
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "cache"):
        assert main(["doctor", "--cache", str(folder)]) == 3
        said = capsys.readouterr()
        assert f"caches: {folder}: can't hold caches: " in said.out
        assert "neither cuda nor host can be used" in said.err
    assert main(["doctor", "--cache", str(tmp_path / "new" / "cache")]) == 0
    assert not (tmp_path / "new").exists(), "it looks, and makes nothing"


def test_ninja_is_found_here() -> None:
    assert ninja_version()


def test_a_compiler_that_links_the_cxx_library_statically_is_told_with_what_to_do(
    gpu_machine: Environment, tmp_path: Path
) -> None:
    assert state(look(gpu_machine, shares_cxx=True), "g++") == (CheckState.ok, None)
    found, remedy = state(look(gpu_machine, shares_cxx=False), "g++")
    assert found is CheckState.limited
    assert "links libstdc++ statically" in (remedy or "")
    assert "-static-libstdc++" in (remedy or "")


@pytest.mark.skipif(find_gxx() is None, reason="needs a C++ compiler")
def test_how_a_compiler_links_the_cxx_library_is_seen(tmp_path: Path) -> None:
    gxx = find_gxx()
    assert cxx_runtime(gxx) is True
    wrapper = tmp_path / "g++"
    wrapper.write_text(f'#!/bin/sh\nexec {gxx} -static-libstdc++ "$@"\n')
    wrapper.chmod(0o755)
    assert cxx_runtime(wrapper) is False
    wrapper.write_text("#!/bin/sh\nexit 1\n")
    assert cxx_runtime(wrapper) is None
    wrapper.write_text("#!/bin/sh\nexit 0\n")
    assert cxx_runtime(wrapper) is None
    assert cxx_runtime(None) is None
