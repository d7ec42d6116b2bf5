"""From what a file or the command line says to one setting's value: texts, paths, numbers, sizes, names.

Imports the vocabulary only; trusted side. A parser returns the value, or raises `ValueError` saying what would be
right, in words that follow "must be". What is given may be of any type that YAML knows.
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
"""The least host memory that a contestant may be given."""

MOST_BYTES = 2**63 - 1
"""More than the system can be asked for, or any disk holds."""

MOST_SECONDS = 7 * 24 * 3600.0
"""Nobody waits longer for one solution; the system calls that wait count milliseconds in 32 bits, 24 days."""

SHARD = re.compile(r"([1-9]\d*)/([1-9]\d*)")
"""`2/8`: the second of eight parts."""

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""A run id is one folder name, safe on every file system and in a shell."""


def optional(parse: Callable[[object], T]) -> Callable[[object], T | None]:
    """A parser that takes None for itself."""
    return lambda value: None if value is None else parse(value)


def parse_path(value: object) -> Path:
    """A path, `~` expanded."""
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError("a path")
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise ValueError("a path whose ~ names a user of this machine") from None


def parse_paths(value: object) -> tuple[Path, ...]:
    """One path or a list of them."""
    items = value if isinstance(value, (list, tuple)) else [value]
    return tuple(parse_path(item) for item in items)


def parse_text(value: object) -> str:
    """A text that is not blank."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text that is not empty")
    return value


def parse_flag(value: object) -> bool:
    """A boolean, and nothing that only passes for one."""
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def parse_run_id(value: object) -> str:
    """What `RUN_ID` matches."""
    if not isinstance(value, str) or not RUN_ID.fullmatch(value):
        raise ValueError("a folder name of 1 to 100 letters, digits, '.', '_' and '-', the first a letter or digit")
    return value


def count_up_to(most: int) -> Callable[[object], int]:
    """What is beyond `most` is a slip of the keyboard: nothing would end, or fit in memory."""

    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise ValueError(f"a whole number from 1 to {most}")
        return value

    return parse


def parse_positive(value: object) -> float:
    """A finite number above 0."""
    wanted = "a number above 0"
    if isinstance(value, str) and re.fullmatch(r"\d+(\.\d*)?[eE]-?\d+", value):
        raise ValueError(f"{wanted} (YAML takes {value} for text: write {float(value)!r})")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(wanted)
    try:
        number = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        raise ValueError(wanted) from None
    if not math.isfinite(number) or number <= 0:
        raise ValueError(wanted)
    return number


def parse_seconds(value: object) -> float:
    """A number above 0 and up to `MOST_SECONDS`."""
    number = parse_positive(value)
    if number > MOST_SECONDS:
        raise ValueError(f"a number of seconds above 0, at most {MOST_SECONDS:.0f} (a week)")
    return number


def parse_fraction(value: object) -> float:
    """A number above 0 and below 1."""
    number = parse_positive(value)
    if number >= 1:
        raise ValueError("a number between 0 and 1")
    return number


def parse_bytes(value: object) -> int:
    """A number of bytes, as it is or with a unit."""
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
    """Bytes of host memory in which torch can be loaded."""
    held = parse_bytes(value)
    if held < LEAST_MEMORY_BYTES:
        raise ValueError(f"at least {LEAST_MEMORY_BYTES // 1024**2} MiB, below which torch does not load")
    return held


def parse_shard(value: object) -> str:
    """Part i of n, as `i/n`."""
    match = SHARD.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match[1]) > int(match[2]):
        raise ValueError("i/n with i from 1 to n, such as 2/8")
    return match[0]


def nearest(wanted: str, names: Sequence[str]) -> str:
    """` (nearest: NAME)`: the shortest that begins with what was typed, else holds it, else is spelt like it."""
    typed = wanted.strip().lower()
    rules = (lambda name: name.startswith(typed), lambda name: typed in name) if len(typed) >= 3 else ()
    for rule in rules:
        if found := sorted(filter(rule, names), key=len):
            return f" (nearest: {found[0]})"
    near = difflib.get_close_matches(typed, names, n=1)
    return f" (nearest: {near[0]})" if near else ""


def one_of(*names: str) -> Callable[[object], str]:
    """A parser of one of these words."""

    def parse(value: object) -> str:
        # YAML 1.1 reads a bare `off` as false, and `sandbox: off` means the word.
        held = "off" if value is False and "off" in names else value
        if not isinstance(held, str) or held not in names:
            raise ValueError("one of " + ", ".join(names) + nearest(str(held), names))
        return held

    return parse


def parse_precision(value: object) -> PrecisionClass:
    """A precision class by its name."""
    return PrecisionClass(one_of(*(item.value for item in PrecisionClass))(value))


def parse_baselines(value: object) -> tuple[Baseline, ...]:
    """Baselines by name, in a list or in one text with commas; `max-autotune` is short for `compile_max_autotune`.

    Raises `ValueError` saying what would be right.
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
