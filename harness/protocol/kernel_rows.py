"""Rows of a kernel census: the kernels that one call of a solution ran.

Both sides: the contestant writes the rows, the referee parses them strictly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.protocol.kernel_names import kept_symbol

MAX_ROWS = 64
"""Most rows of a census; the kernels with the least time are omitted."""

MAX_NAME = 500
MAX_COUNT = 2**40
MAX_SECONDS = 1e6

KINDS = ("kernel", "copy", "fill")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """Equal launches of one call, as the contestant claims.

    Attributes:
        kind: `kernel`, `copy` or `fill`.
        symbol: The linker's symbol.
        name: The C++ name.
        grid: Blocks in x, y, z.
        block: Threads of a block in x, y, z.
        registers: Registers of a thread.
        static_shared_bytes: Static shared memory of a block.
        dynamic_shared_bytes: Dynamic shared memory of a block.
        local_bytes: Local memory (stack and spills) of a thread.
        calls: Number of launches.
        total_s: Device time of all launches in seconds; 0 on the host device, which measures no times.
    """

    kind: str
    symbol: str
    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int
    static_shared_bytes: int
    dynamic_shared_bytes: int
    local_bytes: int
    calls: int
    total_s: float

    @classmethod
    def of(cls, *values: Any, calls: int, total_s: float) -> KernelRow:
        """Make a row from the fields in their order, limited to valid values."""
        kind, symbol, name, grid, block, *sizes = values
        numbers = [min(max(int(size), 0), MAX_COUNT) for size in sizes]
        return cls(
            kind=kind,
            symbol=kept_symbol(symbol),
            name=name[:MAX_NAME],
            grid=_bounded_triple(grid),
            block=_bounded_triple(block),
            registers=numbers[0],
            static_shared_bytes=numbers[1],
            dynamic_shared_bytes=numbers[2],
            local_bytes=numbers[3],
            calls=min(max(calls, 0), MAX_COUNT),
            total_s=min(max(total_s, 0.0), MAX_SECONDS),
        )

    def to_json(self) -> list[Any]:
        sizes = (self.registers, self.static_shared_bytes, self.dynamic_shared_bytes, self.local_bytes)
        return [self.kind, self.symbol, self.name, [*self.grid], [*self.block], *sizes, self.calls, self.total_s]

    @classmethod
    def from_json(cls, value: Any) -> KernelRow:
        """Parse a row.

        Raises:
            ValueError: `to_json` can't have written the value.
        """
        if not isinstance(value, list) or len(value) != 11:
            raise ValueError("a kernel must be a list of 11")
        kind, symbol, name, grid, block, registers, static, dynamic, local, calls, total_s = value
        if kind not in KINDS:
            raise ValueError("a kernel's kind must be kernel, copy or fill")
        return cls(
            kind=kind,
            symbol=_text(symbol),
            name=_text(name),
            grid=_triple(grid),
            block=_triple(block),
            registers=_count(registers),
            static_shared_bytes=_count(static),
            dynamic_shared_bytes=_count(dynamic),
            local_bytes=_count(local),
            calls=_count(calls),
            total_s=_seconds(total_s),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CensusTaken:
    """A contestant's reply: the kernels that one call ran.

    Attributes:
        rows: The kernels.
        complete: False if rows were omitted.
        lack: Why there are no rows (for example no profiler); empty if the census succeeded.
    """

    rows: tuple[KernelRow, ...]
    complete: bool
    lack: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "census_taken",
            "rows": [row.to_json() for row in self.rows],
            "complete": self.complete,
            "lack": self.lack,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CensusTaken:
        """Parse the reply.

        Raises:
            ValueError: `to_json` can't have written the value.
        """
        rows = value.get("rows")
        if not isinstance(rows, list) or len(rows) > MAX_ROWS:
            raise ValueError(f"rows must be a list of at most {MAX_ROWS}")
        complete = value.get("complete")
        if not isinstance(complete, bool):
            raise ValueError("complete must be true or false")
        return cls(
            rows=tuple(KernelRow.from_json(row) for row in rows), complete=complete, lack=_text(value.get("lack"))
        )


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_NAME:
        raise ValueError(f"expected a text of at most {MAX_NAME} characters")
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_COUNT:
        raise ValueError(f"expected a count between 0 and {MAX_COUNT}")
    return value


def _seconds(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0.0 <= value <= MAX_SECONDS:
        raise ValueError("expected a duration in seconds")
    return float(value)


def _triple(value: Any) -> tuple[int, int, int]:
    if not isinstance(value, list) or len(value) != 3:
        raise ValueError("expected three counts")
    x, y, z = (_count(item) for item in value)
    return x, y, z


def _bounded_triple(value: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (min(max(int(item), 0), MAX_COUNT) for item in value)
    return x, y, z
