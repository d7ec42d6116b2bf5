"""Loads a problem's module from its source, with a workload's sizes in place of the file's.

Trusted side only: the referee and the baselines use it, a contestant never sees it. A problem is trusted code and is
executed here. Imports the vocabulary, `devices`, `python_syntax`, `sizes`, `trees` and `progress_marker`.

The module is registered under a random name, since dataclasses, `torch.compile` and Triton look a class up by
the name of its module, and so that nothing else in the process can reach it by guessing. Two loads share nothing.
"""

from __future__ import annotations

import re
import secrets
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any

import torch

from harness.catalog.sizes import UNKNOWN, apply_sizes, constants
from harness.core import python_ast
from harness.core.problem import Problem, Workload
from harness.core.status import one_line
from harness.devices.device import seed_generators
from harness.protocol.tensor_tree import TreeError, flatten, unflatten
from harness.referee.problem.watchdog import NOWHERE, Phase, ProgressMarker

INIT_SEED = 0
"""Seed before `get_init_inputs`: constructor arguments are part of the problem, the same in every run."""


class ProblemError(Exception):
    """The problem is at fault, never a solution: it can't be loaded, or its reference or its inputs fail. The message
    does not say which problem: whoever shows it does.
    """


class ReferenceModule:
    """A loaded problem. Made by `load_reference`."""

    def __init__(
        self,
        problem: Problem,
        workload: Workload,
        module: ModuleType,
        sizes: Mapping[str, Any],
        progress_marker: ProgressMarker = NOWHERE,
    ) -> None:
        self.problem = problem
        self.workload = workload
        self._progress_marker = progress_marker
        self.sizes = sizes
        """Values of the file's constants under this workload, for declared costs and for display."""
        self._module = module
        self._model_class = self._member("Model")
        if not (isinstance(self._model_class, type) and issubclass(self._model_class, torch.nn.Module)):
            raise ProblemError("Model is not a subclass of torch.nn.Module")
        self._get_inputs = self._callable("get_inputs")
        self._get_init_inputs = self._callable("get_init_inputs")
        weakref.finalize(self, sys.modules.pop, module.__name__, None)

    def at(self, step: Phase) -> AbstractContextManager[None]:
        """Whoever runs the problem's code does so in this, and says which."""
        return self._progress_marker.at(self.problem, self.workload, step)

    def get_inputs(self) -> Any:
        """What the problem's own function returns; raises what that raises. `harness.referee.problem.inputs` draws
        through it.
        """
        with self.at(Phase.INPUTS):
            return self._get_inputs()

    def init_inputs(self) -> list[Any]:
        """The constructor's arguments: a new list with the same values in every call.

        Raises `ProblemError` where `get_init_inputs` fails or returns no list or tuple.
        """
        seed_generators(INIT_SEED)
        with self._blame("get_init_inputs failed"), self.at(Phase.INIT_INPUTS):
            held = self._get_init_inputs()
        if not isinstance(held, list | tuple):
            raise ProblemError(f"get_init_inputs returns a {type(held).__name__}, not a list")
        return list(held)

    def model(self, seed: int, device: torch.device | None, dtype: torch.dtype | None = None) -> torch.nn.Module:
        """A new `Model` on `device`, its floating-point parameters and buffers cast to `dtype` if one is given.

        As KernelBench does, it is constructed on the CPU right after seeding, so that a solution constructed
        under the same seed draws the same weights on every device, and left in the mode its constructor chose.
        Tensors among the constructor's arguments are moved to `device` first. None leaves everything where it is
        made. Raises `ProblemError`.
        """
        arguments = self.init_inputs() if device is None else _moved(self.init_inputs(), device)
        seed_generators(seed)
        with self._blame("Model(*get_init_inputs()) failed"), cuda_missed(), self.at(Phase.CONSTRUCTOR):
            model: torch.nn.Module = self._model_class(*arguments)
        if device is None and dtype is None:
            return model
        with self._blame(f"the model can't be moved to {device}"):
            return model.to(device=device, dtype=dtype)

    def _member(self, name: str) -> Any:
        try:
            return getattr(self._module, name)
        except AttributeError as error:
            raise ProblemError(f"the file defines no {name}") from error

    def _callable(self, name: str) -> Callable[[], Any]:
        held = self._member(name)
        if not callable(held):
            raise ProblemError(f"{name} is not a function")
        return held  # type: ignore[no-any-return]

    @contextmanager
    def _blame(self, what: str) -> Iterator[None]:
        """Turn the problem's exceptions into `ProblemError`; lack of memory is the machine's fault and passes."""
        try:
            yield
        except (torch.OutOfMemoryError, MemoryError, ProblemError):
            raise
        except (Exception, SystemExit) as error:
            raise ProblemError(f"{what}: {describe(error)}") from error


def load_reference(problem: Problem, workload: Workload, progress_marker: ProgressMarker = NOWHERE) -> ReferenceModule:
    """Execute `problem` with the sizes of `workload` in a module of its own.

    `progress_marker` is told whenever, now and later, the problem's code runs.
    Raises `ProblemError` where the file doesn't parse or run, or lacks `Model`, `get_inputs` or `get_init_inputs`.
    """
    name = f"reference_{secrets.token_hex(16)}"
    module = ModuleType(name, problem.id)
    module.__file__ = str(problem.path)
    try:
        tree = apply_sizes(python_ast.parse(problem.source, str(problem.path)), workload.sizes)
        code = compile(tree, str(problem.path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ProblemError(f"the file is not valid Python: {describe(error)}") from error
    sys.modules[name] = module
    try:
        with cuda_missed(), progress_marker.at(problem, workload, Phase.IMPORT):
            exec(code, module.__dict__)
        sizes = {key: getattr(module, key, UNKNOWN) for key in constants(tree)}
        return ReferenceModule(problem, workload, module, sizes, progress_marker)
    except ProblemError:
        sys.modules.pop(name, None)
        raise
    except (Exception, SystemExit) as error:
        sys.modules.pop(name, None)
        raise ProblemError(f"the file fails on import: {describe(error)}") from error


@contextmanager
def cuda_missed() -> Iterator[None]:
    """Raise `ProblemError` where the problem's code asks for autocasting on a GPU and there is none: torch would only
    warn, and compute in another type than the solution, for which a GPU is there.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=_NO_AUTOCAST)
        try:
            yield
        except UserWarning as warning:
            if re.match(_NO_AUTOCAST, str(warning)) is None:
                raise
            raise ProblemError(
                "it computes under torch.autocast('cuda'), which only a GPU has; torch.autocast(x.device.type) works "
                "on the host device, too"
            ) from warning


_NO_AUTOCAST = "(User provided device_type of 'cuda', but )?CUDA is not available"
"""As versions of torch say it."""


def state_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The model's parameters and buffers by name, not copies. What `get_extra_state` adds is of any type and no part
    of what is compared. Raises `ProblemError` where one of them has no shape before the first call.
    """
    held = {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
    for name, value in held.items():
        if torch.nn.parameter.is_lazy(value):
            raise ProblemError(
                f"the model's {name} has no shape before the first call (a lazy module), so that no solution can be "
                "given its values: write the sizes out"
            )
    return held


def describe(error: BaseException) -> str:
    """An exception in one line."""
    return one_line(f"{type(error).__name__}: {error}", limit=300)


def _moved(arguments: Sequence[Any], device: torch.device) -> list[Any]:
    """`arguments` with their tensors on `device`; objects that are no trees stay as they are."""
    try:
        leaves, spec = flatten(list(arguments))
        if not leaves or spec.opaque() or spec.degraded:
            return [item.to(device) if isinstance(item, torch.Tensor) else item for item in arguments]
        moved: list[Any] = unflatten(spec, [leaf.to(device) for leaf in leaves])
        return moved
    except TreeError:
        return list(arguments)
