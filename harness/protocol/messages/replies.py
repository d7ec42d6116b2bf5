"""Replies of a contestant.

Both sides. All contents are claims: parsing checks their form, never their truth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, ClassVar, NamedTuple, Self, get_args

from msgspec import Meta

from harness.protocol.fields import (
    MAX_ITEMS,
    MAX_TEXT,
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
    reports_to_keep,
)
from harness.protocol.kernel_rows import CensusTaken


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
    """A claim to send. Received ones have no default: each of the six values must be there."""

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
    """

    device_s: Seconds
    window_s: Seconds
    tree: Object
    leaves: Annotated[tuple[OutputFields, ...], Meta(max_length=MAX_ITEMS)]
    state_missing: Texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Message):
    """`ModelNew` is constructed.

    Attributes:
        unmatched: Names of the reference's state without an equal place in the solution.
        copied: Names of the state that took over the reference's values.
        notes: Remarks for the record.
    """

    TYPE: ClassVar[str] = "loaded"
    unmatched: Texts
    copied: Texts
    notes: Texts


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
    """

    TYPE: ClassVar[str] = "burst_done"
    claims: Annotated[tuple[CallClaim, ...], Meta(max_length=MAX_ITEMS)]
    reports: Objects
    peak_bytes: Count | None = None

    def _checked(self) -> Self:
        for claim in self.claims:
            check_seconds(claim.device_s, claim.window_s)
        return replace(self, reports=reports_to_keep(self.reports))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(Message):
    """A request without other results is done.

    `refused` says why the requested launch mode is impossible; it may be None.
    """

    TYPE: ClassVar[str] = "ready"
    refused: Text | None = None


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
        return Message.to_json(self) | {"message": self.message[-MAX_TEXT:], "trace": self.trace[-MAX_TEXT:]}

    def _checked(self) -> Self:
        return replace(self, reports=reports_to_keep(self.reports))


@dataclass(frozen=True, slots=True, kw_only=True)
class Located(Message):
    """File and line of each requested site, in order; None if unknown.

    Contestants never send it.
    """

    TYPE: ClassVar[str] = "located"
    places: Annotated[tuple[tuple[Text, Count] | None, ...], Meta(max_length=MAX_ITEMS)]


Reply = Loaded | EmptyTimed | CensusTaken | BurstDone | Ready | Broken
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
