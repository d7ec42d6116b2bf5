"""Parse fields of messages strictly; errors raise `MessageError`.

Both sides. The other side may be hostile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

MAX_ITEMS = 4096
"""Most calls, leaves, names or reports in one reply."""

MAX_TEXT = 200_000
"""Longest text (a traceback) in one reply, in characters; the sender shortens longer ones."""

MAX_REPORTS = 128
"""Most findings of the host device's checks to keep from one reply, because records contain them."""

MAX_REPORT_FIELDS = 32
MAX_REPORT_TEXT = 300
"""Most characters of a text in a finding; names of template kernels can be longer."""

MAX_SECONDS = 1e6
LEAST_SECONDS = 1e-9
"""Smallest positive duration in seconds: no clock of timed calls resolves less than 1 ns."""

T = TypeVar("T")


class MessageError(Exception):
    """A frame does not contain the message that the protocol expects."""


def mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or len(value) > MAX_ITEMS:
        raise MessageError(f"expected an object, not {type(value).__name__}")
    return value


def sequence(value: Any, length: int) -> Sequence[Any]:
    if not isinstance(value, list) or len(value) != length:
        raise MessageError(f"expected a list of {length}")
    return value


def items(held: Mapping[str, Any], key: str, parse: Callable[[Any], T]) -> tuple[T, ...]:
    value = held.get(key)
    if not isinstance(value, list) or len(value) > MAX_ITEMS:
        raise MessageError(f"{key} must be a list of at most {MAX_ITEMS}")
    return tuple(parse(item) for item in value)


def integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 2**64:
        raise MessageError(f"expected an integer, not {type(value).__name__}")
    return value


def count(value: Any) -> int:
    if (number := integer(value)) < 0:
        raise MessageError(f"expected a number of at least 0, not {number}")
    return number


def pair(value: Any) -> tuple[int, int]:
    first, second = sequence(value, 2)
    return integer(first), integer(second)


def integers(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > 64:
        raise MessageError("expected a list of at most 64 integers")
    return tuple(integer(item) for item in value)


def number(value: Any) -> float:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(held := float(value)):
            return held
    except OverflowError:  # an integer with hundreds of digits
        pass
    raise MessageError(f"expected a finite number, not {type(value).__name__}")


def seconds(value: Any) -> float:
    """Parse a claimed duration in seconds.

    Negative durations and 0 are accepted here; the rules on claims refuse them later. Durations out of bounds are
    rejected, because ratios and sums of them could overflow.
    """
    if abs(held := number(value)) > MAX_SECONDS or 0.0 < abs(held) < LEAST_SECONDS:
        raise MessageError(f"expected a duration of 1 ns to 1e6 s, not {held:.3g} s")
    return held


def boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise MessageError(f"expected true or false, not {type(value).__name__}")
    return value


def text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise MessageError(f"expected a text of at most {MAX_TEXT} characters")
    return value


def reports(held: Mapping[str, Any], key: str) -> tuple[dict[str, Any], ...]:
    """Parse the findings under `key`; at most `MAX_REPORTS` are kept."""
    return items(held, key, report)[:MAX_REPORTS]


def report(value: Any) -> dict[str, Any]:
    """Parse one finding: numbers, places (lists of integers) and texts by name.

    Args:
        value: The JSON value.

    Returns:
        The finding, with texts shortened to `MAX_REPORT_TEXT` characters.

    Raises:
        MessageError: A type or size is wrong.
    """
    found = mapping(value)
    if len(found) > MAX_REPORT_FIELDS:
        raise MessageError(f"a finding must have at most {MAX_REPORT_FIELDS} fields, not {len(found)}")
    return {name[:MAX_REPORT_TEXT]: _reported(held) for name, held in found.items()}


def _reported(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return text(value)[:MAX_REPORT_TEXT]
    if isinstance(value, list):
        return list(integers(value))
    return integer(value) if isinstance(value, int) else number(value)
