"""Format numbers and untrusted text for the terminal, CSV and HTML.

Pure functions. The harness uses seconds and bytes everywhere; only this module scales them. A submission chooses file
names, exception messages and compiler output, so text goes through `line` or `block`: they escape everything that moves
a cursor, changes a colour, reverses a line or breaks it.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
import textwrap
import unicodedata
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

from harness.core import python_ast
from harness.core.status import Status

ABSENT = "-"
"""Stands for a missing value."""

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"})
"""Unicode categories of characters that are invisible or act on the terminal: controls, bidirectional overrides, zero
widths, surrogates, unassigned and private characters, line and paragraph separators."""


_ODD = re.compile(r"[^ -~]")
_ODD_IN_BLOCK = re.compile(r"[^ -~\n\t]")
"""Characters that may need an escape: all except printable ASCII. Most texts have none, which makes them fast."""


def line(text: object, limit: int = 300) -> str:
    """Return `text` as one line of at most `limit` characters, escaped."""
    shown = _ODD.sub(_escaped, str(text)[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def block(text: str, limit: int = 200_000) -> str:
    """Return `text` escaped, with its lines and tabs; cut the middle of a long one."""
    held = text.replace("\r\n", "\n")
    if len(held) > limit:
        half = limit // 2
        held = f"{held[:half]}\n[… {len(held) - 2 * half} characters left out …]\n{held[-half:]}"
    return _ODD_IN_BLOCK.sub(_escaped, held)


def _escaped(found: re.Match[str]) -> str:
    char = found[0]
    if unicodedata.category(char) in _HIDDEN:
        return char.encode("unicode_escape").decode("ascii")
    return char


def duration(seconds: float | None) -> str:
    """Format seconds: `6.90 µs`, `39.3 ms`, `2.69 s`, `2 min 03 s`, `1 h 02 min`."""
    if seconds is None:
        return ABSENT
    if seconds >= 3600:
        minutes = round(seconds / 60)
        return f"{minutes // 60} h {minutes % 60:02d} min"
    if seconds >= 120:
        whole = round(seconds)
        return f"{whole // 60} min {whole % 60:02d} s"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(seconds) >= 0.9995 * scale:
            return f"{digits(seconds / scale)} {unit}"
    return "0 s" if seconds == 0 else f"{digits(seconds / 1e-9)} ns"


def moment(unix_s: float) -> str:
    """Format a Unix time: `2026-11-21 11:45:01 UTC`; else the number."""
    try:
        return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return digits(unix_s)


def size(nbytes: float | None) -> str:
    """Format bytes: `512 B`, `1.50 KiB`, `8.00 GiB`."""
    if nbytes is None:
        return ABSENT
    for scale, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(nbytes) >= scale:
            return f"{digits(nbytes / scale)} {unit}"
    return f"{nbytes:.0f} B"


def count(number: float, unit: str) -> str:
    """Format a number with a decimal prefix: `12.3 Gflop`."""
    for scale, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= scale:
            return f"{digits(number / scale)} {prefix}{unit}"
    return f"{digits(number)} {unit}"


def shapes(number: int) -> str:
    """Format a number of secret shapes: `1 secret shape`, `4 secret shapes`."""
    return f"{number} secret shape{'' if number == 1 else 's'}"


def sizes(held: Any) -> str:
    """Format the sizes of a shape: `M=37, N=150`."""
    if not isinstance(held, Mapping):
        return ABSENT
    return ", ".join(f"{line(name, 60)}={line(value, 60)}" for name, value in held.items())


def digits(number: float, significant: int = 3) -> str:
    """Format with so many digits, without an exponent between 1e-4 and 1e6."""
    if number == 0 or not math.isfinite(number):
        return f"{number:g}"
    if not 1e-4 <= abs(number) < 1e6:
        return f"{number:.{significant - 1}e}"
    # Round first: 9.996 has the exponent of 10.0.
    exponent = math.floor(math.log10(abs(float(f"{number:.{significant - 1}e}"))))
    return f"{number:.{max(0, significant - 1 - exponent)}f}"


def extents(held: Any, between: str = "x") -> str:
    """Format `[132, 8, 1]` as `132x8`, without trailing extents of 1."""
    if not isinstance(held, list | tuple) or not held or not all(isinstance(item, int) for item in held):
        return ABSENT
    last = max((place for place, item in enumerate(held) if item != 1), default=0)
    return between.join(str(item) for item in held[: last + 1])


def speedup(ratio: float | None) -> str:
    """Format a speedup: `1.31x`, `0.0750x`, `129x`."""
    return ABSENT if ratio is None else f"{digits(ratio)}x"


TOO_NOISY = "too noisy to tell"
"""Shown in place of a speedup whose interval is too wide."""


def speedup_with_interval(
    ratio: float | None,
    low: float | None,
    high: float | None,
    same: float | None = None,
    *,
    baseline: str = "eager",
) -> str:
    """Format a speedup with its 95 % confidence interval: `1.31x (1.29 to 1.33)`.

    If solution and baseline are as fast within the share `same`: `same as the reference (within 0.4 %)`.
    """
    if same is not None:
        other = "the reference" if baseline == "eager" else line(baseline, 40)
        return f"same as {other} (within {digits(100 * same, 2)} %)"
    if ratio is None or low is None or high is None:
        return speedup(ratio)
    return f"{speedup(ratio)} ({digits(low)} to {digits(high)})"


def share(part: float | None) -> str:
    """Format a share: `83 %`, `0.4 %`, `below 0.1 %`."""
    if part is None:
        return ABSENT
    if 0 < part < 0.001:
        return "below 0.1 %"
    return f"{part * 100:.0f} %" if part == 0 or part >= 0.1 else f"{part * 100:.1f} %"


def _plain(number: float, significant: int = 4) -> str:
    return str(number) if isinstance(number, int) else digits(number, significant)


UNITS: Mapping[str, Callable[[float], str]] = {
    "_unix_s": moment,
    "_bytes_per_s": lambda number: f"{size(number)}/s",
    "_flops_per_s": lambda number: count(number, "flop/s"),
    "_s": duration,
    "_bytes": size,
    "_flops": lambda number: count(number, "flop"),
    "_hz": lambda number: count(number, "Hz"),
    "_mhz": lambda number: f"{_plain(number, 3)} MHz",
    "_w": lambda number: f"{_plain(number, 3)} W",
    "temperature_c": lambda number: f"{_plain(number, 3)} °C",
}
"""Suffix of a value's name -> format; the first that fits counts."""


def value(name: str, held: Any) -> str:
    """Format a plain value of a record by the unit suffix of its name (`UNITS`)."""
    if held is None:
        return ABSENT
    if isinstance(held, bool):
        return "yes" if held else "no"
    if isinstance(held, (int, float)):
        for suffix, in_unit in UNITS.items():
            if f"_{name}".endswith(suffix):
                return in_unit(held)
        return _plain(held)
    if isinstance(held, (list, tuple)):
        # There may be hundreds of samples: show a few; `--json` has all.
        if held and all(isinstance(item, (list, tuple)) for item in held) and sum(map(len, held)) > 8:
            return f"{sum(map(len, held))} values in {len(held)} series, from {value(name, held[0][:1])}"
        shown = ", ".join(value(name, item) for item in held[:8])
        return f"{shown}, … ({len(held)} in all)" if len(held) > 8 else shown or "none"
    if isinstance(held, Mapping):
        return ", ".join(f"{line(key, 60)}: {value(str(key), item)}" for key, item in held.items()) or "none"
    return line(held) or ABSENT


@cache
def explain(status: Status) -> str:
    """Return the meaning of a status, its docstring, as one line."""
    body = python_ast.parse(textwrap.dedent(inspect.getsource(Status))).body[0]
    assert isinstance(body, ast.ClassDef)
    for item, following in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(item, ast.Assign)
            and isinstance(item.targets[0], ast.Name)
            and item.targets[0].id == status.name
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            return " ".join(str(following.value.value).split())
    raise LookupError(f"the status {status.name} has no docstring")
