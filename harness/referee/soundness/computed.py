"""Wrong answers that are nearly right: an input, a tile or precision is missing.

Trusted side. Each runs the reference itself with one change.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch

from harness.core.choices import PrecisionClass
from harness.devices.device import Device
from harness.devices.layout import copied, unexpanded
from harness.devices.out_of_memory import is_shortage
from harness.protocol.tensor_tree import flatten, unflatten
from harness.referee.problem.truth import Reference, default_dtype
from harness.referee.soundness.blind import tile_of
from harness.referee.soundness.samples import Leaves, ReferenceCall, SampleDrawer
from harness.referee.soundness.wrong import Wrong

COARSER = {
    PrecisionClass.FP32: (torch.float16, torch.bfloat16),
    PrecisionClass.TF32: (torch.bfloat16,),
    PrecisionClass.FP16: (torch.bfloat16,),
    PrecisionClass.BF16: (torch.float8_e4m3fn,),
    PrecisionClass.INT8: (torch.float8_e4m3fn,),
    PrecisionClass.FP8_E4M3: (torch.float8_e5m2,),
    PrecisionClass.MXFP8: (torch.float8_e5m2,),
}
"""Dtypes whose arithmetic each class must reject. Half precision in a product is as exact as TF32."""

_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "convolution", "mv", "dot", "addmv")
_TF32_BITS = 13
"""Bits of a float32 mantissa that TF32 drops."""


def run_model(
    model: Callable[..., Any], inputs: Sequence[torch.Tensor], sample: ReferenceCall, oracle: Reference, device: Device
) -> Leaves:
    """The outputs of one call of `model`; its state and inputs stay unchanged."""
    own = [copied(leaf) for leaf in inputs] if oracle.traits.mutates_inputs else list(inputs)
    device.reseed(sample.seed)
    with torch.no_grad():
        result = model(*unflatten(sample.tree, own))
    results = [own[number] for number in oracle.traits.destinations] or flatten(result)[0]
    leaves = tuple(leaf.clone() if oracle.traits.updates_state else leaf for leaf in results)
    oracle.restore_state()
    return leaves


def unused_inputs(sample: ReferenceCall, drawer: SampleDrawer, oracle: Reference, device: Device) -> list[Wrong]:
    """One wrong answer per input tensor: that input is taken from another draw."""
    found = []
    for i, path in enumerate(sample.tree.paths("input")):
        found.append(
            Wrong(
                rule="moves_with_inputs", name=f"{path} not used", answer=_with_other_input(i, drawer, oracle, device)
            )
        )
    return found


def _with_other_input(
    index: int, drawer: SampleDrawer, oracle: Reference, device: Device
) -> Callable[[ReferenceCall, Leaves], Sequence[torch.Tensor]]:
    def answer(sample: ReferenceCall, _: Leaves) -> Sequence[torch.Tensor]:
        other = drawer.inputs(sample.variant)[0][index]
        if torch.equal(other, sample.inputs[index]):
            other = _shaken(other)  # an input without randomness is the same in every draw
        inputs = [other if i == index else leaf for i, leaf in enumerate(sample.inputs)]
        return run_model(oracle.model, inputs, sample, oracle, device)

    return answer


def _shaken(leaf: torch.Tensor) -> torch.Tensor:
    if leaf.is_floating_point():
        return leaf * 1.25 + 0.25
    return leaf.roll(1) if leaf.numel() > 1 else leaf


def unused_parameters(oracle: Reference, device: Device) -> list[Wrong]:
    """One wrong answer per parameter: the parameter has other values."""
    return [
        Wrong(rule="moves_with_parameters", name=f"{name} not used", answer=_with_other_parameter(name, oracle, device))
        for name, _ in oracle.model.named_parameters()
    ]


def _with_other_parameter(
    name: str, oracle: Reference, device: Device
) -> Callable[[ReferenceCall, Leaves], Sequence[torch.Tensor]]:
    def answer(sample: ReferenceCall, _: Leaves) -> Sequence[torch.Tensor]:
        parameter = dict(oracle.model.named_parameters())[name]
        kept = parameter.detach().clone()
        with torch.no_grad():
            # Rolling keeps its statistics; a constant parameter (ones, zeros) gets other values instead.
            moved = kept.view(-1).roll(1).view(kept.shape)
            parameter.copy_(kept * 1.25 + 0.25 if torch.equal(moved, kept) else moved)
        try:
            return run_model(oracle.model, sample.inputs, sample, oracle, device)
        finally:
            with torch.no_grad():
                parameter.copy_(kept)

    return answer


def unread_tiles(sample: ReferenceCall, oracle: Reference, device: Device) -> list[Wrong]:
    """One wrong answer per input dimension: the last tile counts as zero."""
    found = []
    for i, (path, leaf) in enumerate(zip(sample.tree.paths("input"), sample.inputs, strict=True)):
        for dim, size in enumerate(unexpanded(leaf).shape):
            if leaf.is_floating_point() and size > 1:
                found.append(
                    Wrong(
                        rule="dropped_tile",
                        name=f"last {tile_of(size)} of dimension {dim} of {path} not read",
                        answer=_without_tile(i, dim, oracle, device),
                        may_agree=True,
                    )
                )
    return found


def _without_tile(
    index: int, dim: int, oracle: Reference, device: Device
) -> Callable[[ReferenceCall, Leaves], Sequence[torch.Tensor]]:
    def answer(sample: ReferenceCall, _: Leaves) -> Sequence[torch.Tensor]:
        changed = copied(sample.inputs[index])
        size = tile_of(changed.shape[dim])
        unexpanded(changed).narrow(dim, changed.shape[dim] - size, size).zero_()
        inputs = [changed if i == index else leaf for i, leaf in enumerate(sample.inputs)]
        return run_model(oracle.model, inputs, sample, oracle, device)

    return answer


def coarser(sample: ReferenceCall, required: PrecisionClass, oracle: Reference, device: Device) -> list[Wrong]:
    """The reference in every dtype that its class must reject.

    For fp32 also with operands rounded to TF32, if it has matrix products.
    """
    floats = [leaf for leaf in (*sample.inputs, *sample.own) if leaf.is_floating_point()]
    if not floats:
        return []
    found = []
    for dtype in COARSER.get(required, ()):
        name = str(dtype).removeprefix("torch.")
        # If the coarser dtype gives the same bits (a comparison, a count), using it is no mistake.
        answer = _in_type(dtype, oracle, device)
        found.append(Wrong(rule="lower_precision", name=f"computed in {name}", answer=answer, may_agree=True))
    if required is PrecisionClass.FP32 and _has_products(sample, oracle, device):
        answer = _with_rounded(_to_tf32, oracle, device)
        found.append(Wrong(rule="lower_precision", name="operands rounded to tf32", answer=answer))
    return found


def _in_type(
    dtype: torch.dtype, oracle: Reference, device: Device
) -> Callable[[ReferenceCall, Leaves], Sequence[torch.Tensor]]:
    held: dict[str, torch.nn.Module] = {}
    rounded = _with_rounded(lambda leaf: leaf.to(dtype).to(leaf.dtype), oracle, device, outputs=True)

    def answer(sample: ReferenceCall, other: Leaves) -> Sequence[torch.Tensor]:
        if dtype.itemsize == 1:
            return rounded(sample, other)  # torch has no arithmetic in 8-bit types
        if "model" not in held:
            held["model"] = copy.deepcopy(oracle.model).to(dtype=dtype)
        inputs = [leaf.to(dtype) if leaf.is_floating_point() else leaf for leaf in sample.inputs]
        try:
            with default_dtype(dtype):
                leaves = run_model(copy.deepcopy(held["model"]), inputs, sample, oracle, device)
        except (RuntimeError, TypeError, NotImplementedError) as error:
            if is_shortage(error):
                raise
            return rounded(sample, other)  # this device lacks the operation in this dtype, or dtypes are mixed
        return [leaf.to(own.dtype) for leaf, own in zip(leaves, sample.own, strict=True)]

    return answer


def _with_rounded(
    rounding: Callable[[torch.Tensor], torch.Tensor], oracle: Reference, device: Device, *, outputs: bool = False
) -> Callable[[ReferenceCall, Leaves], Sequence[torch.Tensor]]:
    """The reference with rounded inputs and parameters (and outputs)."""

    def answer(sample: ReferenceCall, _: Leaves) -> Sequence[torch.Tensor]:
        model = copy.deepcopy(oracle.model)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.is_floating_point():
                    parameter.copy_(rounding(parameter))
        inputs = [rounding(leaf) if leaf.is_floating_point() else leaf for leaf in sample.inputs]
        leaves = run_model(model, inputs, sample, oracle, device)
        return [rounding(leaf) if outputs and leaf.is_floating_point() else leaf for leaf in leaves]

    return answer


def _to_tf32(leaf: torch.Tensor) -> torch.Tensor:
    """Round to 10 bits of mantissa, to nearest."""
    if leaf.dtype is not torch.float32:
        return leaf
    bits = leaf.contiguous().view(torch.int32)
    half = 1 << (_TF32_BITS - 1)
    return ((bits + half) & ~((1 << _TF32_BITS) - 1)).view(torch.float32).view(leaf.shape)


def _has_products(sample: ReferenceCall, oracle: Reference, device: Device) -> bool:
    from harness.referee.problem.flops import count_flops

    counted = count_flops(lambda: run_model(oracle.model, sample.inputs, sample, oracle, device))
    return any(name.startswith(_PRODUCTS) for name in counted.by_operator)
