"""Fake CUDA device, on which a discovery runs Python code written for a GPU.

Untrusted side; changes torch for the rest of the process, which ends with the discovery. Nothing computed here is used:
the code only has to reach its calls of `load_inline`. `FakeCuda.touched` says whether the solution has used the fake
device. Before, an exception is the solution's fault; afterwards the fake may be the cause, and the contestant decides
on the real device. See guides/design/discovery.md.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
import torch.utils.cpp_extension
from torch.overrides import TorchFunctionMode

Kind = Literal["meta", "cpu"]
"""Where "cuda" tensors really are. `meta`: shapes without contents, so nothing is computed or allocated. `cpu`: for
code that looks at values."""


class FakeCuda:
    """Records whether the solution has used the fake device.

    `on_touch` is called the first time.
    """

    def __init__(self, on_touch: Callable[[], None] = lambda: None) -> None:
        self.touched = False
        self._on_touch = on_touch

    def touch(self) -> None:
        if not self.touched:
            self.touched = True
            self._on_touch()


@contextlib.contextmanager
def pretended_cuda(kind: Kind, pretence: FakeCuda) -> Iterator[None]:
    """Make torch claim one GPU, with its tensors on `kind`, inside the `with` block."""
    _patch_cuda(pretence)
    torch.set_default_device("meta" if kind == "meta" else None)
    try:
        with torch.no_grad(), _Redirect(kind, pretence):  # this order: entering no_grad is itself a torch function
            yield
    finally:
        torch.set_default_device(None)


_SAYS_CUDA: dict[str, object] = {
    "is_cuda": True,
    "is_cpu": False,
    "is_meta": False,
    "device": torch.device("cuda", 0),
}


class _Redirect(TorchFunctionMode):
    """Redirects "cuda" to the replacement device, and answers for tensors' devices."""

    def __init__(self, kind: Kind, pretence: FakeCuda) -> None:
        super().__init__()
        self._kind = kind
        self._pretence = pretence
        self._answers = [(getattr(torch.Tensor, name).__get__, answer) for name, answer in _SAYS_CUDA.items()]

    def __torch_function__(
        self, func: Any, kinds: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if getattr(func, "__name__", "") == "__get__":
            for getter, answer in self._answers:
                if func == getter:
                    self._pretence.touch()
                    return answer
        if self._kind == "meta":
            self._pretence.touch()
        if func is torch.device:
            return func(*args, **kwargs)  # stays "cuda"; it is replaced when a tensor goes there
        if func is torch.Tensor.cuda:
            self._pretence.touch()
            return torch.Tensor.to(args[0], self._kind)
        if func is torch.Tensor.pin_memory:
            self._pretence.touch()
            return args[0]
        if func is torch.Tensor.type and (dtype := _dtype_there(*args[1:2], *kwargs.values())) is not None:
            self._pretence.touch()
            return torch.Tensor.to(args[0], self._kind, dtype)
        if func is torch.Tensor.to:
            args = (args[0], *(self._placed(item) for item in args[1:2]), *args[2:])
        args = tuple(self._moved(item) for item in args)
        for name in ("device", "out_device"):
            if name in kwargs:
                kwargs[name] = self._moved(self._placed(kwargs[name]))
        if kwargs.get("pin_memory"):
            del kwargs["pin_memory"]
        return func(*args, **kwargs)

    def _placed(self, value: Any) -> Any:
        """Return the GPU for a number given as device."""
        return torch.device("cuda", value) if isinstance(value, int) and not isinstance(value, bool) else value

    def _moved(self, value: Any) -> Any:
        asked = (isinstance(value, torch.device) and value.type == "cuda") or (
            isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))
        )
        if asked:
            self._pretence.touch()
            return torch.device(self._kind)
        return value


def _dtype_there(kind: Any = None, *_: Any) -> torch.dtype | None:
    """Return the dtype of a GPU tensor type (`torch.cuda.HalfTensor`), or None.

    `kind` is the type or its name.
    """
    name = kind if isinstance(kind, str) else f"{getattr(kind, '__module__', '')}.{getattr(kind, '__name__', '')}"
    there, last = name.rpartition(".")[::2]
    dtype = getattr(getattr(torch, last, None), "dtype", None) if there == "torch.cuda" else None
    return dtype if isinstance(dtype, torch.dtype) else None


class _Anything:
    """A stream, event or property that accepts every call and every attribute."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *_: Any, **__: Any) -> _Anything:
        return self

    def __getattr__(self, name: str) -> _Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __enter__(self) -> _Anything:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def __int__(self) -> int:
        return 0

    __index__ = __int__


_CLASSES = "Stream ExternalStream Event CUDAGraph MemPool stream device device_of graph cudart make_graphed_callables"

_NOTHING_TO_SAY = (
    "synchronize empty_cache set_device init reset_peak_memory_stats set_stream manual_seed_all set_rng_state "
    "set_sync_debug_mode"
)


def _note_the_rest(pretence: FakeCuda) -> None:
    """Let all other functions of torch.cuda mark the fake as used.

    Without a GPU their answers are wrong.
    """

    def noting(plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def noted(*given: Any, **options: Any) -> Any:
            pretence.touch()
            return plain(*given, **options)

        return noted

    for name, value in list(vars(torch.cuda).items()):
        if isinstance(value, types.FunctionType) and not name.startswith("_") and value.__module__ != __name__:
            setattr(torch.cuda, name, noting(value))


def _patch_accelerator(answering: Callable[[Any], Callable[..., Any]]) -> None:
    """Replace `torch.accelerator`, if torch has it."""
    accelerator = getattr(torch, "accelerator", None)
    answers: dict[str, Any] = {
        "is_available": True,
        "device_count": 1,
        "current_accelerator": torch.device("cuda"),
        "current_device_index": 0,
        "current_device_idx": 0,
        "current_stream": _Anything(),
    } | dict.fromkeys(("synchronize", "set_device_index", "set_device_idx", "set_stream", "empty_cache"))
    for name, value in answers.items():
        if hasattr(accelerator, name):
            setattr(accelerator, name, answering(value))


def _patch_cuda(pretence: FakeCuda) -> None:
    def answering(value: Any) -> Callable[..., Any]:
        def answer(*_: Any, **__: Any) -> Any:
            pretence.touch()
            return value

        return answer

    properties = types.SimpleNamespace(
        name="a GPU",
        major=9,
        minor=0,
        total_memory=80 * 2**30,
        multi_processor_count=132,
        warp_size=32,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        shared_memory_per_block=48 * 2**10,
        shared_memory_per_block_optin=227 * 2**10,
        shared_memory_per_multiprocessor=228 * 2**10,
        regs_per_multiprocessor=65536,
        L2_cache_size=50 * 2**20,
        gcnArchName="",
    )
    answers: dict[str, Any] = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": properties.name,
        "get_device_capability": (properties.major, properties.minor),
        "get_device_properties": properties,
        "get_arch_list": ["sm_90"],
        "mem_get_info": (64 * 2**30, properties.total_memory),
        "is_bf16_supported": True,
        "can_device_access_peer": True,
        "get_sync_debug_mode": 0,
        "graph_pool_handle": (0, 0),
        "get_rng_state": torch.zeros(16, dtype=torch.uint8),
        "current_stream": _Anything(),
        "default_stream": _Anything(),
    } | dict.fromkeys(_NOTHING_TO_SAY.split())
    for name, value in answers.items():
        setattr(torch.cuda, name, answering(value))
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        setattr(torch.cuda.nvtx, name, answering(0))
    _patch_accelerator(answering)
    torch.Tensor.record_stream = answering(None)  # type: ignore[method-assign]  # it rejects fake streams

    class Generator(torch.Generator):
        """A generator for "cuda" that draws on the CPU."""

        def __new__(cls, device: Any = "cpu") -> Generator:
            if torch.device(device).type != "cpu":
                pretence.touch()
            return super().__new__(cls, "cpu")  # type: ignore[call-arg]  # a type written in C

    setattr(torch, "Generator", Generator)  # noqa: B010 (a type is not assigned to)

    class Met(_Anything):
        def __init__(self, *_: Any, **__: Any) -> None:
            pretence.touch()

    for name in _CLASSES.split():
        setattr(torch.cuda, name, Met)
    for name in ("Stream", "Event"):
        if hasattr(torch, name):
            setattr(torch, name, Met)
    for owner, names in ((torch.cuda, "_compile_kernel"), (torch.cuda.jiterator, "_create_jit_fn")):
        if hasattr(owner, names):
            setattr(owner, names, Met)
    _note_the_rest(pretence)
    # As in a CUDA build of torch with a toolkit: solutions read this to choose modules and options.
    if torch.version.cuda is None:
        torch.version.cuda = "13.0"
    if torch.utils.cpp_extension.CUDA_HOME is None:
        torch.utils.cpp_extension.CUDA_HOME = "/usr/local/cuda"

    def uncompiled(model: Any = None, **_: Any) -> Any:
        return (lambda held: held) if model is None else model

    torch.compile = uncompiled
