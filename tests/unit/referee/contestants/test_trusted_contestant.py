"""One contestant of trusted code serves problem after problem, and is replaced where it does not live any more."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.core.choices import DeviceKind
from harness.core.problem import Problem, Workload, digest_text
from harness.core.task import Task
from harness.referee.calibrate import BURSTS, SPARING_BURSTS, Calibrator
from harness.referee.contestants.pool import TrustedContestant
from harness.referee.problem.burst_plan import FEW_SETS
from harness.referee.referee import Referee
from harness.referee.timing.reference_timing import ProblemCalibration
from harness.referee.worker import PRELOADED, PRELOADED_HOST
from harness.sandbox import probe
from harness.sandbox.zygote import Zygote
from tests.unit.referee.test_referee import PROBLEM, config, model, problem, task

MACHINE = probe()
pytestmark = pytest.mark.skipif(
    MACHINE.strength != "full", reason=f"none is kept without every wall: {MACHINE.weakness()}"
)

OTHER = PROBLEM.replace("torch.softmax(x, dim=1)", "(x.sum(dim=0), x > 0)").replace("ROWS = 37", "ROWS = 12")


@pytest.fixture(scope="module")
def referee(contestant_zygote: Callable[[DeviceKind], Zygote]) -> Iterator[Referee]:
    with Referee(config(DeviceKind.HOST), contestant_zygote(DeviceKind.HOST)) as held:
        yield held


TASK = task(model("return x"), Path("log"), timed=True)


def calibrator(referee: Referee) -> Calibrator:
    return Calibrator(referee.config, random.Random(1), referee._standby)


def learnt(referee: Referee, held: Problem, folder: Path) -> ProblemCalibration:
    task = replace(TASK, problem=held, log_path=folder / "log")
    workspace = referee.at_hand.workspace_for(task.problem, task.workload)
    workspace.publish()
    return calibrator(referee).learn(workspace, task)


def test_the_same_process_serves_several_problems(referee: Referee, tmp_path: Path) -> None:
    first = learnt(referee, problem(), tmp_path)
    kept = referee._standby._kept
    assert kept is not None
    other = replace(problem(OTHER), digest=digest_text(OTHER))
    second = learnt(referee, other, tmp_path)
    assert referee._standby._kept is kept
    assert first.pauses is not None
    assert second.pauses is not None
    assert second.pauses.per_call_s > 0.0
    assert (first.pauses.bursts, first.sparing) == (BURSTS, None), "all bursts have few calls"
    assert set(second.back_to_back) == set(first.back_to_back) != set()


def test_bursts_of_few_calls_are_known_apart_where_others_have_more(referee: Referee, tmp_path: Path) -> None:
    config = replace(referee.config, sets_per_burst=FEW_SETS + 2)
    with (
        Zygote(preload=(*PRELOADED, *PRELOADED_HOST), log_path=tmp_path / "log") as zygote,
        Referee(config, zygote) as held,
    ):
        known = learnt(held, problem(), tmp_path)
        assert known.pauses is not None
        assert known.sparing is not None
        assert (known.pauses.bursts, known.sparing.bursts) == (BURSTS, SPARING_BURSTS)
        assert held.at_hand.workspace is not None
        low = replace(known, sparing=replace(known.sparing, per_call_s=1e-9))
        task = replace(TASK, log_path=tmp_path / "log", problem=problem())
        again = calibrator(held).learn_again(low, held.at_hand.workspace, task)
        assert again.sparing is not None
        assert again.sparing.per_call_s == 1e-9, "the lower of both"


def test_one_that_has_died_is_replaced(referee: Referee, tmp_path: Path) -> None:
    learnt(referee, problem(), tmp_path)
    kept = referee._standby._kept
    assert kept is not None
    kept.kill()
    assert learnt(referee, problem(), tmp_path).pauses is not None
    assert referee._standby._kept not in (None, kept)


def test_the_first_one_tells_how_much_memory_every_one_has(referee: Referee, tmp_path: Path) -> None:
    task = Task(
        problem=problem(),
        workload=Workload(name="full"),
        source="",
        filename="idle.py",
        modules=(),
        readable=(),
        log_path=tmp_path / "log",
        timed=True,
    )
    with_first = iter([5000, 3000])
    device = SimpleNamespace(taken_bytes=lambda: next(with_first))
    standby = TrustedContestant(referee.context.contestant)
    with standby.lent(task) as contestant:
        assert standby.give_back(contestant, device, peak_bytes=300) == 2000
    assert contestant.exit_report is not None
    assert not standby.waits
    later = SimpleNamespace(taken_bytes=lambda: 9999)
    with standby.lent(task) as contestant:
        contestant_before = contestant
        assert standby.give_back(contestant, later, peak_bytes=50) == 1750
    assert standby.waits
    with standby.lent(task) as contestant:
        assert contestant is contestant_before
    assert contestant.exit_report is not None, "not given back"
    assert not standby.waits
