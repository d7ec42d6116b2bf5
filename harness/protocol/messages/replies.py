"""Replies of a contestant.

Both sides. All contents are claims: parsing checks their form, never their truth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from harness.protocol.kernel_rows import CensusTaken
from harness.protocol.messages.fields import (
    MAX_TEXT,
    MessageError,
    boolean,
    count,
    integer,
    integers,
    items,
    mapping,
    reports,
    seconds,
    sequence,
    text,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputClaim:
    """A claim about one output tensor.

    Attributes:
        type: Exact Python type.
        shape: Shape.
        dtype: torch's name of the dtype.
        device: Device.
        address: Address of its memory.
        contiguous: Whether the returned tensor was contiguous.
    """

    type: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    address: int
    contiguous: bool = True

    def to_json(self) -> list[Any]:
        return [self.type, list(self.shape), self.dtype, self.device, self.address, self.contiguous]

    @classmethod
    def from_json(cls, value: Any) -> OutputClaim:
        type_, shape, dtype, device, address, contiguous = sequence(value, 6)
        return cls(
            type=text(type_),
            shape=integers(shape),
            dtype=text(dtype),
            device=text(device),
            address=integer(address),
            contiguous=boolean(contiguous),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallClaim:
    """A claim about one call.

    Attributes:
        device_s: Time on the device's clock, in seconds.
        window_s: Time on the host's clock, in seconds.
        tree: Description of the output's structure.
        leaves: Claims about the output tensors.
        state_missing: Names of the reference's state that the model does not have.
    """

    device_s: float
    window_s: float
    tree: Mapping[str, Any]
    leaves: tuple[OutputClaim, ...]
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
        held = mapping(value)
        return cls(
            device_s=seconds(held.get("device_s")),
            window_s=seconds(held.get("window_s")),
            tree=mapping(held.get("tree")),
            leaves=items(held, "leaves", OutputClaim.from_json),
            state_missing=items(held, "state_missing", text),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """`ModelNew` is constructed.

    Attributes:
        unmatched: Names of the reference's state without an equal place in the solution.
        copied: Names of the state that took over the reference's values.
        notes: Remarks for the record.
    """

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
            unmatched=items(value, "unmatched", text),
            copied=items(value, "copied", text),
            notes=items(value, "notes", text),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyTimed:
    """Device seconds of nearly empty calls with few and with many launches.

    See `harness.devices.empty_kernel`.
    """

    few_s: float
    many_s: float

    def to_json(self) -> dict[str, Any]:
        return {"type": "empty_timed", "few_s": self.few_s, "many_s": self.many_s}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> EmptyTimed:
        return cls(few_s=seconds(value.get("few_s")), many_s=seconds(value.get("many_s")))


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstDone:
    """All calls of a burst are done.

    Attributes:
        claims: Claims about the calls.
        reports: Findings of the host device's checks.
        peak_bytes: Peak device memory of torch's allocator during the burst; None if it has no allocator.
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
            claims=items(value, "claims", CallClaim.from_json),
            reports=reports(value, "reports"),
            peak_bytes=None if peak is None else count(peak),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A request without other results is done.

    `refused` says why the requested launch mode is impossible; it may be None.
    """

    refused: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"type": "ready", "refused": self.refused}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Ready:
        refused = value.get("refused")
        return cls(refused=None if refused is None else text(refused))


class Stage(StrEnum):
    """Step of the contestant that failed."""

    ATTACH = "attach"
    IMPORT = "import"
    CONSTRUCT = "construct"
    CALL = "call"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """An exception ended a request.

    Attributes:
        stage: The step that failed.
        kind: Class name of the exception.
        message: Its message.
        trace: Text of the traceback.
        call: Number of the failed call in the burst, or None.
        reports: Findings of the host device's checks before the exception.
    """

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
            stage=Stage(text(value.get("stage"))),
            kind=text(value.get("kind")),
            message=text(value.get("message")),
            trace=text(value.get("trace")),
            call=None if call is None else integer(call),
            reports=reports(value, "reports"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """File and line of each requested site, in order; None if unknown.

    Contestants never send it.
    """

    places: tuple[tuple[str, int] | None, ...]

    def to_json(self) -> dict[str, Any]:
        return {"type": "located", "places": [None if place is None else list(place) for place in self.places]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Located:
        """Parse the reply.

        Raises:
            MessageError: A type or size is wrong.
        """
        return cls(places=items(value, "places", _place))


def _place(value: Any) -> tuple[str, int] | None:
    if value is None:
        return None
    file, line = sequence(value, 2)
    return text(file), count(line)


Reply = Loaded | EmptyTimed | CensusTaken | BurstDone | Ready | Broken
_REPLIES: Mapping[str, Callable[[Mapping[str, Any]], Reply]] = {
    "loaded": Loaded.from_json,
    "empty_timed": EmptyTimed.from_json,
    "census_taken": CensusTaken.from_json,
    "burst_done": BurstDone.from_json,
    "ready": Ready.from_json,
    "broken": Broken.from_json,
}


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
    parse = _REPLIES.get(kind) if isinstance(kind, str) else None
    if parse is None:
        raise MessageError(f"a reply of unknown type {str(kind)[:50]!r}")
    try:
        return parse(message)
    except ValueError as error:
        raise MessageError(str(error)) from error
