"""torch's own functions on tensors, which a submission can't replace.

Runs in a submission's process. `outputs.py` and `model_state.py` copy results with these after a call's clock has
stopped. A submission may define tensor methods of these names, replace those of `torch.Tensor`, or leave a torch mode
active. Each could do work then that should be timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch.utils import _python_dispatch

_FIELDS = vars(torch._C.TensorBase)

SHAPE: Callable[[torch.Tensor], torch.Size] = _FIELDS["shape"].__get__
DTYPE: Callable[[torch.Tensor], torch.dtype] = _FIELDS["dtype"].__get__
LAYOUT: Callable[[torch.Tensor], torch.layout] = _FIELDS["layout"].__get__
DEVICE: Callable[[torch.Tensor], torch.device] = _FIELDS["device"].__get__
ADDRESS: Callable[[torch.Tensor], int] = torch._C.TensorBase.data_ptr
COPY: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = torch._C.TensorBase.copy_
DETACH: Callable[[torch.Tensor], torch.Tensor] = torch._C.TensorBase.detach
IS_INFERENCE: Callable[[torch.Tensor], bool] = torch._C.TensorBase.is_inference

_WITHOUT_FUNCTION_MODES: Callable[[], AbstractContextManager[object]] = torch._C.DisableTorchFunction
_COUNT_DISPATCH_MODES: Callable[[], int] = torch._C._len_torch_dispatch_stack
_WITHOUT_DISPATCH_MODES: Callable[[], AbstractContextManager[object]] = _python_dispatch._disable_current_modes


def has_bytes(tensor: torch.Tensor) -> bool:
    """Whether the tensor's elements are in memory, to be copied from there."""
    return LAYOUT(tensor) is torch.strided and DEVICE(tensor).type != "meta"


@contextmanager
def without_modes() -> Iterator[None]:
    """Disable all torch modes inside the `with` block."""
    with _WITHOUT_FUNCTION_MODES():
        if _COUNT_DISPATCH_MODES():
            with _WITHOUT_DISPATCH_MODES():
                yield
        else:
            yield
