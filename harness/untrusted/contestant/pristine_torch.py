"""What torch does and says of tensors, past whatever a submission has put before it.

The untrusted side: runs in one process with a submission, and is imported by `snapshot` and `heldstate`, which take
down results when the clock of a call has stopped. A tensor may have methods of its own under these names,
`torch.Tensor` be given others, and a mode be left behind, which stands before whatever torch is asked for: each of them
could do then what was to be timed.
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
    """Whether its elements lie somewhere, from where they can be copied."""
    return LAYOUT(tensor) is torch.strided and DEVICE(tensor).type != "meta"


@contextmanager
def without_modes() -> Iterator[None]:
    """No mode of torch's is asked meanwhile."""
    with _WITHOUT_FUNCTION_MODES():
        if _COUNT_DISPATCH_MODES():
            with _WITHOUT_DISPATCH_MODES():
                yield
        else:
            yield
