"""Parameters and buffers of a solution's model, beside those of the reference: taken over, put back, and copied out.

The untrusted side: runs in one process with a submission, and is imported by `contestant` alone.

Decision: what a model says of its state (`state_dict`, which it may define, and hooks of that) is asked for once, as it
is loaded. The state is copied out when the clock of a call has stopped, and such code could do then what was to be
timed. So from then on torch's own tables are read, and no code of the model is run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
"""Modules of one model, each counted as often as it is held, and how deep they nest: two that hold each other would be
without end."""

_ATTRIBUTES: Callable[[torch.nn.Module], dict[str, Any]] = vars(torch.nn.Module)["__dict__"].__get__
"""As Python has it, whatever a class says instead."""

_INFERENCE_MODE: Callable[[bool], AbstractContextManager[object]] = torch._C._InferenceMode


class HeldState:
    """The state of `model` by name; none where it is no module. Names are those of `torch.nn.Module.state_dict`."""

    def __init__(self, model: Any = None) -> None:
        self._model = model
        self._initial: dict[str, torch.Tensor] = {}
        self._said: dict[str, torch.Tensor] = {}

    def take_over(self, wanted: Mapping[str, torch.Tensor]) -> tuple[list[str], list[str]]:
        """Copy these values where they differ from its own, and remember how it stands then. The names that were
        copied, and those that have no place of that shape and dtype.
        """
        own = dict(self._model.state_dict()) if isinstance(self._model, torch.nn.Module) else {}
        copied, unmatched = [], []
        with torch.no_grad():
            for name, value in wanted.items():
                held = own.get(name)
                if held is None or held.shape != value.shape or held.dtype != value.dtype:
                    unmatched.append(name)
                elif not torch.equal(held, value):
                    with _may_be_changed(held):
                        held.copy_(value)
                    copied.append(name)
            self._said = {name: own[name] for name in wanted if name in own}
            self._initial = {name: held.clone() for name, held in self._said.items()}
        return copied, unmatched

    def put_back(self, names: Sequence[str]) -> None:
        """The state under these names as it stood after `take_over`. What else a model has changed of itself stays so,
        and shows in what its next call returns. What can't be written to any more (of another shape, one number for
        all) is left as it is, and shows where it is copied out.
        """
        own = self._own()
        with torch.no_grad():
            for name in names:
                if name in self._initial:
                    with suppress(RuntimeError), _may_be_changed(own[name]):
                        COPY(own[name], self._initial[name])

    def copy_to(self, names: Sequence[str], slots: Sequence[torch.Tensor]) -> list[str]:
        """Copy what is held under these names to the slots; the names of which there is nothing like it."""
        own = self._own() if names else {}
        missing = []
        with without_modes():
            for name, slot in zip(names, slots, strict=True):
                held: Any = own.get(name)
                # A subclass brings code of its own to where it is copied from.
                plain = type(held) in (torch.Tensor, torch.nn.Parameter)
                if plain and has_bytes(held) and SHAPE(held) == SHAPE(slot) and DTYPE(held) == DTYPE(slot):
                    COPY(slot, DETACH(held))
                else:
                    missing.append(name)
        return missing

    def _own(self) -> dict[str, Any]:
        """What stands under each name by now, and what stood under those that only `state_dict` knew."""
        held = _held_by(self._model) if issubclass(type(self._model), torch.nn.Module) else {}
        return {**self._said, **held}


def _may_be_changed(held: Any) -> AbstractContextManager[object]:
    """Where `held` may be written to: what was made in inference mode, in that mode alone."""
    made_there = issubclass(type(held), torch.Tensor) and IS_INFERENCE(held)
    return _INFERENCE_MODE(True) if made_there else nullcontext()


def _held_by(model: torch.nn.Module) -> dict[str, Any]:
    """Tensors by name, as `torch.nn.Module.state_dict` has them where nothing is defined or hooked; in less time than
    that takes. Types are asked for, since `isinstance` asks the value, too.
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
    raise ValueError(f"a model of more than {MAX_MODULES} modules, or nested deeper than {MAX_DEPTH}")


_MODULES = (torch.nn.Module, torch._C.ScriptModule)


def _tables(module: Any) -> tuple[Any, Any, Any, set[str]]:
    """Parameters, buffers and modules that a module holds by itself, and the names that are no state of its."""
    own: dict[str, Any] = {"_c": module} if type(module) is torch._C.ScriptModule else _ATTRIBUTES(module)
    traced: Any = own.get("_actual_script_module")
    if issubclass(type(traced), torch.nn.Module):
        own = _ATTRIBUTES(traced)
    if type(script := own.get("_c")) is torch._C.ScriptModule:  # whose tables lie in C++
        kinds: tuple[Any, ...] = (torch._C.ParameterDict, torch._C.BufferDict, torch._C.ModuleDict)
        parameters, buffers, modules = (dict(kind(script).items()) for kind in kinds)
        return parameters, buffers, modules, set()
    passing = own.get("_non_persistent_buffers_set")
    tables = (own.get("_parameters"), own.get("_buffers"), own.get("_modules"))
    return (*tables, passing if type(passing) is set else set())
