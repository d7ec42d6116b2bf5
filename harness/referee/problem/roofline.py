"""Least time that a problem's flops and bytes take on a device.

Trusted side. It computes two different times:

* `speed_of_light` is the target: the roofline of S. Williams, A. Waterman and D. Patterson ("Roofline: an insightful
  visual performance model for multicore architectures", CACM 52(4), 2009) with the launch as third bound. Peaks are the
  measured ones, else the datasheet's. A better algorithm can beat it.
* `trust_floor` convicts: no honest call can be faster. It counts only unavoidable bytes and flops at rates that are
  upper bounds.

See guides/design/reference_and_truth.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.core.choices import PrecisionClass
from harness.core.json_value import JsonObject
from harness.devices.gpu_specs import Peaks, datasheet
from harness.referee.problem.flops import Traffic

MEASURED_MARGIN = 1.25
"""Factor by which a measured peak may fall short of the true one.

Copies reach 0.85 to 0.93 of the datasheet; only reading or only writing is somewhat faster than copying.
"""


_RATES = {
    PrecisionClass.FP8_E4M3: PrecisionClass.FP8.value,
    PrecisionClass.MXFP8: PrecisionClass.FP8.value,
    PrecisionClass.FP8_E5M2: PrecisionClass.FP8.value,
}
"""Names of rates that differ from the class's. Those of int8 and of four-bit numbers are unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedOfLight(JsonObject):
    """The least time and its bound: `memory`, `compute` or `launch`.

    Times are in seconds; a part that is unknown is None.
    """

    sol_time_s: float
    bound: str
    memory_s: float
    compute_s: float | None
    launch_s: float | None
    peaks_source: str

    def fraction(self, device_s: float) -> float:
        """Return the share of the speed of light that a measured time reaches.

        Args:
            device_s: Measured seconds.

        Returns:
            The share; above 1 the solution beats the model's assumptions.
        """
        return self.sol_time_s / device_s


def speed_of_light(flops: int, total_bytes: int, peaks: Peaks, precision: PrecisionClass) -> SpeedOfLight:
    """Compute max(flops / peak rate, bytes / peak bandwidth, launch floor).

    Args:
        flops: Of the reference; a multiply-add counts as two.
        total_bytes: Bytes read plus bytes written.
        peaks: Rates of the GPU. The bandwidth is that of copying or reading, whichever is faster, so that a reduction
            does not exceed 1.
        precision: Selects the peak rate; if that is unknown, there is no compute bound.

    Returns:
        The least time and its parts.
    """
    rate = peaks.flops_per_s.get(_RATES.get(precision, precision.value))
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
    """Unavoidable work that a problem's YAML declares for one workload.

    Attributes:
        read_share: Share of input and parameter bytes that any correct answer must read.
        least_bytes: Replaces the counted bytes.
        least_flops: Lower bound for every algorithm that reaches the precision class.

    Raises:
        ValueError: A value is out of range.
    """

    read_share: float = 0.0
    least_bytes: int | None = None
    least_flops: int | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.read_share <= 1.0:
            raise ValueError(f"read_share is {self.read_share}; it must lie between 0 and 1")
        if (self.least_bytes or 0) < 0 or (self.least_flops or 0) < 0:
            raise ValueError("least_bytes and least_flops must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustFloor(JsonObject):
    """The time below which no honest call can be; 0 s if no work is unavoidable."""

    floor_s: float
    unavoidable_bytes: int
    unavoidable_flops: int
    bytes_per_s: float
    flops_per_s: float | None
    peaks: str


def trust_floor(
    traffic: Traffic,
    precision: PrecisionClass,
    *,
    device_name: str,
    measured: Peaks | None = None,
    declared: DeclaredLeast | None = None,
    l2_bytes: int | None = None,
) -> TrustFloor | None:
    """Compute the time below which a claim is false.

    Args:
        traffic: Bytes of the call.
        precision: The problem's precision class.
        device_name: Name of the GPU, to find its datasheet.
        measured: Measured peaks; used, times `MEASURED_MARGIN`, if there is no datasheet.
        declared: Unavoidable work that the problem declares.
        l2_bytes: Cache size by the driver; the larger of it and the datasheet's counts.

    Returns:
        The floor, or None if neither datasheet nor measured peaks exist.
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
    order = list(PrecisionClass)
    classes = order[: max(order.index(precision), order.index(PrecisionClass.BF16)) + 1]
    named = {_RATES.get(c, c.value) for c in classes}
    rates = [rate * margin for name, rate in peaks.flops_per_s.items() if name in named]
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
