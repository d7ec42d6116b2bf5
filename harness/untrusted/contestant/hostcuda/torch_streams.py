"""Streams and events on the host device.

All work on a stream is done when its call returns. Runs in a submission's process; replaces attributes of torch for
good.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Streams", "make_streams"]

_CUDA = 1
"""CUDA in c10::DeviceType. With numbers, a stream is created without asking for a driver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """Replacements for `torch.cuda.Stream` and `Event`, and the only stream.

    Attributes:
        stream: The class of streams.
        event: The class of events.
        current: The only stream.
    """

    stream: Any
    event: Any
    current: Any


def make_streams() -> Streams:
    """Replace `torch.Stream` and `torch.Event`, and derive torch.cuda's from them.

    A CUDA build of torch derives them too, and some code asks only whether a value is a stream.

    Returns:
        The classes for `torch.cuda`.
    """
    plain_stream: Any = torch.Stream
    plain_event: Any = torch.Event

    class Stream(plain_stream):  # type: ignore[misc]
        __module__, __qualname__ = "torch", "Stream"

        def __new__(cls, *_: Any, **__: Any) -> Any:
            return plain_stream.__new__(cls, stream_id=0, device_index=0, device_type=_CUDA)

        def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
            self.priority = priority

        def synchronize(self) -> None:
            pass

        def wait_stream(self, stream: Any) -> None:
            pass

        def wait_event(self, event: Any) -> None:
            pass

        def query(self) -> bool:
            return True

        def record_event(self, event: Any = None) -> Any:
            event = event or CudaEvent(enable_timing=True)
            event.record(self)
            return event

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: Any) -> None:
            pass

    class CudaStream(Stream):
        __module__, __qualname__ = "torch.cuda", "Stream"

        cuda_stream = 0

        @staticmethod
        def priority_range() -> tuple[int, int]:
            return 0, -5

    class Event(plain_event):  # type: ignore[misc]
        __module__, __qualname__ = "torch", "Event"

        def __new__(cls, *_: Any, **__: Any) -> Any:
            return plain_event.__new__(cls, "cuda")

        def __init__(self, *_: Any, **__: Any) -> None:
            self.at_s: float | None = None

        @property
        def device(self) -> Any:
            return torch.device("cuda", 0)

        def record(self, stream: Any = None) -> None:
            self.at_s = time.perf_counter()

        def wait(self, stream: Any = None) -> None:
            pass

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

    owner: Any = torch
    owner.Stream, owner.Event = Stream, Event
    return Streams(stream=CudaStream, event=CudaEvent, current=CudaStream())
