"""Reading the fields of a message, strictly: of the type asked for, and of a size that can be, or `MessageError`.

Pure; imports nothing of the harness. The other side may be hostile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

MAX_ITEMS = 4096
"""Most calls, leaves, names or reports accepted in one reply."""

MAX_TEXT = 200_000
"""Longest text (a traceback) accepted in one reply; longer ones are cut by the sender."""

MAX_REPORTS = 128
"""Most findings of the host device's checks that are kept of one reply; records hold them."""

MAX_REPORT_FIELDS = 32
MAX_REPORT_TEXT = 300
"""Characters that are kept of a text in a finding: names of kernels made from templates can be longer."""

MAX_SECONDS = 1e6
LEAST_SECONDS = 1e-9
"""No clock that times calls tells less than a nanosecond from nothing."""

T = TypeVar("T")


class MessageError(Exception):
    """A frame whose contents are not the message that the protocol asks for."""


def mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or len(value) > MAX_ITEMS:
        raise MessageError(f"an object was expected, not {type(value).__name__}")
    return value


def sequence(value: Any, length: int) -> Sequence[Any]:
    if not isinstance(value, list) or len(value) != length:
        raise MessageError(f"a list of {length} was expected")
    return value


def items(held: Mapping[str, Any], key: str, parse: Callable[[Any], T]) -> tuple[T, ...]:
    value = held.get(key)
    if not isinstance(value, list) or len(value) > MAX_ITEMS:
        raise MessageError(f"{key} must be a list of at most {MAX_ITEMS}")
    return tuple(parse(item) for item in value)


def integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 2**64:
        raise MessageError(f"an integer was expected, not {type(value).__name__}")
    return value


def count(value: Any) -> int:
    if (number := integer(value)) < 0:
        raise MessageError(f"a number from 0 up was expected, not {number}")
    return number


def pair(value: Any) -> tuple[int, int]:
    first, second = sequence(value, 2)
    return integer(first), integer(second)


def integers(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > 64:
        raise MessageError("a list of at most 64 integers was expected")
    return tuple(integer(item) for item in value)


def number(value: Any) -> float:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(held := float(value)):
            return held
    except OverflowError:  # an integer of some hundred digits
        pass
    raise MessageError(f"a finite number was expected, not {type(value).__name__}")


def seconds(value: Any) -> float:
    """A duration that somebody may claim. One that is negative or nothing is a claim too, for the rules on claims to
    refuse; one beyond these bounds is a number that ratios and sums of it need not hold any more.
    """
    if abs(held := number(value)) > MAX_SECONDS or 0.0 < abs(held) < LEAST_SECONDS:
        raise MessageError(f"a duration was expected, not {held:.3g} s")
    return held


def boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise MessageError(f"true or false was expected, not {type(value).__name__}")
    return value


def text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise MessageError(f"a text of at most {MAX_TEXT} characters was expected")
    return value


def reports(held: Mapping[str, Any], key: str) -> tuple[dict[str, Any], ...]:
    """The findings listed under `key`, cut to what a record has room for."""
    return items(held, key, report)[:MAX_REPORTS]


def report(value: Any) -> dict[str, Any]:
    """One finding: numbers, places (lists of integers) and texts by name."""
    found = mapping(value)
    if len(found) > MAX_REPORT_FIELDS:
        raise MessageError(f"a finding has at most {MAX_REPORT_FIELDS} fields, not {len(found)}")
    return {name[:MAX_REPORT_TEXT]: _reported(held) for name, held in found.items()}


def _reported(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return text(value)[:MAX_REPORT_TEXT]
    if isinstance(value, list):
        return list(integers(value))
    return integer(value) if isinstance(value, int) else number(value)
