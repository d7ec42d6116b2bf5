"""Streams and events on the host device.

All work on a stream is done when its call returns, except while the stream captures a graph. Runs in a submission's
process; replaces attributes of torch for good.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from harness.hostcuda.translate.runtime_library import RuntimeLibrary

__all__ = ["Streams", "make_streams", "raise_error"]

_CUDA = 1
"""CUDA in c10::DeviceType. With numbers, a stream is created without asking for a driver."""

_POOL = 32
"""Streams that torch has; later ones are these again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """Replacements for the streams and events of `torch.cuda`.

    Attributes:
        stream: The class of streams.
        event: The class of events.
        current: Returns the current stream of the calling thread.
        default: Returns the default stream.
        set_current: Makes a stream the current one.
        within: Context manager that does so for a while.
    """

    stream: Any
    event: Any
    current: Callable[..., Any]
    default: Callable[..., Any]
    set_current: Callable[[Any], None]
    within: Callable[[Any], Any]


def raise_error(runtime: RuntimeLibrary, error: int) -> None:
    """Raise a cudaError_t other than 0 as torch does."""
    if error != 0:
        raise RuntimeError(f"CUDA error: {runtime.error_text(error)}")


def make_streams(runtime: RuntimeLibrary) -> Streams:
    """Replace `torch.Stream` and `torch.Event`, and derive torch.cuda's from them.

    A CUDA build of torch derives them too, and some code asks only whether a value is a stream.

    Args:
        runtime: The runtime library, which has the streams.

    Returns:
        The classes and functions for `torch.cuda`.
    """
    plain_stream: Any = torch.Stream
    plain_event: Any = torch.Event
    pool: list[int] = []
    made = 0

    def next_handle() -> int:
        nonlocal made
        if len(pool) < _POOL:
            pool.append(runtime.new_stream())
        made += 1
        return pool[(made - 1) % _POOL]

    class Stream(plain_stream):  # type: ignore[misc]
        __module__, __qualname__ = "torch", "Stream"

        def __new__(cls, device: Any = None, priority: int = 0, *, stream_id: int | None = None, **_: Any) -> Any:
            number = next_handle() if stream_id is None else stream_id
            return plain_stream.__new__(cls, stream_id=number, device_index=0, device_type=_CUDA)

        def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
            self.priority = priority
            self.before: list[int] = []

        @property
        def cuda_stream(self) -> int:
            return int(self.stream_id)

        def synchronize(self) -> None:
            raise_error(runtime, runtime.synchronize(self.stream_id))

        def wait_stream(self, stream: Any) -> None:
            self.wait_event(stream.record_event())

        def wait_event(self, event: Any) -> None:
            raise_error(runtime, runtime.wait_event(self.stream_id, event.handle))

        def query(self) -> bool:
            return True

        def record_event(self, event: Any = None) -> Any:
            event = event or CudaEvent(enable_timing=True)
            event.record(self)
            return event

        def __enter__(self) -> Any:
            self.before.append(runtime.torch_stream())
            runtime.set_torch_stream(self.stream_id)
            return self

        def __exit__(self, *_: Any) -> None:
            runtime.set_torch_stream(self.before.pop())

    class CudaStream(Stream):
        __module__, __qualname__ = "torch.cuda", "Stream"

        @staticmethod
        def priority_range() -> tuple[int, int]:
            return 0, -5

    class Event(plain_event):  # type: ignore[misc]
        __module__, __qualname__ = "torch", "Event"

        def __new__(cls, *_: Any, **__: Any) -> Any:
            return plain_event.__new__(cls, "cuda")

        def __init__(self, *_: Any, **__: Any) -> None:
            self.at_s: float | None = None
            self.handle = runtime.new_event()

        def __del__(self) -> None:
            if handle := self.__dict__.pop("handle", 0):
                runtime.delete_event(handle)

        @property
        def device(self) -> Any:
            return torch.device("cuda", 0)

        def record(self, stream: Any = None) -> None:
            self.at_s = time.perf_counter()
            handle = runtime.torch_stream() if stream is None else stream.stream_id
            raise_error(runtime, runtime.record_event(self.handle, handle))

        def wait(self, stream: Any = None) -> None:
            handle = runtime.torch_stream() if stream is None else stream.stream_id
            raise_error(runtime, runtime.wait_event(handle, self.handle))

        def query(self) -> bool:
            return True

        def synchronize(self) -> None:
            pass

        def elapsed_time(self, end: Any) -> float:
            if self.at_s is None or end.at_s is None:
                raise RuntimeError("both events must be recorded before elapsed_time")
            return float(end.at_s - self.at_s) * 1e3

    class CudaEvent(Event):
        __module__, __qualname__ = "torch.cuda", "Event"

        cuda_event = 0

    def current(device: Any = None) -> Any:
        return CudaStream(stream_id=runtime.torch_stream())

    def default(device: Any = None) -> Any:
        return CudaStream(stream_id=0)

    def set_current(stream: Any) -> None:
        if stream is not None:
            runtime.set_torch_stream(stream.stream_id)

    @contextlib.contextmanager
    def within(stream: Any) -> Iterator[None]:
        before = runtime.torch_stream()
        set_current(stream)
        try:
            yield
        finally:
            runtime.set_torch_stream(before)

    owner: Any = torch
    owner.Stream, owner.Event = Stream, Event
    return Streams(
        stream=CudaStream, event=CudaEvent, current=current, default=default, set_current=set_current, within=within
    )
