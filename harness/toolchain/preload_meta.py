"""Has torch load what its first operation on tensors without contents loads: most of its compiler, nearly a second.

For zygotes of harvests, which are made of such operations. Imports torch and nothing of the harness.
"""

from __future__ import annotations

import torch


def _load() -> None:
    """As where there is no GPU: nobody could use the driver in a fork of a process that has asked for one."""
    real = torch.cuda.is_available
    torch.cuda.is_available = lambda: False
    try:
        torch.relu(torch.empty(0, device="meta"))
    finally:
        torch.cuda.is_available = real


_load()
