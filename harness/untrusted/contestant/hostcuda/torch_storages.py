"""Storages of tensors on the host device: they say that they are there, and are copied to there, as `torch.save`,
`torch.load` and `copy.deepcopy` expect of them.

Charter: contestant process only; replaces attributes of torch for good. Imports torch.

A storage of this device is to torch one of the CPU, so that operators can be carried out there. Which is which is
written on what Python has of it, which torch keeps as long as the storage. Without that a copied tensor would lie in
memory that no kernel may use, and a saved one would come back on the CPU.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["patch_storages"]

_MARK = "_hostcuda_on_device"


def patch_storages() -> None:
    """Replace what torch asks of a storage, or makes one by."""
    storage: Any = torch.UntypedStorage
    tensor: Any = torch.Tensor
    plain_new, plain_device, plain_of = storage.__new__, storage.device, tensor.untyped_storage

    def untyped_storage(self: Any) -> Any:
        found = plain_of(self)
        if self.is_cuda:
            setattr(found, _MARK, True)
        return found

    def __new__(cls: Any, *given: Any, **options: Any) -> Any:
        device = options.get("device")
        if device is None or torch.device(device).type != "cuda":
            return plain_new(cls, *given, **options)
        options["device"] = "cpu"
        asked = plain_new(cls, *given, **options)
        made = torch.empty(asked.nbytes(), dtype=torch.uint8, device="cuda").untyped_storage()
        return made.copy_(asked) if given and not isinstance(given[0], int) else made

    def device(self: Any) -> torch.device:
        return torch.device("cuda", 0) if getattr(self, _MARK, False) else plain_device.__get__(self)

    storage.__new__, storage.device = __new__, property(device)
    tensor.untyped_storage = untyped_storage
