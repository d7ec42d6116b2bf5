"""What a model holds past its parameters and buffers: tensors that `Module.to` does not move, attributes that calls
change.

Both sides of the trust boundary use it: the oracle for the reference, a contestant to say in words why a call failed.
Imports torch alone.

Decision: modules in a plain list are left where their constructor made them, on the CPU. On the host device all of the
reference is there, so that it would pass, and a solution with the same list fail, since its inputs are "cuda" tensors.
So the reference is called once over tensors without data that say they are on a GPU
(`tests/unit/protocol/test_module_state.py`). A model that moves them itself, in its forward, is as good as any.
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
"""How deep lists within lists are looked through."""

MAX_HELD = 10_000
"""Objects that are looked at, of one model."""

_MISPLACED = re.compile(
    r"on the same device|different devices?|should be the same|cpu tensor|is on cpu|pointer argument|must be on", re.I
)
"""What torch, its libraries and Triton say of tensors that are on different devices."""

_OWN = ("_parameters", "_buffers", "_modules")

_COMPILERS = ("_is_torch_compile", "_torchdynamo", "_dynamo", "_compiled_call_impl")
"""How the names begin of what `torch.compile` leaves at a module that it was called on, as a baseline's is."""


def refuse_lazy(model: torch.nn.Module) -> None:
    """Raise `ValueError` where a parameter or buffer gets its shape in the first call, so that it can't be given the
    reference's values. No reference may have one either (`reference.state_of`).
    """
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        if torch.nn.parameter.is_lazy(value):
            raise ValueError(
                f"the model's {name} has no shape before the first call (a lazy module), so that it can't be given the "
                "reference's values: write the sizes out (nn.Linear for nn.LazyLinear)"
            )


def unmoved(model: torch.nn.Module) -> str | None:
    """A sentence on the first tensor with dimensions that the model holds elsewhere than among its parameters and
    buffers, on the CPU, and what to do about it; None where there is none.

    A tensor of no dimension may be combined with tensors of any device.
    """
    registered = {id(value) for value in (*model.parameters(), *model.buffers())}
    for path, advice, value in _plain_tensors(model):
        if id(value) not in registered and value.dim() and value.device.type == "cpu":
            return f"{path} is no parameter or buffer of the model and stays on the CPU: {advice}"
    return None


def misplaced(model: Any, error: BaseException) -> str | None:
    """The same where `error`, that a call of `model` raised, tells of tensors on different devices."""
    if not isinstance(model, torch.nn.Module) or _MISPLACED.search(str(error)) is None:
        return None
    return unmoved(model)


def fails_on_gpu(model: torch.nn.Module, arguments: Sequence[object]) -> str | None:
    """What torch says where `model` on a GPU meets tensors of its own that are on the CPU; None where it does not, or
    where that can't be told without data. No GPU is needed. `model` is used up by it: it may keep what has no data.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode  # takes seconds, and few problems want it
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
    except Exception as error:  # whatever can't be done without data
        return str(error) if type(error).__name__ == "FakeTensorDeviceMismatchError" else None
    return None


class Attributes:
    """The plain attributes of a model and its modules as they are at this moment: numbers, texts, tensors."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._held = dict(_attributes(model))
        self._modules = list(model.modules())
        self._objects = self._looked_at()
        self._written = [(value, times_written(value)) for value in self._objects if isinstance(value, torch.Tensor)]

    def changed(self, *, tensors: bool = True) -> tuple[str, ...]:
        """Names of those that are others by now, or new; without those that are or were `tensors` where they are not
        asked for.
        """
        if self._untouched():
            return ()
        return tuple(
            name
            for name, now in _attributes(self._model)
            if not _same(before := self._held.get(name, _NONE), now) and (tensors or not _of_tensors(before, now))
        )

    def _untouched(self) -> bool:
        """Whether every module holds the very objects that it held, and no tensor was written to. Asked of each call:
        half a millisecond for 240 modules, where it takes 6 to look at each attribute by its name.
        """
        now = self._looked_at()
        same = len(now) == len(self._objects) and all(map(operator.is_, now, self._objects))
        return same and all(times_written(value) == times for value, times in self._written)

    def _looked_at(self) -> list[Any]:
        """All that the modules hold, which stays alive as long as this: an object's place is not another one's."""
        found: list[Any] = []
        for module in self._modules:
            found += vars(module).values()
            found += module._modules.values()
        return found


def times_written(tensor: torch.Tensor) -> int:
    """How often torch wrote to it, as far as it counts that."""
    return 0 if tensor.is_inference() else tensor._version


_NONE: tuple[Any, int] = (object(), 0)


def _attributes(model: torch.nn.Module) -> Iterator[tuple[str, tuple[Any, int]]]:
    """Attributes by name, and of tensors how often they were written to, too."""
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
    """Path, advice and tensor of what stands in attributes, by themselves and in lists, tuples and dicts."""
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
    """How to hold it so that torch knows of it."""
    if isinstance(held, torch.Tensor):
        return f'self.register_buffer("{name}", …) has it moved with the rest'
    first = next(iter(held.values() if isinstance(held, Mapping) else held), None) if _several(held) else None
    kind = "Dict" if isinstance(held, Mapping) else "List"
    if isinstance(first, torch.Tensor) and not isinstance(first, torch.nn.Parameter):
        return "self.register_buffer(…) for each has them moved with the rest"
    what = "Parameter" if isinstance(first, torch.nn.Parameter) else "Module"
    return f"make it an nn.{what}{kind}, which is moved with the rest"


def _several(held: Any) -> bool:
    return isinstance(held, Mapping | list | tuple | set | frozenset)
