"""How much one call has to do: its flops, and the least bytes between memory and chip.

Imports `trees` and torch. Pure but for `count_flops`, which makes the call it is given; trusted side. `roofline` makes
times of these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, shape_wrapper

from harness.protocol.tensor_tree import flatten


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopCount:
    """Floating-point operations of one call, a multiply-add being two. Elementwise work counts as none."""

    total: int
    by_operator: Mapping[str, int]


def _matrix_vector(a: Sequence[int], b: Sequence[int], *_: Any, out_shape: Any = None, **__: Any) -> int:
    return 2 * max(math.prod(a), math.prod(b))


def _added_matrix_vector(
    _: Sequence[int], a: Sequence[int], b: Sequence[int], *rest: Any, out_shape: Any = None, **kwargs: Any
) -> int:
    return _matrix_vector(a, b)


_EXTRA: dict[Any, Callable[..., int]] = {
    torch.ops.aten.mv: _matrix_vector,
    torch.ops.aten.dot: _matrix_vector,
    torch.ops.aten.vdot: _matrix_vector,
    torch.ops.aten.addmv: _added_matrix_vector,
}
"""Products with vectors, which torch's counter leaves out."""


def count_flops(call: Callable[[], object]) -> FlopCount:
    """Count the flops of `call()` by torch's own counter: products, convolutions, attention.

    The call is really made, once, without gradients; give it tensors on the meta device to spend nothing. Whatever
    it raises is raised.
    """
    counts: dict[str, int] = {}
    with torch.no_grad(), _Counting(counts):
        call()
    return FlopCount(total=sum(counts.values()), by_operator=counts)


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up flops by operator, by torch's registry of formulas and `_EXTRA`.

    What torch's `FlopCounterMode` does, less its attribution to modules; that class imports torch's compiler at the
    first call (1 to 3 s).
    """

    def __init__(self, counts: dict[str, int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._counts = counts
        wrapped = {op: shape_wrapper(formula) for op, formula in _EXTRA.items()}  # type: ignore[no-untyped-call]
        self._formulas = {**flop_registry, **wrapped}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operation imports the compiler all the same

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        packet = func._overloadpacket
        if packet not in self._formulas and func is not torch.ops.prim.device.default:
            with self:  # a composite operation consists of ones that may have formulas
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        out = func(*args, **kwargs)
        if (formula := self._formulas.get(packet)) is not None:
            name = str(packet).removeprefix("aten.")
            self._counts[name] = self._counts.get(name, 0) + int(formula(*args, **kwargs, out_val=out))
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Least bytes between memory and chip of one call.

    `read_bytes` are distinct inputs and parameters, `written_bytes` outputs, of which `fresh_bytes` lie in memory that
    no input lies in: an output that is an input may need no writing at all. `declared_bytes` is what the problem states
    instead, where counting can't know (rows that are looked up, say).
    """

    read_bytes: int
    written_bytes: int
    fresh_bytes: int
    declared_bytes: int | None = None

    @property
    def total_bytes(self) -> int:
        return self.read_bytes + self.written_bytes if self.declared_bytes is None else self.declared_bytes


def least_traffic(inputs: object, parameters: object, outputs: object) -> Traffic:
    """Bytes of trees of tensors (lists, tuples, dicts, nested; other values are ignored).

    Each is counted once however often it occurs. A broadcast dimension (stride 0) counts as one entry.
    """
    sources, _ = flatten([inputs, parameters])
    results, _ = flatten(outputs)
    storages = {_storage(tensor) for tensor in sources}
    read = {_span(tensor): _distinct_bytes(tensor) for tensor in sources}
    written = {_span(tensor): _distinct_bytes(tensor) for tensor in results}
    fresh = {_span(tensor): _distinct_bytes(tensor) for tensor in results if _storage(tensor) not in storages}
    return Traffic(read_bytes=sum(read.values()), written_bytes=sum(written.values()), fresh_bytes=sum(fresh.values()))


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() or id(tensor)  # meta tensors have no address


def _span(tensor: torch.Tensor) -> tuple[int, int, int]:
    return (_storage(tensor), int(tensor.storage_offset()) * tensor.element_size(), _distinct_bytes(tensor))


def _distinct_bytes(tensor: torch.Tensor) -> int:
    if tensor.numel() == 0:
        return 0
    sizes = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride != 0)
    return math.prod(sizes) * tensor.element_size()
