"""Devices: memory that two processes share, bounds, clocks. The same contract for both devices."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from harness.core.choices import DeviceKind
from harness.devices.device import ALIGNMENT_BYTES, Device, aligned, open_device, seed_generators

ATTACH = """
import sys, torch
from harness.devices.device import open_device
from harness.core.choices import DeviceKind
device = open_device(DeviceKind(sys.argv[1]))
arena = device.attach(int(sys.argv[2]), int(sys.argv[3]))
numbers = arena.tensor(512, (3, 5), torch.float32)
numbers.mul_(2)
device.synchronize()
"""


@pytest.fixture(params=[DeviceKind.HOST, pytest.param(DeviceKind.CUDA, marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    return open_device(request.param)


def test_another_process_sees_and_changes_the_same_bytes(device: Device) -> None:
    arena = device.allocate(4096)
    numbers = arena.tensor(512, (3, 5), torch.float32)
    numbers.copy_(torch.arange(15, dtype=torch.float32).view(3, 5))
    device.synchronize()
    os.set_inheritable(arena.fd, True)
    subprocess.run(
        [sys.executable, "-c", ATTACH, device.kind.value, str(arena.fd), str(arena.nbytes)],
        check=True,
        close_fds=False,
    )
    assert torch.equal(numbers.cpu(), 2 * torch.arange(15, dtype=torch.float32).view(3, 5))
    del numbers
    arena.close()


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int8, torch.bool, torch.complex64],
)
def test_every_dtype_has_a_place(device: Device, dtype: torch.dtype) -> None:
    arena = device.allocate(1 << 16)
    tensor = arena.tensor(1024, (4, 3), dtype)
    assert (tensor.dtype, tuple(tensor.shape), tensor.is_contiguous()) == (dtype, (4, 3), True)
    assert tensor.device.type == device.torch_device.type
    assert tensor.untyped_storage().nbytes() == 12 * dtype.itemsize
    assert not bool(tensor.to(torch.float32 if dtype is not torch.complex64 else dtype).abs().sum().item())
    del tensor
    arena.close()


@pytest.mark.parametrize("strides", [(1, 8), (24, 2), (0, 1), (1, 0)])
def test_a_tensor_has_the_strides_that_are_asked_for(device: Device, strides: tuple[int, int]) -> None:
    arena = device.allocate(4096)
    tensor = arena.tensor(512, (4, 3), torch.float32, strides)
    assert (tuple(tensor.shape), tensor.stride()) == ((4, 3), strides)
    assert tensor.untyped_storage().nbytes() == 4 * (1 + 3 * strides[0] + 2 * strides[1])
    with pytest.raises(ValueError, match="arena"):
        arena.tensor(0, (4, 3), torch.float32, (1 << 20, 1))  # a GPU's arena is rounded up to 2 MiB
    del tensor
    arena.close()


def test_tensors_of_no_elements_and_of_no_dimensions(device: Device) -> None:
    arena = device.allocate(4096)
    assert arena.tensor(0, (0, 4), torch.float32).shape == (0, 4)
    scalar = arena.tensor(512, (), torch.float32)
    scalar.fill_(3.0)
    assert scalar.item() == 3.0
    del scalar
    arena.close()


@pytest.mark.parametrize(("offset", "count"), [(-512, 1), (100, 1), (0, 10**12), (1 << 40, 1)])
def test_nothing_outside_the_arena_can_be_named(device: Device, offset: int, count: int) -> None:
    arena = device.allocate(4096)
    with pytest.raises(ValueError, match="arena"):
        arena.tensor(offset, (count,), torch.float32)
    arena.close()


def test_offsets_are_rounded_up_to_the_alignment() -> None:
    assert [aligned(n) for n in (0, 1, 512, 513)] == [0, ALIGNMENT_BYTES, 512, 1024]


def test_the_clock_runs_while_the_call_does(device: Device) -> None:
    results = []

    def call() -> object:
        if device.kind is DeviceKind.CUDA:
            torch.cuda._sleep(20_000_000)
        else:
            time.sleep(0.02)
        return "answer"

    for timer in (device.time_cold, device.time_latency):
        times = timer(call, results.append)
        assert times.device_s > 0.004
        assert times.window_s >= times.device_s * 0.9
    assert results == ["answer", "answer"]


def test_generators_are_seeded_as_torch_seeds_them() -> None:
    torch.manual_seed(11)
    expected = torch.rand(3)
    kept = len(torch.xpu._queued_calls)
    seed_generators(11)
    drawn = (random.random(), float(np.random.rand()))
    assert torch.equal(torch.rand(3), expected)
    seed_generators(11)
    assert (random.random(), float(np.random.rand())) == drawn
    assert len(torch.xpu._queued_calls) == kept, "nothing is noted down for devices that are not in use"


@pytest.mark.gpu
def test_generators_of_the_gpu_are_seeded_as_torch_seeds_them() -> None:
    torch.manual_seed(11)
    expected = torch.rand(3, device="cuda")
    seed_generators(11)
    assert torch.equal(torch.rand(3, device="cuda"), expected)


@pytest.mark.gpu
def test_much_freed_memory_is_given_back_before_what_is_free_is_told() -> None:
    device = open_device(DeviceKind.CUDA)
    total = torch.cuda.get_device_properties(0).total_memory
    held = torch.empty(int(0.1 * total), dtype=torch.uint8, device="cuda")
    before = device.free_bytes()
    del held
    assert device.free_bytes(enough=int(0.1 * total)) - before < 0.01 * total, "what was wanted is free anyhow"
    assert device.free_bytes() - before > 0.09 * total
