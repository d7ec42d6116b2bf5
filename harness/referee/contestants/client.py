"""Requests to one contestant: load the solution, run bursts, detect late writes.

Trusted side. The contestant's replies are claims; the bytes in shared memory and the referee's own clock decide. The
only verdict made here is that outputs do not change after a burst.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.core.choices import DeviceKind
from harness.core.status import Failure, Status, one_line
from harness.core.task import RefereeConfig, Task
from harness.devices import empty_kernel
from harness.devices.empty_kernel import Compared
from harness.protocol.messages import Attach, Burst, BurstDone, Call, EmptyTimed, Keep, Load, LoadLaunches, Open
from harness.referee.contestants.crash_report import CrashReport, examine
from harness.referee.contestants.failures import explained, standing
from harness.referee.contestants.findings import all_placed
from harness.referee.contestants.process import ContestantFailed, ContestantProcess
from harness.referee.problem.burst_plan import PlannedCall, calls_of
from harness.referee.problem.workspace import Workspace

MAX_NOTES = 32
MAX_NOTE_CHARS = 300
"""Most notes, and characters of a note, that a record keeps of the contestant's messages about its builds."""

LATE_WRITE = Failure(
    status=Status.disqualified,
    reason="an output changed after its burst had ended, so code was still writing",
    evidence={"rule": "late write"},
)

OTHER_STATE = Failure(
    status=Status.disqualified,
    reason="the process reported parameters or buffers that it was not asked about",
    evidence={"rule": "protocol"},
)


def open_request(config: RefereeConfig, *, records: bool = False) -> Open:
    """Build the request to open the device that all contestants of this referee use.

    Args:
        config: Settings of the run.
        records: Whether calls can be recorded later. Only for timed solutions: other tools need CUPTI for themselves.
    """
    return Open(
        device=config.device.value,
        device_index=config.device_index,
        checked=config.checked,
        host_runtime=config.host_runtime,
        records=records,
    )


def attach_request(
    config: RefereeConfig, workspace: Workspace, *, own_allocations: bool = False, records: bool = False
) -> Attach:
    """Build the request to attach to a workspace's shared memory.

    Args:
        config: Settings of the run.
        workspace: The workspace.
        own_allocations: Whether each input gets memory of its own, which tools check for accesses out of bounds.
        records: As in `open_request`.
    """
    opening = open_request(config, records=records)
    return Attach(nbytes=workspace.arena.nbytes, opening=opening, own_allocations=own_allocations)


def load_request(task: Task, workspace: Workspace, keep: Keep = Keep.NOTHING) -> Load:
    """Build the request to import the solution and construct its model.

    Args:
        task: The solution.
        workspace: The workspace with the model's arguments and state.
        keep: What the process keeps of an earlier request.
    """
    return Load(
        source=task.source,
        filename=task.filename,
        modules=task.modules,
        init_tree=workspace.init_tree.to_json(),
        init_slots=workspace.init_slots,
        state=workspace.state_slots,
        seed=workspace.model_seed,
        drawn=tuple(workspace.oracle.drawn),
        dtype=workspace.problem.dtype,
        # The calibration's own solution returns all results at once, gradients included.
        gradients=workspace.gradients if task.problem.backward else None,
        keep=keep,
    )


OWN_SHARE = 0.25
"""Share of the time limit that the solution's code must have used for a timeout to be its own fault."""


class ContestantClient:
    """Requests to one solution's contestant over one workspace.

    Args:
        config: Settings of the run.
        workspace: Inputs, outputs and reference.
        contestant: The process.
        task: The solution.
        evidence: Filled with facts for the record.
        begin: `time.perf_counter()` from which the solution's time limit counts.
    """

    def __init__(
        self,
        config: RefereeConfig,
        workspace: Workspace,
        contestant: ContestantProcess,
        task: Task,
        evidence: dict[str, Any],
        begin: float,
    ) -> None:
        self.config = config
        self.workspace = workspace
        self.contestant = contestant
        self.task = task
        self.deadline_s = begin + config.solution_timeout_s
        """When the solution's time is over, on the clock of `time.perf_counter`; stages extend it by their waits."""
        self.unmatched: tuple[str, ...] = ()
        """State of the reference that the solution's model lacks."""
        self.differing: tuple[str, ...] = ()
        """State of the reference that the solution's model has with other values."""
        self.took_state = False
        """Whether the reference's state was copied over the solution's."""
        self.peak_bytes: int | None = None
        """Most device memory that the solution's calls had allocated, in bytes."""
        self.bursts_s = {"solution": 0.0, "reference": 0.0}
        """Seconds of bursts; the rest of the stages' time is for drawing inputs and checking outputs."""
        self._evidence = evidence
        evidence["bursts_s"] = self.bursts_s
        self._closed: list[int] = []
        self._closed_digests: list[int] = []
        self._own_s = 0.0
        """Seconds of waiting for the solution's own code, import and calls; without `ContestantProcess.stopping_s`."""

    @property
    def left_s(self) -> float:
        """Seconds that are left of the solution's time, at least one."""
        return max(1.0, self.deadline_s + self.contestant.starved_s - time.perf_counter())

    def time_was_over(self, words: str) -> Failure:
        """Return the failure of a solution that exceeded its time limit.

        It is a timeout only if its own code used at least `OWN_SHARE` of the limit; otherwise drawing and checking took
        too long. Waits for its processes to stop count as its own: relatives that end slowly cause them. `words`
        complete the timeout's reason.
        """
        limit_s, own_s = self.config.solution_timeout_s, self._own_s + self.contestant.stopping_s
        limit = f"all calls and checks together took longer than {limit_s:.4g} s (--solution-timeout)"
        if own_s >= OWN_SHARE * limit_s:
            return Failure(status=Status.timeout, reason=f"{limit}{words}")
        return Failure(
            status=Status.harness_error,
            reason=(
                f"{limit}, of which its code took {own_s:.3g} s: drawing inputs and checking outputs is too slow "
                "here at these sizes; raise the limit or take a smaller --workload"
            ),
        )

    def load(self, lanes: Mapping[int, EmptyTimed] | None = None, *, unless_known: bool = False) -> Compared | None:
        """Load the solution.

        Args:
            lanes: The referee's empty kernels by lane. If there are any, empty kernels are timed in the contestant's
                process first.
            unless_known: Skip them if an earlier contestant of this device has timed them.

        Returns:
            The comparison of both processes' empty kernels; None if none were timed.

        Raises:
            ContestantFailed: If the solution cannot be loaded.
        """
        compared = self._attach(lanes, unless_known=unless_known)
        self._load(Keep.NOTHING)
        return compared

    def load_again(self, keep: Keep) -> None:
        """Load the solution once more, over this workspace instead of another one.

        Args:
            keep: What the process keeps of the latest load.

        Raises:
            ContestantFailed: If the solution cannot be loaded.
        """
        self._attach(None)
        self._load(keep)

    def _load(self, keep: Keep) -> None:
        workspace, config = self.workspace, self.config
        begin = time.perf_counter() - self.contestant.stopping_s
        request = load_request(self.task, workspace, keep)
        try:
            loaded = self.contestant.load(request, min(config.load_timeout_s, self.left_s))
        except ContestantFailed as error:
            raise self._explained(error) from error
        self._own_s += time.perf_counter() - self.contestant.stopping_s - begin
        if not {*loaded.unmatched, *loaded.differing} <= set(workspace.state_slots):
            raise ContestantFailed(OTHER_STATE)
        self.unmatched, self.differing = loaded.unmatched, loaded.differing
        self._evidence["state"] = {"copied": [], "unmatched": list(loaded.unmatched)}
        if loaded.notes:
            self._evidence["notes"] = [one_line(note, limit=MAX_NOTE_CHARS) for note in loaded.notes[:MAX_NOTES]]

    def load_launches(
        self, request: LoadLaunches, fds: tuple[int, int], lanes: Mapping[int, EmptyTimed] | None
    ) -> Compared | None:
        """Load recorded launches in place of a solution.

        Args:
            request: Sizes of the recording.
            fds: Descriptors of its GPU memory and its plan.
            lanes: The referee's empty kernels by lane; None to time none.

        Returns:
            As `load`.

        Raises:
            ContestantFailed: If the process can't launch the recorded work.
        """
        compared = self._attach(lanes)
        self.contestant.load_launches(request, fds, min(self.config.load_timeout_s, self.left_s))
        return compared

    def _attach(self, lanes: Mapping[int, EmptyTimed] | None, *, unless_known: bool = False) -> Compared | None:
        """Attach to the workspace; time empty kernels if there are the referee's."""
        workspace, config = self.workspace, self.config
        one_queue, known = self.contestant.has_one_queue, empty_kernel.of(workspace.device)
        request = attach_request(config, workspace, records=True)
        self.contestant.attach(request, workspace.arena.fd, config.load_timeout_s)
        if not lanes or (unless_known and known.knows(one_queue=one_queue)):
            return None
        return known.compare(self.contestant.empty_calls(config.load_timeout_s), lanes, one_queue=one_queue)

    def take_state(self) -> None:
        """Copy the reference's state over the solution's, where it has a place.

        Raises:
            ContestantFailed: If the solution's process fails.
        """
        begin = time.perf_counter() - self.contestant.stopping_s
        try:
            loaded = self.contestant.take_state(min(self.config.load_timeout_s, self.left_s))
        except ContestantFailed as error:
            raise self._explained(error) from error
        self._own_s += time.perf_counter() - self.contestant.stopping_s - begin
        if not set(loaded.copied) <= set(self.workspace.state_slots):
            raise ContestantFailed(OTHER_STATE)
        self.took_state = True
        self._evidence["state"] = {"copied": list(loaded.copied), "unmatched": list(self.unmatched)}

    def burst(self, planned_calls: Sequence[PlannedCall]) -> tuple[BurstDone, float]:
        """Run a burst; return the claims and the seconds until outputs no longer change.

        Kernels of a stopped process run on. The outputs' checksums reveal writes by such a kernel, and delay of reading
        them, beyond the shortest time ever, is added to the burst.
        """
        done, wall_s = self.ask(planned_calls)
        if self.config.device is DeviceKind.CUDA:
            # Sorted, so that the same sets have the same key.
            self._closed = sorted(call.index for call in planned_calls)
            begin = time.perf_counter()
            self._closed_digests = self.workspace.output_digests(self._closed)
            wall_s += max(0.0, self._beyond_reading_s(time.perf_counter() - begin))
        return done, wall_s

    def _beyond_reading_s(self, took_s: float) -> float:
        """Return how much longer reading the outputs took than the shortest time so far."""
        known_s = self.workspace.reading_s
        closed = tuple(self._closed)
        if closed not in known_s:
            begin = time.perf_counter()
            self._expect_unchanged()
            known_s[closed] = time.perf_counter() - begin
        beyond_s = took_s - known_s[closed]
        known_s[closed] = min(known_s[closed], took_s)
        return beyond_s

    def forget_outputs(self) -> None:
        """Let the referee overwrite the last burst's outputs."""
        self._closed, self._closed_digests = [], []

    def expect_still(self) -> None:
        """Raise `ContestantFailed` if an output changed after its burst or code ran."""
        try:
            self.contestant.expect_still()
        except ContestantFailed as error:
            raise error if error.recording is None else self._explained(error) from error
        self._expect_unchanged()

    def _expect_unchanged(self) -> None:
        if self.workspace.output_digests(self._closed) != self._closed_digests:
            raise ContestantFailed(LATE_WRITE)

    def request(self, calls: tuple[Call, ...], schedule: int = 0) -> Burst:
        """Build the request for these calls; `schedule` orders threads (host device only)."""
        return Burst(
            calls=calls,
            input_tree=self.workspace.tree.to_json(),
            state_names=self.workspace.traits.updates_state,
            restore_state=bool(self.workspace.traits.updates_state),
            coerce_device=self.config.device_policy == "coerce",
            schedule=schedule,
            contiguous=self.workspace.traits.contiguous,
        )

    def ask(self, planned_calls: Sequence[PlannedCall], schedule: int = 0) -> tuple[BurstDone, float]:
        """Make these calls; return the claims and the burst's seconds."""
        calls = calls_of(self.workspace, planned_calls)
        calls_s, left_s = self.config.call_timeout_s * len(calls), self.left_s
        try:
            done, wall_s = self.contestant.burst(self.request(calls, schedule), min(calls_s, left_s))
        except ContestantFailed as error:
            if error.failure.status is not Status.timeout or calls_s <= left_s:
                raise self._explained(error) from error
            # The remaining time is not a set limit: earlier stages used the rest of the solution's limit.
            self._own_s += left_s
            words = ": an endless loop, a deadlock or far too slow"
            failure = self.time_was_over(words)
            late = replace(error.failure, status=failure.status, reason=failure.reason)
            raise self._explained(ContestantFailed(late, error.reports, error.recording)) from error
        self.bursts_s["solution"] += wall_s
        self._own_s += wall_s
        if done.peak_bytes is not None:
            self.peak_bytes = max(self.peak_bytes or 0, done.peak_bytes)
        if done.held_bytes is not None:
            held = {"reference": self.workspace.traits.held_bytes, "solution": done.held_bytes}
            self._evidence.setdefault("backward", {})["held_bytes"] = held
        return replace(done, reports=self._places(done.reports)), wall_s

    def _explained(self, error: ContestantFailed) -> ContestantFailed:
        """Add findings, as the cause, and a dead process's last position to the failure."""
        report = CrashReport(reports=error.reports)
        if error.recording is not None:
            report = examine(error.recording, self.contestant)
        stood_in = None if report.stood_in is None else self._places((report.stood_in,))[0]
        return ContestantFailed(explained(standing(error.failure, stood_in), self._places(report.reports)))

    def _places(self, reports: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
        """Convert the reports' lines to lines of the solution's file."""
        task = self.task
        return all_placed(reports, task.parts, source=task.source, filename=task.filename)
