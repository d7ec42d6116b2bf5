"""Measure the peak rates of a GPU (about 1 s) and cache them in a file.

Trusted side. The GPU should be idle; disturbed peaks are not cached. They give speed-of-light times. The rule that
rejects impossible times (`roofline.trust_floor`) uses the higher rates of the datasheet instead.

Each rate is the best of several after a warm-up, timed by `Device.time_cold`:

* copying and summing 1 GiB,
* square matrix products of size 8192 in fp32 without TF32, tf32, fp16 and bf16, on normally distributed data (zeros
  draw less power, so clocks would be higher),
* one empty kernel, by device time and by host time from an idle device; medians, because they are floors for typical
  calls.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from harness.core.choices import PrecisionClass
from harness.core.environment import Environment, query_gpus, torch_build
from harness.devices.device import Device
from harness.devices.gpu_specs import Peaks, datasheet
from harness.devices.interference import disturbance
from harness.devices.nvml import GpuMonitor

FORMAT = 1
"""Version of the file format and of the method; files of another version are ignored."""

COPY_BYTES = 2**30
PRODUCT_SIZE = 8192
REPEATS = 5
ATTEMPTS = 3
"""Most measurements until one is undisturbed."""

EMPTY_LAUNCHES = 25

DTYPES = {
    PrecisionClass.FP32: torch.float32,
    PrecisionClass.TF32: torch.float32,
    PrecisionClass.FP16: torch.float16,
    PrecisionClass.BF16: torch.bfloat16,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PeaksKey:
    """GPU, driver and torch version for which measured peaks are valid."""

    gpu_uuid: str
    driver: str | None
    torch: str

    def path(self, cache_dir: Path) -> Path:
        told = json.dumps(asdict(self), sort_keys=True)
        slug = re.sub(r"[^A-Za-z0-9.-]+", "_", self.gpu_uuid)[:60]
        return cache_dir / "peaks" / f"{slug}-{hashlib.sha256(told.encode()).hexdigest()[:12]}.json"


def key_of(device: Device) -> PeaksKey | None:
    """Return the key of this device's peaks; None on the host device."""
    if device.uuid is None:
        return None
    return PeaksKey(gpu_uuid=_bare(device.uuid), driver=query_gpus()[1], torch=str(torch.__version__))


def keys_of_machine(environment: Environment | None = None) -> list[PeaksKey]:
    """Return the keys of all GPUs of this machine, without CUDA."""
    gpus, driver = (environment.gpus, environment.driver) if environment else query_gpus()[:2]
    version = torch_build()[0] or ""
    return [PeaksKey(gpu_uuid=_bare(gpu.uuid), driver=driver, torch=version) for gpu in gpus]


def _bare(uuid: str) -> str:
    return uuid.removeprefix("GPU-")


def held(key: PeaksKey, cache_dir: Path) -> Peaks | None:
    """Read cached peaks; None if the file is missing, damaged or of another version."""
    try:
        value = json.loads(key.path(cache_dir).read_text(encoding="utf-8"))
        if value["format"] != FORMAT or value["key"] != asdict(key):
            return None
        return Peaks.from_json(value["peaks"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def ensure(device: Device, cache_dir: Path, *, refresh: bool = False) -> Peaks | None:
    """Return the peaks of this GPU; measure them if needed, or on `refresh`.

    An unwritable cache folder only costs the next run a second. Disturbed peaks serve this run and are not cached.
    Returns None on the host device.
    """
    key = key_of(device)
    if key is None:
        return None
    if not refresh and (known := held(key, cache_dir)) is not None:
        return known
    monitor = GpuMonitor(device.uuid)
    for _ in range(ATTEMPTS):
        before, since_s = monitor.reading(), time.time()
        found = measure(device)
        seen = monitor.look(since_s)
        if disturbance(before, seen.reading, seen.around) is None:
            with suppress(OSError):
                _keep(key, found, cache_dir)
            break
    return found


def _keep(key: PeaksKey, peaks: Peaks, cache_dir: Path) -> None:
    path = key.path(cache_dir)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(json.dumps({"format": FORMAT, "key": asdict(key), "peaks": peaks.to_json()}, indent=1) + "\n")
    draft.replace(path)


def measure(device: Device, *, copy_bytes: int = COPY_BYTES, product_size: int = PRODUCT_SIZE) -> Peaks:
    """Measure the peaks of `device`, which must be idle.

    A precision class that the device refuses is left out.
    """
    place = device.torch_device
    copied, read = _memory(device, copy_bytes)
    rates: dict[str, float] = {}
    for precision, dtype in DTYPES.items():
        try:
            rates[precision.value] = _product(device, product_size, dtype, tf32=precision is PrecisionClass.TF32)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            continue  # an old GPU lacks this type
    floor_s, latency_s = _launch(device)
    name = device.name or str(place)
    sheet = datasheet(name)
    cache = torch.cuda.get_device_properties(place).L2_cache_size if place.type == "cuda" else 0
    return Peaks(
        name=name,
        copy_bytes_per_s=copied,
        read_bytes_per_s=read,
        flops_per_s=rates,
        l2_bytes=cache or (sheet.l2_bytes if sheet else 0),
        source="measured",
        reference=f"copy and sum of {copy_bytes} bytes, products of size {product_size}, torch {torch.__version__}",
        launch_floor_s=floor_s,
        launch_latency_s=latency_s,
    )


def _memory(device: Device, nbytes: int) -> tuple[float, float]:
    """Measure bytes per second of a copy (read plus written) and of a read."""
    source = torch.randn(nbytes // 4, device=device.torch_device)
    target = torch.empty_like(source)
    total = torch.empty((), device=device.torch_device)
    copy_s = _least_s(device, lambda: target.copy_(source))
    read_s = _least_s(device, lambda: torch.sum(source, dim=0, out=total))
    moved = source.nbytes
    return 2 * moved / copy_s, moved / read_s


def _product(device: Device, size: int, dtype: torch.dtype, *, tf32: bool) -> float:
    """Measure flops per second of a square matrix product."""
    a, b = (torch.randn(size, size, device=device.torch_device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    with tf32_allowed(tf32):
        return 2 * size**3 / _least_s(device, lambda: torch.mm(a, b, out=out))


def _launch(device: Device) -> tuple[float, float]:
    """Measure device seconds and host seconds of a call with one empty kernel."""
    tiny = torch.zeros(1, device=device.torch_device)
    on_gpu = device.torch_device.type == "cuda"

    def empty() -> None:
        if on_gpu:
            torch.cuda._sleep(0)  # type: ignore[no-untyped-call]
        else:
            tiny.zero_()

    cold = [device.time_cold(empty, _nothing).device_s for _ in range(EMPTY_LAUNCHES)]
    waited = [device.time_latency(empty, _nothing).window_s for _ in range(EMPTY_LAUNCHES)]
    return statistics.median(cold[5:]), statistics.median(waited[5:])


def _least_s(device: Device, call: Callable[[], object]) -> float:
    call()
    return min(device.time_cold(call, _nothing).device_s for _ in range(REPEATS))


def _nothing(_: object) -> None:
    return None


@contextmanager
def tf32_allowed(allowed: bool | None) -> Iterator[None]:
    """Allow or forbid TF32 in products and convolutions; None changes nothing."""
    if allowed is None:
        yield
        return
    backends: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [backend.allow_tf32 for backend in backends]
    for backend in backends:
        backend.allow_tf32 = allowed
    try:
        yield
    finally:
        for backend, value in zip(backends, before, strict=True):
            backend.allow_tf32 = value
