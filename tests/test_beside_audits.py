"""What audits of other solutions take must not become the verdict on the one that is judged beside them.

Real referee, contestants and audits on the host device; of the tools a stand-in (tests/test_sidecheck.py).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_sidecheck import RIGHT, Court, a_court

from harness.audit import Subject
from harness.guest import Guest, GuestFailed, failure_of
from harness.hush import Hush
from harness.messages import Attach, Broken, Stage
from harness.model import Status, Workload
from harness.posts import Posts
from harness.sanitizers import Tool
from harness.sidecheck import subject_of

LONG_AUDIT = "time.sleep(8.0 * AUDITED)\n        "


@pytest.fixture
def court(tmp_path: Path) -> Iterator[Court]:
    with a_court(tmp_path) as held:
        yield held


def test_memory_that_is_short_while_timing_is_tried_again_without_them(court: Court) -> None:
    """Also where the answers were right and the audit goes on: that it is owed must not make it final."""
    waiting = court.task(LONG_AUDIT + RIGHT)
    assert court.referee.begin(waiting) is None
    # Verification makes fewer than a dozen calls, and timing more.
    short = f"""self.calls = getattr(self, "calls", 0) + 1
        if self.calls > 12 and time.time() < {time.time() + 12.0} and not AUDITED:
            raise MemoryError
        """
    outcome = court.referee.judge(court.task(short + LONG_AUDIT + RIGHT, timed=True))
    assert outcome.status is Status.passed, outcome
    assert court.referee.settle(waiting).status is Status.passed


def test_a_contestant_without_memory_to_start_with_is_tried_again_without_them(
    court: Court, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = court.task(LONG_AUDIT + RIGHT)
    assert court.referee.begin(waiting) is None
    attach, tried = Guest.attach, 0

    def attach_if_there_is_room(self: Guest, request: Attach, fd: int, timeout_s: float) -> None:
        nonlocal tried
        if threading.current_thread() is threading.main_thread() and court.referee._owed:
            tried += 1
            message = "CUDA error: out of memory"
            raise GuestFailed(
                failure_of(
                    Broken(
                        stage=Stage.ATTACH, kind="AcceleratorError", message=message, trace="", call=None, reports=()
                    )
                )
            )
        attach(self, request, fd, timeout_s)

    monkeypatch.setattr(Guest, "attach", attach_if_there_is_room)
    outcome = court.referee.judge(court.task(RIGHT))
    assert tried == 1
    assert outcome.status is Status.passed, outcome
    assert court.referee.settle(waiting).status is Status.passed


def test_a_problem_whose_inputs_find_no_room_is_tried_again_without_them(
    court: Court, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = court.task(LONG_AUDIT + RIGHT)
    assert court.referee.begin(waiting) is None
    device = court.referee.device
    free: Callable[[], int] = device.free_bytes
    monkeypatch.setattr(type(device), "free_bytes", lambda _: 0 if court.referee._owed else free())
    larger = replace(court.task(RIGHT), workload=Workload(name="larger", sizes={"ROWS": 50}))
    outcome = court.referee.judge(larger)
    assert outcome.status is Status.passed, outcome
    monkeypatch.setattr(type(device), "free_bytes", lambda _: 0)
    largest = replace(court.task(RIGHT), workload=Workload(name="largest", sizes={"ROWS": 60}))
    alone = court.referee.judge(largest)
    assert alone.status is Status.harness_error
    assert "do not fit" in alone.reason


@pytest.mark.parametrize("drawing", [False, True], ids=["bench", "inputs"])
def test_nobody_goes_unaudited_for_the_memory_that_audits_of_others_take(
    court: Court, monkeypatch: pytest.MonkeyPatch, drawing: bool
) -> None:
    waiting, judged = court.task(LONG_AUDIT + RIGHT), court.task(RIGHT)
    assert court.referee.begin(waiting) is None
    device = court.referee.device
    free: Callable[[], int] = device.free_bytes

    def subject_if_there_is_room(*args: Any, **more: Any) -> Subject:
        if court.referee._owed:
            raise MemoryError
        return subject_of(*args, **more)

    if drawing:
        monkeypatch.setattr("harness.alongside.subject_of", subject_if_there_is_room)
    else:
        monkeypatch.setattr(type(device), "free_bytes", lambda _: 0 if court.referee._owed else free())
    outcome = court.referee.judge(judged)
    assert outcome.status is Status.passed, outcome
    assert "audit" in outcome.evidence
    assert court.referee.settle(waiting).status is Status.passed
    assert not any(held.lent for held in court.referee._alongside.benches._held)


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", Status.out_of_memory),
        ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", Status.out_of_memory),
        ("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", Status.cuda_error),
        ("CUDA error: an illegal memory access was encountered", Status.cuda_error),
    ],
)
def test_libraries_that_find_no_memory_say_so_in_their_own_words(message: str, status: Status) -> None:
    broken = Broken(stage=Stage.CALL, kind="RuntimeError", message=message, trace="", call=0, reports=())
    failure = failure_of(broken)
    assert failure.status is status
    short = status is Status.out_of_memory or "NOT_INITIALIZED" in message
    assert bool(failure.evidence.get("short_of_memory")) is short


def test_waiting_for_silence_takes_nothing_of_the_solutions_time(court: Court, monkeypatch: pytest.MonkeyPatch) -> None:
    court.referee.config = replace(court.referee.config, solution_timeout_s=15.0)
    waited = Hush.begin

    def long_wait(self: Hush) -> None:
        waited(self)
        if not self.audits_s > 10.0:
            time.sleep(20.0)  # as where a kernel of an audit's can't be stopped, and is let come to its end
            self.last_s += 20.0
            self.audits_s += 20.0

    monkeypatch.setattr(Hush, "begin", long_wait)
    slow = "time.sleep(0.4 * (not AUDITED))\n        "
    outcome = court.referee.judge(court.task(slow + RIGHT, timed=True))
    assert outcome.status is Status.passed, outcome


def test_one_that_takes_its_place_at_once_is_not_replaced_again(court: Court, tmp_path: Path) -> None:
    """Else each that is lost while audits wait for their turn would leave one zygote more than before."""
    posts = Posts(
        str(tmp_path / "compute-sanitizer"),
        preload=("json",),
        logs=tmp_path,
        most=dict.fromkeys(Tool, 2),
        again=lambda tool: None,
    )
    try:
        lost, other = posts.take(Tool.MEMCHECK), posts.take(Tool.MEMCHECK)
        posts.drop(lost)
        posts.give_back(posts.take(Tool.MEMCHECK))
        posts.prepare(Tool.MEMCHECK)  # what `again` asks for, when its turn comes
        assert len(posts) == 2
        posts.drop(other)
        posts.prepare(Tool.MEMCHECK)
        assert len(posts) == 2
    finally:
        posts.close()
