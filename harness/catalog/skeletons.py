"""Make the text of a new problem or solution, which passes as it is.

Trusted side. The problem's source is parsed, not executed.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator

from harness.core import python_ast
from harness.core.problem import Problem

PROBLEM = '''\
"""One sentence: what a kernel must compute."""

import torch

ROWS = 4096
COLUMNS = 4096


class Model(torch.nn.Module):
    """The reference. It may be slow, but must be right."""

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * scale)


def get_inputs():
    """Return the arguments of `forward`, new random values in each call."""
    return [torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS)]


def get_init_inputs():
    """Return the arguments of `Model(...)` and `ModelNew(...)`."""
    return []
'''

_HEAD = '''\
"""A solution of {problem}: `ModelNew` replaces `Model`, with the same arguments and results.

As it is, it computes what the reference does, in PyTorch. To fill in: remove the marks `# ` of the lines below, write
the kernel, and call `module.launch(...)` in `forward`. Evaluate it: {command}
"""

# from torch.utils.cpp_extension import load_inline
#
# CUDA = r"""
# #include <torch/extension.h>
#
# __global__ void kernel(const float* x, float* y, int64_t n) {{
#     int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
#     if (i < n) y[i] = x[i];
# }}
#
# torch::Tensor launch(torch::Tensor x) {{
#     auto y = torch::empty_like(x);
#     int64_t n = x.numel();
#     kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
#     return y;
# }}
# """
#
# module = load_inline(
#     name="{name}",
#     cpp_sources="torch::Tensor launch(torch::Tensor x);",
#     cuda_sources=CUDA,
#     functions=["launch"],
# )

'''

_OF_THE_PROBLEM = ("get_inputs", "get_init_inputs")


def new_solution(problem: Problem, command: str) -> str:
    """Return the source of a solution that computes as the reference.

    Args:
        problem: A readable problem.
        command: Command that evaluates the solution.
    """
    source = "\n".join(_kept_lines(problem.source))
    return _HEAD.format(problem=problem.id, command=command, name=problem.name) + _renamed(source).strip() + "\n"


def _kept_lines(source: str) -> Iterator[str]:
    """Yield the lines without the docstring and the functions that only a problem has."""
    tree = python_ast.parse(source)
    dropped: set[int] = set()
    for number, node in enumerate(tree.body):
        docstring = number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if docstring or (isinstance(node, ast.FunctionDef) and node.name in _OF_THE_PROBLEM):
            dropped |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return (line for number, line in enumerate(source.splitlines(), start=1) if number not in dropped)


def _renamed(source: str) -> str:
    """Rename `Model` to `ModelNew`, but not in texts and comments."""
    lines = source.splitlines(keepends=True)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    names = [token for token in tokens if token.type == tokenize.NAME and token.string == "Model"]
    for token in reversed(names):
        row, column = token.end
        lines[row - 1] = f"{lines[row - 1][:column]}New{lines[row - 1][column:]}"
    return "".join(lines)
