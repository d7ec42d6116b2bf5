"""Does a device still compute right? Asked when a referee starts and before any verdict but a pass is given.

Trusted side; runs in the referee's process. Imports the devices' interface and torch.

Decision: a CUDA error in a contestant is its submission's fault only if the same GPU still works for the referee,
which has a context of its own. A GPU that fell off the bus or met an uncorrectable memory error fails here too, and
then no verdict is given (pinned by `test_a_device_that_fails_is_quarantined_and_its_solutions_go_elsewhere`).
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
"""Words of CUDA's errors (700, 710, 714 to 719 in its list of errors) after which the process that launched the kernel
has to be replaced, and the GPU need not be ill: https://docs.nvidia.com/cuda/cuda-runtime-api/."""


class ContextLost(DeviceError):
    """A kernel that this process launched broke its context, which says nothing of the device."""


def check(device: Device) -> None:
    """Compute something whose result is known exactly. Raises `DeviceError` with what to do where it is not that, and
    `ContextLost` where another process is to tell.

    The product has whole entries below 2^10 of factors below 2^3, which every precision class holds exactly; so TF32
    or another order of summation can't make a difference.
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
