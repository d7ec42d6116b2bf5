"""Count the work of one call: flops, and least bytes between memory and chip.

Trusted side. `roofline.py` converts them to times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import conv_flop_count, flop_registry, shape_wrapper

from harness.protocol.tensor_tree import flatten


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopCount:
    """Floating-point operations of one call.

    A multiply-add counts as two, elementwise work as none.
    """

    total: int
    by_operator: Mapping[str, int]


def _matrix_vector(a: Sequence[int], b: Sequence[int], *_: Any, out_shape: Any = None, **__: Any) -> int:
    return 2 * max(math.prod(a), math.prod(b))


def _added_matrix_vector(
    _: Sequence[int], a: Sequence[int], b: Sequence[int], *rest: Any, out_shape: Any = None, **kwargs: Any
) -> int:
    return _matrix_vector(a, b)


def _convolution_backward(
    grad: Sequence[int], x: Sequence[int], weight: Sequence[int], *rest: Any, out_shape: Any = None, **kwargs: Any
) -> int:
    transposed, wanted = rest[4], rest[7]
    return sum(map(bool, wanted[:2])) * conv_flop_count(list(x), list(weight), list(grad), transposed)


_EXTRA: dict[Any, Callable[..., int]] = {
    torch.ops.aten.mv: _matrix_vector,
    torch.ops.aten.dot: _matrix_vector,
    torch.ops.aten.vdot: _matrix_vector,
    torch.ops.aten.addmv: _added_matrix_vector,
    torch.ops.aten.convolution_backward: _convolution_backward,
}
"""Matrix-vector and vector-vector products, which torch's counter leaves out, and gradients of convolutions.

Inputs' and weights' take as many each as the convolution. torch counts weights' as if there were one group.
"""


def count_flops(call: Callable[[], object]) -> FlopCount:
    """Count the flops of `call()` by torch's formulas.

    They cover products, convolutions and attention.

    Args:
        call: Is called once, without gradients. With tensors on the meta device it costs nothing.

    Raises:
        Exception: Whatever `call` raises.
    """
    counts: dict[str, int] = {}
    with torch.no_grad(), Counting(counts):
        call()
    return FlopCount(total=sum(counts.values()), by_operator=counts)


class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up flops by operator, by torch's registry of formulas and `_EXTRA`.

    Works like torch's `FlopCounterMode` without its attribution to modules. That class imports torch's compiler at its
    first call (1 to 3 s).
    """

    def __init__(self, counts: dict[str, int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._counts = counts
        wrapped = {op: shape_wrapper(formula) for op, formula in _EXTRA.items()}  # type: ignore[no-untyped-call]
        self._formulas = {**flop_registry, **wrapped}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operation imports the compiler, too

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        packet = func._overloadpacket
        if packet not in self._formulas and func is not torch.ops.prim.device.default:
            with self:  # the parts of a composite operation may have formulas
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

    Attributes:
        read_bytes: Distinct inputs and parameters.
        written_bytes: Outputs.
        fresh_bytes: Outputs in memory of their own: an output that is an input may need no write at all.
        declared_bytes: The problem's own number, if counting can't know it (for example table look-ups).
    """

    read_bytes: int
    written_bytes: int
    fresh_bytes: int
    declared_bytes: int | None = None

    @property
    def total_bytes(self) -> int:
        return self.read_bytes + self.written_bytes if self.declared_bytes is None else self.declared_bytes


def least_traffic(inputs: object, parameters: object, outputs: object) -> Traffic:
    """Count the bytes of trees of tensors.

    Args:
        inputs: Lists, tuples or dicts of tensors, nested; other values are ignored.
        parameters: The same, for parameters and buffers.
        outputs: The same, for outputs.

    Returns:
        Bytes, each tensor counted once; a broadcast dimension (stride 0) counts as one entry.
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
