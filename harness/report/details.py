"""Lay out nested values of a record for the terminal.

These are evidence, timing, build and environment.

Pure functions: JSON values in, rich renderables out. Values may come from a submission: text is escaped and put into
`Text`, which interprets no markup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from harness.devices.interference import reasons_in_words
from harness.report import format as show
from harness.report.table import Fitting

MAX_DEPTH = 6
"""Deeper values are shown on one line; the harness writes none that deep."""

MAX_ROWS = 100
"""Most rows of one table; `--json` has all rows."""

_HANDED_DOWN = ("_s", "_bytes")
"""Units that values inherit from the name of their mapping (`stages_s`: {`load`: 0.35})."""

_UNITS = ("_unix_s", "_per_s", "_s", "_bytes", "_flops", "_hz", "_mhz", "_w", "_c")


def details(values: Mapping[str, Any], depth: int = 0, unit: str = "") -> RenderableType:
    """Lay out names and values in lines, and similar mappings as tables."""
    parts: list[RenderableType] = []
    plain = Table.grid(padding=(0, 2))
    plain.add_column(style="dim", no_wrap=True)
    plain.add_column(overflow="fold")
    for name, held in _named(values).items():
        rows = _rows(held)
        if rows is not None and depth < MAX_DEPTH:
            parts.append(_titled(name, Fitting(_table(rows), named=1)))
        elif isinstance(held, Mapping) and held and depth < MAX_DEPTH:
            parts.append(_titled(name, details(held, depth + 1, unit_inside(name, unit))))
        elif _are_mappings(held) and depth < MAX_DEPTH:
            parts += [_titled(f"{name} {n}", details(row, depth + 1)) for n, row in enumerate(held[:MAX_ROWS], 1)]
            if len(held) > MAX_ROWS:
                parts.append(Text(f"… {len(held) - MAX_ROWS} more"))
        else:
            plain.add_row(Text(label(name)), Text(shown(name, held, unit)))
    return Group(*([plain] if plain.row_count else []), *parts)


def _named(values: Mapping[Any, Any]) -> dict[str, Any]:
    """Convert keys to texts: YAML also allows numbers and booleans."""
    return {str(name): held for name, held in values.items()}


def _are_mappings(held: Any) -> bool:
    return isinstance(held, (list, tuple)) and bool(held) and all(isinstance(row, Mapping) and row for row in held)


def unit_inside(name: str, unit: str = "") -> str:
    """Return the unit suffix for values in the mapping `name`, else `unit`."""
    return next((ending for ending in _HANDED_DOWN if name.endswith(ending)), unit)


def shown(name: str, held: Any, unit: str = "") -> str:
    """Format a plain value by the unit in its name, or by the inherited unit."""
    if name == "throttle_reasons" and isinstance(held, int) and not isinstance(held, bool):
        return reasons_in_words(held)
    return show.value(name if name.endswith(_UNITS) else f"{name}{unit}", held)


def label(name: str) -> str:
    """Format a key as a heading, without the unit, which the value shows."""
    for unit in _UNITS:
        name = name.removesuffix(unit) or name
    return show.line(name.replace("_", " "), 60)


def _titled(name: str, inner: RenderableType) -> RenderableType:
    return Group(Text(label(name), style="dim"), Padding(inner, (0, 0, 0, 2)))


def _rows(held: Any) -> list[tuple[str, Mapping[str, Any]]] | None:
    """Return table rows if `held` has flat mappings with common keys, else None."""
    if isinstance(held, Mapping):
        pairs = [(str(name), row) for name, row in held.items()]
    elif isinstance(held, (list, tuple)):
        pairs = [("", row) for row in held]
    else:
        return None
    named = [(name, _named(row) if isinstance(row, Mapping) else row) for name, row in pairs]
    flat = [row for _, row in named if isinstance(row, Mapping) and row and all(map(_is_flat, row.values()))]
    if not named or len(flat) != len(named) or (isinstance(held, Mapping) and len(named) < 2):
        return None
    shared = set.intersection(*(set(row) for row in flat))
    return named if shared else None


def _is_flat(held: Any) -> bool:
    if isinstance(held, (list, tuple)):
        return len(held) <= 4 and all(_is_flat(item) for item in held)
    return not isinstance(held, Mapping)


def _table(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    columns = list(dict.fromkeys(key for _, row in rows for key in row))
    named = any(name for name, _ in rows)
    table = Table(box=None, pad_edge=False, header_style="dim")
    if named:
        table.add_column("")
    for column in columns:
        numeric = all(isinstance(row.get(column, 0), (int, float)) for _, row in rows)
        table.add_column(Text(label(column)), justify="right" if numeric else "left", overflow="fold")
    for name, row in rows[:MAX_ROWS]:
        cells = [Text(shown(column, row.get(column))) for column in columns]
        table.add_row(*([Text(label(name))] if named else []), *cells)
    if len(rows) > MAX_ROWS:
        table.add_row(Text(f"… {len(rows) - MAX_ROWS} more"))
    return table
