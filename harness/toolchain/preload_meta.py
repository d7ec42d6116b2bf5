"""Make torch load the modules that the first operation on meta tensors loads.

That is most of torch's compiler and takes nearly one second. For zygotes of discoveries, which use meta tensors.
"""

from __future__ import annotations

import torch


def _load() -> None:
    """Load them as if there were no GPU.

    A fork of a process that asked for a GPU can't use the driver.
    """
    real = torch.cuda.is_available
    torch.cuda.is_available = lambda: False
    try:
        torch.relu(torch.empty(0, device="meta"))
    finally:
        torch.cuda.is_available = real


_load()
