"""Make storages of the host device's tensors report and keep their device.

`torch.save`, `torch.load` and `copy.deepcopy` need this. Runs in a submission's process; replaces attributes of torch
for good.

For torch, such a storage is on the CPU, so that operators can run there. An attribute on the storage's Python object
marks it; torch keeps that object as long as the storage. Otherwise a copied tensor would be in memory that kernels may
not use, and a saved tensor would be loaded to the CPU.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["patch_storages"]

_MARK = "_hostcuda_on_device"


def patch_storages() -> None:
    """Replace the functions of torch that query or create storages."""
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
