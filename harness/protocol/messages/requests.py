"""Requests of the referee to a contestant.

Both sides. Only `Burst` has a complete parser, because the contestant may trust the referee.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

from harness.protocol.fields import Integer, Integers, Message, Object, Text, Texts, convert


class CallMode(StrEnum):
    """How one call of a burst runs."""

    WARM = "warm"
    """Warm-up; its time is not used. To the contestant it is like any other call."""
    COLD = "cold"
    """Timed on the device's clock after a cache flush."""
    LATENCY = "latency"
    """Timed on the host's clock, starting from an idle device."""


class Region(NamedTuple):
    """A tensor's place in the arena.

    Attributes:
        offset: Offset in bytes.
        shape: Shape.
        dtype: torch's name of the dtype without the prefix (`float32`).
    """

    offset: Integer
    shape: Integers
    dtype: Text

    def to_json(self) -> list[Any]:
        return [self.offset, list(self.shape), self.dtype]

    @classmethod
    def from_json(cls, value: object) -> Region:
        return convert(value, cls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Message):
    """One call of a burst.

    Attributes:
        inputs: Places of the inputs.
        outputs: Places for the outputs.
        state: Places for the model's state after the call.
        seed: Seed of the random generators; None if the reference uses none.
        mode: How the call runs.
        late: Withheld words (place in the arena, value) to write in the call's stream before its clock starts.
    """

    inputs: tuple[Region, ...]
    outputs: tuple[Region, ...]
    state: tuple[Region, ...]
    seed: int | None
    mode: CallMode
    late: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Open(Message):
    """Open the device and reply `Ready` when it is idle.

    A repeated request does nothing.

    Opening a GPU takes time, so the request may come before the problem is known.

    Attributes:
        device: `cuda` or `host`.
        device_index: Index of the GPU.
        checked: Host device: check accesses, races and barriers.
        host_runtime: Folder of the host device's libraries; None on a GPU.
    """

    TYPE: ClassVar[str] = "open"
    device: str
    device_index: int
    checked: bool
    host_runtime: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach(Message):
    """Map the arena, and open the device if necessary.

    The arena's descriptor comes with the frame.

    On the host device, a second descriptor is the memory of `harness.referee.contestants.crash_recorder` for findings
    and the running call.

    Attributes:
        nbytes: Size of the arena.
        opening: How to open the device.
        own_allocations: Calls get copies of their inputs, each an allocation of its own, for tools that check bounds.
    """

    TYPE: ClassVar[str] = "attach"
    nbytes: int
    opening: Open
    own_allocations: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeEmpty(Message):
    """Time nearly empty calls and reply `EmptyTimed`.

    Valid only before `Load`: after the solution's code is loaded, the times would be claims.
    """

    TYPE: ClassVar[str] = "time_empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(Message):
    """Import the solution, construct `ModelNew`, copy the reference's state.

    Attributes:
        source: The solution's source.
        filename: Its file name, for tracebacks.
        modules: Its built extensions.
        init_tree: Description of the constructor's arguments.
        init_slots: Places of the arguments' tensors.
        state: Name of the reference's state -> place of its value.
        seed: Seed of the random generators.
    """

    TYPE: ClassVar[str] = "load"
    source: str
    filename: str
    modules: tuple[Mapping[str, Any], ...]
    init_tree: Mapping[str, Any]
    init_slots: tuple[Region, ...]
    state: Mapping[str, Region]
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst(Message):
    """Run these calls one after another, and copy each output out.

    The copy follows as the call's timed window ends.

    Attributes:
        calls: The calls.
        input_tree: Description of the inputs' structure.
        state_names: Names of the state to copy out.
        restore_state: Restore the state after loading before each call.
        coerce_device: Copy outputs on another device over, inside the timed window.
        schedule: Order in which the host device runs blocks and threads: 0 rising, 1 falling; 2 and 4 are rising with
            other values in unwritten shared memory.
        contiguous: Numbers of outputs to make contiguous inside the timed window.
    """

    TYPE: ClassVar[str] = "burst"
    calls: tuple[Call, ...]
    input_tree: Object
    state_names: Texts
    restore_state: bool
    coerce_device: bool
    schedule: int = 0
    contiguous: tuple[int, ...] = ()


class LaunchMode(StrEnum):
    """How calls run back to back."""

    LAUNCHED = "launched"
    """Each call is launched after the submission of the previous one."""
    QUEUED = "queued"
    """All calls are submitted before the first one starts."""
    GRAPH = "graph"
    """All calls are one CUDA graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare(Message):
    """Prepare a back-to-back burst.

    It starts with `Go`, or, if queued, when the stream gate opens.

    The gate's descriptor comes with the frame. The inputs change before the start. `late` and `mode` of the calls are
    ignored.

    Attributes:
        burst: The calls.
        launch_mode: How they run.
        number: Number of this use of the gate.
    """

    TYPE: ClassVar[str] = "prepare"
    burst: Burst
    launch_mode: LaunchMode
    number: int = 0

    def to_json(self) -> dict[str, Any]:
        return self.burst.to_json() | {"type": self.TYPE, "manner": self.launch_mode.value, "number": self.number}


@dataclass(frozen=True, slots=True, kw_only=True)
class Go(Message):
    """Run the prepared calls back to back.

    The reply is short, because the referee's clock runs.
    """

    TYPE: ClassVar[str] = "go"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collect(Message):
    """Reply with `BurstDone` for the prepared calls, after queued ones have ended."""

    TYPE: ClassVar[str] = "collect"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(Message):
    """Release the solution, the arena and their caches, and reply `Ready`.

    Then another solution can be loaded.

    Only for trusted code, in a process that never loads a submission.
    """

    TYPE: ClassVar[str] = "release"


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeCensus(Message):
    """Run the single call of `burst` and reply `CensusTaken` with its kernels.

    Attributes:
        burst: A burst of one call.
        marked: Do not trace; call cudaProfilerStart and cudaProfilerStop around the call, for an external profiler.
    """

    TYPE: ClassVar[str] = "take_census"
    burst: Burst
    marked: bool = False

    def to_json(self) -> dict[str, Any]:
        return self.burst.to_json() | {"type": self.TYPE, "marked": self.marked}


@dataclass(frozen=True, slots=True, kw_only=True)
class Locate(Message):
    """Find the source lines of `sites` and reply `Located`.

    A site is a module's path and an offset in it.

    For the symboliser process, never for a contestant.
    """

    TYPE: ClassVar[str] = "locate"
    sites: tuple[tuple[str, int], ...]


Request = Open | Attach | TimeEmpty | Load | Burst | Prepare | Go | Collect | Release | TakeCensus
