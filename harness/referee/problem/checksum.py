"""Keyed checksums of tensors' bytes, fast enough to ask after every call whether an input or an output has changed.

Imports torch, numpy and `digest_kernel`. Pure; used on the trusted side, on tensors of any device.

The hash is multiply-shift for vectors (M. Thorup, "High Speed Hashing for Integers and Strings", arXiv:1504.06804,
after M. Dietzfelbinger): with 64-bit keys a_i drawn at random and 32-bit words x_i, the sum of a_i * x_i modulo 2**64.
Where two tensors differ, one of the words differs by d with at most 31 trailing zero bits, so that at most
2**31 of its 2**64 keys cancel the other differences: a collision has probability 2**-33 at most per level, whatever
the change is, for whoever does not know the salt. The order of words counts, since each place has its own key.
(One key for a 64-bit word would be no good: flipping the top bits of any two words adds 2**63 twice, which is nothing.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch

from harness.referee.problem import checksum_cuda

KEYS = 2**18
"""Keys of one level, 2 MiB: they stay in the L2 cache of any recent GPU while the data streams past."""

TEMPORARY_BYTES = 64 * 2**20
"""Memory that the products of one slice may take."""

KERNEL_BYTES = KEYS // 2 * 4 * KEYS
"""Largest tensor whose checksum takes two levels, for which the kernels are made."""


def checksums(tensors: Sequence[torch.Tensor], *, salt: int | str | bytes) -> torch.Tensor:
    """A checksum of the bytes of each tensor, in logical order: int64, on the tensors' device, without synchronising.

    Strides do not count: a transposed view has the checksum of its contiguous copy (which is made, if needed). The same
    value comes from every device. What has no say is dtype and shape: compare tensors of one form. All tensors are
    on one device; on a GPU they take one pass over their bytes and two launches together. Keep `salt` from whoever
    could profit by a collision.
    """
    flat = [tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8) for tensor in tensors]
    if not flat:
        return torch.zeros(0, dtype=torch.int64)
    device = flat[0].device
    if any(data.device != device for data in flat):
        raise ValueError("the tensors are on different devices")
    seed = _seed(salt)
    largest = max(data.numel() for data in flat)
    if device.type == "cuda" and largest <= KERNEL_BYTES and (kernel := checksum_cuda.load(device.index)) is not None:
        aligned = [data.clone() if data.data_ptr() % checksum_cuda.ALIGNMENT_BYTES else data for data in flat]
        spans = [(data.data_ptr() if data.numel() else 0, data.numel()) for data in aligned]
        return kernel(spans, _keys(seed, 0, str(device)), _keys(seed, 1, str(device)))
    return torch.stack([_by_operations(data, seed) for data in flat])


def _by_operations(data: torch.Tensor, seed: int) -> torch.Tensor:
    """The checksum of bytes (uint8) by torch's own operations, on any device."""
    level = 0
    while True:
        sums = _level(data, seed, level)
        if sums.numel() == 1:
            return sums[0]
        data = sums.view(torch.uint8)
        level += 1


def _level(data: torch.Tensor, seed: int, level: int) -> torch.Tensor:
    """Sums of keyed 32-bit words over each run of `KEYS` words (int64)."""
    keys = _keys(seed, level, str(data.device))
    whole_bytes = data.numel() // 4 * 4
    words = _words(data[:whole_bytes])
    parts: list[torch.Tensor] = []
    runs = words.numel() // KEYS
    runs_at_once = max(1, TEMPORARY_BYTES // (8 * KEYS))
    for first in range(0, runs, runs_at_once):
        last = min(runs, first + runs_at_once)
        parts.append((words[first * KEYS : last * KEYS].view(-1, KEYS) * keys).sum(dim=1))
    rest = words[runs * KEYS :]
    last_sum = (rest * keys[: rest.numel()]).sum(dim=0, keepdim=True)
    if tail := data.numel() - whole_bytes:
        padded = torch.zeros(4, dtype=torch.uint8, device=data.device)
        padded[:tail] = data[whole_bytes:]
        last_sum = last_sum + padded.view(torch.int32) * keys[rest.numel() : rest.numel() + 1]
    if rest.numel() or tail or not parts:
        parts.append(last_sum)
    return torch.cat(parts)


def _words(data: torch.Tensor) -> torch.Tensor:
    """Bytes as 32-bit words; copied only where they start at an odd address."""
    if data.storage_offset() % 4 or data.data_ptr() % 4:
        data = data.clone()
    return data.view(torch.int32)


@lru_cache(maxsize=16)
def _seed(salt: int | str | bytes) -> int:
    raw = salt if isinstance(salt, bytes) else str(salt).encode()
    return int.from_bytes(hashlib.sha256(raw).digest(), "little")


@lru_cache(maxsize=16)
def _keys(seed: int, level: int, device: str) -> torch.Tensor:
    """`KEYS` random 64-bit keys; the same for one seed and level on every device. Few are kept."""
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, level])))
    return torch.from_numpy(generator.integers(-(2**63), 2**63, size=KEYS, dtype=np.int64)).to(device)
