"""The referee's talk with one contestant: the solution loaded, calls asked for in bursts, late writes noticed.

Trusted side. The contestant is a `ContestantProcess`, asked over `wire`; what it says is a claim, what counts are
bytes in the arena and the referee's own clock. Nothing is judged here but that the outputs lie still once a burst is
over.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.core.choices import DeviceKind
from harness.core.status import Failure, Status, one_line
from harness.core.task import RefereeConfig, Task
from harness.protocol.messages import Attach, Burst, BurstDone, Call, EmptyTimed, Load, Open
from harness.referee.contestants.crash_report import CrashReport, examine
from harness.referee.contestants.failures import explained, standing
from harness.referee.contestants.findings import all_placed
from harness.referee.contestants.process import ContestantFailed, ContestantProcess
from harness.referee.problem.burst_plan import PlannedCall, calls_of
from harness.referee.problem.workspace import Workspace

MAX_NOTES = 32
MAX_NOTE_CHARS = 300
"""What a record keeps of what a contestant says about its builds."""

LATE_WRITE = Failure(
    status=Status.disqualified,
    reason="outputs were written after the calls that they are of had closed",
    evidence={"rule": "late write"},
)

OTHER_STATE = Failure(
    status=Status.disqualified,
    reason="the process spoke of state that it was not asked about",
    evidence={"rule": "protocol"},
)


def open_request(config: RefereeConfig) -> Open:
    """The device that every contestant of this referee runs on."""
    return Open(
        device=config.device.value,
        device_index=config.device_index,
        checked=config.checked,
        host_runtime=config.host_runtime,
    )


def attach_request(config: RefereeConfig, workspace: Workspace, *, own_allocations: bool = False) -> Attach:
    """What a contestant needs to know of the arena of `workspace`."""
    return Attach(nbytes=workspace.arena.nbytes, opening=open_request(config), own_allocations=own_allocations)


OWN_SHARE = 0.25
"""Part of a solution's time that its code has to take for the want of it to be its own fault."""


class ContestantClient:
    """One solution's contestant over one bench. `evidence` is filled with what is learnt by the way.

    `begin` is the `time.perf_counter()` from which the solution's time limit counts.
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
        self._config = config
        self._workspace = workspace
        self._contestant = contestant
        self._task = task
        self._evidence = evidence
        self._deadline = begin + config.solution_timeout_s
        self._unmatched: tuple[str, ...] = ()
        self._peak_bytes: int | None = None
        self._empty: EmptyTimed | None = None
        self._closed: list[int] = []
        self._closed_digests: list[int] = []
        # Seconds that the device was with the one and the other; what remains of the stages are draws and checks.
        self._bursts_s = {"solution": 0.0, "reference": 0.0}
        evidence["bursts_s"] = self._bursts_s
        self._own_s = 0.0
        """Seconds in which its own code was waited for: imported and called."""

    def _left_s(self) -> float:
        return max(1.0, self._deadline - time.perf_counter())

    def _time_was_over(self, words: str) -> Failure:
        """The time for all its calls and checks being over, `words` say how: a timeout where its own code took a good
        part of that, and no verdict where it were the harness's draws and checks.
        """
        limit_s = self._config.solution_timeout_s
        limit = f"the {limit_s:.4g} s for all its calls and checks"
        if self._own_s >= OWN_SHARE * limit_s:
            return Failure(status=Status.timeout, reason=f"{limit} {words}")
        return Failure(
            status=Status.harness_error,
            reason=(
                f"{limit} were over (--solution-timeout), of which its code took {self._own_s:.3g} s: drawing and "
                "checking takes too long here at these sizes; allow more time, or take a smaller --workload"
            ),
        )

    def _load(self, *, empty: bool = False) -> None:
        """Bring the solution in; with `empty`, calls that do next to nothing are timed in its process before."""
        workspace, config = self._workspace, self._config
        self._contestant.attach(attach_request(self._config, workspace), workspace.arena.fd, config.load_timeout_s)
        if empty:
            self._empty = self._contestant.empty_calls(config.load_timeout_s)
        request = Load(
            source=self._task.source,
            filename=self._task.filename,
            modules=self._task.modules,
            init_tree=workspace.init_tree.to_json(),
            init_slots=workspace.init_slots,
            state=workspace.state_slots,
            seed=workspace.model_seed,
        )
        begin = time.perf_counter()
        try:
            loaded = self._contestant.load(request, min(config.load_timeout_s, self._left_s()))
        except ContestantFailed as error:
            raise self._explained(error) from error
        self._own_s += time.perf_counter() - begin
        if not {*loaded.unmatched, *loaded.copied} <= set(workspace.state_slots):
            raise ContestantFailed(OTHER_STATE)
        self._unmatched = loaded.unmatched
        self._evidence["state"] = {"copied": list(loaded.copied), "unmatched": list(loaded.unmatched)}
        if loaded.notes:
            self._evidence["notes"] = [one_line(note, limit=MAX_NOTE_CHARS) for note in loaded.notes[:MAX_NOTES]]

    def _burst(self, planned_calls: Sequence[PlannedCall]) -> tuple[BurstDone, float]:
        """The claims, and the seconds until the outputs lay still.

        A stopped process's kernels run on. What one of them still writes shows by the outputs' checksums, and what it
        takes while they are read, beyond the shortest time in which that was ever done, is added to the burst.
        """
        done, wall_s = self._ask(calls_of(self._workspace, planned_calls))
        if self._config.device is DeviceKind.CUDA:
            self._closed = sorted(
                planned_call.index for planned_call in planned_calls
            )  # in one order, so that they are found at once
            begin = time.perf_counter()
            self._closed_digests = self._workspace.output_digests(self._closed)
            wall_s += max(0.0, self._beyond_reading_s(time.perf_counter() - begin))
        return done, wall_s

    def _beyond_reading_s(self, took_s: float) -> float:
        """How much longer than ever it `took_s` to read the outputs of the burst that is over."""
        known_s = self._workspace.reading_s
        closed = tuple(self._closed)
        if closed not in known_s:
            begin = time.perf_counter()
            self._expect_unchanged()
            known_s[closed] = time.perf_counter() - begin
        beyond_s = took_s - known_s[closed]
        known_s[closed] = min(known_s[closed], took_s)
        return beyond_s

    def _expect_still(self) -> None:
        """Raise `ContestantFailed` where outputs have changed since the burst that they are of was over, or the
        process that wrote them did not stand still.
        """
        try:
            self._contestant.expect_still()
        except ContestantFailed as error:
            raise error if error.recording is None else self._explained(error) from error
        self._expect_unchanged()

    def _expect_unchanged(self) -> None:
        if self._workspace.output_digests(self._closed) != self._closed_digests:
            raise ContestantFailed(LATE_WRITE)

    def _request(self, calls: tuple[Call, ...], schedule: int = 0) -> Burst:
        return Burst(
            calls=calls,
            input_tree=self._workspace.tree.to_json(),
            state_names=self._workspace.traits.updates_state,
            restore_state=bool(self._workspace.traits.updates_state),
            coerce_device=self._config.device_policy == "coerce",
            schedule=schedule,
            contiguous=self._workspace.traits.contiguous,
        )

    def _ask(self, calls: tuple[Call, ...], schedule: int = 0) -> tuple[BurstDone, float]:
        calls_s, left_s = self._config.call_timeout_s * len(calls), self._left_s()
        try:
            done, wall_s = self._contestant.burst(self._request(calls, schedule), min(calls_s, left_s))
        except ContestantFailed as error:
            if error.failure.status is not Status.timeout or calls_s <= left_s:
                raise self._explained(error) from error
            # What was left is no limit that anybody set: what came before took the rest.
            self._own_s += left_s
            words = "were over (--solution-timeout): an endless loop, a deadlock, or far too slow"
            failure = self._time_was_over(words)
            late = replace(error.failure, status=failure.status, reason=failure.reason)
            raise self._explained(ContestantFailed(late, error.reports, error.recording)) from error
        self._bursts_s["solution"] += wall_s
        self._own_s += wall_s
        if done.peak_bytes is not None:
            self._peak_bytes = max(self._peak_bytes or 0, done.peak_bytes)
        return self._placed(done), wall_s

    def _explained(self, error: ContestantFailed) -> ContestantFailed:
        """`error` with what the checks had found by then as its cause, and where a process that died stood."""
        held = CrashReport(reports=error.reports)
        if error.recording is not None:
            held = examine(error.recording, self._contestant)
        stood_in = None if held.stood_in is None else self._places((held.stood_in,))[0]
        return ContestantFailed(explained(standing(error.failure, stood_in), self._places(held.reports)))

    def _placed(self, done: BurstDone) -> BurstDone:
        """`done` with its reports' lines counted in the solution's file."""
        return replace(done, reports=self._places(done.reports))

    def _places(self, reports: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
        task = self._task
        return all_placed(reports, task.parts, source=task.source, filename=task.filename)
