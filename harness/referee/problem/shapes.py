"""Shapes, bytes and flops of one call of a problem, computed without data.

Trusted side. The problem's code runs on torch's fake tensors, which have shapes and types but no memory: a problem of
many gigabytes takes milliseconds and no GPU. Code that depends on values (`.item()`, `nonzero`) can't run this way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from harness.catalog.sizes import evaluate
from harness.core.json_value import JsonObject
from harness.core.problem import Problem, Workload
from harness.devices.gpu_specs import Peaks
from harness.protocol.gradients import readable
from harness.protocol.tensor_tree import flatten
from harness.referee.problem.dataless import fake_tensors, meta_tensors
from harness.referee.problem.flops import count_flops, least_traffic
from harness.referee.problem.loader import ProblemError, describe, load_reference, state_of, without_data
from harness.referee.problem.roofline import SpeedOfLight, speed_of_light


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeLeaf(JsonObject):
    """A tensor's path in the arguments or the result, its dtype and shape."""

    path: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemShapes(JsonObject):
    """Shapes and costs of one call of a problem at one workload.

    Attributes:
        inputs: Tensors among the arguments.
        outputs: Tensors of the result.
        input_bytes: Bytes of all inputs.
        parameter_bytes: Bytes of parameters and buffers.
        output_bytes: Bytes of all outputs.
        total_bytes: Each input, parameter and buffer read once, each output written once; or as declared.
        flops: As counted by torch's formulas (products, convolutions, attention; a multiply-add is two); or as
            declared.
        declared: Which of `flops` and `bytes` the problem declares.
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
        """Return the least time on a GPU with these peaks.

        Args:
            problem: The problem.
            workload: Its precision class, if set, replaces the problem's.
            peaks: Rates of the GPU.
        """
        precision = problem.costs.rate or workload.precision or problem.precision
        return speed_of_light(self.flops, self.total_bytes, peaks, precision)


def sketch(problem: Problem, workload: Workload) -> ProblemShapes:
    """Compute shapes and costs of a problem at one workload.

    Args:
        problem: The problem; what it declares replaces what is counted.
        workload: Its sizes.

    Returns:
        Shapes and costs.

    Raises:
        ProblemError: The code can't run without data; the message has the cause.
    """
    # Fake tensors are of a type of their own, which a call with its backward can't take apart.
    with meta_tensors() if problem.backward else fake_tensors():
        reference = load_reference(problem, workload)
        inputs = _told("get_inputs", reference.get_inputs)
        if not isinstance(inputs, list | tuple):
            kind = "Tensor" if isinstance(inputs, torch.Tensor) else type(inputs).__name__  # here a FakeTensor
            raise ProblemError(f"get_inputs returns a {kind}, not a list")
        model = reference.model(0, None)
        if problem.backward:
            inputs, model = without_data(inputs, model)
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


def _plain(tree: Any) -> Any:
    """Replace each fake tensor by one on the meta device, the same for the same."""
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
            path=readable(path),
            dtype=str(leaf.dtype).removeprefix("torch."),
            shape=tuple(int(extent) for extent in leaf.shape),
        )
        for path, leaf in zip(spec.paths(root), leaves, strict=True)
    )


def _told(what: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except ProblemError:
        raise
    except Exception as error:
        raise ProblemError(f"{what} can't run without data: {describe(error)}") from error
