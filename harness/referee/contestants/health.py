"""Check that a device still computes correctly.

Trusted side; runs in the referee when it starts and before any verdict except a pass. A CUDA error in a contestant is
its solution's fault only if the same GPU still works for the referee, which has its own context. A GPU that fell off
the bus or had an uncorrectable memory error fails here, and no verdict is given
(`test_a_device_that_fails_is_quarantined_and_its_solutions_go_elsewhere`).
"""

from __future__ import annotations

import torch

from harness.core.status import one_line
from harness.devices.device import Device, DeviceError

_SIDE = 256
_PATTERN_BYTES = 4 * 2**20

_OF_KERNELS = (
    "device-side assert",
    "illegal memory access",
    "illegal instruction",
    "misaligned address",
    "invalid program counter",
    "hardware stack error",
    "global/shared address space",
    "unspecified launch failure",
)
"""Parts of messages of CUDA errors 700, 710 and 714 to 719, after which the process that launched the kernel must be
replaced, but the GPU need not be faulty: https://docs.nvidia.com/cuda/cuda-runtime-api/.
"""


class ContextLost(DeviceError):
    """A kernel of this process broke its context, which says nothing about the device."""


def check(device: Device) -> None:
    """Compute something with an exactly known result.

    The product has integer entries below 2^10 of factors below 2^3, which every precision class represents exactly;
    TF32 or another order of summation makes no difference.

    Raises:
        DeviceError: The result is wrong, or the device fails; the message says what to do.
        ContextLost: This process's context is broken, so another process must check.
    """
    where = f"{device.name or 'the host device'}{f' ({device.uuid})' if device.uuid else ''}"
    try:
        rows = torch.arange(_SIDE, dtype=torch.float32)
        left = (rows[:, None] + rows[None, :]) % 3 - 1
        right = (rows[:, None] * 5 + rows[None, :] * 3) % 7 % 3 - 1
        expected = left.to(torch.int64) @ right.to(torch.int64)
        product = (left.to(device.torch_device) @ right.to(device.torch_device)).cpu().to(torch.int64)
        pattern = torch.full((_PATTERN_BYTES,), 0xA5, dtype=torch.uint8, device=device.torch_device)
        copied = int((pattern.clone() == 0xA5).sum())
        device.synchronize()
    except torch.OutOfMemoryError:
        return  # a full device tells nothing about its health
    except (RuntimeError, DeviceError) as error:
        if any(words in str(error) for words in _OF_KERNELS):
            raise ContextLost(
                f"a kernel of the referee's own process failed: {one_line(str(error), limit=200)}"
            ) from error
        raise DeviceError(
            f"{where} fails a health check: {one_line(str(error), limit=200)}; look at `nvidia-smi -q` and the "
            f"kernel's log for Xid errors, and reset or replace it"
        ) from error
    if not torch.equal(product, expected) or copied != _PATTERN_BYTES:
        raise DeviceError(f"{where} computes wrong values in a health check; reset or replace it")
