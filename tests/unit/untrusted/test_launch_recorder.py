"""What the recorder reads from memory: parameters in a launch's options, and variables of a module's image."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from harness.untrusted.contestant.launch_recorder import _has_kernel, _objects, _packed
from harness.untrusted.contestant.model_state import HeldState

SOURCE = """
__device__ float counts[3];
__constant__ float factor;
__global__ void scale(float* x) { x[threadIdx.x] *= factor + counts[0]; }
"""


def test_parameters_in_the_options_of_a_launch_are_read() -> None:
    values = ctypes.create_string_buffer(b"parameters", 10)
    size = ctypes.c_size_t(10)
    options = (ctypes.c_void_p * 5)(1, ctypes.addressof(values), 2, ctypes.addressof(size), 0)
    assert _packed(ctypes.addressof(options)) == b"parameters"


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc makes the image")
def test_kernels_and_variables_of_an_image_are_found(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(SOURCE)
    subprocess.run(["nvcc", "-arch=sm_90", "-cubin", "-o", "k.cubin", "k.cu"], cwd=tmp_path, check=True)
    image = (tmp_path / "k.cubin").read_bytes()
    assert _has_kernel(image, "_Z5scalePf")
    assert not _has_kernel(image, "_Z5scale")
    assert {b"counts", b"factor"} <= set(_objects(image))


def test_what_is_no_image_has_no_variables() -> None:
    assert list(_objects(b"not an image")) == []


def test_a_state_without_a_model_is_restored_and_copied_out() -> None:
    present, initial, place = torch.tensor([5.0]), torch.tensor([1.0]), torch.empty(1)
    state = HeldState.of({"mean": (present, initial)})
    state.put_back(["mean"])
    assert present.item() == 1.0
    present += 2.0
    assert state.copy_to(["mean"], [place]) == []
    assert place.item() == 3.0
    assert initial.item() == 1.0


def test_present_and_initial_state_is_that_of_the_model() -> None:
    model = torch.nn.BatchNorm1d(2)
    state = HeldState(model)
    assert state.match({"running_mean": torch.zeros(2)}) == ([], [])
    model.running_mean += 3.0  # type: ignore[operator]
    (present, initial) = state.present_and_initial(["running_mean"])["running_mean"]
    assert present.tolist() == [3.0, 3.0]
    assert initial.tolist() == [0.0, 0.0]
    assert state.present_and_initial(["other"]) == {}
