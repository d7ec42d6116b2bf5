"""Record in shared memory which problem's code a referee runs, and since when.

Trusted side. A problem may hang or end its process in any line, even while it holds the interpreter's lock, so no
thread of that process could report it. The executor reads this memory, which outlives the process. A step costs one
system call.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum

from harness.core.json_value import JsonObject
from harness.core.problem import Problem, Workload

_SIZE = 4096
_MOST_NAME = 200
_READS = 20


class Phase(StrEnum):
    """Steps of a problem's own code, worded for messages."""

    IMPORT = "the import of its file"
    INIT_INPUTS = "get_init_inputs()"
    CONSTRUCTOR = "Model(*get_init_inputs())"
    INPUTS = "get_inputs()"
    FORWARD = "forward"
    TRUTH = "forward in float64"
    READY = "its preparation"
    """Between the other steps: pending work of the device, and the harness's use of results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLocation(JsonObject):
    """A step of a problem's code at one workload.

    `digest` is the problem's; `since_s` is on this machine's monotonic clock.
    """

    problem: str
    digest: str
    workload: str
    step: Phase
    since_s: float


class ProgressMarker:
    """The writing side, for the one thread that runs problems' code.

    Args:
        descriptor: Memory of a `ProgressPage`; None records nothing.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = descriptor
        self._now: CodeLocation | None = None
        self.failed: CodeLocation | None = None
        """The innermost step that raised since `begin`.

        None again after a later or enclosing step ended without an exception: the exception was handled then.
        """

    def begin(self) -> None:
        """Start a new request: forget the last failure."""
        self.failed = None

    @contextmanager
    def at(self, problem: Problem, workload: Workload, step: Phase) -> Iterator[None]:
        """Record this step within the block, and afterwards the enclosing step again.

        The enclosing step's time restarts then: time of inner steps is not its own.
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
"""Records nothing."""


class ProgressPage:
    """The reading side: creates and owns the memory."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("whereabouts")
        """For the other process's `ProgressMarker`."""

    def read(self) -> CodeLocation | None:
        """Return where the other process is, or was when it died.

        Returns:
            The step; None outside problems' code.
        """
        last = None
        for _ in range(_READS):  # a read may overlap a write: two equal reads are complete
            data = os.pread(self.descriptor, _SIZE, 0)
            if data == last:
                return CodeLocation.from_json(json.loads(data)) if data.strip() else None
            last = data
        return None

    def close(self) -> None:
        """Close the memory."""
        os.close(self.descriptor)
