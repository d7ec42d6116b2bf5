"""Copy parameters and buffers of a solution's model in and out.

Runs in a submission's process. The model's own `state_dict` and its hooks run once, when the solution is loaded. State
is copied out after a call's clock has stopped, and such code could do work then that should be timed. So later only
torch's own tables are read, and no code of the model runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import torch

from harness.untrusted.contestant.pristine_torch import (
    COPY,
    DETACH,
    DTYPE,
    IS_INFERENCE,
    SHAPE,
    has_bytes,
    without_modes,
)

MAX_MODULES = 100_000
MAX_DEPTH = 100
"""Limits on the modules of one model, each counted as often as it is referenced, and on their nesting: two modules that
contain each other would never end."""

_ATTRIBUTES: Callable[[torch.nn.Module], dict[str, Any]] = vars(torch.nn.Module)["__dict__"].__get__
"""The plain attribute dictionary, which a class can't override here."""

_INFERENCE_MODE: Callable[[bool], AbstractContextManager[object]] = torch._C._InferenceMode


class HeldState:
    """The state of `model`, by the names of the reference's.

    Empty if `model` is no module.
    """

    def __init__(self, model: Any = None) -> None:
        self._model = model
        self._wanted: Mapping[str, torch.Tensor] = {}
        self._places: dict[str, torch.Tensor] = {}
        self._own_names: dict[str, str] = {}
        self._initial: dict[str, torch.Tensor] = {}
        self._said: dict[str, torch.Tensor] = {}

    def match(self, wanted: Mapping[str, torch.Tensor], drawn: Collection[str] = ()) -> tuple[list[str], list[str]]:
        """Find the place of each wanted tensor: by name, equal values, or order.

        Only tensors of equal shape and dtype match. Remembers the initial state.

        Args:
            wanted: The reference's values by name.
            drawn: Names of those that are plain attributes. Their order matches that of the model's.

        Returns:
            Names whose place has other values, and names without a place.
        """
        own: dict[str, Any] = {}
        if isinstance(self._model, torch.nn.Module):
            own = {**_plain_tensors(self._model), **self._model.state_dict()}
        own = {name: held for name, held in own.items() if isinstance(held, torch.Tensor)}
        self._wanted = wanted
        self._own_names = {name: name for name, value in wanted.items() if name in own and _alike(own[name], value)}
        for equal, names in ((True, wanted), (False, [name for name in wanted if name in drawn])):
            for name in names:
                if name in self._own_names:
                    continue
                taken = set(self._own_names.values())
                free = [other for other in own if other not in taken and _alike(own[other], wanted[name])]
                free.sort(key=lambda other: other.rpartition(".")[2] != name.rpartition(".")[2])
                found = (other for other in free if not equal or _same(own[other], wanted[name]))
                if (other := next(found, None)) is not None:
                    self._own_names[name] = other
        self._places = {name: own[other] for name, other in self._own_names.items()}
        self._said = {other: own[other] for other in (*self._own_names.values(), *wanted) if other in own}
        self._remember()
        differing = [name for name, held in self._places.items() if not _same(held, wanted[name])]
        return differing, [name for name in wanted if name not in self._places]

    @classmethod
    def of(cls, tensors: Mapping[str, tuple[torch.Tensor, torch.Tensor]]) -> HeldState:
        """Make a state without a model: present and initial tensor of each name."""
        state = cls()
        state._said = {name: held for name, (held, _) in tensors.items()}
        state._initial = {name: initial for name, (_, initial) in tensors.items()}
        state._own_names = {name: name for name in tensors}
        return state

    def present_and_initial(self, names: Sequence[str]) -> dict[str, tuple[Any, Any]]:
        """Return the present and the initial tensor of these names, where there are both."""
        own = self._own() if names else {}
        return {
            name: (own[self._own_names[name]], self._initial[name])
            for name in names
            if name in self._initial and self._own_names.get(name) in own
        }

    def take_over(self) -> list[str]:
        """Copy the wanted values to their places; return the names of those that differed."""
        copied = []
        with torch.no_grad():
            for name, held in self._places.items():
                if not _same(held, self._wanted[name]):
                    with _may_be_changed(held):
                        held.copy_(self._wanted[name])
                    copied.append(name)
        self._remember()
        return copied

    def _remember(self) -> None:
        with torch.no_grad():
            self._initial = {name: held.clone() for name, held in self._places.items()}

    def restore(self) -> None:
        """Restore all of the initial state."""
        self.put_back([*self._initial])

    def put_back(self, names: Sequence[str]) -> None:
        """Restore the initial state under these names.

        Other changes that the model made to itself stay, and show in its next outputs. A tensor that can't be written
        any more (other shape, expanded) stays as it is, and shows when it is copied out.
        """
        own = self._own()
        with torch.no_grad():
            for name in names:
                if name in self._initial:
                    held = own[self._own_names[name]]
                    with suppress(RuntimeError), _may_be_changed(held):
                        COPY(held, self._initial[name])

    def copy_to(self, names: Sequence[str], slots: Sequence[torch.Tensor]) -> list[str]:
        """Copy the state to the slots; return the names without a matching tensor."""
        own = self._own() if names else {}
        missing = []
        with without_modes():
            for name, slot in zip(names, slots, strict=True):
                held: Any = own.get(self._own_names.get(name, name))
                # A subclass would run its own code when it is copied.
                plain = type(held) in (torch.Tensor, torch.nn.Parameter)
                if plain and has_bytes(held) and SHAPE(held) == SHAPE(slot) and DTYPE(held) == DTYPE(slot):
                    COPY(slot, DETACH(held))
                else:
                    missing.append(name)
        return missing

    def parameters(self, names: Sequence[str]) -> list[torch.Tensor | None]:
        """Return the model's parameters; None for each that it does not have.

        Args:
            names: Names of the reference's parameters.
        """
        own = _held_by(self._model) if issubclass(type(self._model), torch.nn.Module) else {}
        found = [own.get(self._own_names.get(name, name)) for name in names]
        return [held if type(held) is torch.nn.Parameter else None for held in found]

    def _own(self) -> dict[str, Any]:
        """Return the current state by the model's own names.

        Names that only `state_dict` knew have the initial tensor.
        """
        held = _held_by(self._model) if issubclass(type(self._model), torch.nn.Module) else {}
        return {**self._said, **held}


def _alike(held: torch.Tensor, value: torch.Tensor) -> bool:
    return held.layout is torch.strided and not held.is_meta and held.shape == value.shape and held.dtype == value.dtype


def _same(held: torch.Tensor, value: torch.Tensor) -> bool:
    """Return whether the values are equal, on whatever device."""
    return torch.equal(held.detach(), value.to(held.device))


def _plain_tensors(model: torch.nn.Module) -> dict[str, Any]:
    """Return the tensors that are plain attributes of modules, by name."""
    return {
        f"{prefix}.{name}" if prefix else name: held
        for prefix, module in model.named_modules()
        for name, held in _ATTRIBUTES(module).items()
        if isinstance(held, torch.Tensor)
    }


def _may_be_changed(held: Any) -> AbstractContextManager[object]:
    """Allow writing to `held`.

    A tensor made in inference mode can be changed only in that mode.
    """
    made_there = issubclass(type(held), torch.Tensor) and IS_INFERENCE(held)
    return _INFERENCE_MODE(True) if made_there else nullcontext()


def _held_by(model: torch.nn.Module) -> dict[str, Any]:
    """Return tensors by name, like `torch.nn.Module.state_dict`, but faster.

    Overrides and hooks of `state_dict` are ignored. Types are compared with `type`, because `isinstance` also asks the
    value.
    """
    found: dict[str, Any] = {}
    pending: list[tuple[str, int, Any]] = [("", 0, model)]
    for _ in range(MAX_MODULES):
        if not pending:
            return found
        prefix, depth, module = pending.pop()
        if depth > MAX_DEPTH:
            break
        parameters, buffers, modules, passing = _tables(module)
        for table in (parameters, buffers):
            if issubclass(type(table), dict):
                for name, held in dict.items(table):
                    if held is not None and type(name) is str and name not in passing:
                        found[prefix + name] = held
        if issubclass(type(modules), dict):
            for name, held in dict.items(modules):
                if type(name) is str and issubclass(type(held), _MODULES):
                    pending.append((f"{prefix}{name}.", depth + 1, held))
    raise ValueError(f"the model has more than {MAX_MODULES} modules, or nests deeper than {MAX_DEPTH}")


_MODULES = (torch.nn.Module, torch._C.ScriptModule)


def _tables(module: Any) -> tuple[Any, Any, Any, set[str]]:
    """Return a module's parameters, buffers and submodules, and names to leave out.

    Those are the non-persistent buffers, which are no state.
    """
    own: dict[str, Any] = {"_c": module} if type(module) is torch._C.ScriptModule else _ATTRIBUTES(module)
    traced: Any = own.get("_actual_script_module")
    if issubclass(type(traced), torch.nn.Module):
        own = _ATTRIBUTES(traced)
    if type(script := own.get("_c")) is torch._C.ScriptModule:  # its tables are in C++
        kinds: tuple[Any, ...] = (torch._C.ParameterDict, torch._C.BufferDict, torch._C.ModuleDict)
        parameters, buffers, modules = (dict(kind(script).items()) for kind in kinds)
        return parameters, buffers, modules, set()
    passing = own.get("_non_persistent_buffers_set")
    tables = (own.get("_parameters"), own.get("_buffers"), own.get("_modules"))
    return (*tables, passing if type(passing) is set else set())
