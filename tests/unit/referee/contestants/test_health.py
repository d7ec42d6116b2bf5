"""Whether a device computes: what is an error of the device, what of a kernel, and what says nothing."""

from __future__ import annotations

import re

import pytest
import torch

from harness.core.choices import DeviceKind
from harness.devices.device import Device, DeviceError, open_device
from harness.referee.contestants import health


@pytest.fixture
def device() -> Device:
    return open_device(DeviceKind.HOST)


def test_a_device_that_computes_passes(device: Device) -> None:
    health.check(device)


@pytest.mark.parametrize("wrong", ["product", "copy"])
def test_one_wrong_value_fails(device: Device, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    if wrong == "product":
        real = torch.Tensor.__matmul__

        def flipped(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
            product = real(left, right)
            if product.dtype == torch.float32:
                product[17, 200] += 1.0
            return product

        monkeypatch.setattr(torch.Tensor, "__matmul__", flipped)
    else:
        clone = torch.Tensor.clone

        def torn(tensor: torch.Tensor) -> torch.Tensor:
            copied = clone(tensor)
            copied[-1] = 0xA4
            return copied

        monkeypatch.setattr(torch.Tensor, "clone", torn)
    with pytest.raises(DeviceError, match="computes wrong values in a health check") as caught:
        health.check(device)
    assert not isinstance(caught.value, health.ContextLost)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("CUDA error: an illegal memory access was encountered"), health.ContextLost),
        (RuntimeError("CUDA error: device-side assert triggered"), health.ContextLost),
        (RuntimeError("CUDA error: uncorrectable ECC error encountered"), DeviceError),
        (DeviceError("GPU is lost"), DeviceError),
        (torch.OutOfMemoryError("full"), None),
    ],
)
def test_who_is_to_blame(
    device: Device, monkeypatch: pytest.MonkeyPatch, error: Exception, expected: type[Exception] | None
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(device, "synchronize", fail)
    if expected is None:
        health.check(device)
        return
    with pytest.raises(expected) as caught:
        health.check(device)
    assert type(caught.value) is expected
    if expected is DeviceError:
        assert "fails a health check" in str(caught.value)


def test_an_error_names_the_device(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")

    monkeypatch.setattr(device, "synchronize", fail)
    monkeypatch.setattr(type(device), "name", "NVIDIA H200", raising=False)
    monkeypatch.setattr(type(device), "uuid", "GPU-7", raising=False)
    with pytest.raises(DeviceError, match=re.escape("NVIDIA H200 (GPU-7)")):
        health.check(device)
