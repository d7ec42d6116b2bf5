"""Measure the reference alone, before any solution of its problem starts.

Trusted side. No submission can influence these figures. They bound the baseline, give the noise floor, and are the
reference's values for back-to-back calls, graphs and memory.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.core.choices import DeviceKind
from harness.core.stats import NoiseFloor, noise_floor, speedup_interval
from harness.core.status import one_line
from harness.devices import empty_kernel
from harness.devices.device import DeviceError
from harness.protocol.messages import CallMode, EmptyTimed, LaunchMode
from harness.referee.problem.burst_plan import PlannedCall
from harness.referee.problem.workspace import Workspace
from harness.referee.timing.calibration import Calibration
from harness.referee.timing.rounds import ReferenceBurst, ReferenceRunner

LEAST_BURSTS = 4
MOST_BURSTS = 8
BURSTS_BUDGET_S = 0.15
"""Number of bursts of the reference against itself: `LEAST_BURSTS` if their result lies within the least noise floor,
since more would not change it; else as many as fit into `BURSTS_BUDGET_S` seconds, at most `MOST_BURSTS`.
"""

LONG_ENOUGH_S = 15e-3
LEAST_CALLS = 6
"""For long calls: a burst, with pauses or back to back, has only as many calls as fit into `LONG_ENOUGH_S`, but one
with pauses has at least `LEAST_CALLS`.
"""

PROCESS_BIAS = 0.005
PROCESS_BIAS_S = 0.3e-6
"""Least noise floor, as a difference of logs and as seconds a call. An identical twin runs in another process, with
memory and code at other addresses; bursts in one process do not show that difference (measured by
`tests/benchmarks/bench_calibration.py`).
"""

SHORT_S = 50e-6
"""Device time of a call below which calls are also measured inside one CUDA graph."""


EMPTY_BELOW_S = 1e-3
"""Device time of a reference call below which two processes are compared by empty calls. The difference is 0.03 % of a
longer call, and 1 % of a solution that is thirty times as fast.
"""

NONSTOP_SETS = 16
"""Number of input sets for back-to-back calls if a set takes at most `SMALL_SET_BYTES` (`workspace.py`)."""

FEW_NONSTOP_SETS = 3
"""Number of input sets for back-to-back calls if sets are large; fewer, down to one, if memory is short. Even one
queued call proves more: it is granted some ten microseconds, while bursts with pauses leave half a millisecond a call
open.
"""

QUEUE_TRIES = 3
"""How often the referee queues calls, the solution's or the reference's, before it believes that they wait for the
device. If the reference waits, solutions that wait are granted the latency that they claim.
"""

NONSTOP_TOGETHER_S = 80e-3
"""Total device time from which calls are not made back to back: without pauses the device cannot cool."""

NONSTOP_BELOW_S = 10e-3
"""Device time of a call from which back-to-back calls prove little more than bursts with pauses."""

NONSTOP_BYTES = 4 * 2**30
"""Most bytes of more than `FEW_NONSTOP_SETS` sets of back-to-back calls; the referee copies them."""

COPIES_SHARE = 1 / 8
"""Largest share of the device's memory for copies of a few sets."""

SPARED_SHARE = 1 / 8
SPARED_CALLS = 2
"""Memory that these copies leave free for solutions: this share of the device's memory, and `SPARED_CALLS` times the
larger of a call's inputs and outputs and the reference's memory beyond its inputs.
"""


SAME = 0.02
"""Largest difference of the reference's time from an earlier run's, as a share, if it can be told that exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceTiming:
    """Figures of the reference alone: seconds a call, and bytes beyond the inputs.

    `back_to_back_sets` is the number of input sets for back-to-back calls, 0 if they would prove nothing.
    `back_to_back_s`, `queued_s` and `graph_s` are the times by launch mode; `refused` says why a mode that was tried
    has none.
    """

    reference_s: float
    floor: NoiseFloor
    measured_log_width: float
    least_log_width: float
    peak_bytes: int | None
    back_to_back_sets: int = 0
    back_to_back_s: float | None = None
    queued_s: float | None = None
    graph_s: float | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    empty_calls: Mapping[int, EmptyTimed] = field(default_factory=dict)
    """Times of calls that do almost nothing, in this process, by lane (`harness.devices.empty_kernel`); empty if the
    device is no GPU, or if calls are so long that it does not matter.
    """

    @property
    def same_log_width(self) -> float:
        """Largest difference of logs from a later run on a GPU that is as fast."""
        return max(SAME, self.least_log_width)

    @property
    def repeatable(self) -> bool:
        """Whether a later run can compare its own time with this one."""
        return self.measured_log_width <= self.same_log_width

    def floor_json(self) -> dict[str, Any]:
        """Return the noise floor for a record.

        It consists of the width, the measured part, the least value and the method.
        """
        return {
            **self.floor.to_json(),
            "measured_log_width": self.measured_log_width,
            "least_log_width": self.least_log_width,
            "method": "bursts of the reference, every other call against the rest",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemCalibration:
    """Measurements of a problem before its first solution is judged.

    `pauses` and `back_to_back` are the costs of trusted bursts: with a flush before each call, and without, by launch
    mode. `sparing` is like `pauses`, for bursts of at most `LONG_SETS` calls; there the cost of a burst as a whole is a
    larger share of each call. `process_bytes` is the device memory of a trusted process. None means unknown. `calm`
    says that nothing is known to have disturbed the latest measurement.
    """

    quiet: ReferenceTiming
    pauses: Calibration | None = None
    sparing: Calibration | None = None
    back_to_back: Mapping[LaunchMode, Calibration] = field(default_factory=dict)
    process_bytes: int | None = None
    calm: bool = True


class ReferenceTimer:
    """Measure the reference alone, in steps of some ten milliseconds.

    The device may be used between steps. The constructor makes the first burst; then follow bursts over the first
    `sets` sets, and back-to-back calls if calls are short. All inputs are drawn here. Between steps they may be masked,
    but not drawn again.
    """

    def __init__(self, workspace: Workspace, *, sets: int) -> None:
        for index in range(sets):
            workspace.draw(index)
        workspace.hold_back(range(sets))
        workspace.device.synchronize()
        self._workspace = workspace
        self._sets = sets
        self._runner = ReferenceRunner(workspace)
        self._planned_calls = [
            PlannedCall(index=0, mode=CallMode.WARM),
            *(PlannedCall(index=index % sets, mode=CallMode.COLD) for index in range(max(2, sets))),
        ]
        self._bursts: list[list[float]] = []
        burst = self._burst()
        count = so_many(len(burst.times) - 1, self._reference_s, least=LEAST_CALLS)
        self._planned_calls = self._planned_calls[: 1 + count]
        wall_s = burst.wall_s * len(self._planned_calls) / len(burst.times)
        self._most = min(MOST_BURSTS, max(LEAST_BURSTS, int(BURSTS_BUDGET_S / wall_s) // 2 * 2))
        self._enough = enough(self._bursts, self._most)
        self._peak_bytes = burst.peak_bytes
        self._back_to_back_sets = min(len(workspace.sets), sets_without_pause(workspace, burst.peak_bytes or 0))
        for index in range(sets, self._back_to_back_sets):
            workspace.draw(index)
        workspace.device.synchronize()
        to_compare = workspace.device.kind is DeviceKind.CUDA and self._reference_s < EMPTY_BELOW_S
        self._empty_calls: Mapping[int, EmptyTimed] = empty_kernel.of(workspace.device).own() if to_compare else {}
        self._back_to_back: dict[str, Any] | None = None if self._back_to_back_sets else {}

    @property
    def apart(self) -> bool:
        """Whether the timing must finish before another process uses these inputs.

        It must if its calls change the inputs.
        """
        return self._workspace.traits.mutates_inputs

    @property
    def over(self) -> bool:
        return self._enough and self._back_to_back is not None

    def step(self) -> None:
        """Make the next step; do nothing if all are done."""
        workspace = self._workspace
        if not self._enough:
            if workspace.traits.mutates_inputs:
                workspace.redraw_all(range(self._sets))
            self._burst()
            self._enough = enough(self._bursts, self._most)
        elif self._back_to_back is None:
            own = range(so_many(self._back_to_back_sets, self._reference_s, least=FEW_NONSTOP_SETS))
            self._back_to_back = _back_to_back(workspace, self._runner, own, short=self._reference_s < SHORT_S)

    def result(self) -> ReferenceTiming:
        """Make the remaining steps and return all figures."""
        while not self.over:
            self.step()
        return self.so_far

    @property
    def so_far(self) -> ReferenceTiming:
        """The figures so far.

        The number of back-to-back sets and the empty calls are known from the first step on.
        """
        aa = speedup_interval(*halves(self._bursts))
        least = least_width(self._reference_s)
        return ReferenceTiming(
            reference_s=self._reference_s,
            floor=noise_floor(aa, least=least),
            measured_log_width=noise_floor(aa).log_width,
            least_log_width=least,
            peak_bytes=self._peak_bytes,
            back_to_back_sets=self._back_to_back_sets,
            empty_calls=self._empty_calls,
            **(self._back_to_back or {}),
        )

    @property
    def _reference_s(self) -> float:
        return statistics.median(time_s for burst in self._bursts for time_s in burst)

    def _burst(self) -> ReferenceBurst:
        burst = self._runner.burst(self._planned_calls)
        self._bursts.append([time.device_s for time in burst.times[1:]])
        return burst


def sets_without_pause(workspace: Workspace, peak_bytes: int) -> int:
    """Return the number of input sets for back-to-back calls.

    It is 0 if not even one set can be copied. `peak_bytes` is the reference's memory beyond its inputs.
    """
    set_bytes = max(workspace.set_bytes, 1)
    if (many := NONSTOP_BYTES // set_bytes) >= FEW_NONSTOP_SETS:
        return many
    memory, taken = workspace.device.memory_bytes(), workspace.device.taken_bytes()
    if memory is None or taken is None:
        return 0
    spared = max(SPARED_SHARE * memory, SPARED_CALLS * max(set_bytes, peak_bytes))
    room = min(COPIES_SHARE * memory, memory - taken - spared)
    return max(0, min(FEW_NONSTOP_SETS, int(room) // set_bytes))


def proves_more(call_s: float, sets: int) -> bool:
    """Return whether back-to-back calls prove more than bursts with pauses.

    `call_s` is the device time of a call in seconds. `sets` is the number of input sets.
    """
    return sets > 0 and call_s < min(NONSTOP_BELOW_S, NONSTOP_TOGETHER_S / sets)


def so_many(count: int, call_s: float, *, least: int) -> int:
    """Return how many of `count` calls to make if each takes `call_s`."""
    return min(count, max(least, int(LONG_ENOUGH_S / call_s)))


def least_width(reference_s: float) -> float:
    """Return the least noise floor for calls of this time, as a difference of logs."""
    return max(PROCESS_BIAS, PROCESS_BIAS_S / reference_s)


def enough(bursts: Sequence[Sequence[float]], most: int) -> bool:
    """Return whether the noise floor is known well enough, or `most` bursts are made.

    Bursts come in pairs, so that each half goes first equally often.
    """
    if len(bursts) < LEAST_BURSTS or len(bursts) % 2:
        return False
    reference_s = statistics.median(time_s for burst in bursts for time_s in burst)
    measured = noise_floor(speedup_interval(*halves(bursts))).log_width
    return len(bursts) >= most or measured <= least_width(reference_s)


def halves(bursts: Sequence[Sequence[float]]) -> tuple[list[list[float]], list[list[float]]]:
    """Split each burst's calls into two series: every other call, and the rest.

    A burst has at least two calls. Which of the two goes first alternates from burst to burst.
    """
    parts = [(list(burst[0::2]), list(burst[1::2])) for burst in bursts]
    turned = [(a, b) if number % 2 == 0 else (b, a) for number, (a, b) in enumerate(parts)]
    return [a for a, _ in turned], [b for _, b in turned]


def _back_to_back(workspace: Workspace, runner: ReferenceRunner, indices: range, *, short: bool) -> dict[str, Any]:
    """Measure the reference back to back, and inside a graph if calls are short."""
    found: dict[str, Any] = {}
    refused: dict[str, str] = {}
    runner.back_to_back(indices, LaunchMode.LAUNCHED)  # the first run allocates memory
    found["back_to_back_s"] = runner.back_to_back(indices, LaunchMode.LAUNCHED).device_s
    for launch_mode in (LaunchMode.QUEUED, LaunchMode.GRAPH):
        if launch_mode is LaunchMode.GRAPH and not (short and graphable(workspace)):
            continue
        for _ in range(QUEUE_TRIES if launch_mode is LaunchMode.QUEUED else 1):
            try:
                found[f"{launch_mode}_s"] = runner.back_to_back(indices, launch_mode).device_s
            except (DeviceError, RuntimeError) as error:
                refused[launch_mode.value] = one_line(str(error), limit=200)
            else:
                refused.pop(launch_mode.value, None)
                break
    return {**found, "refused": refused}


def graphable(workspace: Workspace) -> bool:
    """Return whether a graph can capture calls of this problem.

    State, random generators and inputs must stay the same.
    """
    traits = workspace.traits
    return not (traits.draws_random or traits.updates_state or traits.mutates_inputs)
