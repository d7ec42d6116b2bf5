"""The reference on its own, before any solution of its problem was started: how long, how noisy, how large.

Trusted side. Imports `measure`. What is measured here no submission can have touched: it bounds the baseline, says how
far two measurements of the same thing lie apart (the noise floor), and is the reference's part of the figures that are
kept beside the device time of single calls.
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
"""Bursts of the reference against itself: the least number where what they show lies within the least noise floor,
since more of them would not change it; else as many as fit into these seconds."""

LONG_ENOUGH_S = 15e-3
LEAST_CALLS = 6
"""Long calls: no more of them are made in a burst, or back to back, than take so long; at least these in a burst."""

PROCESS_BIAS = 0.005
PROCESS_BIAS_S = 0.3e-6
"""Least noise floor, as a difference of logs, and as seconds of a call: an identical twin runs in another process, with
memory and code at other addresses, which bursts in one process do not show (`tests/benchmarks/bench_calibration.py`
measures it)."""

SHORT_S = 50e-6
"""Device time of a call below which calls as one graph are measured beside the single ones."""


EMPTY_BELOW_S = 1e-3
"""Device time of a call of the reference below which two processes are compared by their empty calls: what they differ
by is 0.03 % of a longer one, and 1 % of a solution's that is thirty times as fast."""

NONSTOP_SETS = 16
"""Sets over which calls are made back to back, where they are small (`bench.SMALL_SET_BYTES`)."""

FEW_NONSTOP_SETS = 3
"""As many of them as there is memory for where sets are large, if need be a single one: what a burst of queued calls is
granted is some ten microseconds, and one of which bursts with pauses leave half a millisecond open takes milliseconds.
"""

QUEUE_TRIES = 3
"""How often calls are queued, a solution's or the reference's, before it is believed that they wait for the device.
Where the reference's do, solutions that wait are granted the latency that they claim."""

NONSTOP_TOGETHER_S = 80e-3
"""Device time of calls back to back from which they are not made: there is no pause in which the device could cool."""

NONSTOP_BELOW_S = 10e-3
"""Device time of a call from which calls back to back prove little more than bursts with pauses do."""

NONSTOP_BYTES = 4 * 2**30
"""Most that more than a few sets of calls back to back take: there are copies of them."""

COPIES_SHARE = 1 / 8
"""Part of the device's memory that copies of a few sets may take."""

SPARED_SHARE = 1 / 8
SPARED_CALLS = 2
"""What they have to leave free for solutions: so large a part of it, and so many times what a call's inputs and outputs
take, or what the reference takes beside its inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceTiming:
    """Seconds a call; bytes beyond the inputs. `back_to_back_sets` is how many sets calls are made over back to back, 0
    where that would prove nothing; the figures of such calls are by manner (`messages.Manner`), and `refused` says why
    one is absent that was tried.
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
    """Of calls that do next to nothing, in this process, by lane (`harness.devices.empty_kernel`); none where device
    time is no GPU's, or calls are so long that it does not matter."""

    def floor_json(self) -> dict[str, Any]:
        """The noise floor as a record has it: its width, what of it was measured, and how."""
        return {
            **self.floor.to_json(),
            "measured_log_width": self.measured_log_width,
            "least_log_width": self.least_log_width,
            "method": "bursts of the reference, every other call against the rest",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemCalibration:
    """What is known of a problem before a solution to it is judged.

    `pauses` and `back_to_back` say what bursts of trusted code take on the wall: those with a flush before each call,
    and those without, by manner. `sparing` are those with a flush that have no more than `measure.LONG_SETS` calls,
    where others have more: what a burst costs once is a larger part of each call's share there. `process_bytes` is how
    much device memory a process of trusted code has. None is not known.
    `calm` says that nothing is known to have disturbed the latest measurement of them.
    """

    quiet: ReferenceTiming
    pauses: Calibration | None = None
    sparing: Calibration | None = None
    back_to_back: Mapping[LaunchMode, Calibration] = field(default_factory=dict)
    process_bytes: int | None = None
    calm: bool = True


class ReferenceTimer:
    """The measurement of the reference on its own, in steps of some ten milliseconds, between which the device may be
    used. The first one is made at once: bursts over the first `sets` sets follow, and calls back to back where they are
    short. All inputs are drawn here; between steps they may be masked, and must not be drawn anew.
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
            *(PlannedCall(index=index, mode=CallMode.COLD) for index in range(sets)),
        ]
        self._bursts: list[list[float]] = []
        burst = self._burst()
        self._planned_calls = self._planned_calls[: 1 + so_many(sets, self._reference_s, least=LEAST_CALLS)]
        wall_s = burst.wall_s * len(self._planned_calls) / (1 + sets)
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
        """Whether it has to be over before anybody else calls over these inputs: its calls change them."""
        return self._workspace.traits.mutates_inputs

    @property
    def over(self) -> bool:
        return self._enough and self._back_to_back is not None

    def step(self) -> None:
        """Make the next one; nothing where it is over."""
        workspace = self._workspace
        if not self._enough:
            if workspace.traits.mutates_inputs:
                for index in range(self._sets):
                    workspace.redraw(index)
                workspace.device.synchronize()
            self._burst()
            self._enough = enough(self._bursts, self._most)
        elif self._back_to_back is None:
            own = range(so_many(self._back_to_back_sets, self._reference_s, least=FEW_NONSTOP_SETS))
            self._back_to_back = _back_to_back(workspace, self._runner, own, short=self._reference_s < SHORT_S)

    def result(self) -> ReferenceTiming:
        """What was measured, once what is left was made."""
        while not self.over:
            self.step()
        return self.so_far

    @property
    def so_far(self) -> ReferenceTiming:
        """What the steps that were made say: over how many sets calls are made back to back, and of the empty calls, is
        known from the first one on.
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
    """Over how many sets calls may be made back to back, 0 where copies of not even one may be had. The reference takes
    `peak_bytes` beside its inputs.
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
    """Whether calls of this device time back to back over so many sets prove more than bursts with pauses do."""
    return sets > 0 and call_s < min(NONSTOP_BELOW_S, NONSTOP_TOGETHER_S / sets)


def so_many(count: int, call_s: float, *, least: int) -> int:
    """How many of `count` calls are made that take `call_s` each."""
    return min(count, max(least, int(LONG_ENOUGH_S / call_s)))


def least_width(reference_s: float) -> float:
    """The least noise floor of calls so long, as a difference of logs."""
    return max(PROCESS_BIAS, PROCESS_BIAS_S / reference_s)


def enough(bursts: Sequence[Sequence[float]], most: int) -> bool:
    """Whether no more bursts of the reference are needed to know the noise floor, or `most` are made. In pairs, so that
    each half has been the first one as often as the other.
    """
    if len(bursts) < LEAST_BURSTS or len(bursts) % 2:
        return False
    reference_s = statistics.median(time_s for burst in bursts for time_s in burst)
    measured = noise_floor(speedup_interval(*halves(bursts))).log_width
    return len(bursts) >= most or measured <= least_width(reference_s)


def halves(bursts: Sequence[Sequence[float]]) -> tuple[list[list[float]], list[list[float]]]:
    """Each burst's calls, of which there are two at least, as two series: every other call and the rest, which of them
    is the first one changing from burst to burst.
    """
    parts = [(list(burst[0::2]), list(burst[1::2])) for burst in bursts]
    turned = [(a, b) if number % 2 == 0 else (b, a) for number, (a, b) in enumerate(parts)]
    return [a for a, _ in turned], [b for _, b in turned]


def _back_to_back(workspace: Workspace, runner: ReferenceRunner, indices: range, *, short: bool) -> dict[str, Any]:
    """The reference's calls back to back, as a graph only where they are short."""
    found: dict[str, Any] = {}
    refused: dict[str, str] = {}
    runner.back_to_back(indices, LaunchMode.LAUNCHED)  # memory is allocated in the first ones
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
    """Whether calls of this problem may be made as a graph: state, generators and inputs stay as they are."""
    traits = workspace.traits
    return not (traits.draws_random or traits.updates_state or traits.mutates_inputs)
