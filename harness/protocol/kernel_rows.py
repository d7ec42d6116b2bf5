"""Rows of a kernel census: the kernels that one call of a solution ran.

Both sides: the contestant writes the rows, the referee parses them strictly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from msgspec import Meta

from harness.protocol.fields import Message, convert
from harness.protocol.kernel_names import kept_symbol

MAX_ROWS = 64
"""Most rows of a census; the kernels with the least time are omitted."""

MAX_NAME = 500
MAX_COUNT = 2**40
MAX_SECONDS = 1e6


_Name = Annotated[str, Meta(max_length=MAX_NAME)]
_Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]


class KernelRow(NamedTuple):
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

    kind: Literal["kernel", "copy", "fill"]
    symbol: _Name
    name: _Name
    grid: tuple[_Count, _Count, _Count]
    block: tuple[_Count, _Count, _Count]
    registers: _Count
    static_shared_bytes: _Count
    dynamic_shared_bytes: _Count
    local_bytes: _Count
    calls: _Count
    total_s: Annotated[float, Meta(ge=0.0, le=MAX_SECONDS)]

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
        return [*self[:3], list(self.grid), list(self.block), *self[5:]]

    @classmethod
    def from_json(cls, value: object) -> KernelRow:
        """Parse a row.

        Raises:
            MessageError: `to_json` can't have written the value.
        """
        return convert(value, cls)


@dataclass(frozen=True, slots=True, kw_only=True)
class CensusTaken(Message):
    """A contestant's reply: the kernels that one call ran.

    Attributes:
        rows: The kernels.
        complete: False if rows were omitted.
        lack: Why there are no rows (for example no profiler); empty if the census succeeded.
    """

    TYPE: ClassVar[str] = "census_taken"
    rows: Annotated[tuple[KernelRow, ...], Meta(max_length=MAX_ROWS)]
    complete: bool
    lack: _Name = ""


def _bounded_triple(value: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (min(max(int(item), 0), MAX_COUNT) for item in value)
    return x, y, z
