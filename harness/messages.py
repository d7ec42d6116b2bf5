"""What the referee and a contestant say to each other, as typed values over `wire` frames.

Pure; both sides of the trust boundary use it. Requests go from the referee to the contestant, replies come back.
Every `from_json` is strict about types and sizes, because the other side may be hostile; it raises `MessageError`.
A reply's contents are claims: parsing says that they are well-formed, never that they are true.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from harness.census import CensusTaken

MAX_ITEMS = 4096
"""Most calls, leaves, names or reports accepted in one reply."""

MAX_TEXT = 200_000
"""Longest text (a traceback) accepted in one reply; longer ones are cut by the sender."""

T = TypeVar("T")


class MessageError(Exception):
    """A frame whose contents are not the message that the protocol asks for."""


class CallMode(StrEnum):
    """How one call of a burst is made."""

    WARM = "warm"
    """Untimed in the end: brings code and clocks up. Made and answered like every other call."""
    COLD = "cold"
    """Timed on the device's clock with a cold cache."""
    LATENCY = "latency"
    """Timed on the host's clock from an idle device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A tensor's place in the arena. `dtype` is torch's name without the prefix (`float32`)."""

    offset: int
    shape: tuple[int, ...]
    dtype: str

    def to_json(self) -> list[Any]:
        return [self.offset, list(self.shape), self.dtype]

    @classmethod
    def from_json(cls, value: Any) -> Slot:
        offset, shape, dtype = _sequence(value, 3)
        return cls(offset=_int(offset), shape=_ints(shape), dtype=_text(dtype))


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a burst: where its inputs lie, where its outputs and its state go, and the generators' seed
    (None: they are left alone, since the reference draws nothing).

    `late` are words of the arena (place, value) to write in the call's stream before its clock starts.
    """

    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    state: tuple[Slot, ...]
    seed: int | None
    mode: CallMode
    late: tuple[tuple[int, int], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "inputs": [slot.to_json() for slot in self.inputs],
            "outputs": [slot.to_json() for slot in self.outputs],
            "state": [slot.to_json() for slot in self.state],
            "seed": self.seed,
            "mode": self.mode.value,
            "late": [list(pair) for pair in self.late],
        }

    @classmethod
    def from_json(cls, value: Any) -> Call:
        held = _mapping(value)
        return cls(
            inputs=_items(held, "inputs", Slot.from_json),
            outputs=_items(held, "outputs", Slot.from_json),
            state=_items(held, "state", Slot.from_json),
            seed=None if held.get("seed") is None else _int(held.get("seed")),
            mode=CallMode(_text(held.get("mode"))),
            late=_items(held, "late", _pair),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach:
    """Map the arena whose descriptor comes along. `host_runtime` is the folder of the host device's libraries.

    With `own_allocations` calls get their inputs as copies, each an allocation of its own: for tools that watch bounds.
    """

    nbytes: int
    device: str
    device_index: int
    checked: bool
    host_runtime: str | None
    own_allocations: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "attach",
            "nbytes": self.nbytes,
            "device": self.device,
            "device_index": self.device_index,
            "checked": self.checked,
            "host_runtime": self.host_runtime,
            "own_allocations": self.own_allocations,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Import the solution, construct `ModelNew`, and take over the reference's state where it differs.

    `init_tree` and `init_slots` describe the constructor's arguments; `state` maps names of the reference's state to
    slots holding their values; `modules` are the prebuilt extensions.
    """

    source: str
    filename: str
    modules: tuple[Mapping[str, Any], ...]
    init_tree: Mapping[str, Any]
    init_slots: tuple[Slot, ...]
    state: Mapping[str, Slot]
    seed: int

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "load",
            "source": self.source,
            "filename": self.filename,
            "modules": [dict(module) for module in self.modules],
            "init_tree": dict(self.init_tree),
            "init_slots": [slot.to_json() for slot in self.init_slots],
            "state": {name: slot.to_json() for name, slot in self.state.items()},
            "seed": self.seed,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Make these calls one after another and copy every output out as its window closes.

    `schedule` is the order in which the host device executes blocks and threads: 0 rising, 1 falling.
    `restore_state` asks that the model's state be as after loading before each call. `coerce_device` asks that
    outputs on another device be brought over inside the window.
    """

    calls: tuple[Call, ...]
    input_tree: Mapping[str, Any]
    state_names: tuple[str, ...]
    restore_state: bool
    coerce_device: bool
    schedule: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "burst",
            "calls": [call.to_json() for call in self.calls],
            "input_tree": dict(self.input_tree),
            "state_names": list(self.state_names),
            "restore_state": self.restore_state,
            "coerce_device": self.coerce_device,
            "schedule": self.schedule,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Burst:
        return cls(
            calls=_items(value, "calls", Call.from_json),
            input_tree=_mapping(value.get("input_tree")),
            state_names=_items(value, "state_names", _text),
            restore_state=_bool(value.get("restore_state")),
            coerce_device=_bool(value.get("coerce_device")),
            schedule=_int(value.get("schedule")),
        )


class Manner(StrEnum):
    """How calls are made without a pause between them."""

    LAUNCHED = "launched"
    """One by one, each launched as the one before was submitted."""
    QUEUED = "queued"
    """All submitted before the first begins."""
    GRAPH = "graph"
    """As one CUDA graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """Make ready for the calls of `burst`, which begin all at once: with `Go`, or, queued, as the gate opens, whose
    descriptor comes along, for its use `number`.

    The inputs change in between. The calls' `late` words and `mode` do not count.
    """

    burst: Burst
    manner: Manner
    number: int = 0

    def to_json(self) -> dict[str, Any]:
        return {**self.burst.to_json(), "type": "prepare", "manner": self.manner.value, "number": self.number}


@dataclass(frozen=True, slots=True, kw_only=True)
class Go:
    """Make the prepared calls, one after another without a pause. The reply is short: the referee's clock runs."""

    def to_json(self) -> dict[str, Any]:
        return {"type": "go"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Collect:
    """Say what the calls that were prepared have returned: a `BurstDone`. Queued ones are over by then."""

    def to_json(self) -> dict[str, Any]:
        return {"type": "collect"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeCensus:
    """Make the one call of `burst` and say which kernels it ran: a `CensusTaken`.

    With `marked` nothing is traced: the call stands between cudaProfilerStart and Stop, for a tool around the process.
    """

    burst: Burst
    marked: bool = False

    def to_json(self) -> dict[str, Any]:
        return {**self.burst.to_json(), "type": "take_census", "marked": self.marked}


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A claim about one output tensor: its exact Python type, shape, dtype and device, and its address."""

    type: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    address: int

    def to_json(self) -> list[Any]:
        return [self.type, list(self.shape), self.dtype, self.device, self.address]

    @classmethod
    def from_json(cls, value: Any) -> Leaf:
        type_, shape, dtype, device, address = _sequence(value, 5)
        return cls(
            type=_text(type_),
            shape=_ints(shape),
            dtype=_text(dtype),
            device=_text(device),
            address=_int(address),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallClaim:
    """What the contestant says of one call: its times (seconds) and what it returned."""

    device_s: float
    window_s: float
    tree: Mapping[str, Any]
    leaves: tuple[Leaf, ...]
    state_missing: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "device_s": self.device_s,
            "window_s": self.window_s,
            "tree": dict(self.tree),
            "leaves": [leaf.to_json() for leaf in self.leaves],
            "state_missing": list(self.state_missing),
        }

    @classmethod
    def from_json(cls, value: Any) -> CallClaim:
        held = _mapping(value)
        return cls(
            device_s=_float(held.get("device_s")),
            window_s=_float(held.get("window_s")),
            tree=_mapping(held.get("tree")),
            leaves=_items(held, "leaves", Leaf.from_json),
            state_missing=_items(held, "state_missing", _text),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """`ModelNew` stands. `unmatched` names the reference's state that it has no equal place for."""

    unmatched: tuple[str, ...]
    copied: tuple[str, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "loaded",
            "unmatched": list(self.unmatched),
            "copied": list(self.copied),
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Loaded:
        return cls(
            unmatched=_items(value, "unmatched", _text),
            copied=_items(value, "copied", _text),
            notes=_items(value, "notes", _text),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstDone:
    """All calls were made. `reports` are the findings of the host device's checks, claims like the rest.

    `peak_bytes` is the most device memory that torch's allocator held during the burst; None where there is no such.
    """

    claims: tuple[CallClaim, ...]
    reports: tuple[Mapping[str, Any], ...]
    peak_bytes: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "burst_done",
            "claims": [claim.to_json() for claim in self.claims],
            "reports": [dict(report) for report in self.reports],
            "peak_bytes": self.peak_bytes,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> BurstDone:
        peak = value.get("peak_bytes")
        return cls(
            claims=_items(value, "claims", CallClaim.from_json),
            reports=_items(value, "reports", _mapping),
            peak_bytes=None if peak is None else _count(peak),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """`Prepare` or `Go` is done. `refused` says why calls can't be made in the manner asked for, None otherwise."""

    refused: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"type": "ready", "refused": self.refused}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Ready:
        refused = value.get("refused")
        return cls(refused=None if refused is None else _text(refused))


class Stage(StrEnum):
    """Where in the contestant something went wrong."""

    ATTACH = "attach"
    IMPORT = "import"
    CONSTRUCT = "construct"
    CALL = "call"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """An exception ended a request. `kind` is the exception's class name, `trace` the traceback's text."""

    stage: Stage
    kind: str
    message: str
    trace: str
    call: int | None = None
    reports: tuple[Mapping[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "broken",
            "stage": self.stage.value,
            "kind": self.kind,
            "message": self.message[-MAX_TEXT:],
            "trace": self.trace[-MAX_TEXT:],
            "call": self.call,
            "reports": [dict(report) for report in self.reports],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Broken:
        call = value.get("call")
        return cls(
            stage=Stage(_text(value.get("stage"))),
            kind=_text(value.get("kind")),
            message=_text(value.get("message")),
            trace=_text(value.get("trace")),
            call=None if call is None else _int(call),
            reports=_items(value, "reports", _mapping),
        )


Request = Attach | Load | Burst | Prepare | Go | Collect | TakeCensus
Reply = Loaded | CensusTaken | BurstDone | Ready | Broken
_REPLIES: Mapping[str, Callable[[Mapping[str, Any]], Reply]] = {
    "loaded": Loaded.from_json,
    "census_taken": CensusTaken.from_json,
    "burst_done": BurstDone.from_json,
    "ready": Ready.from_json,
    "broken": Broken.from_json,
}


def parse_reply(message: Mapping[str, Any]) -> Reply:
    """The reply that a frame holds. Raises `MessageError` where it is none."""
    kind = message.get("type")
    parse = _REPLIES.get(kind) if isinstance(kind, str) else None
    if parse is None:
        raise MessageError(f"a reply of unknown type {str(kind)[:50]!r}")
    try:
        return parse(message)
    except ValueError as error:
        raise MessageError(str(error)) from error


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or len(value) > MAX_ITEMS:
        raise MessageError(f"an object was expected, not {type(value).__name__}")
    return value


def _sequence(value: Any, length: int) -> Sequence[Any]:
    if not isinstance(value, list) or len(value) != length:
        raise MessageError(f"a list of {length} was expected")
    return value


def _items(held: Mapping[str, Any], key: str, parse: Callable[[Any], T]) -> tuple[T, ...]:
    value = held.get(key)
    if not isinstance(value, list) or len(value) > MAX_ITEMS:
        raise MessageError(f"{key} must be a list of at most {MAX_ITEMS}")
    return tuple(parse(item) for item in value)


def _int(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 2**64:
        raise MessageError(f"an integer was expected, not {type(value).__name__}")
    return value


def _count(value: Any) -> int:
    if (number := _int(value)) < 0:
        raise MessageError(f"a number from 0 up was expected, not {number}")
    return number


def _pair(value: Any) -> tuple[int, int]:
    first, second = _sequence(value, 2)
    return _int(first), _int(second)


def _ints(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > 64:
        raise MessageError("a list of at most 64 integers was expected")
    return tuple(_int(item) for item in value)


def _float(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise MessageError(f"a finite number was expected, not {type(value).__name__}")
    return float(value)


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise MessageError(f"true or false was expected, not {type(value).__name__}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise MessageError(f"a text of at most {MAX_TEXT} characters was expected")
    return value
