"""State of a model besides parameters and buffers.

Both sides: the referee checks the reference, a contestant explains why a call failed.

`Module.to` leaves modules in a plain list on the CPU. On the host device the reference would still work, because
everything is on the CPU, but a solution with the same list would fail, because its inputs are "cuda" tensors. So
`fails_on_gpu` calls the reference once with fake tensors on a GPU (`tests/unit/protocol/test_module_state.py`). A model
that moves such tensors in its `forward` is valid.
"""

from __future__ import annotations

import operator
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from harness.protocol.tensor_tree import flatten, unflatten

MAX_DEPTH = 4
"""Deepest nesting of containers to search."""

MAX_HELD = 10_000
"""Most objects of one model to search."""

_MISPLACED = re.compile(
    r"on the same device|different devices?|should be the same|cpu tensor|is on cpu|pointer argument|must be on", re.I
)
"""Matches error messages of torch, its libraries and Triton about tensors on different devices."""

_OWN = ("_parameters", "_buffers", "_modules")

_COMPILERS = ("_is_torch_compile", "_torchdynamo", "_dynamo", "_compiled_call_impl")
"""Prefixes of attributes that `torch.compile` adds to a module, as for a baseline."""


def refuse_lazy(model: torch.nn.Module) -> None:
    """Reject lazy parameters and buffers, which have no shape before the first call.

    They can't take over the reference's values. References must not have them, either.

    Raises:
        ValueError: The model has one.
    """
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        if torch.nn.parameter.is_lazy(value):
            raise ValueError(
                f"the model's {name} has no shape before the first call (a lazy module), so it can't take over the "
                "reference's values: use fixed sizes (nn.Linear instead of nn.LazyLinear)"
            )


def unmoved(model: torch.nn.Module) -> str | None:
    """Describe the first CPU tensor of the model that is not a parameter or buffer.

    Tensors without dimensions are ignored, because torch combines them with tensors of any device.

    Returns:
        One line with its path and what to do, or None.
    """
    registered = {id(value) for value in (*model.parameters(), *model.buffers())}
    for path, advice, value in _plain_tensors(model):
        if id(value) not in registered and value.dim() and value.device.type == "cpu":
            return f"{path} is not a parameter or buffer of the model and stays on the CPU: {advice}"
    return None


def misplaced(model: Any, error: BaseException) -> str | None:
    """Return `unmoved(model)` if `error` is about tensors on different devices."""
    if not isinstance(model, torch.nn.Module) or _MISPLACED.search(str(error)) is None:
        return None
    return unmoved(model)


def fails_on_gpu(model: torch.nn.Module, arguments: Sequence[object]) -> str | None:
    """Tell, without a GPU, if a call there would mix CPU and GPU tensors.

    Do not use `model` afterwards: it may keep fake tensors without data.

    Args:
        model: The model.
        arguments: Arguments of one call.

    Returns:
        torch's error message; None if there is no such error, or it can't be determined without data.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode  # takes seconds, and few problems need it
    from torch.func import functional_call

    def without_data(value: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda")

    try:
        leaves, tree = flatten(list(arguments))
        with warnings.catch_warnings(), FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            warnings.simplefilter("ignore")
            state = {n: without_data(v) for n, v in (*model.named_parameters(), *model.named_buffers())}
            moved: list[object] = unflatten(tree, [without_data(leaf) for leaf in leaves])
            functional_call(model, state, tuple(moved))
    except Exception as error:  # any operation that needs data
        return str(error) if type(error).__name__ == "FakeTensorDeviceMismatchError" else None
    return None


class Attributes:
    """Snapshot of the plain attributes (numbers, texts, tensors) of a model."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._held = dict(_attributes(model))
        self._modules = list(model.modules())
        self._objects = self._looked_at()
        self._written = [(value, times_written(value)) for value in self._objects if isinstance(value, torch.Tensor)]

    def changed(self, *, tensors: bool = True) -> tuple[str, ...]:
        """Return the names of attributes that are new or have changed since the snapshot.

        Args:
            tensors: If False, attributes that are or were tensors are omitted.
        """
        if self._untouched():
            return ()
        return tuple(
            name
            for name, now in _attributes(self._model)
            if not _same(before := self._held.get(name, _NONE), now) and (tensors or not _of_tensors(before, now))
        )

    def _untouched(self) -> bool:
        """Tell whether all modules have the same objects, and no tensor was written.

        A fast check for every call: 0.5 ms for 240 modules, instead of 6 ms to compare attributes by name.
        """
        now = self._looked_at()
        same = len(now) == len(self._objects) and all(map(operator.is_, now, self._objects))
        return same and all(times_written(value) == times for value, times in self._written)

    def _looked_at(self) -> list[Any]:
        """Return all objects of the modules.

        They stay alive, so that no new object gets the id of an old one.
        """
        found: list[Any] = []
        for module in self._modules:
            found += vars(module).values()
            found += module._modules.values()
        return found


def times_written(tensor: torch.Tensor) -> int:
    """Return torch's count of writes to a tensor.

    It is 0 for inference tensors, which have no count.
    """
    return 0 if tensor.is_inference() else tensor._version


def plain_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return a model's dense tensors that are plain attributes, by name.

    Views of parameters and buffers are left out.
    """
    state = {value.untyped_storage().data_ptr() for value in (*model.parameters(), *model.buffers())}
    return {
        name: value
        for name, (value, _) in _attributes(model)
        if isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and value.untyped_storage().data_ptr() not in state
    }


_NONE: tuple[Any, int] = (object(), 0)


def _attributes(model: torch.nn.Module) -> Iterator[tuple[str, tuple[Any, int]]]:
    """Yield attributes by name, each with its count of writes if it is a tensor."""
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            ours = name not in _OWN and not name.startswith(_COMPILERS)
            if ours and (value is None or isinstance(value, bool | int | float | str | torch.Tensor)):
                written = times_written(value) if isinstance(value, torch.Tensor) else 0
                yield f"{prefix}.{name}" if prefix else name, (value, written)


def _of_tensors(*values: tuple[Any, int]) -> bool:
    return any(isinstance(value, torch.Tensor) for value, _ in values)


def _same(before: tuple[Any, int], now: tuple[Any, int]) -> bool:
    (old, writes), (new, more) = before, now
    if isinstance(old, torch.Tensor) or isinstance(new, torch.Tensor):
        return old is new and writes == more
    return type(old) is type(new) and (old == new or (old != old and new != new))


def _plain_tensors(model: torch.nn.Module) -> Iterator[tuple[str, str, torch.Tensor]]:
    """Yield path, advice and tensor for tensors in attributes.

    They may be in lists, tuples, sets and dicts.
    """
    left = MAX_HELD

    def within(path: str, held: Any, advice: str, depth: int) -> Iterator[tuple[str, str, torch.Tensor]]:
        nonlocal left
        left -= 1
        if left < 0 or depth > MAX_DEPTH:
            return
        if isinstance(held, torch.Tensor):
            yield path, advice, held
        elif isinstance(held, torch.nn.Module):
            for name, value in (*held.named_parameters(), *held.named_buffers()):
                yield f"{path}.{name}", advice, value
        elif isinstance(held, Mapping):
            for key, value in held.items():
                yield from within(f"{path}[{key!r}]", value, advice, depth + 1)
        elif isinstance(held, list | tuple | set | frozenset):
            for number, value in enumerate(held):
                yield from within(f"{path}[{number}]", value, advice, depth + 1)

    for prefix, module in model.named_modules():
        for name, held in vars(module).items():
            if name not in _OWN:
                path = f"{prefix}.{name}" if prefix else name
                yield from within(path, held, _advice(name, held), 0)


def _advice(name: str, held: Any) -> str:
    """Return how to store the tensors so that torch moves them."""
    if isinstance(held, torch.Tensor):
        return f'self.register_buffer("{name}", …) makes it move with the model'
    first = next(iter(held.values() if isinstance(held, Mapping) else held), None) if _several(held) else None
    kind = "Dict" if isinstance(held, Mapping) else "List"
    if isinstance(first, torch.Tensor) and not isinstance(first, torch.nn.Parameter):
        return "self.register_buffer(…) for each makes them move with the model"
    what = "Parameter" if isinstance(first, torch.nn.Parameter) else "Module"
    return f"make it an nn.{what}{kind}, which is moved with the model"


def _several(held: Any) -> bool:
    return isinstance(held, Mapping | list | tuple | set | frozenset)
