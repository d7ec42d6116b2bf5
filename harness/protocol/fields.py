"""Types of fields in messages, and how messages become JSON and are read strictly.

Both sides. The other side may be hostile: `from_json` checks types, lengths and ranges, and raises `MessageError`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self, TypeVar

import msgspec
from msgspec import Meta

MAX_ITEMS = 4096
"""Most calls, leaves, names or reports in one reply."""

MAX_TEXT = 200_000
"""Longest text (a traceback) in one reply, in characters; the sender shortens longer ones."""

MAX_TRACE = 20_000
"""Most characters of an exception's message, and of its trace, that a contestant sends."""

MAX_REPORTS = 128
"""Most findings of the host device's checks to keep from one reply, because records contain them."""

MAX_REPORT_FIELDS = 32
MAX_REPORT_TEXT = 300
"""Most characters of a text in a finding; names of template kernels can be longer."""

MAX_SECONDS = 1e6
LEAST_SECONDS = 1e-9
"""Smallest positive duration in seconds: no clock of timed calls resolves less than 1 ns."""

Integer = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Integers = Annotated[tuple[Integer, ...], Meta(max_length=64)]
Seconds = Annotated[float, Meta(ge=-MAX_SECONDS, le=MAX_SECONDS)]
"""A claimed duration in seconds.

Negative durations and 0 are accepted here; the rules on claims refuse them later. Durations out of bounds are
rejected, because ratios and sums of them could overflow; `check_seconds` rejects those too close to 0.
"""
Text = Annotated[str, Meta(max_length=MAX_TEXT)]
Texts = Annotated[tuple[Text, ...], Meta(max_length=MAX_ITEMS)]
Object = Annotated[Mapping[str, Any], Meta(max_length=MAX_ITEMS)]
Objects = Annotated[tuple[Object, ...], Meta(max_length=MAX_ITEMS)]

T = TypeVar("T")


class MessageError(Exception):
    """A frame does not contain the message that the protocol expects."""


@dataclass(frozen=True, slots=True)
class Message:
    """Base of the dataclasses that are sent as JSON objects.

    Attributes:
        TYPE: Value of the key `type`; empty for parts of messages.
    """

    TYPE: ClassVar[str] = ""

    def to_json(self) -> dict[str, Any]:
        names: tuple[str, ...] = self.__slots__
        value = {name: _plain(getattr(self, name)) for name in names}
        return {"type": self.TYPE, **value} if self.TYPE else value

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Parse the message.

        Raises:
            MessageError: A field has another type, length or range.
        """
        message = convert(value, cls)
        # A default is for the sender; a reader takes only None for a field that is not there.
        absent = [item.name for item in fields(cls) if item.default is not None and item.name not in value]
        if absent:
            raise MessageError(f"no {', '.join(absent)} in {cls.__name__}")
        return message._checked()

    def _checked(self) -> Self:
        """Check what annotations can't say, and shorten what records contain."""
        return self


_SCALARS = frozenset({str, int, float, bool, type(None)})


def _plain(value: Any) -> Any:
    """Return a value of a field as JSON."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is tuple:
        return [_plain(item) for item in value]
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, dict):
        return {name: item.to_json() if hasattr(item, "to_json") else item for name, item in value.items()}
    return value.to_json()


def convert(value: object, kind: type[T]) -> T:
    """Read a JSON value as a `kind`; raise `MessageError` if it is none."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise MessageError(str(error)) from error


def check_seconds(*durations: float) -> None:
    """Raise `MessageError` for durations below `LEAST_SECONDS` that are not 0."""
    for duration in durations:
        if 0.0 < abs(duration) < LEAST_SECONDS:
            raise MessageError(f"expected a duration of 1 ns to 1e6 s, not {duration:.3g} s")


def reports_to_keep(reports: Iterable[object]) -> tuple[dict[str, Any], ...]:
    """Parse findings; return the first `MAX_REPORTS` of them."""
    return tuple(report(item) for item in reports)[:MAX_REPORTS]


def report(value: object) -> dict[str, Any]:
    """Parse one finding: numbers, places (lists of integers) and texts by name.

    Args:
        value: The JSON value.

    Returns:
        The finding, with texts shortened to `MAX_REPORT_TEXT` characters.

    Raises:
        MessageError: A type or size is wrong.
    """
    finding = convert(value, _Finding)
    for item in finding.values():
        # Unsigned numbers of 64 bits (an index of -1, as the host device sees it) are more than msgspec can bound.
        if any(isinstance(part, int) and abs(part) >= 2**64 for part in (item if isinstance(item, list) else [item])):
            raise MessageError("expected an integer of at most 64 bits")
    return {
        name[:MAX_REPORT_TEXT]: item[:MAX_REPORT_TEXT] if isinstance(item, str) else item
        for name, item in finding.items()
    }


_Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
_Finding: Any = Annotated[
    dict[str, bool | int | _Finite | Text | Annotated[list[int], Meta(max_length=64)] | None],
    Meta(max_length=MAX_REPORT_FIELDS),
]
