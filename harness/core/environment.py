"""Describe this machine: GPUs, compilers, versions, processor, harness revision.

Trusted side. GPUs are queried by NVML, never by CUDA, because the runner must not create a CUDA context. torch is not
imported. A missing fact is None, and `Environment.absent` has the reason.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

import harness
from harness.core.choices import DeviceKind
from harness.core.config import Machine
from harness.core.executables import find_gxx, find_nvcc, git_state, gxx_version, nvcc_version
from harness.core.json_value import JsonObject


class MachineError(Exception):
    """This machine can't do the task.

    The message says what is missing and what to do. The exit code is 3.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU as NVML reports it; None for fields that it does not report."""

    index: int
    name: str
    uuid: str
    compute_capability: str | None
    memory_bytes: int | None
    sm_clock_max_mhz: int | None
    memory_clock_max_mhz: int | None
    power_limit_w: float | None
    ecc: bool | None
    mig: bool | None
    persistence: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment(JsonObject):
    """Facts about a machine.

    `absent` has the reason for each field that is None or empty.
    """

    harness_version: str
    git_revision: str | None
    git_dirty: bool | None
    python: str
    system: str
    kernel: str
    cpu: str | None
    cpu_count: int
    memory_bytes: int
    gpus: tuple[Gpu, ...]
    driver: str | None
    driver_cuda: str | None
    cuda_visible_devices: str | None
    nvcc: str | None
    gxx: str | None
    torch: str | None
    torch_cuda: str | None
    triton: str | None
    absent: Mapping[str, str]

    def for_record(self, device: DeviceKind, *, gpu_index: int = 0) -> dict[str, Any]:
        """Return the facts for records: results are comparable only if these agree."""
        gpu = self.gpus[gpu_index] if device is DeviceKind.CUDA and gpu_index < len(self.gpus) else None
        return {
            "gpu": gpu.name if gpu else None,
            "gpu_uuid": gpu.uuid if gpu else None,
            "driver": self.driver if gpu else None,
            "cpu": self.cpu,
            "torch": self.torch,
            "torch_cuda": self.torch_cuda,
            "nvcc": self.nvcc,
            "gxx": self.gxx,
            "python": self.python,
            "kernel": self.kernel,
            "harness_version": self.harness_version,
            "git_revision": self.git_revision,
            "git_dirty": self.git_dirty,
        }


def collect() -> Environment:
    """Collect the facts about this machine.

    It takes a fraction of a second. Missing facts are no error.
    """
    # git and the compilers run while NVML answers, because referees start only after this function.
    with ThreadPoolExecutor() as asked:
        git = asked.submit(git_state, Path(harness.__file__).parent)
        nvcc_answer = asked.submit(lambda: nvcc_version(find_nvcc()))
        gxx_answer = asked.submit(lambda: gxx_version(find_gxx()))
        gpus, driver, driver_cuda, reason = query_gpus()
    torch, torch_cuda = torch_build()
    visible, triton, cpu = os.environ.get("CUDA_VISIBLE_DEVICES"), _installed("triton"), cpu_name()
    revision, dirty, no_git = git.result()
    nvcc, gxx = nvcc_answer.result(), gxx_answer.result()
    cpu_build = torch is not None and torch_cuda is None
    reasons = {
        ("gpus", "driver", "driver_cuda"): reason,
        ("torch", "torch_cuda"): torch is None and "not installed",
        ("torch_cuda",): cpu_build and "this torch is a CPU build",
        ("cuda_visible_devices",): visible is None and "not set: all GPUs are visible",
        ("triton",): triton is None and "not installed",
        ("git_revision", "git_dirty"): no_git,
        ("nvcc",): nvcc is None and "not found on PATH, in CUDA_HOME or in /usr/local/cuda",
        ("gxx",): gxx is None and "not found on PATH or by CXX",
        ("cpu",): cpu is None and "/proc/cpuinfo has no model name",
    }
    absent = {name: str(why) for names, why in reasons.items() if why for name in names}
    return Environment(
        harness_version=harness.__version__,
        git_revision=revision,
        git_dirty=dirty,
        python=platform.python_version(),
        system=_system_name(),
        kernel=f"{platform.system()} {platform.release()}",
        cpu=cpu,
        cpu_count=cpu_count(),
        memory_bytes=memory_bytes(),
        gpus=gpus,
        driver=driver,
        driver_cuda=driver_cuda,
        cuda_visible_devices=visible,
        nvcc=nvcc,
        gxx=gxx,
        torch=torch,
        torch_cuda=torch_cuda,
        triton=triton,
        absent=absent,
    )


def cuda_unusable(environment: Environment) -> str | None:
    """Say in one line why no GPU is usable here, and what to do; None if one is."""
    if not environment.gpus:
        return f"no GPU: {environment.absent.get('gpus', 'NVML lists none')}"
    if environment.cuda_visible_devices is not None and environment.cuda_visible_devices.strip() in ("", "-1"):
        return "CUDA_VISIBLE_DEVICES hides every GPU; unset it"
    if environment.torch is None:
        return "torch is not installed"
    if environment.torch_cuda is None:
        newest = environment.driver_cuda or "the GPU's version"
        return f"torch {environment.torch} is a CPU build; install a CUDA build (this driver supports up to {newest})"
    return None


def machine(environment: Environment) -> Machine:
    """Return the facts that defaults of the configuration depend on."""
    return Machine(
        device=DeviceKind.HOST if cuda_unusable(environment) else DeviceKind.CUDA,
        cpu_count=environment.cpu_count,
        memory_bytes=environment.memory_bytes,
    )


def query_gpus(nvml: Any = pynvml) -> tuple[tuple[Gpu, ...], str | None, str | None, str | None]:
    """Query NVML.

    Returns:
        GPUs, driver version, newest CUDA version of the driver, and the reason if there is no GPU.
    """
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return (), None, None, f"NVML: {error}"
    try:
        driver = _decoded(nvml.nvmlSystemGetDriverVersion())
        newest = int(nvml.nvmlSystemGetCudaDriverVersion_v2())
        gpus = tuple(_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
        reason = None if gpus else f"driver {driver} is loaded but reports no GPU"
        return gpus, driver, f"{newest // 1000}.{newest % 1000 // 10}", reason
    except nvml.NVMLError as error:
        return (), None, None, f"NVML: {error}"
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(question: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return question(handle, *arguments)
        except nvml.NVMLError:
            return None  # not supported on this GPU or by this driver

    def flag(question: Callable[..., Any]) -> bool | None:
        answer = ask(question)
        if isinstance(answer, (list, tuple)):  # (current, pending)
            answer = answer[0]
        return None if answer is None else bool(answer)

    capability = ask(nvml.nvmlDeviceGetCudaComputeCapability)
    memory = ask(nvml.nvmlDeviceGetMemoryInfo)
    power_mw = ask(nvml.nvmlDeviceGetPowerManagementLimit)
    return Gpu(
        index=index,
        name=_decoded(nvml.nvmlDeviceGetName(handle)),
        uuid=_decoded(nvml.nvmlDeviceGetUUID(handle)),
        compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
        memory_bytes=None if memory is None else int(memory.total),
        sm_clock_max_mhz=ask(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM),
        memory_clock_max_mhz=ask(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_MEM),
        power_limit_w=None if power_mw is None else power_mw / 1000,
        ecc=flag(nvml.nvmlDeviceGetEccMode),
        mig=flag(nvml.nvmlDeviceGetMigMode),
        persistence=flag(nvml.nvmlDeviceGetPersistenceMode),
    )


def _decoded(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def torch_build() -> tuple[str | None, str | None]:
    """Return torch's version and CUDA version, without the slow import of torch."""
    version = _installed("torch")
    spec = importlib.util.find_spec("torch")
    if version is None or spec is None or spec.origin is None:
        return None, None
    try:
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    except OSError:
        return version, None
    exact = re.search(r"^__version__\s*=\s*['\"](.+?)['\"]", text, re.MULTILINE)
    cuda = re.search(r"^cuda\b[^=\n]*=\s*['\"](.+?)['\"]", text, re.MULTILINE)
    return (exact[1] if exact else version), (cuda[1] if cuda else None)


def _installed(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def cpu_count() -> int:
    """Return the number of processors for this process.

    Its affinity and the quota of its control group limit it.
    """
    allowed = len(os.sched_getaffinity(0))
    for text in _cgroup_values("cpu.max"):
        quota, period = [*text.split(), "100000"][:2]
        if quota != "max":
            allowed = min(allowed, max(1, int(quota) // int(period)))
    return allowed


def memory_bytes() -> int:
    """Return the memory for this process in bytes.

    It is the machine's, or the limit of its control group.
    """
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([total, *(int(text) for text in _cgroup_values("memory.max") if text.strip() != "max")])


def _cgroup_values(name: str, root: Path = Path("/sys/fs/cgroup")) -> list[str]:
    """Return the values of one control (cgroup v2) in this group and all above."""
    try:
        own = Path("/proc/self/cgroup").read_text().rpartition("::")[2].strip().lstrip("/")
    except OSError:
        own = ""
    values = []
    for group in (root / own, *(root / own).parents):
        if group.is_relative_to(root):
            try:
                values.append((group / name).read_text().strip())
            except OSError:
                continue  # the root group has no limits, and cgroup v1 has other names
    return values


def cpu_name() -> str | None:
    """Return the processor's model from /proc/cpuinfo, or None."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        return None
    return found[1].strip() if found else None


def _system_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()
