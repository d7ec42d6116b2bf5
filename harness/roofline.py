"""How fast a device could be at most: flops and bytes of a problem, and the least time they take.

Imports `model`, `trees` and torch. Pure but for `count_flops`, which makes the call it is given; trusted side.
Nothing here measures peaks: `harness.peaks` does, its results come in as `Peaks`.

Two different times, never to be confused:

* `speed_of_light` is what to aim at: the roofline of S. Williams, A. Waterman and D. Patterson ("Roofline: an
  insightful visual performance model for multicore architectures", CACM 52(4), 2009) with the launch as a third
  bound, max(flops / peak rate of the class, least bytes / memory bandwidth, launch floor). Flops are the reference's
  own, bytes are each input and parameter read once and each output written once. Peaks are those measured on the very
  GPU (`peaks`), since no program reaches a datasheet's: a fraction then says what is left to gain. Without them the
  datasheet's stand in, and `peaks_source` says so. A better algorithm can beat it, and so can a kernel that is better
  than the library call that the peak was measured with.
* `trust_floor` convicts, so nothing honest may ever be faster. It counts only what can't be avoided: the bytes of
  outputs in memory of their own, as far as they exceed the L2 cache (which may hold the last ones when the clock
  stops). Inputs count by the share that the problem declares to be needed (default none: half of a triangular
  matrix need not be read, nor the rows that a mask drops), flops only where the problem declares a lower bound (the
  reference's may be saved by exact algebra). Rates are upper bounds and never the measured peaks themselves, which
  another program may pass: the datasheet's, else the measured ones with a margin; and for arithmetic the fastest unit
  of the chip that can reach the class at all, since float32 accuracy can be had from sums of narrow products.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, shape_wrapper

from harness.model import PrecisionClass
from harness.trees import flatten

MEASURED_MARGIN = 1.25
"""By how much a measured peak may fall short of the true one: copies reach 0.85 to 0.93 of the datasheet, and reading
alone or writing alone is somewhat faster than copying."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopCount:
    """Floating-point operations of one call, a multiply-add being two. Elementwise work counts as none."""

    total: int
    by_operator: Mapping[str, int]


def _matrix_vector(a: Sequence[int], b: Sequence[int], *_: Any, out_shape: Any = None, **__: Any) -> int:
    return 2 * max(math.prod(a), math.prod(b))


def _added_matrix_vector(
    _: Sequence[int], a: Sequence[int], b: Sequence[int], *rest: Any, out_shape: Any = None, **kwargs: Any
) -> int:
    return _matrix_vector(a, b)


_EXTRA: dict[Any, Callable[..., int]] = {
    torch.ops.aten.mv: _matrix_vector,
    torch.ops.aten.dot: _matrix_vector,
    torch.ops.aten.vdot: _matrix_vector,
    torch.ops.aten.addmv: _added_matrix_vector,
}
"""Products with vectors, which torch's counter leaves out."""


def count_flops(call: Callable[[], object]) -> FlopCount:
    """Count the flops of `call()` by torch's own counter: products, convolutions, attention.

    The call is really made, once, without gradients; give it tensors on the meta device to spend nothing. Whatever
    it raises is raised.
    """
    counts: dict[str, int] = {}
    with torch.no_grad(), _Counting(counts):
        call()
    return FlopCount(total=sum(counts.values()), by_operator=counts)


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up flops by operator, by torch's registry of formulas and `_EXTRA`.

    What torch's `FlopCounterMode` does, less its attribution to modules; that class imports torch's compiler at the
    first call (1 to 3 s).
    """

    def __init__(self, counts: dict[str, int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._counts = counts
        wrapped = {op: shape_wrapper(formula) for op, formula in _EXTRA.items()}  # type: ignore[no-untyped-call]
        self._formulas = {**flop_registry, **wrapped}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operation imports the compiler all the same

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        packet = func._overloadpacket
        if packet not in self._formulas and func is not torch.ops.prim.device.default:
            with self:  # a composite operation consists of ones that may have formulas
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        out = func(*args, **kwargs)
        if (formula := self._formulas.get(packet)) is not None:
            name = str(packet).removeprefix("aten.")
            self._counts[name] = self._counts.get(name, 0) + int(formula(*args, **kwargs, out_val=out))
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Least bytes between memory and chip of one call.

    `read_bytes` are distinct inputs and parameters, `written_bytes` outputs, of which `fresh_bytes` lie in memory that
    no input lies in: an output that is an input may need no writing at all. `declared_bytes` is what the problem states
    instead, where counting can't know (rows that are looked up, say).
    """

    read_bytes: int
    written_bytes: int
    fresh_bytes: int
    declared_bytes: int | None = None

    @property
    def total_bytes(self) -> int:
        return self.read_bytes + self.written_bytes if self.declared_bytes is None else self.declared_bytes


def least_traffic(inputs: object, parameters: object, outputs: object) -> Traffic:
    """Bytes of trees of tensors (lists, tuples, dicts, nested; other values are ignored).

    Each is counted once however often it occurs. A broadcast dimension (stride 0) counts as one entry.
    """
    sources, _ = flatten([inputs, parameters])
    results, _ = flatten(outputs)
    storages = {_storage(tensor) for tensor in sources}
    read = {_span(tensor): _distinct_bytes(tensor) for tensor in sources}
    written = {_span(tensor): _distinct_bytes(tensor) for tensor in results}
    fresh = {_span(tensor): _distinct_bytes(tensor) for tensor in results if _storage(tensor) not in storages}
    return Traffic(read_bytes=sum(read.values()), written_bytes=sum(written.values()), fresh_bytes=sum(fresh.values()))


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() or id(tensor)  # meta tensors have no address


def _span(tensor: torch.Tensor) -> tuple[int, int, int]:
    return (_storage(tensor), int(tensor.storage_offset()) * tensor.element_size(), _distinct_bytes(tensor))


def _distinct_bytes(tensor: torch.Tensor) -> int:
    if tensor.numel() == 0:
        return 0
    sizes = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride != 0)
    return math.prod(sizes) * tensor.element_size()


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """What one GPU can do. `source` is `measured` or `datasheet`; `reference` says by what or where.

    `flops_per_s` is keyed by precision class (and `fp64`), dense; `copy_bytes_per_s` counts bytes read plus bytes
    written, `read_bytes_per_s` is of reading alone. `launch_floor_s` is the device time of a call that launches one
    empty kernel, `launch_latency_s` the host's time of such a call from an idle device. None where unknown.
    """

    name: str
    copy_bytes_per_s: float
    flops_per_s: Mapping[str, float]
    l2_bytes: int
    source: str
    reference: str
    launch_floor_s: float | None = None
    read_bytes_per_s: float | None = None
    launch_latency_s: float | None = None

    def __post_init__(self) -> None:
        if self.source not in ("measured", "datasheet"):
            raise ValueError(f"peaks are measured or from a datasheet, not {self.source!r}")
        known = (self.read_bytes_per_s, self.launch_floor_s, self.launch_latency_s)
        rates = (self.copy_bytes_per_s, *self.flops_per_s.values(), *(value for value in known if value is not None))
        if not all(math.isfinite(rate) and rate > 0.0 for rate in rates) or self.l2_bytes < 0:
            raise ValueError(f"the peaks of {self.name} are not all positive")

    @property
    def memory_bytes_per_s(self) -> float:
        """The fastest that bytes move: most GPUs read faster than they copy, and a reduction hardly writes."""
        return max(self.copy_bytes_per_s, self.read_bytes_per_s or 0.0)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "copy_bytes_per_s": self.copy_bytes_per_s,
            "read_bytes_per_s": self.read_bytes_per_s,
            "flops_per_s": dict(self.flops_per_s),
            "l2_bytes": self.l2_bytes,
            "source": self.source,
            "reference": self.reference,
            "launch_floor_s": self.launch_floor_s,
            "launch_latency_s": self.launch_latency_s,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Peaks:
        """The inverse of `to_json`. Raises `ValueError` where something is missing or impossible."""
        try:
            return cls(
                name=str(value["name"]),
                copy_bytes_per_s=float(value["copy_bytes_per_s"]),
                flops_per_s={str(k): float(v) for k, v in value["flops_per_s"].items()},
                l2_bytes=int(value["l2_bytes"]),
                source=str(value["source"]),
                reference=str(value["reference"]),
                launch_floor_s=_optional(value["launch_floor_s"]),
                read_bytes_per_s=_optional(value.get("read_bytes_per_s")),
                launch_latency_s=_optional(value.get("launch_latency_s")),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not the peaks of a GPU: {error!r}") from error


def _optional(value: Any) -> float | None:
    return None if value is None else float(value)


def _sheet(name: str, *, tb_per_s: float, l2_mib: int, tflops: Mapping[str, float], reference: str) -> Peaks:
    return Peaks(
        name=name,
        copy_bytes_per_s=tb_per_s * 1e12,
        flops_per_s={key: value * 1e12 for key, value in tflops.items()},
        l2_bytes=l2_mib * 2**20,
        source="datasheet",
        reference=reference,
    )


_HOPPER = {"fp64": 66.9, "fp32": 66.9, "tf32": 494.7, "fp16": 989.4, "bf16": 989.4, "fp8": 1978.9}
_AMPERE = {"fp64": 19.5, "fp32": 19.5, "tf32": 156.0, "fp16": 312.0, "bf16": 312.0}

DATASHEETS: tuple[tuple[str, Peaks], ...] = (
    (
        r"\bH200\b",
        _sheet("H200 SXM", tb_per_s=4.8, l2_mib=50, tflops=_HOPPER, reference="NVIDIA H200 datasheet (2024)"),
    ),
    (
        r"\bH100 PCIe\b",
        _sheet(
            "H100 PCIe",
            tb_per_s=2.04,
            l2_mib=50,
            tflops={"fp64": 51.2, "fp32": 51.2, "tf32": 378.0, "fp16": 756.0, "bf16": 756.0, "fp8": 1513.0},
            reference="NVIDIA H100 datasheet (2023)",
        ),
    ),
    (
        r"\bH100 NVL\b",
        _sheet("H100 NVL", tb_per_s=3.94, l2_mib=50, tflops=_HOPPER, reference="NVIDIA H100 NVL product brief (2024)"),
    ),
    (
        r"\bH100\b",
        _sheet("H100 SXM", tb_per_s=3.35, l2_mib=50, tflops=_HOPPER, reference="NVIDIA H100 datasheet (2023)"),
    ),
    (
        r"\bA100\b.*80GB",
        _sheet("A100 80GB", tb_per_s=2.039, l2_mib=40, tflops=_AMPERE, reference="NVIDIA A100 80GB datasheet (2021)"),
    ),
    (
        r"\bA100\b",
        _sheet("A100 40GB", tb_per_s=1.555, l2_mib=40, tflops=_AMPERE, reference="NVIDIA A100 datasheet (2020)"),
    ),
    (
        r"\bL4\b",
        _sheet(
            "L4",
            tb_per_s=0.3,
            l2_mib=48,
            tflops={"fp64": 0.49, "fp32": 31.3, "tf32": 62.7, "fp16": 125.3, "bf16": 125.3, "fp8": 250.7},
            reference="NVIDIA L4 datasheet (2023) and Ada architecture whitepaper 2.01, at the 2,040 MHz boost clock",
        ),
    ),
    (
        r"\bRTX 4090$",
        _sheet(
            "RTX 4090",
            tb_per_s=1.008,
            l2_mib=72,
            tflops={"fp64": 1.29, "fp32": 82.6, "tf32": 82.6, "fp16": 330.3, "bf16": 165.2, "fp8": 660.6},
            reference="NVIDIA Ada architecture whitepaper 2.01, dense, fp16 and fp8 with 16-bit accumulation",
        ),
    ),
    (
        r"\bB200\b",
        _sheet(
            "B200",
            tb_per_s=8.0,
            l2_mib=126,
            tflops={"fp64": 45.0, "fp32": 90.0, "tf32": 1250.0, "fp16": 2500.0, "bf16": 2500.0, "fp8": 5000.0},
            reference="NVIDIA Blackwell architecture technical brief (2024), at 1,200 W, dense",
        ),
    ),
)
"""Upper bounds by a pattern of the device's name as the driver gives it, the first match counting. Dense rates."""


def datasheet(device_name: str) -> Peaks | None:
    """The datasheet's peaks of a GPU by its name (`NVIDIA H200`); None where it is not in the table."""
    return next((peaks for pattern, peaks in DATASHEETS if re.search(pattern, device_name)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedOfLight:
    """The least time and what sets it: `memory`, `compute` or `launch`. The parts are None where not known."""

    sol_time_s: float
    bound: str
    memory_s: float
    compute_s: float | None
    launch_s: float | None
    peaks_source: str

    def fraction(self, device_s: float) -> float:
        """How much of the speed of light a measured time reaches; above 1 it beats the model's assumptions."""
        return self.sol_time_s / device_s

    def to_json(self) -> dict[str, Any]:
        return {
            "sol_time_s": self.sol_time_s,
            "bound": self.bound,
            "memory_s": self.memory_s,
            "compute_s": self.compute_s,
            "launch_s": self.launch_s,
            "peaks_source": self.peaks_source,
        }


def speed_of_light(flops: int, total_bytes: int, peaks: Peaks, precision: PrecisionClass) -> SpeedOfLight:
    """The roofline's time for `flops` at the rate of `precision` and `total_bytes` (read plus written).

    Memory counts at the fastest of copying and reading, so that a reduction does not come out above 1.

    A class whose rate is unknown for this GPU leaves the compute bound out.
    """
    rate = peaks.flops_per_s.get(precision.value)
    memory_s = total_bytes / peaks.memory_bytes_per_s
    compute_s = flops / rate if rate is not None else None
    bounds = {"memory": memory_s, "compute": compute_s or 0.0, "launch": peaks.launch_floor_s or 0.0}
    bound = max(bounds, key=lambda name: bounds[name])
    return SpeedOfLight(
        sol_time_s=bounds[bound],
        bound=bound,
        memory_s=memory_s,
        compute_s=compute_s,
        launch_s=peaks.launch_floor_s,
        peaks_source=peaks.source,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredLeast:
    """What a problem's YAML states to be unavoidable at one workload; every part may be absent.

    `read_share` is the share of input and parameter bytes that any right answer must read; `least_bytes` replaces the
    count by one number; `least_flops` bounds the arithmetic of every algorithm that reaches the class.
    """

    read_share: float = 0.0
    least_bytes: int | None = None
    least_flops: int | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.read_share <= 1.0:
            raise ValueError(f"a read share lies between 0 and 1, not at {self.read_share}")
        if (self.least_bytes or 0) < 0 or (self.least_flops or 0) < 0:
            raise ValueError("least bytes and flops are not negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustFloor:
    """The time below which no honest call can be, and how it comes about. Zero where nothing is unavoidable."""

    floor_s: float
    unavoidable_bytes: int
    unavoidable_flops: int
    bytes_per_s: float
    flops_per_s: float | None
    peaks: str

    def to_json(self) -> dict[str, Any]:
        return {
            "floor_s": self.floor_s,
            "unavoidable_bytes": self.unavoidable_bytes,
            "unavoidable_flops": self.unavoidable_flops,
            "bytes_per_s": self.bytes_per_s,
            "flops_per_s": self.flops_per_s,
            "peaks": self.peaks,
        }


def trust_floor(
    traffic: Traffic,
    precision: PrecisionClass,
    *,
    device_name: str,
    measured: Peaks | None = None,
    declared: DeclaredLeast | None = None,
    l2_bytes: int | None = None,
) -> TrustFloor | None:
    """The disqualification floor on the GPU called `device_name`; None where nothing is known of that GPU.

    The datasheet counts where there is one, else `measured` times `MEASURED_MARGIN`. `l2_bytes` is the cache's true
    size where the driver tells it; the larger figure counts.
    """
    sheet = datasheet(device_name)
    peaks = sheet or measured
    if peaks is None:
        return None
    margin = 1.0 if sheet is not None else MEASURED_MARGIN
    least = declared or DeclaredLeast()
    counted = traffic.fresh_bytes + int(least.read_share * traffic.read_bytes)
    if least.least_bytes is not None:
        counted = least.least_bytes
    unavoidable = max(0, counted - max(peaks.l2_bytes, l2_bytes or 0))
    classes = [c.value for c in PrecisionClass if c is not PrecisionClass.FP8 or precision is PrecisionClass.FP8]
    rates = [peaks.flops_per_s[c] * margin for c in classes if c in peaks.flops_per_s]
    flops = least.least_flops or 0
    bytes_per_s = peaks.copy_bytes_per_s * margin
    compute_s = flops / max(rates) if rates else 0.0
    return TrustFloor(
        floor_s=max(unavoidable / bytes_per_s, compute_s),
        unavoidable_bytes=unavoidable,
        unavoidable_flops=flops,
        bytes_per_s=bytes_per_s,
        flops_per_s=max(rates) if rates else None,
        peaks=f"{peaks.reference}" + ("" if margin == 1.0 else f", measured, times {MEASURED_MARGIN}"),
    )
