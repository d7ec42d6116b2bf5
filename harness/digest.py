"""A keyed checksum of a tensor's bytes, fast enough to ask after every call whether an input was changed.

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
from functools import lru_cache

import numpy as np
import torch

from harness import digest_kernel

KEYS = 2**18
"""Keys of one level, 2 MiB: they stay in the L2 cache of any recent GPU while the data streams past."""

TEMPORARY_BYTES = 64 * 2**20
"""Memory that the products of one slice may take."""


def digest(tensor: torch.Tensor, *, salt: int | str | bytes) -> str:
    """16 hex digits over the bytes, dtype and shape of `tensor`, in logical order. One synchronisation.

    Strides do not count: a transposed view has the digest of its contiguous copy (which is made, if needed).
    The same value comes from every device. Keep `salt` from whoever could profit by a collision.
    """
    head = f"{tensor.dtype} {tuple(tensor.shape)}".encode()
    body = int(digest_on_device(tensor, salt=salt).item()) & (2**64 - 1)
    tail = hashlib.blake2b(head + body.to_bytes(8, "little"), key=_salt_bytes(salt)[:64], digest_size=8)
    return tail.hexdigest()


def digest_on_device(tensor: torch.Tensor, *, salt: int | str | bytes) -> torch.Tensor:
    """The checksum of the bytes alone, as a 0-dimensional int64 on the tensor's device, without synchronising."""
    data = tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8)
    level = 0
    while True:
        sums = _level(data, salt, level)
        if sums.numel() == 1:
            return sums[0]
        data = sums.view(torch.uint8)
        level += 1


def _level(data: torch.Tensor, salt: int | str | bytes, level: int) -> torch.Tensor:
    """Sums of keyed 32-bit words over each run of `KEYS` words (int64)."""
    keys = _keys(_salt_bytes(salt), level, str(data.device))
    whole_bytes = data.numel() // 4 * 4
    words = _words(data[:whole_bytes])
    parts: list[torch.Tensor] = []
    runs = words.numel() // KEYS
    runs_at_once = max(1, TEMPORARY_BYTES // (8 * KEYS))
    if data.is_cuda and runs and (kernel := digest_kernel.load(data.device.index)) is not None:
        parts.append(kernel(words[: runs * KEYS], keys))
        runs_left = range(0)
    else:
        runs_left = range(0, runs, runs_at_once)
    for first in runs_left:
        last = min(runs, first + runs_at_once)
        parts.append((words[first * KEYS : last * KEYS].view(-1, KEYS) * keys).sum(dim=1))
    rest = words[runs * KEYS :]
    last_sum = (rest * keys[: rest.numel()]).sum(dim=0, keepdim=True)
    if tail := data.numel() - whole_bytes:
        padded = torch.zeros(4, dtype=torch.uint8, device=data.device)
        padded[:tail] = data[whole_bytes:]
        last_sum = last_sum + padded.view(torch.int32) * keys[rest.numel()]
    if rest.numel() or tail or not parts:
        parts.append(last_sum)
    return torch.cat(parts)


def _words(data: torch.Tensor) -> torch.Tensor:
    """Bytes as 32-bit words; copied only where they start at an odd address."""
    if data.storage_offset() % 4 or data.data_ptr() % 4:
        data = data.clone()
    return data.view(torch.int32)


def _salt_bytes(salt: int | str | bytes) -> bytes:
    raw = salt if isinstance(salt, bytes) else str(salt).encode()
    return hashlib.sha256(raw).digest()


@lru_cache(maxsize=8)
def _keys_on_host(salt: bytes, level: int) -> torch.Tensor:
    seed = int.from_bytes(salt, "little")
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, level])))
    return torch.from_numpy(generator.integers(-(2**63), 2**63, size=KEYS, dtype=np.int64))


@lru_cache(maxsize=8)
def _keys(salt: bytes, level: int, device: str) -> torch.Tensor:
    """`KEYS` random 64-bit keys; the same for one salt and level on every device. Few are kept."""
    return _keys_on_host(salt, level).to(device)
