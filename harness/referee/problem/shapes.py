"""What one call of a problem takes in, gives and costs, found without its data: shapes, bytes, flops.

Imports the vocabulary, `datasheets`, `reference`, `roofline`, `sizes`, `trees`, `work` and torch; trusted side. The
problem's code runs on torch's fake tensors, which have shapes and types and no memory, so that a problem of many
gigabytes costs some milliseconds here, and needs no GPU. What depends on values (`.item()`, `nonzero`)
can't be known this way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

from harness.catalog.sizes import evaluate
from harness.core.problem import Problem, Workload
from harness.devices.gpu_specs import Peaks
from harness.protocol.tensor_tree import flatten
from harness.referee.problem.flops import count_flops, least_traffic
from harness.referee.problem.loader import ProblemError, describe, load_reference, state_of
from harness.referee.problem.roofline import SpeedOfLight, speed_of_light


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeLeaf:
    """A tensor's place in the arguments or the result, its type and shape."""

    path: str
    dtype: str
    shape: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "dtype": self.dtype, "shape": list(self.shape)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemShapes:
    """One call of a problem at one workload.

    `flops` are those that torch's counter knows (products, convolutions, attention; a multiply-add is two), or the
    problem's declaration; `read_bytes` each input, parameter and buffer once, `written_bytes` each output once, and
    `total_bytes` their sum, or the problem's declaration.
    """

    inputs: tuple[ShapeLeaf, ...]
    outputs: tuple[ShapeLeaf, ...]
    input_bytes: int
    parameter_bytes: int
    output_bytes: int
    total_bytes: int
    flops: int
    declared: tuple[str, ...] = ()

    def light(self, problem: Problem, workload: Workload, peaks: Peaks) -> SpeedOfLight:
        """The least time on a GPU with these peaks, at the workload's precision class."""
        return speed_of_light(self.flops, self.total_bytes, peaks, workload.precision or problem.precision)

    def to_json(self) -> dict[str, Any]:
        return {
            "inputs": [leaf.to_json() for leaf in self.inputs],
            "outputs": [leaf.to_json() for leaf in self.outputs],
            "input_bytes": self.input_bytes,
            "parameter_bytes": self.parameter_bytes,
            "output_bytes": self.output_bytes,
            "total_bytes": self.total_bytes,
            "flops": self.flops,
            "declared": list(self.declared),
        }


def sketch(problem: Problem, workload: Workload) -> ProblemShapes:
    """The shapes and costs of `problem` at `workload`, what it declares (`model.Costs`) in place of what is counted.

    Raises `ProblemError` where the code can't run without data; the message says what stopped it.
    """
    with _quiet(), FakeTensorMode(), torch.no_grad():
        reference = load_reference(problem, workload)
        inputs = _told("get_inputs", reference.get_inputs)
        if not isinstance(inputs, list | tuple):
            kind = "Tensor" if isinstance(inputs, torch.Tensor) else type(inputs).__name__  # here a FakeTensor
            raise ProblemError(f"get_inputs returns a {kind}, not a list")
        model = reference.model(0, None)
        results: list[object] = []
        counted = _told("forward", lambda: count_flops(lambda: results.append(model(*inputs))))
    flops, bytes_ = problem.costs.flops, problem.costs.bytes
    inputs, parameters, result = _plain([inputs, list(state_of(model).values()), results[0]])
    traffic = least_traffic(inputs, parameters, result)
    return ProblemShapes(
        inputs=_leaves("inputs", inputs),
        outputs=_leaves("output", result),
        input_bytes=sum(leaf.nbytes for leaf in flatten(inputs)[0]),
        parameter_bytes=sum(leaf.nbytes for leaf in flatten(parameters)[0]),
        output_bytes=sum(leaf.nbytes for leaf in flatten(result)[0]),
        total_bytes=traffic.total_bytes if bytes_ is None else int(evaluate(bytes_, reference.sizes)),
        flops=counted.total if flops is None else int(evaluate(flops, reference.sizes)),
        declared=tuple(name for name, text in (("flops", flops), ("bytes", bytes_)) if text is not None),
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's own log of what a fake tensor can't do: the error says it."""
    log = logging.getLogger(FakeTensorMode.__module__)
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _plain(tree: Any) -> Any:
    """`tree` with a tensor on the meta device for every fake one, the same for the same."""
    made: dict[int, torch.Tensor] = {}

    def plain(leaf: torch.Tensor) -> torch.Tensor:
        if id(leaf) not in made:
            made[id(leaf)] = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")
        return made[id(leaf)]

    return tree_map_only(torch.Tensor, plain, tree)


def _leaves(root: str, tree: object) -> tuple[ShapeLeaf, ...]:
    leaves, spec = flatten(tree)
    return tuple(
        ShapeLeaf(
            path=path, dtype=str(leaf.dtype).removeprefix("torch."), shape=tuple(int(extent) for extent in leaf.shape)
        )
        for path, leaf in zip(spec.paths(root), leaves, strict=True)
    )


def _told(what: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        raise ProblemError(f"{what} can't run without data: {describe(error)}") from error
