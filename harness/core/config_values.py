"""Parsers of settings: paths, texts, numbers, sizes, names.

Trusted side. A parser takes a value of any type that YAML knows. It returns the setting, or raises `ValueError` with
a text that says what is valid and fits behind "must be".
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from harness.core.choices import Baseline, PrecisionClass

T = TypeVar("T")

LEAST_MEMORY_BYTES = 256 * 1024**2
"""Least memory limit of a contestant, in bytes: torch does not load with less."""

MOST_BYTES = 2**63 - 1
"""Largest size in bytes that system calls take."""

MOST_SECONDS = 7 * 24 * 3600.0
"""Longest timeout: one week. System calls that wait count milliseconds in 32 bits, at most 24 days."""

SHARD = re.compile(r"([1-9]\d*)/([1-9]\d*)")
"""`2/8`: the second of eight parts."""

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""A run id is one folder name, safe on every file system and in a shell."""


def optional(parse: Callable[[object], T]) -> Callable[[object], T | None]:
    """Return a parser that accepts None, too."""
    return lambda value: None if value is None else parse(value)


def parse_path(value: object) -> Path:
    """Parse a path and expand `~`."""
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError("a path")
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise ValueError("a path whose ~user exists on this machine") from None


def parse_paths(value: object) -> tuple[Path, ...]:
    """Parse one path or a list of paths."""
    items = value if isinstance(value, (list, tuple)) else [value]
    return tuple(parse_path(item) for item in items)


def parse_text(value: object) -> str:
    """Parse a text that is not blank."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a non-empty text")
    return value


def parse_flag(value: object) -> bool:
    """Parse a boolean; 0, 1 and texts are rejected."""
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def parse_run_id(value: object) -> str:
    """Parse a run id by `RUN_ID`."""
    if not isinstance(value, str) or not RUN_ID.fullmatch(value):
        raise ValueError("a folder name of 1 to 100 letters, digits, '.', '_' and '-', the first a letter or digit")
    return value


def count_up_to(most: int, least: int = 1) -> Callable[[object], int]:
    """Return a parser of whole numbers from `least` to `most`.

    A larger number is a typing error: the run would never finish, or not fit in memory.
    """

    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return value

    return parse


def parse_positive(value: object) -> float:
    """Parse a finite number above 0."""
    wanted = "a number above 0"
    if isinstance(value, str) and re.fullmatch(r"\d+(\.\d*)?[eE]-?\d+", value):
        raise ValueError(f"{wanted} (YAML reads {value} as text: write {float(value)!r})")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(wanted)
    try:
        number = float(value)
    except OverflowError:  # a whole number with hundreds of digits
        raise ValueError(wanted) from None
    if not math.isfinite(number) or number <= 0:
        raise ValueError(wanted)
    return number


def parse_seconds(value: object) -> float:
    """Parse seconds: a number above 0, at most `MOST_SECONDS`."""
    number = parse_positive(value)
    if number > MOST_SECONDS:
        raise ValueError(f"a number of seconds above 0, at most {MOST_SECONDS:.0f} (a week)")
    return number


def parse_fraction(value: object) -> float:
    """Parse a number above 0 and below 1."""
    number = parse_positive(value)
    if number >= 1:
        raise ValueError("a number between 0 and 1")
    return number


def parse_bytes(value: object) -> int:
    """Parse a number of bytes, with or without a unit (`8GiB`, `500MB`)."""
    wanted = "a number of bytes, such as 8589934592 or 8GiB"
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d{1,30}(?:\.\d{1,30})?)\s*([KMGT]i?B|B)?\s*", value)
        if match is None:
            raise ValueError(wanted)
        unit = match[2] or "B"
        scale = (1024 if "i" in unit else 1000) ** "BKMGT".index(unit[0])
        value = int(float(match[1]) * scale)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_BYTES:
        raise ValueError(wanted)
    return value


def parse_memory(value: object) -> int:
    """Parse bytes of host memory, at least `LEAST_MEMORY_BYTES`."""
    held = parse_bytes(value)
    if held < LEAST_MEMORY_BYTES:
        raise ValueError(f"at least {LEAST_MEMORY_BYTES // 1024**2} MiB (torch does not load with less)")
    return held


def parse_shard(value: object) -> str:
    """Parse `i/n`, part i of n."""
    match = SHARD.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match[1]) > int(match[2]):
        raise ValueError("i/n with i from 1 to n, such as 2/8")
    return match[0]


def nearest(wanted: str, names: Sequence[str]) -> str:
    """Return ` (nearest: NAME)` for a mistyped name, or an empty text.

    It takes the shortest name that begins with `wanted`, or the shortest that contains it, or the most similar one.
    """
    typed = wanted.strip().lower()
    rules = (lambda name: name.startswith(typed), lambda name: typed in name) if len(typed) >= 3 else ()
    for rule in rules:
        if found := sorted(filter(rule, names), key=len):
            return f" (nearest: {found[0]})"
    near = difflib.get_close_matches(typed, names, n=1)
    return f" (nearest: {near[0]})" if near else ""


def one_of(*names: str) -> Callable[[object], str]:
    """Return a parser of one of these words."""

    def parse(value: object) -> str:
        # YAML 1.1 reads a bare `off` as false, but `sandbox: off` means the word.
        held = "off" if value is False and "off" in names else value
        if not isinstance(held, str) or held not in names:
            raise ValueError("one of " + ", ".join(names) + nearest(str(held), names))
        return held

    return parse


def parse_precision(value: object) -> PrecisionClass:
    """Parse a precision class by its name."""
    return PrecisionClass(one_of(*(item.value for item in PrecisionClass))(value))


def parse_baselines(value: object) -> tuple[Baseline, ...]:
    """Parse baselines: a list of names, or one text with commas.

    `max-autotune` is short for `compile_max_autotune`.
    """
    items = value.split(",") if isinstance(value, str) else value
    known = [item.value for item in Baseline]
    wanted = "one or several of " + ", ".join(known)
    if not isinstance(items, (list, tuple)) or not items:
        raise ValueError(wanted)
    found = []
    for item in items:
        name = item.strip().replace("-", "_") if isinstance(item, str) else ""
        name = f"compile_{name}" if name.startswith("max_autotune") else name
        if name not in known:
            raise ValueError(wanted + nearest(name, known))
        found.append(Baseline(name))
    if len(set(found)) != len(found):
        raise ValueError(f"{wanted}, each once")
    return tuple(found)
