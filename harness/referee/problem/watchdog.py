"""Which of a problem's own code a referee is in, and since when: told in memory that its executor reads.

Edge, trusted side; imports the vocabulary. A problem may hang or end its process in any line of its file, also one that
holds the interpreter's lock: so nobody in that process could tell. What is written here outlives it, costs one system
call a step, and needs nobody who listens.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from harness.core.problem import Problem, Workload

_SIZE = 4096
_MOST_NAME = 200
_READS = 20


class Phase(StrEnum):
    """Steps of a problem's own code, in words for messages."""

    IMPORT = "the import of its file"
    INIT_INPUTS = "get_init_inputs()"
    CONSTRUCTOR = "Model(*get_init_inputs())"
    INPUTS = "get_inputs()"
    FORWARD = "forward"
    TRUTH = "forward in float64"
    READY = "its preparation"
    """Between the others: what they left the device to do, and what the harness does with their results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLocation:
    """A step of a problem's code at one workload; `digest` is the problem's, `since_s` on this machine's monotonic
    clock.
    """

    problem: str
    digest: str
    workload: str
    step: Phase
    since_s: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> CodeLocation:
        return cls(**{**value, "step": Phase(value["step"])})


class ProgressMarker:
    """The side that tells. Of one thread: the one that runs problems' code. Without a descriptor nobody is told."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = descriptor
        self._now: CodeLocation | None = None
        self.failed: CodeLocation | None = None
        """The innermost place that an exception came out of since `begin`; None again where a later step, or that
        around it, came to its end: then the exception was dealt with."""

    def begin(self) -> None:
        """Whatever fails from now on is of a new request."""
        self.failed = None

    @contextmanager
    def at(self, problem: Problem, workload: Workload, step: Phase) -> Iterator[None]:
        """Be in this step for the length of the block, then again where it was before, which begins anew: what steps
        within it took is not its own.
        """
        before = self._now
        place = CodeLocation(
            problem=problem.id[:_MOST_NAME],
            digest=problem.digest,
            workload=workload.name[:_MOST_NAME],
            step=step,
            since_s=time.monotonic(),
        )
        self._tell(place)
        try:
            yield
        except Exception:
            self.failed = self.failed or place
            raise
        else:
            self.failed = None
        finally:
            self._tell(None if before is None else replace(before, since_s=time.monotonic()))

    def _tell(self, place: CodeLocation | None) -> None:
        self._now = place
        if self._descriptor is not None:
            said = b"" if place is None else json.dumps(place.to_json()).encode()
            os.pwrite(self._descriptor, said.ljust(_SIZE), 0)


NOWHERE = ProgressMarker()
"""For whoever runs a problem's code with nobody to tell."""


class ProgressPage:
    """The side that reads, which makes the memory and owns it."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("whereabouts")
        """For the other process's `ProgressMarker`."""

    def read(self) -> CodeLocation | None:
        """Where the other process is, or was when it died. None where it is in no problem's code."""
        last = None
        for _ in range(_READS):  # a read may fall into a write: what is the same twice is whole
            data = os.pread(self.descriptor, _SIZE, 0)
            if data == last:
                return CodeLocation.from_json(json.loads(data)) if data.strip() else None
            last = data
        return None

    def close(self) -> None:
        os.close(self.descriptor)
