"""What a referee does while nothing is built yet: the likeliest problem made ready, and whatever goes wrong with that.

Real builders, referees and contestants on the host device; what is learnt of a problem, on a GPU only (`-m gpu`).
"""

from __future__ import annotations

import random
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.core.choices import DeviceKind
from harness.core.config import RunConfig
from harness.core.environment import collect
from harness.core.problem import Problem, Workload, digest_text
from harness.core.record import Record
from harness.core.status import Status
from harness.core.task import Outcome, Task
from harness.devices import empty_kernel
from harness.referee.calibrate import Calibrator
from harness.referee.contestants.pool import TrustedContestant
from harness.referee.problem.workspace import Workspace
from harness.referee.referee import Referee
from harness.referee.timing.reference_timing import ProblemCalibration
from harness.runner.executors import BuildRequest, Built, Slot
from harness.runner.executors.local import LocalExecutor
from harness.runner.run import evaluate_run
from harness.sandbox.zygote import Zygote
from harness.toolchain import BuildOutcome
from tests.integration import test_survival as survival
from tests.support.paths import SUPPORT
from tests.unit.referee.audit.test_small_workload import RIGHT, Court, a_court
from tests.unit.referee.test_referee import PROBLEM, config, model, problem
from tests.unit.referee.timing.test_speedup import KNOWN

SOFTMAX = model("return torch.softmax(x, dim=1)")
OTHER = PROBLEM.replace("ROWS = 37", "ROWS = 12")
WORKER = (str(SUPPORT / "preparing_worker.py"),)

tree = survival.tree


@pytest.fixture(scope="module", params=[DeviceKind.HOST, pytest.param(DeviceKind.CUDA, marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> DeviceKind:
    kind: DeviceKind = request.param
    return kind


@pytest.fixture(scope="module")
def referee(device: DeviceKind, contestant_zygote: Callable[[DeviceKind], Zygote]) -> Iterator[Referee]:
    with Referee(config(device), contestant_zygote(device)) as held:
        yield held


def a_task(held: Problem, folder: Path, source: str = SOFTMAX) -> Task:
    return Task(
        problem=held,
        workload=Workload(name="full"),
        source=source,
        filename="23_test.py",
        modules=(),
        readable=(),
        log_path=folder / "log",
        timed=True,
    )


def foreseen(held: Problem, folder: Path) -> Task:
    return replace(a_task(held, folder, source=""), log_path=folder / "referee.log")


def prepare(referee: Referee, *tasks: Task) -> None:
    for _ in referee.prepare(tasks):
        pass


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The problems, by digest, that a bench was made of."""
    found: list[str] = []
    make = Workspace.__init__

    def noted(self: Workspace, held: Problem, *args: Any, **more: Any) -> None:
        found.append(held.digest)
        make(self, held, *args, **more)

    monkeypatch.setattr(Workspace, "__init__", noted)
    return found


def test_a_prepared_problem_is_made_ready_once_and_the_next_record_says_what_it_took(
    referee: Referee, made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learnt, learn = list[str](), Calibrator.learn

    def noted(self: Calibrator, workspace: Workspace, task: Task) -> ProblemCalibration:
        learnt.append(workspace.problem.digest)
        return learn(self, workspace, task)

    monkeypatch.setattr(Calibrator, "learn", noted)
    held, on_gpu = problem(), referee.config.device is DeviceKind.CUDA
    before = referee.at_hand.warmed
    prepare(referee, foreseen(held, tmp_path))
    assert learnt == [held.digest] * (referee.at_hand.warmed - before)
    assert referee.at_hand.known is None, "what is measured while submissions are built must not count"
    assert (referee.at_hand.warmed > 0) is on_gpu
    learnt.clear()
    first, second = (referee.judge(a_task(held, tmp_path)) for _ in range(2))
    assert (first.status, second.status) == (Status.passed, Status.passed), (first, second)
    assert made == [held.digest]
    assert learnt == ([held.digest] if on_gpu else [])
    (told,) = first.evidence["prepared_ahead"]
    assert told["problem"] == held.id
    assert told["begin_unix_s"] < told["end_unix_s"]
    assert set(told["steps_s"]) == {"problem", "small", "warming", "peaks"}
    assert "prepared_ahead" not in second.evidence


def test_empty_calls_that_are_made_while_submissions_are_built_do_not_count(
    referee: Referee, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A submission's build can load the processors meanwhile, and the referee's own series count for later problems."""
    task = a_task(problem(), tmp_path)
    referee.at_hand.workspace_for(task.problem, task.workload)
    learnt: list[str] = []

    def noted(self: Calibrator, workspace: Workspace, task: Task) -> ProblemCalibration:
        learnt.append(workspace.problem.digest)
        empty_kernel.of(referee.device).own()
        return KNOWN

    monkeypatch.setattr(Calibrator, "learn", noted)
    monkeypatch.setattr(referee.at_hand, "config", replace(referee.config, device=DeviceKind.CUDA))
    standby = TrustedContestant(referee._trusted_contestant)
    monkeypatch.setattr(referee.at_hand, "_calibrator", Calibrator(referee.config, random.Random(1), standby))
    monkeypatch.setattr(referee.at_hand, "known", None)
    monkeypatch.setattr(referee.at_hand, "warmed", 0)
    referee.at_hand.warm_up(task)
    assert learnt == [task.problem.digest]
    assert not empty_kernel.of(referee.device)._own


def test_a_preparation_that_is_cut_short_is_gone_on_with_by_the_judgement(
    referee: Referee, made: list[str], tmp_path: Path
) -> None:
    held = problem(PROBLEM + "# cut short\n")
    steps = referee.prepare([foreseen(held, tmp_path)])
    next(steps)
    steps.close()
    outcome = referee.judge(a_task(held, tmp_path))
    assert outcome.status is Status.passed, outcome
    assert made == [held.digest]
    assert set(outcome.evidence["prepared_ahead"][0]["steps_s"]) == {"problem"}


def test_a_wrong_guess_costs_nothing_but_its_time_which_is_told(
    referee: Referee, made: list[str], tmp_path: Path
) -> None:
    guess, held = problem(PROBLEM + "# a guess\n", precision=problem().precision), problem(OTHER)
    prepare(referee, replace(foreseen(guess, tmp_path), problem=replace(guess, id="level1/7")))
    outcome = referee.judge(a_task(held, tmp_path))
    assert outcome.status is Status.passed, outcome
    assert made == [guess.digest, held.digest]
    assert [told["problem"] for told in outcome.evidence["prepared_ahead"]] == ["level1/7"]


BROKEN = {
    "raises": PROBLEM.replace("torch.softmax(x, dim=1)", "torch.softmax(x, dim=1) / 0"),
    "degenerate": PROBLEM.replace("torch.softmax(x, dim=1)", "x * 0"),
    "syntax": "def broken(:\n",
    "too large": PROBLEM.replace("ROWS = 37", "ROWS = 2**44"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_problem_at_fault_is_told_as_if_nothing_had_been_prepared(
    referee: Referee, tmp_path: Path, name: str
) -> None:
    held = problem(BROKEN[name])
    plain = referee.judge(a_task(held, tmp_path))
    prepare(referee, foreseen(held, tmp_path))
    prepared = referee.judge(a_task(held, tmp_path))
    # what is free differs, and which processes use the GPU beside this test
    numberless = [re.sub(r"[\d.]+", "#", outcome.reason) for outcome in (plain, prepared)]
    said = [re.sub(r"( Process # has # [GM]iB memory in use#)+", "", reason) for reason in numberless]
    assert (prepared.status, said[0]) == (plain.status, said[1])
    assert plain.status is Status.harness_error
    assert referee.judge(a_task(problem(), tmp_path)).status is Status.passed


@pytest.fixture
def court(tmp_path: Path, contestant_zygote: Callable[[DeviceKind], Zygote]) -> Iterator[Court]:
    with a_court(tmp_path, contestant_zygote(DeviceKind.HOST)) as held:
        yield held


def test_small_workloads_are_got_ready_too_those_of_other_problems_beside(court: Court, made: list[str]) -> None:
    first = court.task(RIGHT)
    other = replace(first, problem=replace(first.problem, source=OTHER, digest=digest_text(OTHER)))
    without = replace(first, problem=problem(PROBLEM + "# no small workload\n"), small=None)
    prepare(court.referee, *(replace(each, source="", parts=(), kernels=()) for each in (first, other, without)))
    digest = first.problem.digest
    assert made == [digest, digest, other.problem.digest]
    assert [held.lent for held in court.referee._alongside.workspaces._held] == [False, False]
    outcome = court.referee.judge(first)
    assert outcome.status is Status.passed, outcome
    assert "audit" in outcome.evidence
    assert court.referee.judge(court.task(RIGHT)).status is Status.passed
    assert len(made) == 3
    prepare(court.referee, replace(without, source="", parts=(), kernels=()))
    assert made[3:] == [without.problem.digest] * 2, "the whole workload, which is small enough to be audited"


class _Foreseeing(LocalExecutor):
    """Notes what its slots are told and judge; it builds nothing before `may_build` says so."""

    def __init__(self, settings: RunConfig, logs: Path, may_build: Callable[[_Foreseeing], bool]) -> None:
        logs.mkdir()
        super().__init__(settings, collect(), logs, worker=WORKER)
        self._may_build = may_build
        self.told: list[tuple[str, list[str]]] = []
        self.judged: list[tuple[str, str]] = []

    def build(self, order: BuildRequest) -> BuildOutcome:
        survival.wait_for(lambda: self._may_build(self))
        return super().build(order)

    def prepare(self, slot: Slot, tasks: Sequence[Task]) -> None:
        super().prepare(slot, tasks)
        self.told.append((slot.name, [task.problem.id for task in tasks]))

    def judge(self, slot: Slot, task: Task, built: Built, ahead: Sequence[tuple[Task, Built]] = ()) -> Outcome | None:
        self.judged.append((slot.name, task.problem.id))
        return super().judge(slot, task, built, ahead)


def run(executor: _Foreseeing, settings: RunConfig) -> list[Record]:
    with executor:
        return list(evaluate_run(settings, environment=collect(), executor=executor).records)


@pytest.mark.parametrize("how", ["whole", "dies", "raises", "endless"])
def test_verdicts_are_those_of_a_run_without_preparation(tree: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    prepared, settings = tree / "prepared", survival.settings(tree, jobs=1)
    monkeypatch.setenv("PREPARES", how)
    monkeypatch.setenv("PREPARED", str(prepared))
    executor = _Foreseeing(settings, tree / "logs", lambda _: prepared.exists())
    records = run(executor, settings)
    survival.complete(tree)
    assert executor.told[0] == ("host", ["level1/19", "level1/20"])
    assert executor.judged[0] == ("host", "level1/19")
    assert ("prepared_ahead" in records[0].evidence) is (how == "whole")
    assert ("on purpose" in (tree / "logs" / "_referee.log").read_text()) is (how == "raises")


def test_each_slot_judges_what_it_prepared(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in survival.NAMES:
        if "right" not in name:
            (tree / "solutions" / "somebody" / "level1" / f"{name}.py").unlink()
    settings = survival.settings(tree, workers=2, jobs=2)
    monkeypatch.setenv("PREPARES", "endless")
    monkeypatch.setenv("PREPARED", str(tree / "prepared"))
    executor = _Foreseeing(settings, tree / "logs", lambda held: len(held.told) >= 2)
    records = run(executor, settings)
    assert [record.status for record in records] == [Status.passed, Status.passed]
    assert {problems[0] for _, problems in executor.told[:2]} == {"level1/19", "level1/20"}
    assert sorted(executor.judged) == sorted((slot, problems[0]) for slot, problems in executor.told[:2])


HANGS_IN_REFEREE = """
import sys, time
def get_inputs():
    if "harness.referee.worker" in sys.orig_argv:
        open({mark!r}, "w").close()
        time.sleep(600)
    return [torch.rand(64, 64) - 0.5]
"""


def test_an_interrupt_does_not_wait_for_a_preparation(tree: Path) -> None:
    mark = tree / "hangs"
    for path in (tree / "problems" / "level1").iterdir():
        path.write_text(path.read_text() + HANGS_IN_REFEREE.format(mark=str(mark)))
    for path in (tree / "solutions" / "somebody" / "level1").iterdir():
        path.write_text(f"import time\ntime.sleep(600)  # {tree}\n" + path.read_text())
    started = subprocess.Popen(survival.command(tree), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    survival.wait_for(mark.exists)
    below = survival.descendants(started.pid)
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=300)
    assert started.returncode == 130, said
    assert "under evaluation" not in said
    survival.wait_for(lambda: not any(survival.alive(pid) for pid in below), 20.0)
