"""What was learnt of a problem is known again to whoever comes back to it in time."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.core.choices import DeviceKind
from harness.core.problem import Problem, Workload, digest_text
from harness.core.status import Status
from harness.core.task import Task
from harness.referee.problem_state import MOST_RECALLED, RECALLED_S, CalibrationCache
from harness.referee.referee import Referee
from harness.referee.timing.reference_timing import ProblemCalibration
from harness.referee.worker import PRELOADED, PRELOADED_CUDA, PRELOADED_HOST
from harness.sandbox.zygote import Zygote
from tests.unit.referee.test_referee import PROBLEM, config, model, problem

OTHER = PROBLEM.replace("ROWS = 37", "ROWS = 12")

KNOWN: Any = SimpleNamespace(calm=True)
DOUBTFUL: Any = SimpleNamespace(calm=False)


def workspace(
    digest: str = "a", *, sets: int = 10, sizes: dict[str, int] | None = None, copying_s: float = math.inf
) -> Any:
    held = replace(problem(), digest=digest)
    workload = SimpleNamespace(name="full", sizes=sizes or {})
    return SimpleNamespace(problem=held, workload=workload, sets=(None,) * sets, copying_s=copying_s)


def test_it_is_known_again_with_the_benchs_own_part() -> None:
    recall = CalibrationCache()
    recall.leave(workspace(copying_s=2e-5), KNOWN)
    assert recall.come_back(workspace("b")) is None
    again = workspace()
    assert recall.come_back(again) is KNOWN
    assert again.copying_s == 2e-5


def test_what_is_at_hand_is_not_remembered_beside() -> None:
    recall = CalibrationCache()
    recall.leave(workspace(), KNOWN)
    assert recall.come_back(workspace()) is KNOWN
    assert recall.come_back(workspace()) is None


@pytest.mark.parametrize("known", [None, DOUBTFUL])
def test_what_is_in_doubt_is_learnt_again(known: Any) -> None:
    recall = CalibrationCache()
    recall.leave(workspace(), KNOWN)
    recall.leave(workspace(), known)
    assert recall.come_back(workspace()) is None


def test_other_sizes_are_another_problem() -> None:
    recall = CalibrationCache()
    recall.leave(workspace(sizes={"n": 5}), KNOWN)
    assert recall.come_back(workspace(sizes={"n": 6})) is None
    assert recall.come_back(workspace(sizes={"n": 5})) is KNOWN


def test_bursts_over_fewer_sets_are_learnt_again() -> None:
    """Where there is less room than there was."""
    recall = CalibrationCache()
    recall.leave(workspace(sets=10), KNOWN)
    assert recall.come_back(workspace(sets=6)) is None


def test_it_counts_for_some_minutes() -> None:
    now = [0.0]
    recall = CalibrationCache(lambda: now[0])
    recall.leave(workspace("a"), KNOWN)
    recall.leave(workspace("b"), KNOWN)
    now[0] = RECALLED_S
    assert recall.come_back(workspace("a")) is KNOWN
    now[0] += 1.0
    assert recall.come_back(workspace("b")) is None


def test_coming_back_does_not_make_it_new() -> None:
    """A loop whose batches are a minute apart would go by the first one's for as long as it runs."""
    now = [0.0]
    recall = CalibrationCache(lambda: now[0])
    recall.leave(workspace(), KNOWN)
    while now[0] < RECALLED_S:
        now[0] += RECALLED_S / 4
        assert recall.come_back(workspace()) is KNOWN
        recall.leave(workspace(), KNOWN)
    now[0] += RECALLED_S / 4
    assert recall.come_back(workspace()) is None
    anew: Any = SimpleNamespace(calm=True)
    recall.leave(workspace(), anew)
    now[0] += RECALLED_S
    assert recall.come_back(workspace()) is anew


def test_those_that_were_left_first_are_forgotten() -> None:
    recall = CalibrationCache()
    for number in range(MOST_RECALLED + 1):
        recall.leave(workspace(str(number)), KNOWN)
    assert recall.come_back(workspace("0")) is None
    assert recall.come_back(workspace("1")) is KNOWN
    assert recall.come_back(workspace(str(MOST_RECALLED))) is KNOWN


def task(held: Problem, folder: Path) -> Task:
    return Task(
        problem=held,
        workload=Workload(name="full"),
        source=model("return torch.softmax(x, dim=1)"),
        filename="23_test.py",
        modules=(),
        readable=(),
        log_path=folder / "log",
        timed=True,
    )


def test_a_referee_knows_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, other = problem(), replace(problem(OTHER), digest=digest_text(OTHER))
    with (
        Zygote(preload=(*PRELOADED, *PRELOADED_HOST), log_path=tmp_path / "zygote.log") as zygote,
        Referee(config(DeviceKind.HOST), zygote) as referee,
    ):
        full = Workload(name="full")
        workspace = referee.at_hand.workspace_for(first, full)
        known = ProblemCalibration(quiet=SimpleNamespace())  # type: ignore[arg-type]  # nothing looks into it
        monkeypatch.setattr(referee.at_hand, "known", known)
        workspace.copying_s = 3e-5
        assert referee.at_hand.workspace_for(first, full) is workspace
        referee.at_hand.workspace_for(other, full)
        assert referee.at_hand.known is None
        assert referee.at_hand.workspace_for(first, full).copying_s == 3e-5
        assert referee.at_hand.known is known


@pytest.mark.gpu
def test_a_problem_is_learnt_once_though_another_comes_between(tmp_path: Path) -> None:
    first, other = problem(), replace(problem(OTHER), digest=digest_text(OTHER))
    spent, calm = [], []
    with (
        Zygote(preload=(*PRELOADED, *PRELOADED_CUDA), log_path=tmp_path / "zygote.log") as zygote,
        Referee(config(DeviceKind.CUDA), zygote) as referee,
    ):
        for held in (first, other, first, other):
            outcome = referee.judge(task(held, tmp_path))
            assert outcome.status is Status.passed, outcome.reason
            spent.append(outcome.evidence["defences_s"].get("calibration", 0.0))
            assert referee.at_hand.known is not None
            calm.append(referee.at_hand.known.calm)
    assert min(spent[:2]) > 0.0
    # What was learnt beside others on the GPU (tests that run at the same time) is in doubt, and not remembered.
    assert [s == 0.0 for s in spent[2:]] == calm[:2]
