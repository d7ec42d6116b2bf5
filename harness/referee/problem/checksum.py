"""Keyed checksums of tensors, to detect changed inputs and outputs.

Trusted side, for tensors of any device. The hash is multiply-shift for vectors (M. Thorup, "High Speed Hashing for
Integers and Strings", arXiv:1504.06804, after M. Dietzfelbinger): the sum of a_i * x_i modulo 2**64, with random 64-bit
keys a_i and 32-bit words x_i. Without the salt, two different tensors collide with probability 2**-33 at most per
level. See guides/design/reference_and_truth.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch

from harness.referee.problem import checksum_cuda

KEYS = 2**18
"""Keys of one level, 2 MiB: they stay in the L2 cache of any recent GPU while the data passes."""

TEMPORARY_BYTES = 64 * 2**20
"""Memory for the products of one slice."""

KERNEL_BYTES = KEYS // 2 * 4 * KEYS
"""Largest tensor that the CUDA kernels support: its checksum takes two levels."""


def checksums(tensors: Sequence[torch.Tensor], *, salt: int | str | bytes) -> torch.Tensor:
    """Return a checksum of each tensor's bytes, in logical order.

    Strides do not count: a transposed view has the checksum of its contiguous copy, which is made if needed. Every
    device gives the same value. Dtype and shape do not enter: compare tensors of the same form. On a GPU all tensors
    together take one pass over their bytes and two launches.

    Args:
        tensors: Tensors of any dtype and shape, all on one device.
        salt: Selects the keys. Keep it secret from code that could profit by a collision.

    Returns:
        One int64 value per tensor, on their device; does not synchronise.

    Raises:
        ValueError: The tensors are on different devices.
    """
    flat = [tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8) for tensor in tensors]
    if not flat:
        return torch.zeros(0, dtype=torch.int64)
    device = flat[0].device
    if any(data.device != device for data in flat):
        raise ValueError("the tensors are on different devices; call checksums once per device")
    seed = _seed(salt)
    largest = max(data.numel() for data in flat)
    if device.type == "cuda" and largest <= KERNEL_BYTES and (kernel := checksum_cuda.load(device.index)) is not None:
        aligned = [data.clone() if data.data_ptr() % checksum_cuda.ALIGNMENT_BYTES else data for data in flat]
        spans = [(data.data_ptr() if data.numel() else 0, data.numel()) for data in aligned]
        return kernel(spans, _keys(seed, 0, str(device)), _keys(seed, 1, str(device)))
    return torch.stack([_by_operations(data, seed) for data in flat])


def _by_operations(data: torch.Tensor, seed: int) -> torch.Tensor:
    """Compute the checksum of bytes (uint8) with torch's operations, on any device."""
    level = 0
    while True:
        sums = _level(data, seed, level)
        if sums.numel() == 1:
            return sums[0]
        data = sums.view(torch.uint8)
        level += 1


def _level(data: torch.Tensor, seed: int, level: int) -> torch.Tensor:
    """Sum keyed 32-bit words over each run of `KEYS` words; int64."""
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
    """View bytes as 32-bit words; copy them only if their address is not aligned."""
    if data.storage_offset() % 4 or data.data_ptr() % 4:
        data = data.clone()
    return data.view(torch.int32)


@lru_cache(maxsize=16)
def _seed(salt: int | str | bytes) -> int:
    raw = salt if isinstance(salt, bytes) else str(salt).encode()
    return int.from_bytes(hashlib.sha256(raw).digest(), "little")


@lru_cache(maxsize=16)
def _keys(seed: int, level: int, device: str) -> torch.Tensor:
    """Return `KEYS` random 64-bit keys, the same for one seed and level everywhere."""
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, level])))
    return torch.from_numpy(generator.integers(-(2**63), 2**63, size=KEYS, dtype=np.int64)).to(device)
