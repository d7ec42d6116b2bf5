"""Read values inside a record; a value of another type counts as absent.

Pure functions. The values may come from an older harness, another tool, or a contestant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def mapping(held: Any, *path: str) -> Mapping[str, Any]:
    """Return the mapping at `path` inside `held`, or an empty one."""
    for key in path:
        held = held.get(key) if isinstance(held, Mapping) else None
    return held if isinstance(held, Mapping) else {}


def rows(held: Any, *path: str) -> list[Mapping[str, Any]]:
    """Return the mappings in the list at `path`."""
    inner = mapping(held, *path[:-1]).get(path[-1])
    return [row for row in inner if isinstance(row, Mapping)] if isinstance(inner, list | tuple) else []


def number(held: Any, *path: str) -> float | None:
    """Return the finite number at `path`, else None."""
    return finite(mapping(held, *path[:-1]).get(path[-1]))


def finite(value: Any) -> float | None:
    """Return a finite number, else None."""
    plain = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if plain else None


def positive(value: Any) -> float | None:
    """Return a positive finite number, else None."""
    return held if (held := finite(value)) is not None and held > 0.0 else None


def whole(held: Any, *path: str) -> int | None:
    """Return the integer at `path`, else None."""
    value = mapping(held, *path[:-1]).get(path[-1])
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text(held: Any, *path: str) -> str:
    """Return the text at `path`, else the empty text."""
    value = mapping(held, *path[:-1]).get(path[-1])
    return value if isinstance(value, str) else ""
