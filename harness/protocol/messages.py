"""Messages between referee and contestant, as typed values of frames.

Both sides. The referee sends requests, the contestant replies. All contents of replies are claims: `parse_reply` checks
their form, never their truth. Of the requests only `Burst` is parsed, because the contestant may trust the referee.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, ClassVar, NamedTuple, Self, get_args

from msgspec import Meta

from harness.protocol.fields import (
    MAX_ITEMS,
    MAX_TRACE,
    Count,
    Integer,
    Integers,
    Message,
    MessageError,
    Object,
    Objects,
    Seconds,
    Text,
    Texts,
    check_seconds,
    convert,
    reports_to_keep,
)
from harness.protocol.kernel_rows import CensusTaken


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
        strides: Strides in elements; None if the tensor is contiguous.
    """

    offset: Integer
    shape: Integers
    dtype: Text
    strides: Integers | None = None

    def to_json(self) -> list[Any]:
        return [self.offset, list(self.shape), self.dtype, None if self.strides is None else list(self.strides)]

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
        records: Follow loaded modules from now on, so that `RecordLaunches` works.
    """

    TYPE: ClassVar[str] = "open"
    device: str
    device_index: int
    checked: bool
    host_runtime: str | None
    records: bool = False


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


class Keep(StrEnum):
    """What `Load` keeps of an earlier `Load` of the same solution, at other sizes."""

    NOTHING = "nothing"
    """Import and construct."""
    MODULE = "module"
    """Construct again, with other arguments."""
    MODEL = "model"
    """Take the same model, with its initial state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients(Message):
    """The gradients that one call returns.

    Attributes:
        inputs: Numbers of the inputs, among the tensors of the forward's arguments.
        parameters: Names of the reference's parameters.
        outputs: Numbers of the forward's output tensors that have an incoming gradient.
    """

    inputs: tuple[int, ...]
    parameters: tuple[str, ...]
    outputs: tuple[int, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Keys of the gradients in a call's result."""
        inputs = (f"grad of input {number}" for number in self.inputs)
        return (*inputs, *(f"grad of {name}" for name in self.parameters))


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(Message):
    """Import the solution, construct `ModelNew`, match the reference's state.

    The model stays as its constructor left it, until `TakeState`.

    Attributes:
        source: The solution's source.
        filename: Its file name, for tracebacks.
        modules: Its built extensions.
        init_tree: Description of the constructor's arguments.
        init_slots: Places of the arguments' tensors.
        state: Name of the reference's state -> place of its value.
        seed: Seed of the random generators.
        drawn: Names in `state` that are plain attributes, neither parameters nor buffers.
        dtype: torch's name of the type for the model's floating-point state; None leaves it.
        gradients: What each call differentiates; None for calls of the forward alone.
        keep: What to keep of an earlier `Load`.
    """

    TYPE: ClassVar[str] = "load"
    source: str
    filename: str
    modules: tuple[Mapping[str, Any], ...]
    init_tree: Mapping[str, Any]
    init_slots: tuple[Region, ...]
    state: Mapping[str, Region]
    seed: int
    drawn: tuple[str, ...] = ()
    dtype: str | None = None
    gradients: Gradients | None = None
    keep: Keep = Keep.NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeState(Message):
    """Copy the reference's values to state that differs; reply `Loaded`.

    The values are in the places that `Load` named.
    """

    TYPE: ClassVar[str] = "take_state"


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
class RecordLaunches(Message):
    """Run the single call of `burst`, record what it submits, reply `Recorded`."""

    TYPE: ClassVar[str] = "record_launches"
    burst: Burst

    def to_json(self) -> dict[str, Any]:
        return self.burst.to_json() | {"type": self.TYPE}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportLaunches(Message):
    """Copy the recorded call's memory and plan out, and reply `Ready`.

    Two descriptors come with the frame: GPU memory as of an arena, and host memory of `plan_bytes`.

    Attributes:
        memory_bytes: Size of the GPU memory.
        plan_bytes: Size of the plan, as `Recorded` says.
    """

    TYPE: ClassVar[str] = "export_launches"
    memory_bytes: int
    plan_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadLaunches(Message):
    """Take a recorded call for the model, and reply `Ready`; instead of `Load`.

    The same descriptors come with the frame as with `ExportLaunches`.

    Attributes:
        memory_bytes: Size of the GPU memory.
        plan_bytes: Size of the plan.
    """

    TYPE: ClassVar[str] = "load_launches"
    memory_bytes: int
    plan_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Locate(Message):
    """Find the source lines of `sites` and reply `Located`.

    A site is a module's path and an offset in it.

    For the symboliser process, never for a contestant.
    """

    TYPE: ClassVar[str] = "locate"
    sites: tuple[tuple[str, int], ...]


Request = (
    Open
    | Attach
    | TimeEmpty
    | Load
    | TakeState
    | Burst
    | Prepare
    | Go
    | Collect
    | Release
    | TakeCensus
    | RecordLaunches
    | ExportLaunches
    | LoadLaunches
)


class OutputFields(NamedTuple):
    """A claim about one output tensor.

    Attributes:
        type: Exact Python type.
        shape: Shape.
        dtype: torch's name of the dtype.
        device: Device.
        address: Address of its memory.
        contiguous: Whether the returned tensor was contiguous.
    """

    type: Text
    shape: Integers
    dtype: Text
    device: Text
    address: Integer
    contiguous: bool

    def to_json(self) -> list[Any]:
        return [self.type, list(self.shape), *self[2:]]


class OutputClaim(OutputFields):
    """A claim to send; in a received one each of the six values must be there."""

    __slots__ = ()

    def __new__(cls, *, contiguous: bool = True, **fields: Any) -> OutputClaim:
        return super().__new__(cls, contiguous=contiguous, **fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallClaim(Message):
    """A claim about one call.

    Attributes:
        device_s: Time on the device's clock, in seconds.
        window_s: Time on the host's clock, in seconds.
        tree: Description of the output's structure.
        leaves: Claims about the output tensors.
        state_missing: Names of the reference's state that the model does not have.
        reshaped: Number and shape of each input whose shape the call changed.
        forward_s: Share of `device_s` before the backward began; None if there is none, or if it was not measured.
    """

    device_s: Seconds
    window_s: Seconds
    tree: Object
    leaves: Annotated[tuple[OutputFields, ...], Meta(max_length=MAX_ITEMS)]
    state_missing: Texts
    reshaped: Annotated[tuple[tuple[Count, Integers], ...], Meta(max_length=MAX_ITEMS)] = ()
    forward_s: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Message):
    """`ModelNew` is constructed, or took over the reference's values.

    Attributes:
        unmatched: Names of the reference's state without a place in the solution.
        copied: Names of the state that took over the reference's values.
        notes: Remarks for the record.
        differing: Names of the state that has a place with other values.
    """

    TYPE: ClassVar[str] = "loaded"
    unmatched: Texts
    copied: Texts
    notes: Texts
    differing: Texts = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyTimed(Message):
    """Device seconds of nearly empty calls with few and with many launches.

    See `harness.devices.empty_kernel`.
    """

    TYPE: ClassVar[str] = "empty_timed"
    few_s: Seconds
    many_s: Seconds

    def _checked(self) -> Self:
        check_seconds(self.few_s, self.many_s)
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstDone(Message):
    """All calls of a burst are done.

    Attributes:
        claims: Claims about the calls.
        reports: Findings of the host device's checks.
        peak_bytes: Peak device memory of torch's allocator during the burst; None if it has no allocator.
        held_bytes: Device memory that a call's forward took and still held as the backward began; None without one.
    """

    TYPE: ClassVar[str] = "burst_done"
    claims: Annotated[tuple[CallClaim, ...], Meta(max_length=MAX_ITEMS)]
    reports: Objects
    peak_bytes: Count | None = None
    held_bytes: Count | None = None

    def _checked(self) -> Self:
        for claim in self.claims:
            check_seconds(claim.device_s, claim.window_s, claim.forward_s or 0.0)
        return replace(self, reports=reports_to_keep(self.reports))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(Message):
    """A request without other results is done.

    `refused` says why the requested launch mode is impossible; it may be None.
    """

    TYPE: ClassVar[str] = "ready"
    refused: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded(Message):
    """A call was recorded, or `lack` says why another process can't launch it.

    Attributes:
        memory_bytes: GPU memory that the call's work uses, besides the arena.
        plan_bytes: Size of the plan, with the kernels' images.
        lack: Why there is no recording; empty if there is one.
    """

    TYPE: ClassVar[str] = "recorded"
    memory_bytes: Count
    plan_bytes: Count
    lack: Text = ""


class Stage(StrEnum):
    """Step of the contestant that failed."""

    ATTACH = "attach"
    IMPORT = "import"
    CONSTRUCT = "construct"
    CALL = "call"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken(Message):
    """An exception ended a request.

    Attributes:
        stage: The step that failed.
        kind: Class name of the exception.
        message: Its message.
        trace: Text of the traceback.
        call: Number of the failed call in the burst, or None.
        reports: Findings of the host device's checks before the exception.
    """

    TYPE: ClassVar[str] = "broken"
    stage: Stage
    kind: Text
    message: Text
    trace: Text
    call: Integer | None = None
    reports: Objects = ()

    def to_json(self) -> dict[str, Any]:
        return Message.to_json(self) | {"message": self.message[:MAX_TRACE], "trace": self.trace[-MAX_TRACE:]}

    def _checked(self) -> Self:
        return replace(self, reports=reports_to_keep(self.reports))


@dataclass(frozen=True, slots=True, kw_only=True)
class Located(Message):
    """File and line of each requested site, in order; None if unknown.

    Contestants never send it.
    """

    TYPE: ClassVar[str] = "located"
    places: Annotated[tuple[tuple[Text, Count] | None, ...], Meta(max_length=MAX_ITEMS)]


Reply = Loaded | EmptyTimed | CensusTaken | Recorded | BurstDone | Ready | Broken
_REPLIES: Mapping[str, type[Reply]] = {kind.TYPE: kind for kind in get_args(Reply)}


def parse_reply(message: Mapping[str, Any]) -> Reply:
    """Parse the reply in a frame.

    Args:
        message: The frame's JSON object.

    Returns:
        The reply.

    Raises:
        MessageError: The frame is not a valid reply.
    """
    kind = message.get("type")
    reply = _REPLIES.get(kind) if isinstance(kind, str) else None
    if reply is None:
        raise MessageError(f"a reply of unknown type {str(kind)[:50]!r}")
    return reply.from_json(message)
