"""An accusation that rests on what trusted code costs: real bursts of real contestants, and a calibration that lies.

Everything but the last part runs in sandboxed processes on the host device; what a GPU adds is in
`test_disturbance_gpu`.
"""

from __future__ import annotations

import functools
import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn, cast

import pytest

from harness.core.choices import DeviceKind
from harness.core.problem import Workload
from harness.core.status import Failure, Status
from harness.core.task import Task
from harness.referee import calibrate as calibrate_module
from harness.referee.calibrate import BURSTS, Calibrator
from harness.referee.contestants.census_request import take_census
from harness.referee.contestants.client import ContestantClient
from harness.referee.contestants.pool import TrustedContestant
from harness.referee.contestants.process import ContestantFailed, ContestantProcess
from harness.referee.context import EvidenceLog
from harness.referee.problem.burst_plan import plan_calls
from harness.referee.problem.workspace import Workspace
from harness.referee.problem_state import CurrentProblem
from harness.referee.referee import Referee
from harness.referee.timing import reference_timing
from harness.referee.timing.calibration import Calibration, calibrate, lower_of
from harness.referee.timing.recalibrate import judge_fairly
from harness.referee.timing.reference_timing import ProblemCalibration
from harness.referee.timing.rounds import ReferenceRunner, Round, Rounds
from harness.referee.timing.speedup import JudgedTimes, judge_times
from harness.referee.timing_stage import TimingStage
from harness.sandbox.zygote import Zygote
from tests.unit.referee.test_referee import config, model, problem

BUSY = 400.0
"""How many times as much a burst seemed to cost while others used the device."""

SLOWER = 10.0
"""How many times as long the solution's bursts are said to have taken: far from what trusted code took, and from what
it seemed to cost, however busy this machine was with the ones and the others."""


class Court:
    """A referee, a problem that it has learnt, and rounds of an honest solution to it."""

    def __init__(self, referee: Referee, folder: Path) -> None:
        self.referee = referee
        self.task = Task(
            problem=problem(),
            workload=Workload(name="full"),
            source=model("return torch.softmax(x, dim=1)"),
            filename="23_test.py",
            modules=(),
            readable=(),
            log_path=folder / "log",
            timed=True,
        )
        self.workspace: Workspace = referee.at_hand.workspace_for(self.task.problem, self.task.workload)
        self.workspace.publish()
        self.calibrator = Calibrator(referee.config, random.Random(1), referee._standby)
        self.known = self.calibrator.learn(self.workspace, self.task)
        self.rounds = self._rounds()

    def client(self, contestant: ContestantProcess) -> ContestantClient:
        return self.referee.context.client(
            self.workspace, contestant, self.task, EvidenceLog(), begin=time.perf_counter()
        )

    def timing_stage(self, client: ContestantClient) -> TimingStage:
        return TimingStage(self.referee.context, client, EvidenceLog(), known=self.known, compared=None)

    def _rounds(self) -> Rounds:
        held: list[Round] = []
        with self.referee.context.contestant(self.task) as contestant:
            client = self.client(contestant)
            client.load()
            for number in range(4):
                planned_calls = plan_calls(4, random.Random(number), number)
                reference = ReferenceRunner(self.workspace).burst(planned_calls)
                self.workspace.mask([planned_call.index for planned_call in planned_calls])
                done, wall_s = client.burst(planned_calls)
                held.append(
                    Round(
                        planned_calls=planned_calls,
                        reference_planned_calls=planned_calls,
                        reference=reference,
                        solution=done,
                        solution_wall_s=SLOWER * wall_s,
                        reference_first=True,
                    )
                )
        return Rounds(held=held, stopped_by="interval", spent_s=1.0)

    def lying(self) -> Rounds:
        """The same rounds with claims that leave no time for flushes and copies."""
        held = []
        for one in self.rounds.held:
            share_s = 0.999 * one.solution_wall_s / len(one.planned_calls)
            claims = tuple(replace(claim, device_s=share_s, window_s=share_s) for claim in one.solution.claims)
            held.append(replace(one, solution=replace(one.solution, claims=claims)))
        return replace(self.rounds, held=held)

    def judge(self, rounds: Rounds) -> Callable[..., JudgedTimes]:
        # As on a GPU: on the host device what a flush costs at least is not known, and nobody is accused by it.
        return functools.partial(judge_times, rounds, device=DeviceKind.CUDA)

    def again(self, known: ProblemCalibration) -> ProblemCalibration:
        return self.calibrator.learn_again(known, self.workspace, self.task)


@pytest.fixture(scope="module")
def court(
    tmp_path_factory: pytest.TempPathFactory, contestant_zygote: Callable[[DeviceKind], Zygote]
) -> Iterator[Court]:
    with Referee(config(DeviceKind.HOST), contestant_zygote(DeviceKind.HOST)) as referee:
        yield Court(referee, tmp_path_factory.mktemp("court"))


def test_an_earlier_calibration_that_still_holds_is_recalled(court: Court, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lower times count: an earlier run may have measured on a busier machine."""
    monkeypatch.setattr(reference_timing, "SAME", math.inf)
    monkeypatch.setattr(calibrate_module, "AGREE_SPREAD", 1.0)
    monkeypatch.setattr(calibrate_module, "AGREE_LEAST", math.inf)
    assert court.known.pauses is not None
    before = disturbed(court.known)
    known = court.calibrator.recall(before, court.workspace, court.task)
    assert known is not None
    assert before.pauses is not None
    assert known.pauses is not None
    assert known.pauses.per_call_s < before.pauses.per_call_s
    assert known.sparing == before.sparing
    assert known.quiet.reference_s == before.quiet.reference_s


@pytest.mark.parametrize("part", ["reference", "bursts", "sets"])
def test_an_earlier_calibration_of_another_speed_is_not_recalled(court: Court, part: str) -> None:
    quiet = court.known.quiet
    earlier = {
        "reference": replace(court.known, quiet=replace(quiet, reference_s=10 * quiet.reference_s)),
        "bursts": disturbed(court.known),
        "sets": replace(court.known, quiet=replace(quiet, back_to_back_sets=quiet.back_to_back_sets + 1)),
    }[part]
    assert court.calibrator.recall(earlier, court.workspace, court.task) is None


def disturbed(known: ProblemCalibration) -> ProblemCalibration:
    """What would be known if others had used the device all the while that trusted code was timed."""
    assert known.pauses is not None
    slow = replace(
        known.pauses,
        per_call_s=BUSY * known.pauses.per_call_s,
        spread_s=BUSY * known.pauses.spread_s,
        least_s=BUSY * known.pauses.least_s,
    )
    return replace(known, pauses=slow)


def none_needed() -> Iterator[ProblemCalibration]:
    raise AssertionError("there was no need for that")
    yield


def test_honest_code_is_not_convicted_by_a_disturbed_calibration(court: Court) -> None:
    wrong = disturbed(court.known)
    judge = court.judge(court.rounds)
    accused = judge(known=wrong)
    assert accused.by_calibration
    assert accused.failure is not None
    assert "cache flushes and output copies" in accused.reason
    judged = judge_fairly(judge, wrong, (court.again(wrong) for _ in range(2)))
    assert judged.failure is None
    assert judged.speedup is not None
    assert judged.timing["calibrated_again"] == {"times": 1, "because": accused.reason}


def test_what_is_measured_anew_is_kept_where_it_is_lower(court: Court) -> None:
    wrong = disturbed(court.known)
    now = court.again(wrong)
    assert now.pauses is not None
    assert wrong.pauses is not None
    assert now.pauses.least_s < wrong.pauses.least_s / 2
    assert now.pauses.bursts == BURSTS
    low = replace(wrong, pauses=replace(wrong.pauses, least_s=1e-9))
    kept = court.again(low)
    assert kept.pauses is not None
    assert kept.pauses.least_s == 1e-9


def test_a_liar_gains_nothing(court: Court) -> None:
    """The process that left its flushes out is convicted by any calibration, right or wrong."""
    judge = court.judge(court.lying())
    for known in (court.known, disturbed(court.known)):
        # Whether this machine was quiet is not what is tried here.
        judged = judge_fairly(judge, known, (replace(court.again(each), calm=True) for each in [known] * 2))
        assert judged.failure is not None
        assert judged.failure.status is Status.disqualified
        assert "cache flushes and output copies" in judged.reason
        assert judged.timing["calibrated_again"]["times"] == 1


def test_where_the_machine_is_never_quiet_nobody_is_convicted_and_nobody_scored(court: Court) -> None:
    wrong = replace(disturbed(court.known), calm=False)
    judged = judge_fairly(court.judge(court.rounds), wrong, [wrong, wrong])
    assert judged.failure is not None
    assert judged.failure.status is Status.harness_error
    assert judged.speedup is None
    assert judged.timing["calibrated_again"]["times"] == 2


def test_the_second_measurement_is_made_when_the_accused_is_dead(court: Court, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of its own may keep the device busy."""
    monkeypatch.setattr(court.referee.at_hand, "known", court.known)
    monkeypatch.setattr(CurrentProblem, "learn_again", lambda self, task: court.known)
    with court.referee.context.contestant(court.task) as contestant:
        stage = court.timing_stage(court.client(contestant))
        again = stage._new_calibrations()
        next(again)
        assert contestant.exit_report is None
        next(again)
        assert contestant.exit_report is not None
        assert list(again) == []


def test_the_second_measurement_may_acquit(court: Court) -> None:
    wrong = disturbed(court.known)
    judged = judge_fairly(court.judge(court.rounds), wrong, [replace(wrong, calm=False), court.known])
    assert judged.failure is None
    assert judged.timing["calibrated_again"]["times"] == 2


def test_other_verdicts_are_not_looked_into(court: Court) -> None:
    assert "calibrated_again" not in judge_fairly(court.judge(court.rounds), court.known, none_needed()).timing
    lying = court.lying()
    first = lying.held[0]
    claims = tuple(replace(claim, device_s=-1.0) for claim in first.solution.claims)
    lying.held[0] = replace(first, solution=replace(first.solution, claims=claims))
    impossible = judge_fairly(court.judge(lying), court.known, none_needed())
    assert impossible.failure is not None
    assert impossible.failure.status is Status.disqualified


def test_where_trusted_code_can_not_run_what_is_known_is_in_doubt(court: Court) -> None:
    def none(task: Task) -> NoReturn:
        raise ContestantFailed(Failure(status=Status.out_of_memory, reason="no memory for another process"))

    calibrator = Calibrator(court.referee.config, random.Random(1), TrustedContestant(none))
    known = calibrator.learn_again(court.known, court.workspace, court.task)
    assert not known.calm
    assert known.pauses == court.known.pauses


def test_the_next_solution_of_a_problem_learnt_in_noise_is_preceded_by_learning_again(court: Court) -> None:
    wrong = replace(disturbed(court.known), calm=False)
    court.referee.at_hand.known = wrong
    outcome = court.referee.judge(court.task)
    assert outcome.status is Status.passed, outcome
    assert court.referee.at_hand.known is not None
    assert court.referee.at_hand.known.pauses is not None
    assert wrong.pauses is not None
    assert court.referee.at_hand.known.pauses.least_s < wrong.pauses.least_s / 2
    court.referee.at_hand.known = None


class TestLowerOf:
    calm = Calibration(per_call_s=2e-3, spread_s=1e-5, bursts=6, least_s=1.9e-3)
    busy = Calibration(per_call_s=1e-3, spread_s=5e-4, bursts=6, least_s=0.5e-3, calm=False)

    def test_a_calm_one_counts_first_and_the_least_cost_is_of_both(self) -> None:
        for held in (lower_of(self.calm, self.busy), lower_of(self.busy, self.calm)):
            assert held == replace(self.calm, least_s=0.5e-3)

    def test_of_two_alike_the_lower(self) -> None:
        higher = replace(self.calm, per_call_s=3e-3, least_s=2.9e-3)
        assert lower_of(higher, self.calm) == lower_of(self.calm, higher) == self.calm
        assert lower_of(None, self.busy) == self.busy


@pytest.mark.parametrize(
    ("costs_s", "agree"),
    [
        ((530e-6, 545e-6, 560e-6, 570e-6, 581e-6, 600e-6), True),
        ((500e-6, 520e-6, 530e-6, 2900e-6, 4000e-6, 5000e-6), False),
        ((500e-6, 2800e-6, 2850e-6, 2850e-6, 2900e-6, 2900e-6), False),
        ((2.0, 2.1, 2.2, 2.3, 2.4, 2.5), True),
    ],
    ids=["quiet", "half disturbed", "one left alone", "seconds"],
)
def test_bursts_that_others_disturb_in_turns_do_not_agree(costs_s: tuple[float, ...], agree: bool) -> None:
    assert calibrate([(8 * cost_s, [1e-9] * 8) for cost_s in costs_s]).agrees is agree


def test_what_is_asked_of_the_dead_lacks_and_is_no_fault(court: Court) -> None:
    """An acquittal may come when the process of the acquitted was ended: its time stands, its kernels are unknown."""
    with court.referee.context.contestant(court.task) as contestant:
        client = court.client(contestant)
        client.load()
        contestant.kill()
        noted = take_census(contestant, court.workspace, coerce=False, timeout_s=10.0)
        assert "failed" in noted["lack"]
        court.timing_stage(client)._end_contestant(None)


def calibrated_as(*, calm: bool) -> ProblemCalibration:
    """What `judge_fairly` looks at: only whether it is calm."""
    return cast("ProblemCalibration", SimpleNamespace(calm=calm))


@pytest.mark.parametrize(
    ("calms", "convicted", "measured", "free"),
    [((False, True, True), 9, 2, False), ((False, False), 9, 2, True), ((False, False, True), 2, 2, False)],
    ids=["ends with a calm one", "none is calm", "ends where nothing is left"],
)
def test_an_accusation_is_measured_again_until_calm_or_gone(
    calms: tuple[bool, ...], convicted: int, measured: int, free: bool
) -> None:
    """The first `convicted` judgements accuse; `free`: nobody is convicted for lack of calm."""
    made = 0

    def judge(*, known: ProblemCalibration | None) -> JudgedTimes:
        nonlocal made
        made += 1
        accused = made <= convicted
        failure = Failure(status=Status.disqualified, reason="too fast") if accused else None
        return JudgedTimes(reason="too fast", speedup=None, timing={}, failure=failure, by_calibration=accused)

    judged = judge_fairly(judge, None, (calibrated_as(calm=calm) for calm in calms))
    assert made == 1 + measured
    assert judged.timing["calibrated_again"]["times"] == measured
    assert (judged.failure is not None and judged.failure.status is Status.harness_error) is free
