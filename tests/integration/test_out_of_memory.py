"""Memory that ran out: told from other faults, and said with what to do instead of a traceback."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from harness.core.choices import DeviceKind
from harness.devices.device import open_device
from harness.devices.out_of_memory import advice, held_elsewhere_bytes, is_shortage, opened
from harness.referee.problem.loader import ProblemError
from tests.support.paths import ROOT

SOLUTION = "solutions/examples/optimised/level1/4_wide_loads_shuffle.py"


def raised_from(cause: Exception) -> Exception:
    try:
        raise ProblemError("the reference's forward failed") from cause
    except ProblemError as error:
        return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 8.00 GiB"), True),
        (MemoryError(), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (raised_from(MemoryError()), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (raised_from(ValueError("out of range")), False),
        (ValueError("out of memory"), False),
    ],
)
def test_a_lack_of_memory_is_told_from_other_faults(error: Exception, expected: bool) -> None:
    assert is_shortage(error) is expected


def test_on_the_host_nobody_is_blamed() -> None:
    device = opened(DeviceKind.HOST)
    assert held_elsewhere_bytes(device) == 0
    assert "smaller --workload" in advice(device, 0)


def run(*command: str, share: float) -> subprocess.CompletedProcess[str]:
    """A command in a process whose tensors may take this share of the GPU's memory, and no more."""
    limited = f"import torch; torch.cuda.set_per_process_memory_fraction({share}); "
    program = f"{limited}import sys; from harness.cli import main; sys.exit(main({list(command)!r}))"
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.gpu
def test_a_profile_without_memory_says_what_to_do() -> None:
    done = run("profile", SOLUTION, share=0.03)
    assert done.returncode == 3, done.stderr
    assert "does not fit the free memory" in done.stderr
    assert "error of the harness" not in done.stderr


@pytest.mark.gpu
def test_a_lint_without_memory_says_what_to_do() -> None:
    """The problem's fault where nobody else holds memory; left for later where somebody does."""
    done = run("problems", "lint", "level1/4", "--device", "cuda", share=0.03)
    assert done.returncode in (1, 3), done.stderr
    assert "not enough memory to check it" in done.stdout + done.stderr
    assert "error of the harness" not in done.stderr


@pytest.mark.gpu
def test_what_others_hold_is_what_this_process_does_not() -> None:
    device = open_device(DeviceKind.CUDA)
    total = torch.cuda.get_device_properties(0).total_memory
    held = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    assert 0 <= held_elsewhere_bytes(device) <= total - held.nbytes
    assert "wait for or stop them" in advice(device, 2**33)
    assert "8.0" in advice(device, 2**33)


def test_a_referee_goes_before_other_programs_and_after_contestants() -> None:
    code = (
        "from harness.referee.worker import go_before_others\n"
        "go_before_others()\n"
        "print(open('/proc/self/oom_score_adj').read())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert 0 < int(done.stdout) < 1000
