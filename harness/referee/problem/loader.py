"""Load a problem's module from its source, with a workload's sizes.

Trusted side: a problem is trusted code, executed in the referee; a contestant never sees it. The module gets a random
name in `sys.modules`: dataclasses, `torch.compile` and Triton look up a class by its module's name, and no other code
can guess it. Two loads share nothing.
"""

from __future__ import annotations

import copy
import functools
import re
import secrets
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from harness.catalog.sizes import UNKNOWN, apply_sizes, constants
from harness.core import python_ast
from harness.core.problem import Problem, Workload
from harness.core.status import one_line
from harness.devices.device import seed_generators
from harness.protocol.gradients import INCOMING, forward_and_backward
from harness.protocol.messages import Gradients
from harness.protocol.tensor_tree import TreeError, flatten, unflatten
from harness.referee.problem.watchdog import NOWHERE, Phase, ProgressMarker

INIT_SEED = 0
"""Seed before `get_init_inputs`: constructor arguments belong to the problem and are the same in every run."""


class ProblemError(Exception):
    """The problem is at fault, not a solution: it can't be loaded, or its code fails.

    The message does not name the problem; the code that shows it does.
    """


class ReferenceModule:
    """A loaded problem; `load_reference` creates it."""

    def __init__(
        self,
        problem: Problem,
        workload: Workload,
        module: ModuleType,
        sizes: Mapping[str, Any],
        progress_marker: ProgressMarker = NOWHERE,
        moves: MovesFromCuda | None = None,
    ) -> None:
        self.problem = problem
        self.workload = workload
        self._progress_marker = progress_marker
        self.sizes = sizes
        """Values of the file's constants at this workload, for declared costs and for display."""
        self.dtype: torch.dtype | None = None if problem.dtype is None else getattr(torch, problem.dtype)
        """Type of floating-point inputs, parameters and buffers; None leaves them as they are created."""
        self.moves = moves
        """On a machine without a GPU: keeps what the file puts on "cuda" on the CPU. None if the file names no GPU."""
        self._module = module
        self._model_class = self._member("Model")
        if not (isinstance(self._model_class, type) and issubclass(self._model_class, torch.nn.Module)):
            raise ProblemError("Model is not a subclass of torch.nn.Module")
        self.gradients: Gradients | None = None
        """What a call differentiates, once `learn_gradients` found it out; None if the problem asks for no backward."""
        self._incoming: list[tuple[torch.Size, torch.dtype]] = []
        self._get_inputs = self._callable("get_inputs")
        self._get_init_inputs = self._callable("get_init_inputs")
        weakref.finalize(self, sys.modules.pop, module.__name__, None)

    @contextmanager
    def at(self, step: Phase) -> Iterator[None]:
        """Mark that the problem's code runs in this phase; required around each such call."""
        with self._progress_marker.at(self.problem, self.workload, step), self.moves or nullcontext():
            yield

    def get_inputs(self) -> Any:
        """Return the result of the problem's `get_inputs`; raise whatever it raises.

        If the problem asks for a backward, the last argument has the incoming gradients, drawn after the inputs.
        `harness.referee.problem.inputs` draws through this.
        """
        if self.problem.backward and self.gradients is None:
            bare = self.without_backward()
            arguments, model = list(bare.get_inputs()), bare.model(0, None)
            if any(leaf.is_meta for leaf in flatten(arguments)[0]):
                arguments, model = without_data(arguments, model)
            self.learn_gradients(model, arguments)
        with self.at(Phase.INPUTS):
            drawn = self._get_inputs()
        if self.gradients is None or not isinstance(drawn, list | tuple):
            return drawn
        incoming = [torch.randn(shape, dtype=dtype) for shape, dtype in self._incoming]
        return [*drawn, {INCOMING: incoming[0] if len(incoming) == 1 else incoming}]

    def without_backward(self) -> ReferenceModule:
        """Load the problem once more, without its backward."""
        return load_reference(replace(self.problem, backward=()), self.workload, self._progress_marker)

    def learn_gradients(self, model: torch.nn.Module, arguments: Sequence[object]) -> None:
        """Find out by one call which gradients there are, and the incoming shapes.

        Args:
            model: A model of `without_backward`.
            arguments: Arguments of one call.

        Raises:
            ProblemError: The call fails, or nothing that the problem names has a gradient.
        """
        leaves, tree = flatten(list(arguments))
        numbers = [number for number, leaf in enumerate(leaves) if leaf.is_floating_point()]
        numbers = numbers if "inputs" in self.problem.backward else []
        names = [name for name, held in model.named_parameters() if held.requires_grad]
        names = names if "parameters" in self.problem.backward else []
        for number in numbers:
            leaves[number] = leaves[number].detach().requires_grad_()
        wanted = [*(leaves[number] for number in numbers), *(model.get_parameter(name) for name in names)]
        with self._blame("the forward for its backward failed"), self.at(Phase.FORWARD), torch.enable_grad():
            outputs, _ = flatten(model(*unflatten(tree, leaves)))
            roots = [number for number, output in enumerate(outputs) if output.requires_grad]
            if not roots or not wanted:
                raise ProblemError(
                    f"the problem asks for a backward by its {' and '.join(self.problem.backward)}, but no output "
                    "depends on a floating-point one; remove `backward`, or change forward"
                )
            results = [outputs[number] for number in roots]
            found = torch.autograd.grad(results, wanted, list(map(torch.ones_like, results)), allow_unused=True)
        own = dict(zip([*numbers, *names], found, strict=True))
        self.gradients = Gradients(
            inputs=tuple(number for number in numbers if own[number] is not None),
            parameters=tuple(name for name in names if own[name] is not None),
            outputs=tuple(roots),
        )
        self._incoming = [(output.shape, output.dtype) for output in results]

    def forward_only(self, model: torch.nn.Module) -> torch.nn.Module:
        """Return a view of a model of this reference that calls the problem's own forward."""
        if not self.problem.backward:
            return model
        bare = copy.copy(model)
        bare.__class__ = self._model_class
        return bare

    def with_backward(self, forward: Callable[..., Any], model: torch.nn.Module) -> Callable[..., Any]:
        """Return `forward` followed by its backward, if the problem asks for that.

        Args:
            forward: Computes what the problem's own forward does.
            model: Has the parameters.
        """
        if not self.problem.backward:
            return forward
        return functools.partial(self._both_passes, forward, model)

    def _both_passes(self, forward: Callable[..., Any], model: torch.nn.Module, *arguments: Any) -> dict[str, object]:
        if self.gradients is None:
            raise RuntimeError("the gradients are not known yet; draw inputs first")
        parameters = [model.get_parameter(name) for name in self.gradients.parameters]
        return forward_and_backward(forward, arguments, self.gradients, parameters)

    @functools.cached_property
    def _differentiated(self) -> type[torch.nn.Module]:
        """A subclass of `Model` whose forward also makes the backward."""
        plain = self._model_class

        def forward(model: Any, *arguments: Any) -> dict[str, object]:
            return self._both_passes(functools.partial(plain.forward, model), model, *arguments)

        return type(plain.__name__, (plain,), {"forward": forward})

    def init_inputs(self) -> list[Any]:
        """Return the constructor's arguments.

        Returns:
            A new list with the same values in every call.

        Raises:
            ProblemError: `get_init_inputs` fails or returns no list or tuple.
        """
        seed_generators(INIT_SEED)
        with self._blame("get_init_inputs failed"), self.at(Phase.INIT_INPUTS):
            held = self._get_init_inputs()
        if not isinstance(held, list | tuple):
            raise ProblemError(f"get_init_inputs returns a {type(held).__name__}, not a list")
        return list(held)

    def model(self, seed: int, device: torch.device | None, dtype: torch.dtype | None = None) -> torch.nn.Module:
        """Construct a new `Model`.

        As in KernelBench, it is constructed on the CPU right after seeding, so that a solution constructed under the
        same seed draws the same weights on every device. It stays in the mode (train or eval) that its constructor
        chose.

        Args:
            seed: Seed of all generators.
            device: Where parameters, buffers and tensors among the arguments go; None leaves them where they are
                created.
            dtype: Type for floating-point parameters and buffers, if given.

        Raises:
            ProblemError: The constructor fails, or the model can't be moved.
        """
        dtype = dtype or self.dtype
        arguments = self.init_inputs() if device is None else _moved(self.init_inputs(), device)
        seed_generators(seed)
        with self._blame("Model(*get_init_inputs()) failed"), cuda_missed(), self.at(Phase.CONSTRUCTOR):
            kind = self._differentiated if self.problem.backward else self._model_class
            model: torch.nn.Module = kind(*arguments)
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
        """Turn the problem's exceptions into `ProblemError`; out-of-memory errors pass."""
        try:
            yield
        except (torch.OutOfMemoryError, MemoryError, ProblemError):
            raise
        except (Exception, SystemExit) as error:
            raise ProblemError(f"{what}: {describe(error)}") from error


def load_reference(problem: Problem, workload: Workload, progress_marker: ProgressMarker = NOWHERE) -> ReferenceModule:
    """Execute a problem in a module of its own.

    Args:
        problem: The problem.
        workload: Its sizes replace the file's constants.
        progress_marker: Records whenever, now or later, the problem's code runs.

    Raises:
        ProblemError: The file does not parse or run, or defines no `Model`, `get_inputs` or `get_init_inputs`.
    """
    name = f"reference_{secrets.token_hex(16)}"
    module = ModuleType(name, problem.id)
    module.__file__ = str(problem.path)
    try:
        tree = apply_sizes(python_ast.parse(problem.source, str(problem.path)), workload.sizes)
        code = compile(tree, str(problem.path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ProblemError(f"the file is not valid Python: {describe(error)}") from error
    moves = _moves_from_cuda(problem)
    sys.modules[name] = module
    try:
        with cuda_missed(), progress_marker.at(problem, workload, Phase.IMPORT), moves or nullcontext():
            exec(code, module.__dict__)
        sizes = {key: getattr(module, key, UNKNOWN) for key in constants(tree)}
        return ReferenceModule(problem, workload, module, sizes, progress_marker, moves)
    except ProblemError:
        sys.modules.pop(name, None)
        raise
    except (Exception, SystemExit) as error:
        sys.modules.pop(name, None)
        raise ProblemError(f"the file fails on import: {describe(error)}") from error


def without_data(arguments: Sequence[object], model: torch.nn.Module) -> tuple[list[object], torch.nn.Module]:
    """Move arguments and a model to the device `meta`, also within `meta_tensors`."""
    with torch._C.DisableTorchFunction():  # that mode would change copies of the parameters
        leaves, tree = flatten(list(arguments))
        return unflatten(tree, [leaf.to("meta") for leaf in leaves]), model.to("meta")


class _CpuGenerator(torch.Generator):
    """Takes the place of `torch.Generator` while a problem's code runs."""

    moves: MovesFromCuda

    def __new__(cls, device: Any = "cpu") -> Any:
        cls.moves.moved = cls.moves.moved or _names_cuda(device)
        return _Generator("cpu" if _names_cuda(device) else device)


_Generator = torch.Generator


class MovesFromCuda(TorchFunctionMode):
    """Keeps tensors that the problem creates on or moves to "cuda" on the CPU.

    `moved` tells whether that happened.
    """

    def __init__(self) -> None:
        super().__init__()
        self.moved = False
        self._on_cpu = type("Generator", (_CpuGenerator,), {"moves": self})

    def __enter__(self) -> MovesFromCuda:
        torch.Generator = self._on_cpu  # type: ignore[misc, assignment]  # its constructor is no torch function
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *exception: Any) -> None:
        torch.Generator = _Generator  # type: ignore[misc]
        super().__exit__(*exception)  # type: ignore[no-untyped-call]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.cuda:
            self.moved = True
            return args[0]
        if _names_cuda(kwargs.get("device")):
            self.moved = True
            kwargs = {name: value for name, value in kwargs.items() if name != "device"}
            if func is torch.Tensor.to:
                kwargs["device"] = args[0].device
        elif func is torch.Tensor.to and len(args) > 1 and _names_cuda(args[1]):
            self.moved = True
            args = (args[0], args[0].device, *args[2:])
        return func(*args, **kwargs)


def _names_cuda(device: object) -> bool:
    return isinstance(device, str | torch.device) and str(device).partition(":")[0] == "cuda"


def _moves_from_cuda(problem: Problem) -> MovesFromCuda | None:
    return MovesFromCuda() if "cuda" in problem.source and not torch.cuda.is_available() else None


@contextmanager
def cuda_missed() -> Iterator[None]:
    """Raise `ProblemError` if the problem uses autocast on a GPU and there is none.

    torch would only warn, and compute in another type than a solution that has a GPU.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=_NO_AUTOCAST)
        try:
            yield
        except UserWarning as warning:
            if re.match(_NO_AUTOCAST, str(warning)) is None:
                raise
            raise ProblemError(
                "it computes under torch.autocast('cuda'), which only a GPU has; use torch.autocast(x.device.type), "
                "which also works on the host device"
            ) from warning


_NO_AUTOCAST = "(User provided device_type of 'cuda', but )?CUDA is not available"
"""The message in different versions of torch."""


def state_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the model's parameters and buffers by name, not copied.

    Results of `get_extra_state` are not tensors and are left out.

    Raises:
        ProblemError: A parameter has no shape before the first call (a lazy module).
    """
    held = {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
    for name, value in held.items():
        if torch.nn.parameter.is_lazy(value):
            raise ProblemError(
                f"the model's {name} has no shape before the first call (a lazy module), so no solution can get its "
                "values; write the sizes out"
            )
    return held


def describe(error: BaseException) -> str:
    """Return an exception as one line."""
    return one_line(f"{type(error).__name__}: {error}", limit=300)


def _moved(arguments: Sequence[Any], device: torch.device) -> list[Any]:
    """Move tensors among the arguments to `device`; other objects stay unchanged."""
    try:
        leaves, spec = flatten(list(arguments))
        if not leaves or spec.opaque() or spec.degraded:
            return [item.to(device) if isinstance(item, torch.Tensor) else item for item in arguments]
        moved: list[Any] = unflatten(spec, [leaf.to(device) for leaf in leaves])
        return moved
    except TreeError:
        return list(arguments)
