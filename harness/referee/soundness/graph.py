"""Wrong answers from the reference with one operation left out or replaced.

This needs a model that torch.fx can trace.

Trusted side.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves, tree_map_only

from harness.core.status import one_line
from harness.devices.device import Device
from harness.devices.layout import copied
from harness.devices.out_of_memory import is_shortage
from harness.protocol.tensor_tree import flatten, unflatten
from harness.referee.problem.truth import Reference
from harness.referee.soundness.computed import run_model
from harness.referee.soundness.index_bounds import IndexBounds
from harness.referee.soundness.samples import Leaves, ReferenceCall
from harness.referee.soundness.wrong import Wrong

MAX_MUTANTS = 1000
"""Maximum number of mutants of one problem.

A graph with more is an unrolled loop; a note says how many were skipped.
"""

_NEUTRAL = frozenset(
    {
        "contiguous",
        "view",
        "reshape",
        "flatten",
        "unflatten",
        "squeeze",
        "unsqueeze",
        "expand",
        "expand_as",
        "to",
        "type",
        "type_as",
        "float",
        "double",
        "clone",
        "detach",
        "dropout",
        "Dropout",
        "Identity",
        "Flatten",
        "Unflatten",
        "getitem",
        "getattr",
        "size",
        "chunk",
        "split",
        "unbind",
        "broadcast_to",
    }
)
"""Operations that move or rename values; leaving one out is no arithmetic mistake."""

_SWAPPED: Mapping[str, Callable[..., Any]] = {
    "add": operator.sub,
    "iadd": operator.sub,
    "sub": operator.add,
    "isub": operator.add,
    "mul": operator.add,
    "imul": operator.add,
    "truediv": operator.mul,
    "div": operator.mul,
    "mean": torch.sum,
    "sum": torch.mean,
    "amax": torch.amin,
    "amin": torch.amax,
    "argmax": torch.argmin,
    "argmin": torch.argmax,
    "max": torch.min,
    "min": torch.max,
    "softmax": torch.log_softmax,
    "log_softmax": torch.softmax,
    "sigmoid": torch.tanh,
    "tanh": torch.sigmoid,
    "relu": torch.abs,
    "gelu": F.silu,
    "silu": F.relu,
    "cumsum": torch.cumprod,
    "cumprod": torch.cumsum,
    "logsumexp": torch.amax,
    "prod": torch.sum,
    "std": torch.var,
    "var": torch.std,
    "exp": torch.expm1,
    "maximum": torch.minimum,
    "minimum": torch.maximum,
    "triu": torch.tril,
    "tril": torch.triu,
    "max_pool1d": F.avg_pool1d,
    "max_pool2d": F.avg_pool2d,
    "max_pool3d": F.avg_pool3d,
    "avg_pool1d": F.max_pool1d,
    "avg_pool2d": F.max_pool2d,
    "avg_pool3d": F.max_pool3d,
}
"""Operations easily mistaken for each other. A mutant whose arguments do not fit crashes and does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutants:
    """The mutants of one problem.

    Also: the number of operations, of mutants left out, and why there may be none.
    """

    wrongs: tuple[Wrong, ...]
    operations: int
    untried: tuple[str, ...]
    left_out: int = 0
    not_traced: str | None = None


def mutants(sample: ReferenceCall, oracle: Reference, device: Device) -> Mutants:
    """Drop or replace every operation of the reference, one at a time.

    An operation is dropped if an argument has its result's shape, and replaced if it is in `_SWAPPED`.
    """
    try:
        traced = _traced(oracle.forward_model)
        seen = _shapes(traced, sample, oracle, device)
        shapes = seen.shapes
    except Exception as error:
        if is_shortage(error):
            raise
        oracle.restore_state()
        reason = one_line(f"{type(error).__name__}: {error}", limit=160)
        return Mutants(wrongs=(), operations=0, untried=(), not_traced=reason)
    backward = oracle.traits.held_bytes is not None
    wrongs: list[Wrong] = []
    untried: list[str] = []
    operations = 0
    for node in traced.graph.nodes:
        name = _name(traced, node)
        if node.op not in ("call_function", "call_method", "call_module") or name in _NEUTRAL:
            continue
        if node.name not in shapes:
            continue
        operations += 1
        detachable = backward and node.name in seen.with_history
        made = _of_node(traced, node, name, shapes, oracle, device, backward=detachable)
        if made:
            wrongs += made
        else:
            untried.append(node.name)
    return Mutants(
        wrongs=tuple(wrongs[:MAX_MUTANTS]),
        operations=operations,
        untried=tuple(untried),
        left_out=max(0, len(wrongs) - MAX_MUTANTS),
    )


def _traced(model: torch.nn.Module) -> torch.fx.GraphModule:
    """Trace the model and leave it as it was.

    torch.fx sets tensors made in `forward` as attributes of it, and `forward` may set attributes to what it traces.
    """
    before = [(module, dict(vars(module))) for module in model.modules()]
    try:
        return torch.fx.symbolic_trace(model)
    finally:
        for module, attributes in before:
            vars(module).clear()
            vars(module).update(attributes)


def _of_node(
    traced: torch.fx.GraphModule,
    node: torch.fx.Node,
    name: str,
    shapes: Mapping[str, tuple[torch.Size, torch.dtype]],
    oracle: Reference,
    device: Device,
    *,
    backward: bool,
) -> list[Wrong]:
    found = []
    instead = next((item for item in node.all_input_nodes if shapes.get(item.name) == shapes[node.name]), None)
    if instead is not None:
        answer = _answering(_Mutant(traced, node.name, _dropped(instead.name)), oracle, device)
        saturates = name == "clamp" and all(_to_float8(user) for user in node.users)
        label = f"{node.name} left out"
        found.append(Wrong(rule="dropped_operation", name=label, answer=answer, may_agree=saturates))
    other = _SWAPPED.get(name)
    if other is not None and node.op != "call_module":
        answer = _answering(_Mutant(traced, node.name, _replaced(other)), oracle, device)
        label = f"{node.name} replaced by {other.__name__}"
        found.append(Wrong(rule="dropped_operation", name=label, answer=answer))
    if backward:
        answer = _answering(_Mutant(traced, node.name, _detached), oracle, device)
        # An operation may have no part in any gradient, such as one that makes a mask.
        found.append(Wrong(rule="dropped_operation", name=f"{node.name} detached", answer=answer, may_agree=True))
    return found


def _to_float8(node: torch.fx.Node) -> bool:
    """Return whether a node converts to float8.

    That saturates by itself in some versions of torch.
    """
    return node.target == "to" and any(arg in (torch.float8_e4m3fn, torch.float8_e5m2) for arg in node.args)


class _Mutant(torch.fx.Interpreter):
    """Run the traced graph with another result for one operation.

    Nothing is compiled, so that hundreds of mutants cost little more than their calls.
    """

    def __init__(self, traced: torch.fx.GraphModule, name: str, otherwise: Callable[[_Mutant, torch.fx.Node], Any]):
        super().__init__(traced)
        self._name = name
        self._otherwise = otherwise

    def run_node(self, n: torch.fx.Node) -> Any:
        return self._otherwise(self, n) if n.name == self._name else super().run_node(n)

    def __call__(self, *arguments: Any) -> Any:
        try:
            with IndexBounds():  # type: ignore[no-untyped-call]
                return self.run(*arguments, enable_io_processing=False)
        finally:
            self.env = {}  # it holds the result, and the results of a hundred mutants exceed a GPU's memory


def _answering(
    mutant: _Mutant, oracle: Reference, device: Device
) -> Callable[[ReferenceCall, Leaves], Sequence[torch.Tensor]]:
    call = oracle.with_backward(mutant)
    return lambda sample, _: run_model(call, sample.inputs, sample, oracle, device)


def _detached(run: _Mutant, node: torch.fx.Node) -> Any:
    """The value without its history: nothing flows back through the operation."""
    return tree_map_only(torch.Tensor, torch.Tensor.detach, torch.fx.Interpreter.run_node(run, node))


def _dropped(instead: str) -> Callable[[_Mutant, torch.fx.Node], Any]:
    """The value of the argument called `instead`."""
    return lambda run, node: next(run.env[item] for item in node.all_input_nodes if item.name == instead)


def _replaced(other: Callable[..., Any]) -> Callable[[_Mutant, torch.fx.Node], Any]:
    def compute(run: _Mutant, node: torch.fx.Node) -> Any:
        arguments, named = run.fetch_args_kwargs_from_env(node)
        return other(*arguments, **named)

    return compute


class _Recorder(torch.fx.Interpreter):
    """Run the graph once; note shapes, dtypes, and which results have a history."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.shapes: dict[str, tuple[torch.Size, torch.dtype]] = {}
        self.with_history: set[str] = set()

    def run_node(self, n: torch.fx.Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, torch.Tensor):
            self.shapes[n.name] = (result.shape, result.dtype)
        elif isinstance(result, tuple) and result and isinstance(result[0], torch.Tensor):
            self.shapes.setdefault(n.name, (torch.Size(), torch.int8))
        if any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in tree_leaves(result)):
            self.with_history.add(n.name)
        return result


def _shapes(traced: torch.fx.GraphModule, sample: ReferenceCall, oracle: Reference, device: Device) -> _Recorder:
    recorder = _Recorder(traced)
    inputs = [copied(leaf) for leaf in sample.inputs] if oracle.traits.mutates_inputs else list(sample.inputs)
    device.reseed(sample.seed)
    with torch.no_grad():
        result = oracle.with_backward(recorder.run)(*unflatten(sample.tree, inputs))
    leaves = [inputs[number] for number in oracle.traits.destinations] or flatten(result)[0]
    oracle.restore_state()
    if not sample.equals(leaves) and sample.rejects(leaves):
        raise ValueError("the graph traced by torch.fx gives other values than the model")
    return recorder


def _name(traced: torch.fx.GraphModule, node: torch.fx.Node) -> str:
    if node.op == "call_module":
        return type(traced.get_submodule(str(node.target))).__name__
    return node.target if isinstance(node.target, str) else str(getattr(node.target, "__name__", node.target))
