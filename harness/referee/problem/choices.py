"""Record what a reference's index outputs point to, and what it rounds.

Trusted side. Ties and near-ties make several indices right, so an index is judged by the value that it points to
(guides/design/tolerances.md, "Indices"). An index output that was changed after the choosing operator is compared
exactly, and so are the results of other operators (`unique`, `nonzero`, `bucketize`). Rounded outputs: `codes.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from harness.protocol.module_state import times_written
from harness.referee.problem.codes import CodeChoice, Codes, OutputKind

_ATEN = torch.ops.aten

_CHOOSING = {
    *(_ATEN.argmax.default, _ATEN.argmin.default, _ATEN.max.dim, _ATEN.min.dim),
    *(_ATEN.median.dim, _ATEN.mode.default, _ATEN.kthvalue.default),
    *(_ATEN.topk.default, _ATEN.sort.default, _ATEN.sort.stable),
}
"""Operators whose last or only result is indices into their input, along `dim`.

`argsort` and `msort` call `sort`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexChoice:
    """An index output, and the tensor that it points into.

    Attributes:
        operator: Name of the choosing operator.
        values: Its input, at least one dimension.
        dim: The dimension of `values` along which indices count, not negative.
        index: The operator's indices, int64.
        stable: Whether equal values keep the order of the input.
    """

    operator: str
    values: torch.Tensor
    dim: int
    index: torch.Tensor
    stable: bool = False

    @property
    def kind(self) -> OutputKind:
        """How the output is judged."""
        return OutputKind(dtype="int64", operator=self.operator)

    @property
    def chosen(self) -> torch.Tensor:
        """The values that the operator chose, in the shape of `index`."""
        return self._gather(self._along(self.index)).view(self.index.shape)

    def pointed(self, index: torch.Tensor) -> torch.Tensor:
        """Return the values that other indices point to.

        Args:
            index: Integers in the shape of `index`, on any device.

        Returns:
            Values in that shape, on the device of `values`. An index that breaks a rule (`faults`) has a value that
            differs from `chosen` in kind.
        """
        along = self._along(index)
        broken = torch.zeros_like(along, dtype=torch.bool)
        for mask in self._broken(along).values():
            broken |= mask
        right = self._gather(self._along(self.index))
        real = right.is_floating_point()
        unlike = torch.where(right.isnan(), 0.0, torch.nan).to(right.dtype) if real else right ^ 1
        return torch.where(broken, unlike, self._gather(along)).view(self.index.shape)

    def faults(self, index: torch.Tensor) -> str:
        """Say which rules these indices break, how often, and where first; empty if none.

        Args:
            index: As in `pointed`.
        """
        along, words = self._along(index), []
        for rule, mask in self._broken(along).items():
            if count := int(mask.sum()):
                places = mask.view(self.index.shape)
                first = places.nonzero()[0].tolist()
                value = int(along.view(self.index.shape)[tuple(first)])
                words.append(f"{count} {rule}, first at {first}: {value}")
        return "; ".join(words)

    def _broken(self, along: torch.Tensor) -> Mapping[str, torch.Tensor]:
        """Return a mask for each rule; rules that can't be broken are left out."""
        extent = self.values.shape[self.dim]
        outside = (along < 0) | (along >= extent)
        rules = {f"out of range (0 to {extent - 1})": outside}
        count = along.shape[self.dim]
        if count > 1:
            # Of equal indices of a line, the first keeps its place; the others find a place that is not theirs.
            shape = [extent + 1 if d == self.dim else size for d, size in enumerate(along.shape)]
            slots = torch.full(shape, count, dtype=torch.int32, device=along.device)
            spots = along.masked_fill(outside, extent)
            places = torch.arange(count, dtype=torch.int32, device=along.device)
            places = places.view([-1 if d == self.dim else 1 for d in range(along.dim())]).expand(along.shape)
            slots.scatter_reduce_(self.dim, spots, places, "amin")
            rules["repeated"] = ~outside & (slots.gather(self.dim, spots) != places)
        if self.stable and count > 1:
            values = self._gather(along)
            before, after = (along.narrow(self.dim, start, count - 1) for start in (0, 1))
            equal = values.narrow(self.dim, 0, count - 1) == values.narrow(self.dim, 1, count - 1)
            unstable = torch.zeros_like(outside)
            unstable.narrow(self.dim, 1, count - 1).copy_(equal & (before > after))
            rules["before an equal value that comes first in the input (the sort is stable)"] = unstable
        return rules

    def _along(self, index: torch.Tensor) -> torch.Tensor:
        """View indices with the dimensions of `values`."""
        shape = list(self.values.shape)
        shape[self.dim] = self.index.numel() * shape[self.dim] // max(1, self.values.numel())
        return index.to(device=self.values.device, dtype=torch.int64).reshape(shape)

    def _gather(self, along: torch.Tensor) -> torch.Tensor:
        return self.values.gather(self.dim, along.clamp(0, self.values.shape[self.dim] - 1))


class Choices(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, records what operators chose from, and what was rounded.

    It keeps these tensors until it is freed.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._found: list[tuple[IndexChoice, torch.Tensor, tuple[int, int]]] = []
        self._codes = Codes()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operation imports torch's compiler, which takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func in _CHOOSING:
            self._record(func, args, kwargs or {}, out)
        else:
            self._codes.see(func, args, kwargs or {}, out)
        return out

    def _record(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        given = {argument.name: argument.default_value for argument in func._schema.arguments}
        given |= dict(zip(given, args, strict=False)) | kwargs
        values: torch.Tensor = given["self"]
        index: torch.Tensor = out if isinstance(out, torch.Tensor) else out[-1]
        if not values.dim() or not index.numel() or values.dtype is torch.bool:
            return
        if values.is_inference() or index.is_inference():
            return  # torch does not count writes to them
        dim = given["dim"]
        flat = values.reshape(-1) if dim is None else values
        choice = IndexChoice(
            operator=func._overloadpacket.__name__,
            values=flat,
            dim=0 if dim is None else dim % values.dim(),
            index=index,
            stable=bool(given.get("stable")),
        )
        self._found.append((choice, values, (times_written(values), times_written(index))))

    def of(self, leaves: Sequence[torch.Tensor]) -> dict[int, IndexChoice | CodeChoice]:
        """Return the choices and codes that are among these outputs, by number.

        An index or its values that were written to since are left out.
        """
        codes = {number: self._codes.of(leaf) for number, leaf in enumerate(leaves)}
        found: dict[int, IndexChoice | CodeChoice] = {n: code for n, code in codes.items() if code is not None}
        for number, leaf in enumerate(leaves):
            for choice, values, written in self._found:
                same = _place(leaf) == _place(choice.index)
                if same and written == (times_written(values), times_written(leaf)):
                    found[number] = choice
        return found


def _place(tensor: torch.Tensor) -> tuple[object, ...]:
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()
