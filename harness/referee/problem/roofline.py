"""How fast a device could be at most: the least time that the flops and bytes of a problem take on it.

Imports `model`, `work` (which counts them) and `datasheets`. Pure; trusted side. Nothing here measures peaks:
`harness.devices.measured_peaks` does, its results come in as `Peaks`.

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

from dataclasses import dataclass
from typing import Any

from harness.core.choices import PrecisionClass
from harness.devices.gpu_specs import Peaks, datasheet
from harness.referee.problem.flops import Traffic

MEASURED_MARGIN = 1.25
"""By how much a measured peak may fall short of the true one: copies reach 0.85 to 0.93 of the datasheet, and reading
alone or writing alone is somewhat faster than copying."""


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
