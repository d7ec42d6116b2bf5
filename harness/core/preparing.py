"""Progress of what is made once for a machine: headers and libraries.

Trusted side; a plain value. The first evaluation with an empty cache folder makes them, which takes minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparing:
    """Something is prepared, of which `done` of `total` steps are finished.

    The first event has `done` 0, the last one `done` equal to `total`.

    Attributes:
        what: What is prepared, and what it is kept for: "the host device, once for torch 2.13.0 and g++ 12.2.0".
        done: Number of finished steps.
        total: Number of steps.
    """

    what: str
    done: int
    total: int


TellPreparing = Callable[[Preparing], None]
"""Receives the events; may be called from several threads, one at a time for each preparation."""


def untold(event: Preparing) -> None:
    """Drop an event."""
