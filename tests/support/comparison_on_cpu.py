"""The kernels of `harness.referee.correctness.compare_float_cuda` executed on the CPU, for truths in float64: tests see
without a GPU what they do. For processes of their own, since parts of that module are replaced."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from harness.devices.nvrtc import Argument, Launch
from harness.referee.correctness import compare_float_cuda
from tests.support.hostcuda_loader import load

_HEAD = "#include <torch/extension.h>\n#define ACTUAL {kind}\n#define TRUTH 1\n"

_LAUNCHERS = """
template <typename T> T *address_of(int64_t address) { return reinterpret_cast<T *>(address); }
void run_moments(int64_t actual, int64_t truth, int64_t count, int64_t of_blocks, int64_t blocks) {
    const actual_t *a = address_of<const actual_t>(actual);
    const truth_t *t = address_of<const truth_t>(truth);
    double *to = address_of<double>(of_blocks);
    moments<<<blocks, 256>>>(a, t, count, to);
}
void run_total_moments(int64_t of_blocks, int64_t many, int64_t count, double least, double otherwise, int64_t found,
                       int64_t blocks) {
    const double *from = address_of<const double>(of_blocks);
    double *to = address_of<double>(found);
    total_moments<<<blocks, 256>>>(from, many, count, least, otherwise, to);
}
void run_errors(int64_t actual, int64_t truth, int64_t count, int64_t scale, double half_unit, double least_slack,
                int64_t of_blocks, int64_t blocks) {
    const actual_t *a = address_of<const actual_t>(actual);
    const truth_t *t = address_of<const truth_t>(truth);
    const double *by = address_of<const double>(scale);
    double *to = address_of<double>(of_blocks);
    errors<<<blocks, 256>>>(a, t, count, by, half_unit, least_slack, to);
}
void run_total_errors(int64_t of_blocks, int64_t many, int64_t found, int64_t blocks) {
    const double *from = address_of<const double>(of_blocks);
    double *to = address_of<double>(found);
    total_errors<<<blocks, 256>>>(from, many, to);
}
"""

_DECLARED = """
void run_moments(int64_t, int64_t, int64_t, int64_t, int64_t);
void run_total_moments(int64_t, int64_t, int64_t, double, double, int64_t, int64_t);
void run_errors(int64_t, int64_t, int64_t, int64_t, double, double, int64_t, int64_t);
void run_total_errors(int64_t, int64_t, int64_t, int64_t);
"""

_NAMES = ["run_moments", "run_total_moments", "run_errors", "run_total_errors"]


def _launcher(run: object) -> Launch:
    def launch(blocks: tuple[int, int, int], threads: int, arguments: Sequence[Argument]) -> None:
        assert threads == 256
        run(*(value for value, _ in arguments), blocks[0])  # type: ignore[operator]

    return launch


def _built(dtype: torch.dtype, folder: Path) -> list[Launch]:
    head = _HEAD.replace("{kind}", str(compare_float_cuda._KINDS[dtype]))
    folder.mkdir()
    module = load(head + compare_float_cuda._SOURCE + _LAUNCHERS, _DECLARED, _NAMES, checked=False, folder=folder)
    return [_launcher(getattr(module, name)) for name in _NAMES]


def install(folder: Path, *, blocks: int, types: Sequence[torch.dtype] = (torch.float32,)) -> None:
    """From now on, in this process, outputs of these types have the kernels, in so many blocks. `folder` takes what is
    built."""
    built = {dtype: _built(dtype, folder / str(dtype)) for dtype in types}

    def fits(actual: torch.Tensor, truth: torch.Tensor) -> bool:
        return actual.dtype in built and truth.dtype is torch.float64 and actual.numel() > 0

    compare_float_cuda.fits = fits
    compare_float_cuda._kernels = lambda actual, truth: built[actual.dtype]
    compare_float_cuda._blocks = lambda tensor: blocks
