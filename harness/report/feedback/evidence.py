"""Reading a record's inner values defensively: they may come from an older harness, another tool, or a contestant.

Pure; imports nothing of the harness. A value of another type than asked for is as good as absent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def mapping(held: Any, *path: str) -> Mapping[str, Any]:
    """The mapping at `path` inside `held`; empty where there is none."""
    for key in path:
        held = held.get(key) if isinstance(held, Mapping) else None
    return held if isinstance(held, Mapping) else {}


def rows(held: Any, *path: str) -> list[Mapping[str, Any]]:
    """The mappings in the list at `path`."""
    inner = mapping(held, *path[:-1]).get(path[-1])
    return [row for row in inner if isinstance(row, Mapping)] if isinstance(inner, list | tuple) else []


def number(held: Mapping[str, Any], key: str) -> float | None:
    """A finite number, else None."""
    value = held.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def whole(held: Mapping[str, Any], key: str) -> int | None:
    """A whole number, else None."""
    value = held.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text(held: Mapping[str, Any], key: str) -> str:
    """A text, else the empty one."""
    value = held.get(key)
    return value if isinstance(value, str) else ""
