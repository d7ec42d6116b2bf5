"""Judge rounded outputs (float8, whole numbers) by the values before rounding.

Trusted side. Between two codes lies a border, and correct arithmetic in float32 may end on either side of it. So a code
is judged by its distance from the value that the float64 truth rounds: up to half a step is no error, and what exceeds
that is the error of the arithmetic before (guides/design/tolerances.md, "Codes").
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from harness.protocol.module_state import times_written

_ATEN = torch.ops.aten

_FLOATS = (torch.float8_e4m3fn, torch.float8_e5m2)
_WHOLE = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputKind:
    """How an output is judged that is not compared as it stands.

    Attributes:
        dtype: The output's type.
        operator: The operator that chose, if it is an index; None if it is a code.
    """

    dtype: str
    operator: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeChoice:
    """An output that the reference rounds, and the values before.

    Attributes:
        values: The values, floating-point.
        index: The codes in the shape of `values`: float8, or integers.
    """

    values: torch.Tensor
    index: torch.Tensor

    @property
    def kind(self) -> OutputKind:
        """How the output is judged."""
        return OutputKind(dtype=str(self.index.dtype).removeprefix("torch."))

    @property
    def chosen(self) -> torch.Tensor:
        """The values before rounding in float64, up to the type's largest number."""
        values = self.values.double()
        return values.clamp(-self._top, self._top) if self.index.is_floating_point() else values

    def pointed(self, codes: torch.Tensor) -> torch.Tensor:
        """Return codes' values, moved by up to half a step to those before rounding.

        Args:
            codes: Codes in the shape and type of `index`, on any device.

        Returns:
            float64 on the device of `values`: the value before rounding, where the code is right. Where that is beyond
            the largest number, infinity and NaN are right as well.
        """
        right = self.chosen
        got = codes.to(self.values.device).double()
        off = got - right
        moved = right + off.sign() * (off.abs() - self._half_step(right)).clamp(min=0.0)
        if not self.index.is_floating_point():
            return moved
        beyond = ~got.isfinite() & ((self.values.double().abs() > self._top) | (right.isnan() & got.isnan()))
        return torch.where(beyond, right, torch.where(got.isfinite() & right.isfinite(), moved, got))

    def faults(self, codes: torch.Tensor) -> str:
        """Return no text: every code is in range."""
        return ""

    @property
    def _top(self) -> float:
        return float(torch.finfo(self.index.dtype).max)

    def _half_step(self, right: torch.Tensor) -> torch.Tensor | float:
        if not self.index.is_floating_point():
            return 0.5
        info = torch.finfo(self.index.dtype)
        _, exponent = torch.frexp(right.abs().clamp(min=float(info.smallest_normal)))
        return torch.ldexp(torch.full_like(right, float(info.eps) / 2), exponent - 1)


class Codes:
    """Recorder of the rounding operators whose results may become outputs.

    `torch.round`, perhaps with a `clamp` after it, counts as rounding if a conversion to integers follows.
    """

    def __init__(self) -> None:
        self._found: list[tuple[CodeChoice, int]] = []
        self._rounded: list[tuple[torch.Tensor, torch.Tensor]] = []
        """Whole numbers that are still floating-point, and the values that they were rounded from."""

    def see(self, func: object, args: tuple[object, ...], kwargs: dict[str, object], out: object) -> None:
        """Record one operator's call."""
        if not isinstance(out, torch.Tensor) or not args or not isinstance(args[0], torch.Tensor) or out.is_inference():
            return
        given = args[0]
        if func is _ATEN.round.default:
            self._rounded.append((out, given))
        elif func is _ATEN.clamp.default and (values := self._before(given)) is not None:
            self._rounded.append((out, _ATEN.clamp.default(values, *args[1:], **kwargs)))
        elif func is _ATEN.clone.default and given.dtype in (*_FLOATS, *_WHOLE):
            self._add(self._viewed(given), out)
        elif func is _ATEN._to_copy.default and given.is_floating_point() and given.element_size() > 1:
            self._add(given if out.dtype in _FLOATS else self._before(given) if out.dtype in _WHOLE else None, out)

    def _add(self, values: torch.Tensor | None, codes: torch.Tensor) -> None:
        """Record codes, and the values before with the strides of the codes."""
        if values is None:
            return
        if values.stride() != codes.stride() or values.is_inference():
            values = torch.empty_strided(codes.shape, codes.stride(), dtype=values.dtype, device=values.device).copy_(
                values
            )
        self._found.append((CodeChoice(values=values, index=codes), times_written(values)))

    def _before(self, whole: torch.Tensor) -> torch.Tensor | None:
        return next((values for rounded, values in self._rounded if rounded is whole), None)

    def _viewed(self, codes: torch.Tensor) -> torch.Tensor | None:
        """Return the values of these codes, which may be a view.

        None if they were written to since.
        """
        for choice, written in reversed(self._found):
            index, values = choice.index, choice.values
            if codes.untyped_storage().data_ptr() != index.untyped_storage().data_ptr() or codes.dtype != index.dtype:
                continue
            if times_written(codes) or times_written(values) != written:
                return None
            offset = codes.storage_offset() - index.storage_offset() + values.storage_offset()
            return values.as_strided(codes.shape, codes.stride(), offset)
        return None

    def of(self, leaf: torch.Tensor) -> CodeChoice | None:
        """Return the record of an output.

        It is the result of a rounding operator, or a view or a copy of it.

        There is none if it or the values before were written to since.
        """
        values = self._viewed(leaf) if leaf.numel() and leaf.dtype in (*_FLOATS, *_WHOLE) else None
        return None if values is None else CodeChoice(values=values, index=leaf)
