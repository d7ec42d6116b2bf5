"""Start Nsight Compute's command line (ncu) and parse its table of counters.

Trusted side. The text comes from a tool that ran untrusted code: it is bounded and searched, but not trusted further.
Metric names are Nsight Compute's (its documentation, "Metrics Reference" and "Kernel Profiling Guide").
"""

from __future__ import annotations

import csv
import io
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MAX_LOG_BYTES = 16 * 2**20
MAX_KERNELS = 64
"""Most launches of one call that are replayed; each takes about a second."""

_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLS: Mapping[str, str] = {
    "barrier": "waiting for the other warps at a barrier",
    "branch_resolving": "waiting for a branch to be resolved",
    "dispatch_stall": "the dispatcher is stalled",
    "drain": "waiting for stores to drain before the end",
    "gmma": "waiting for a warp-group matrix instruction",
    "imc_miss": "waiting for a constant that is not in its cache",
    "lg_throttle": "too many accesses to global or local memory in the queue",
    "long_scoreboard": "waiting for data from global or local memory",
    "math_pipe_throttle": "the required arithmetic unit is busy",
    "membar": "waiting at a memory fence",
    "mio_throttle": "too many instructions for shared memory and special functions in the queue",
    "no_instruction": "the next instruction is not in its cache yet",
    "not_selected": "ready, but another warp was chosen",
    "short_scoreboard": "waiting for data from shared memory or a special function",
    "sleeping": "sleeping",
    "tex_throttle": "too many texture accesses in the queue",
    "wait": "a fixed latency between two instructions",
}
"""Stall reason -> description. `selected` (issuing) is no stall."""

TIME = "gpu__time_duration.sum"
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
BUSY = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
L2_HITS = "lts__t_sector_hit_rate.pct"
METRICS = (TIME, READ, WRITTEN, OCCUPANCY, TENSOR, BUSY, MEMORY, L2_HITS, *(_STALL.format(name) for name in STALLS))

_USUAL = "/usr/local/cuda/bin/ncu"


def find_ncu(nvcc: Path | None = None) -> str | None:
    """Return ncu next to this nvcc, on PATH, or in CUDA's usual folder.

    None if missing.
    """
    beside = nvcc.resolve().parent / "ncu" if nvcc else None
    if beside is not None and beside.exists():
        return str(beside)
    return shutil.which("ncu") or (_USUAL if Path(_USUAL).exists() else None)


def command(executable: str, log_path: Path) -> tuple[str, ...]:
    """Return the command prefix that measures marked kernels.

    The table goes to `log_path`.

    Clocks stay as they are for timing, and caches are flushed before each replay. The command's forks are measured too.
    """
    options = ("--target-processes", "all", "--profile-from-start", "off", "--clock-control", "none")
    table = ("--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(METRICS))
    bounds = ("--launch-count", str(MAX_KERNELS))
    return (executable, *options, *table, *bounds, "--log-file", str(log_path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Hardware counters of one launch.

    Shares are from 0 to 1, times in seconds; None if this GPU has no such counter. `stalls` are reasons with the
    average number of warps that waited for them per issued instruction, largest first.
    """

    name: str
    time_s: float | None
    read_bytes: float | None
    written_bytes: float | None
    memory_share: float | None
    compute_share: float | None
    tensor_share: float | None
    occupancy: float | None
    l2_hit_share: float | None
    stalls: tuple[tuple[str, float], ...]

    @property
    def bytes_per_s(self) -> float | None:
        """Achieved bandwidth of the GPU's memory, reads and writes together."""
        if not self.time_s or self.read_bytes is None or self.written_bytes is None:
            return None
        return (self.read_bytes + self.written_bytes) / self.time_s

    def to_json(self) -> dict[str, Any]:
        held = asdict(self)
        return held | {"bytes_per_s": self.bytes_per_s, "stalls": [list(pair) for pair in self.stalls]}


def parse(text: str) -> tuple[Counters, ...]:
    """Return the launches in the table of `command`, in order, at most `MAX_KERNELS`."""
    lines = text[:MAX_LOG_BYTES].splitlines()
    begin = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        return ()
    rows = list(csv.DictReader(io.StringIO("\n".join(line for line in lines[begin:] if line.startswith('"')))))
    # The first row holds the units. `--print-units base` fixes them, except the time's in some versions.
    units: Mapping[str, str | None] = rows[0] if rows and not rows[0].get("ID") else {}
    return tuple(_counters(row, units) for row in rows if row.get("ID"))[:MAX_KERNELS]


def complaint(text: str) -> str | None:
    """Return the tool's error message, with a remedy if one is known.

    None if it has none.
    """
    if "ERR_NVGPUCTRPERM" in text:
        return (
            "this user has no permission to read the GPU's performance counters; load the driver with "
            "NVreg_RestrictProfilingToAdminUsers=0, or run as root with --sandbox off"
        )
    said = [line.partition("==ERROR==")[2].strip() for line in text.splitlines() if "==ERROR==" in line]
    return said[0] if said else None


_SECONDS = {
    "nsecond": 1e-9,
    "ns": 1e-9,
    "usecond": 1e-6,
    "us": 1e-6,
    "msecond": 1e-3,
    "ms": 1e-3,
    "second": 1.0,
    "s": 1.0,
}


def _counters(row: Mapping[str, str | None], units: Mapping[str, str | None]) -> Counters:
    time = _number(row, TIME)
    stalls = {name: _number(row, _STALL.format(name)) for name in STALLS}
    ranked = sorted(((name, value) for name, value in stalls.items() if value), key=lambda item: -item[1])
    return Counters(
        name=str(row.get("Kernel Name") or "")[:400],
        time_s=None if time is None else time * _SECONDS.get(units.get(TIME) or "nsecond", 1e-9),
        read_bytes=_number(row, READ),
        written_bytes=_number(row, WRITTEN),
        memory_share=_share(row, MEMORY),
        compute_share=_share(row, BUSY),
        tensor_share=_share(row, TENSOR),
        occupancy=_share(row, OCCUPANCY),
        l2_hit_share=_share(row, L2_HITS),
        stalls=tuple(ranked),
    )


def _share(row: Mapping[str, str | None], metric: str) -> float | None:
    value = _number(row, metric)
    return None if value is None else value / 100.0


def _number(row: Mapping[str, str | None], metric: str) -> float | None:
    try:
        value = float((row.get(metric) or "").replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def heaviest(launches: Sequence[Counters], count: int) -> list[Counters]:
    """Return the `count` launches that took longest, longest first."""
    return sorted(launches, key=lambda launch: -(launch.time_s or 0.0))[:count]
