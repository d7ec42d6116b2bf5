"""Calls without a pause: in every manner each is made once on what lies there then, and its result is taken down."""

from __future__ import annotations

import gc

import pytest
import torch

from harness.core.choices import DeviceKind
from harness.devices.back_to_back import BackToBack, QueuedStep
from harness.devices.device import Device, DeviceError, open_device
from harness.devices.stream_gate import OwnGate
from harness.protocol.messages import LaunchMode

CALLS = 4


@pytest.fixture(params=[DeviceKind.HOST, pytest.param(DeviceKind.CUDA, marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    return open_device(request.param, 0)


def steps_on(inputs: list[torch.Tensor], taken: list[torch.Tensor]) -> list[QueuedStep]:
    """One call on each input, which doubles it; results are copied to `taken`."""
    return [
        QueuedStep(
            before=lambda: None,
            forward=lambda x=x: x * 2,  # type: ignore[misc]
            after=lambda result, place=place: place.copy_(result),  # type: ignore[misc]
        )
        for x, place in zip(inputs, taken, strict=True)
    ]


def tensors_on(device: Device) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    inputs = [torch.full((8,), float(number), device=device.torch_device) for number in range(CALLS)]
    return inputs, [torch.zeros_like(x) for x in inputs]


def test_launched_one_by_one_each_call_is_made(device: Device) -> None:
    inputs, taken = tensors_on(device)

    took = BackToBack(device, steps_on(inputs, taken), LaunchMode.LAUNCHED).run()

    assert took.device_s > 0.0
    assert [float(place[0]) for place in taken] == [2.0 * number for number in range(CALLS)]


@pytest.mark.gpu
def test_a_graph_computes_from_what_lies_there_when_it_is_run() -> None:
    device = open_device(DeviceKind.CUDA, 0)
    inputs, taken = tensors_on(device)
    ready = BackToBack(device, steps_on(inputs, taken), LaunchMode.GRAPH)
    for x in inputs:
        x.add_(10)

    took = ready.run()

    assert took.device_s > 0.0
    assert [float(place[0]) for place in taken] == [2.0 * (number + 10) for number in range(CALLS)]


@pytest.mark.gpu
def test_queued_calls_wait_for_the_gate() -> None:
    device = open_device(DeviceKind.CUDA, 0)
    gate: OwnGate = device.own_gate()
    inputs, taken = tensors_on(device)
    # CUDA loads a kernel as it is launched first, and waits for the device then: behind a gate, for ever.
    BackToBack(device, steps_on(inputs, taken), LaunchMode.LAUNCHED).run()
    number = gate.owner.begin()
    ready = BackToBack(device, steps_on(inputs, taken), LaunchMode.QUEUED, gate.stream, number)

    gate.owner.open()
    ready.run()

    assert [float(place[0]) for place in taken] == [2.0 * number for number in range(CALLS)]


@pytest.mark.gpu
def test_the_page_of_a_gate_that_is_gone_can_be_used_again() -> None:
    for _ in range(3):  # a page is mapped where the last one was
        assert open_device(DeviceKind.CUDA, 0).own_gate().owner.begin() > 0
        gc.collect()


def test_a_device_without_graphs_says_so() -> None:
    device = open_device(DeviceKind.HOST, 0)
    inputs, taken = tensors_on(device)

    with pytest.raises(DeviceError, match="graph"):
        BackToBack(device, steps_on(inputs, taken), LaunchMode.GRAPH)
