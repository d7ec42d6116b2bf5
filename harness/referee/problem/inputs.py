"""Draw a problem's inputs: its own distribution, or a stress variant of it.

Trusted side. `InputRules`, from the problem's declaration, decides which variants are allowed. `get_inputs` runs under
a default-device context, so that one written for the CPU draws on the GPU: a thousand times faster for large problems.
If that fails, it runs on the CPU and the tensors are moved. Inputs keep the strides that `get_inputs` gave them. See
guides/design/reference_and_truth.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from harness.devices.device import seed_generators
from harness.devices.layout import copied, in_order_of_memory, kept_strides, overlaps, unexpanded
from harness.protocol.tensor_tree import TreeError, TreeSpec, flatten, unflatten
from harness.referee.problem.loader import ProblemError, ReferenceModule, describe
from harness.referee.problem.stress_variants import OWN, check_variant, transform

_TRANSFORM_SALT = 0x51EED
"""Separates a variant's random numbers from those of the draw that it changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnInputs:
    """One set of inputs.

    Attributes:
        values: Positional arguments of `forward`.
        drawn_on: Where `get_inputs` ran.
        variant: Name of the variant.
        labels: What was done to each input.
    """

    values: list[Any]
    drawn_on: Literal["device", "cpu"]
    variant: str
    labels: tuple[str, ...] = ()


def draw(reference: ReferenceModule, *, seed: int, variant: str = OWN, device: torch.device) -> DrawnInputs:
    """Draw new inputs on `device`.

    Args:
        reference: The loaded problem.
        seed: The same seed and variant give the same values here and in `draw_into`.
        variant: Name of a stress variant, or `own`.
        device: Where the tensors shall be.

    Returns:
        The inputs, each in memory of its own, with the strides that `get_inputs` gave it (`kept_strides`).

    Raises:
        ProblemError: `get_inputs` fails, or returns something that can't be placed in shared memory.
        ValueError: The variant is unknown.
    """
    check_variant(variant)
    _learn_gradients(reference, device)
    values, drawn_on = _own(reference, seed, device, ())
    drawn, spec = _flatten(values, reference.dtype)
    labels = _layout_labels(drawn, spec)
    leaves: list[torch.Tensor] = []
    for leaf in drawn:
        leaves.append(_settled(leaf.detach(), leaves, device))
    labels += _transform(variant, leaves, spec, seed)
    return DrawnInputs(values=unflatten(spec, leaves), drawn_on=drawn_on, variant=variant, labels=tuple(labels))


def draw_into(
    targets: Sequence[Any], reference: ReferenceModule, *, seed: int, variant: str = OWN, device: torch.device
) -> DrawnInputs:
    """Draw inputs like `draw`, but into existing tensors.

    Random draws of a target's shape and dtype go straight into it, so the usual `get_inputs` needs no further memory;
    other results are copied.

    Args:
        targets: Tree of tensors that do not overlap.
        reference: The loaded problem.
        seed: As in `draw`.
        variant: As in `draw`.
        device: As in `draw`.

    Returns:
        The inputs; their tensors are the targets.

    Raises:
        ProblemError: As in `draw`, or the tensors do not fit the targets.
        ValueError: The variant is unknown.
    """
    check_variant(variant)
    _learn_gradients(reference, device)
    places, _ = flatten(list(targets))
    values, drawn_on = _own(reference, seed, device, places)
    leaves, spec = _flatten(values, reference.dtype)
    if len(leaves) != len(places):
        raise ProblemError(
            f"get_inputs returned {len(leaves)} tensors, but {len(places)} before; return the same number"
        )
    labels = _layout_labels(leaves, spec)
    del values
    _move_in(leaves, places, spec)
    del leaves
    labels += _transform(variant, places, spec, seed)
    return DrawnInputs(values=unflatten(spec, places), drawn_on=drawn_on, variant=variant, labels=tuple(labels))


def _learn_gradients(reference: ReferenceModule, device: torch.device) -> None:
    """Find out once which gradients a call returns, and the incoming shapes."""
    if reference.problem.backward and reference.gradients is None:
        bare = reference.without_backward()
        drawn = draw(bare, seed=0, device=device)
        reference.learn_gradients(bare.model(0, device), drawn.values)


def _transform(variant: str, leaves: Sequence[torch.Tensor], spec: TreeSpec, seed: int) -> list[str]:
    """Apply a variant in place; its random numbers do not depend on the draw's device."""
    if variant == OWN:
        return []
    seed_generators(seed ^ _TRANSFORM_SALT)
    return transform(variant, list(zip(spec.paths("inputs"), map(unexpanded, leaves), strict=True)), seed)


def _layout_labels(leaves: Sequence[torch.Tensor], spec: TreeSpec) -> list[str]:
    """Return a label for each input whose strides can't be kept."""
    paths = zip(spec.paths("inputs"), leaves, strict=True)
    return [f"{path}: made contiguous, because its elements overlap" for path, leaf in paths if overlaps(leaf)]


def _own(
    reference: ReferenceModule, seed: int, device: torch.device, places: Sequence[torch.Tensor]
) -> tuple[Any, Literal["device", "cpu"]]:
    """Call `get_inputs` on the device or, if that fails, on the CPU; name the place."""
    if device.type == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call]  # the generators of a device not in use can't be seeded
    try:
        seed_generators(seed)
        with torch.no_grad(), _DrawInPlace(places), torch.device(device):
            values = reference.get_inputs()
        leaves = flatten(values)[0]
        if all(leaf.device.type == device.type for leaf in leaves):
            return values, "device"
        return values, "cpu"
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except (Exception, SystemExit):
        # Code written for the CPU fails in many ways on another device: try the CPU.
        pass
    try:
        seed_generators(seed)
        with torch.no_grad(), _DrawInPlace(()):
            return reference.get_inputs(), "cpu"
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        raise ProblemError(f"get_inputs failed: {describe(error)}") from error


def _flatten(values: Any, dtype: torch.dtype | None) -> tuple[list[torch.Tensor], TreeSpec]:
    """Return the inputs' tensors, checked to be storable in shared memory.

    Floating-point tensors are converted to `dtype`, if given.
    """
    if not isinstance(values, list | tuple):
        raise ProblemError(f"get_inputs returns a {type(values).__name__}, not a list")
    try:
        leaves, spec = flatten(list(values))
    except TreeError as error:
        raise ProblemError(f"get_inputs returns no usable inputs: {error}") from error
    if opaque := spec.opaque("inputs"):
        raise ProblemError(
            f"get_inputs returns a {opaque[0][1]} at {opaque[0][0]}, which shared memory can't hold; return tensors "
            "and numbers"
        )
    for path, leaf in zip(spec.paths("inputs"), leaves, strict=True):
        if leaf.layout is not torch.strided or leaf.is_quantized:
            raise ProblemError(f"{path} is not a dense tensor ({leaf.layout}); return plain tensors")
    if dtype is not None:
        leaves = [copied(leaf, dtype=dtype) if leaf.is_floating_point() else leaf for leaf in leaves]
    return leaves, spec


class _DrawInPlace(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Lets random draws fill waiting targets of the same shape, dtype and device.

    Each target is used once, in order; a transposed one waits for the draw before it is transposed. A draw that turns
    out to be an intermediate has used a target as scratch memory; `_move_in` copies every leaf to its place afterwards.

    Memory that nothing writes (`torch.empty`, for example for results) becomes NaN, or zero in integer types: otherwise
    the same seed would give other values.
    """

    def __init__(self, targets: Sequence[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._free = [dense for target in targets if (dense := in_order_of_memory(target)) is not None]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else the first draw imports torch's compiler, which takes 1 to 3 s.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _FILLS and not kwargs.get("pin_memory") and kwargs.get("layout") in (None, torch.strided):
            sizes, fill = _FILLS[func](args)
            dtype = kwargs.get("dtype")
            if dtype is None:
                dtype = torch.int64 if func in _INTEGER_FILLS else torch.get_default_dtype()
            device = torch.device(kwargs.get("device") or "cpu")
            for i, target in enumerate(self._free):
                same_device = target.device.type == device.type and device.index in (None, target.device.index)
                if tuple(target.shape) == sizes and target.dtype is dtype and same_device:
                    return fill(self._free.pop(i).detach())
        made = func(*args, **kwargs)
        if func in _EMPTY and made.layout is torch.strided and not made.is_quantized:
            made.fill_(float("nan") if made.is_floating_point() or made.is_complex() else 0)
        return made


_aten = torch.ops.aten
_EMPTY = frozenset(
    {
        _aten.empty.memory_format,
        _aten.empty_like.default,
        _aten.empty_strided.default,
        _aten.new_empty.default,
        _aten.new_empty_strided.default,
    }
)
_INTEGER_FILLS = frozenset({_aten.randint.default, _aten.randint.low})
_FILLS: dict[Any, Any] = {
    _aten.rand.default: lambda args: (tuple(args[0]), lambda out: out.uniform_()),
    _aten.randn.default: lambda args: (tuple(args[0]), lambda out: out.normal_()),
    _aten.randint.default: lambda args: (tuple(args[1]), lambda out: out.random_(0, args[0])),
    _aten.randint.low: lambda args: (tuple(args[2]), lambda out: out.random_(args[0], args[1])),
}


def _move_in(leaves: Sequence[torch.Tensor], places: Sequence[torch.Tensor], spec: TreeSpec) -> None:
    """Copy every leaf that is not in its place yet; leaves may lie in others' places."""
    spans = [_span(place) for place in places]
    waiting: list[tuple[torch.Tensor, torch.Tensor]] = []
    for path, leaf, place in zip(spec.paths("inputs"), leaves, places, strict=True):
        if leaf.shape != place.shape or leaf.dtype is not place.dtype:
            raise ProblemError(
                f"get_inputs returned {leaf.dtype} {tuple(leaf.shape)} as {path}, but "
                f"{place.dtype} {tuple(place.shape)} before; return the same shapes and dtypes"
            )
        if kept_strides(leaf) != kept_strides(place) and unexpanded(place).shape != place.shape:
            raise ProblemError(f"get_inputs expanded {path} in another way before; return the same strides")
        held, place = unexpanded(leaf.detach()), unexpanded(place)
        if held.device == place.device and held.data_ptr() == place.data_ptr() and held.stride() == place.stride():
            continue
        if any(_overlap(_span(held), span) for span in spans):
            held = held.clone()
        waiting.append((held, place))
    for held, place in waiting:
        place.copy_(held)


def _span(tensor: torch.Tensor) -> tuple[torch.device, int, int]:
    """Return device and address range of a tensor's storage: all that it may touch."""
    storage = tensor.untyped_storage()
    return tensor.device, storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def _overlap(a: tuple[torch.device, int, int], b: tuple[torch.device, int, int]) -> bool:
    return a[0] == b[0] and max(a[1], b[1]) < min(a[2], b[2])


def _settled(leaf: torch.Tensor, earlier: Sequence[torch.Tensor], device: torch.device) -> torch.Tensor:
    """Return `leaf`, or a copy on `device` if it is elsewhere or shares memory."""
    leaf = leaf.resolve_conj().resolve_neg()
    shared = any(_overlap(_span(leaf), _span(other)) for other in earlier)
    return copied(leaf, device=device) if shared or leaf.device != device or overlaps(leaf) else leaf
