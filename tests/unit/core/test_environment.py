"""What the machine is said to be: the real machine, and NVML as GPUs and drivers answer it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.core import environment as env
from harness.core.choices import DeviceKind
from harness.core.environment import Environment, collect, cuda_unusable, machine, query_gpus


@pytest.fixture(scope="module")
def here() -> Environment:
    return collect()


class NvmlError(Exception):
    pass


def nvml(*, gpus: int = 1, missing: tuple[str, ...] = (), broken: tuple[str, ...] = ()) -> Any:
    """NVML's answers for an H200, as recorded from one; `missing` questions are not supported, as on small cards."""

    def answer(name: str, value: Any) -> Callable[..., Any]:
        def ask(*arguments: Any) -> Any:
            if name in missing or name in broken:
                raise NvmlError("Not Supported" if name in missing else "GPU is lost")
            return value(*arguments) if callable(value) else value

        return ask

    values = {
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlSystemGetDriverVersion": "580.95.05",
        "nvmlSystemGetCudaDriverVersion_v2": 13000,
        "nvmlDeviceGetCount": gpus,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": b"NVIDIA H200",
        "nvmlDeviceGetUUID": lambda index: f"GPU-{index}",
        "nvmlDeviceGetCudaComputeCapability": (9, 0),
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=150754820096),
        "nvmlDeviceGetMaxClockInfo": lambda index, kind: {1: 1980, 2: 3201}[kind],
        "nvmlDeviceGetPowerManagementLimit": 700000,
        "nvmlDeviceGetEccMode": [1, 1],
        "nvmlDeviceGetMigMode": [0, 1],
        "nvmlDeviceGetPersistenceMode": 1,
    }
    constants = {"NVMLError": NvmlError, "NVML_CLOCK_SM": 1, "NVML_CLOCK_MEM": 2}
    return SimpleNamespace(**{name: answer(name, value) for name, value in values.items()}, **constants)


def test_a_gpu_as_nvml_shows_it() -> None:
    gpus, driver, newest, reason = query_gpus(nvml(gpus=2))
    assert (driver, newest, reason) == ("580.95.05", "13.0", None)
    assert [item.uuid for item in gpus] == ["GPU-0", "GPU-1"]
    first = gpus[0]
    assert (first.name, first.compute_capability, first.power_limit_w) == ("NVIDIA H200", "9.0", 700.0)
    assert (first.sm_clock_max_mhz, first.memory_clock_max_mhz) == (1980, 3201)
    assert (first.ecc, first.mig, first.persistence) == (True, False, True)


def test_what_a_gpu_does_not_have_is_none() -> None:
    ((gpu,), _, _, _) = query_gpus(nvml(missing=("nvmlDeviceGetEccMode", "nvmlDeviceGetMigMode")))
    assert gpu.ecc is None
    assert gpu.mig is None
    assert gpu.persistence is True


@pytest.mark.parametrize("broken", ["nvmlInit", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetCount"])
def test_a_gpu_that_is_gone_is_absent_with_the_reason(broken: str) -> None:
    assert query_gpus(nvml(broken=(broken,))) == ((), None, None, "NVML: GPU is lost")


def test_a_driver_without_gpus_says_so() -> None:
    gpus, driver, _, reason = query_gpus(nvml(gpus=0))
    assert gpus == ()
    assert driver == "580.95.05"
    assert reason == "driver 580.95.05 is loaded but reports no GPU"


def test_this_machine_is_described_and_gaps_have_reasons(here: Environment) -> None:
    value = here.to_json()
    json.dumps(value, allow_nan=False)
    for name, held in value.items():
        if name != "absent" and (held is None or held == []):
            assert here.absent[name], f"{name} is absent without a reason"
    assert here.memory_bytes > 2**28
    assert here.cpu_count >= 1
    assert here.torch is not None


def test_torch_is_described_as_it_describes_itself(here: Environment) -> None:
    import torch

    assert here.torch == torch.__version__
    assert here.torch_cuda == torch.version.cuda


def test_looking_imports_no_torch() -> None:
    code = "import sys; from harness.core.environment import collect; collect(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def with_gpu(here: Environment, **changes: Any) -> Environment:
    gpus, driver, newest, _ = query_gpus(nvml())
    base = replace(here, gpus=gpus, driver=driver, driver_cuda=newest, torch_cuda="13.0", cuda_visible_devices=None)
    return replace(base, **changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"gpus": (), "absent": {"gpus": "NVML: no library"}}, "no GPU: NVML: no library"),
        ({"cuda_visible_devices": ""}, "CUDA_VISIBLE_DEVICES hides every GPU"),
        ({"cuda_visible_devices": "0"}, None),
        ({"torch": None, "torch_cuda": None}, "torch is not installed"),
        ({"torch_cuda": None}, "is a CPU build; install a CUDA build (this driver supports up to 13.0)"),
    ],
)
def test_why_a_gpu_can_not_be_used(here: Environment, changes: dict[str, Any], said: str | None) -> None:
    found = with_gpu(here, **changes)
    why = cuda_unusable(found)
    assert (why is None) == (said is None)
    assert said is None or said in (why or "")
    assert machine(found).device is (DeviceKind.CUDA if said is None else DeviceKind.HOST)


def test_a_host_record_names_no_gpu(here: Environment) -> None:
    both = with_gpu(here)
    assert both.for_record(DeviceKind.CUDA)["gpu"] == "NVIDIA H200"
    host = both.for_record(DeviceKind.HOST)
    assert (host["gpu"], host["gpu_uuid"], host["driver"]) == (None, None, None)
    assert host["torch"] == here.torch


def test_limits_of_the_control_group_count(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    assert env._cgroup_values("memory.max", tmp_path)[-1] == "max"
    assert env._cgroup_values("cpu.max", tmp_path) == []


@pytest.mark.gpu
def test_the_gpu_at_hand_is_described_in_full() -> None:
    found = collect()
    assert found.gpus
    assert found.driver
    assert all(item.name and item.memory_bytes and item.compute_capability for item in found.gpus)
