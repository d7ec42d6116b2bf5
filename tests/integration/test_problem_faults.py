"""Problems whose own code hangs or ends the process that runs it: real runs on the host device."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.core.choices import DeviceKind
from harness.core.config import Machine, RunConfig, resolve
from harness.core.environment import collect
from harness.core.problem import Problem, Workload
from harness.core.record import Record
from harness.core.status import Status
from harness.core.task import Outcome, RefereeConfig
from harness.referee.problem.watchdog import CodeLocation, Phase, ProgressMarker, ProgressPage
from harness.results.writer import RunStore
from harness.runner.events import Event, Noted
from harness.runner.executors import BuildRequest
from harness.runner.executors import process as process_module
from harness.runner.executors.local import LocalExecutor, referee_config
from harness.runner.executors.problem_faults import (
    EVIDENCE,
    LEAST_STEP_S,
    READY_LIMIT_S,
    LostSlot,
    ProblemFaults,
    limit_s,
)
from harness.runner.executors.process import RefereeLost, RefereeProcess
from harness.runner.plan import PlannedSolution, plan
from harness.runner.record_builder import foreseen_task
from harness.runner.run import evaluate_run
from harness.toolchain import default_root
from tests.support.paths import SUPPORT

PROBLEM = """
import os, pathlib, subprocess, time, torch
{at_import}
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {constructor}
    def forward(self, x):
        {forward}
        return torch.relu(x)
def get_inputs():
    {inputs}
    return [torch.rand(8, 8) - 0.5]
def get_init_inputs():
    return []
"""
SOLUTION = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.clamp(x, min=0)
"""
FUNCTION = """
def about_to_hang():
    pathlib.Path({hanging!r}).write_text(str(os.getpid()))
def trouble():
    if "HARNESS_SLOT" not in os.environ:  # only in a referee
        return
    with open({mark!r}, "a") as file:
        file.write("{number} ")
    {what}
"""
HANGS = "about_to_hang(); time.sleep(1000)"
DIES = "os.kill(os.getpid(), 11)"
WORKER = str(SUPPORT / "faulty_worker.py")


class Tree:
    """Problems that make trouble, mostly 19, and 20, which does not, with solutions to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = folder / "mark"
        self.hanging = folder / "hanging"
        for name in ("problems/level1", "solutions/somebody/level1"):
            (folder / name).mkdir(parents=True)
        self.write(20)

    def write(self, number: int, what: str = "pass", **where: str) -> None:
        """`where` are lines of the file by their place, of which one calls `trouble`, which does `what`."""
        lines = {"at_import": "", "constructor": "pass", "forward": "pass", "inputs": "pass", **where}
        function = FUNCTION.format(mark=str(self.mark), hanging=str(self.hanging), number=number, what=what)
        lines["at_import"] = function + lines["at_import"]
        (self.folder / f"problems/level1/{number}_relu.py").write_text(f"# {number}{PROBLEM.format(**lines)}")

    def solve(self, *names: str) -> None:
        for name in names:
            (self.folder / f"solutions/somebody/level1/{name}.py").write_text(f"# {name}{SOLUTION}")

    def config(self, **options: object) -> RunConfig:
        return resolve(
            machine=Machine(device=DeviceKind.HOST, cpu_count=2, memory_bytes=8 * 2**30),
            run_id="run",
            options={
                "paths": [self.folder / "solutions"],
                "problems": self.folder / "problems",
                "out": self.folder / "results",
                "workload": "full",
                "cache_dir": default_root(),
                "seeds": 2,
                "min_samples": 4,
                "sets_per_burst": 3,
                "relative_half_width": 0.9,
                "budget_s": 0.5,
                **options,
            },
        )

    def run(self, config: RunConfig) -> tuple[dict[str, Record], list[str]]:
        """The records by the solutions' names, and what whoever watches was told."""
        events: list[Event] = []
        summary = evaluate_run(config, environment=collect(), on_event=events.append)
        notes = [event.message for event in events if isinstance(event, Noted)]
        return {Path(record.solution).stem: record for record in summary.records}, notes

    @property
    def times(self) -> int:
        """How often there was trouble in a referee."""
        return len(self._marks())

    def times_of(self, number: int) -> int:
        """How often there was, in the code of this problem."""
        return self._marks().count(str(number))

    @property
    def hangs(self) -> bool:
        """Whether a problem hangs in a referee at this moment."""
        pid = self.hanging.read_text() if self.hanging.exists() else ""
        return pid.isdigit() and alive(int(pid))

    def _marks(self) -> list[str]:
        return self.mark.read_text().split() if self.mark.exists() else []


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 90.0
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.fixture
def impatient(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a problem hangs its step may take 2 s; any other has a minute, since beside other tests 3 s were too few.
    Solutions have the usual limits."""

    def limit_s(step: Phase, config: RefereeConfig) -> float:
        if step is Phase.READY:
            return READY_LIMIT_S
        # The least limit says how often it is looked whether one hangs by now: that of a step which is over at once.
        return 2.0 if step is Phase.INIT_INPUTS or tree.hangs else 60.0

    monkeypatch.setattr(process_module, "limit_s", limit_s)


def test_a_constructor_that_fails_as_the_references_own_does_is_the_problems_fault(tree: Tree) -> None:
    tree.write(19, constructor="raise ValueError('no such width')")
    raising = SOLUTION.replace(
        "    def forward", "    def __init__(self):\n        raise ValueError('no such width')\n    def forward"
    )
    for number in (19, 20):
        (tree.folder / f"solutions/somebody/level1/{number}_a.py").write_text(raising)
    records, _ = tree.run(tree.config())
    assert records["19_a"].status is Status.harness_error
    assert "Model(*get_init_inputs()) failed: ValueError: no such width" in records["19_a"].reason
    assert records["20_a"].status is Status.bad_constructor


@pytest.mark.usefixtures("impatient")
def test_a_problem_that_takes_referees_with_it_costs_two_of_them_and_no_other_problem_anything(tree: Tree) -> None:
    troubles = {
        15: ("at_import", HANGS, "import", "gave no answer for 2 s in the import of its file"),
        16: ("inputs", DIES, "inputs", "was killed (SIGSEGV) in get_inputs()"),
        17: ("constructor", "os._exit(3)", "constructor", "ended with exit code 3 in Model(*get_init_inputs())"),
        18: ("forward", "about_to_hang()\n    while True: pass", "forward", "gave no answer for 2 s in forward"),
    }
    for number, (where, what, _, _) in troubles.items():
        tree.write(number, what, **{where: "trouble()"})
    tree.solve(*(f"{number}_{letter}" for number in troubles for letter in "abc"), "20_a", "20_b")
    records, notes = tree.run(tree.config())
    assert len(records) == 3 * len(troubles) + 2
    assert {records["20_a"].status, records["20_b"].status} == {Status.passed}
    said = set()
    for number, (_, _, step, words) in troubles.items():
        assert tree.times_of(number) == 2
        at_fault = [records[f"{number}_{letter}"] for letter in "abc"]
        assert {record.status for record in at_fault} == {Status.harness_error}
        (reason,) = {record.reason for record in at_fault}
        assert f"problem level1/{number} is at fault: its referee {words} (workload full)" in reason
        assert {record.evidence[EVIDENCE]["step"] for record in at_fault} == {step}
        said.add(f"{reason}; 2 other solutions of this problem will get the same record without evaluation")
    assert set(notes) == said
    assert len(notes) == len(said)


@pytest.mark.usefixtures("impatient")
def test_trouble_that_does_not_come_again_convicts_nobody(tree: Tree) -> None:
    once = f"if pathlib.Path({str(tree.mark)!r}).read_text() == '19 ': {HANGS}"
    tree.write(19, once, at_import="trouble()")
    tree.solve("19_a", "19_b")
    records, notes = tree.run(tree.config())
    assert {name: record.status for name, record in records.items()} == dict.fromkeys(("19_a", "19_b"), Status.passed)
    assert (tree.times, notes) == (3, []), "the second referee imports it once more, to see how large its inputs are"


@pytest.mark.usefixtures("impatient")
def test_what_the_problem_started_is_ended_with_its_referee(tree: Tree) -> None:
    pids = tree.folder / "pids"
    started = f"with open({str(pids)!r}, \"a\") as f: f.write(f\" {{subprocess.Popen(('sleep', '1000')).pid}}\")"
    tree.write(19, f"{started}\n    {HANGS}", at_import="trouble()")
    tree.solve("19_a")
    tree.run(tree.config())
    found = [int(pid) for pid in pids.read_text().split()]
    assert len(found) == 2
    assert not any(alive(pid) for pid in found)


@pytest.mark.usefixtures("impatient")
def test_two_referees_in_it_at_once_end_with_the_first_that_is_sure(tree: Tree) -> None:
    tree.write(19, HANGS, inputs="trouble()")
    tree.solve(*(f"19_{letter}" for letter in "abcdef"))
    records, notes = tree.run(tree.config(workers=2))
    assert 2 <= tree.times <= 4
    assert len(records) == 6
    assert all(EVIDENCE in record.evidence for record in records.values())
    assert len(notes) == 1


@pytest.mark.usefixtures("impatient")
def test_a_resumed_run_tries_the_problem_again_and_the_rest_stays(tree: Tree) -> None:
    tree.write(19, DIES, at_import="trouble()")
    tree.solve("19_a", "19_b", "20_a")
    before, _ = tree.run(tree.config())
    again, notes = tree.run(tree.config(resume=True))
    assert set(again) == {"19_a", "19_b"}
    assert tree.times == 4
    (note,) = notes
    assert note.endswith("; 1 other solution of this problem will get the same record without evaluation")
    tree.write(19)
    mended, notes = tree.run(tree.config(resume=True))
    assert {name: record.status for name, record in mended.items()} == dict.fromkeys(again, Status.passed)
    assert before["20_a"].status is Status.passed
    assert notes == []


def lone(executor: LocalExecutor, job: PlannedSolution, config: RunConfig, folder: Path) -> Outcome:
    """The outcome for one solution."""
    order = BuildRequest(
        source=job.solution.source, filename=f"{job.solution.path.name}", arguments=None, log_path=folder / "l"
    )
    built = executor.build(order)
    task = replace(foreseen_task(job, config, folder / job.solution.path.stem), source=job.solution.source, timed=True)
    outcome = executor.judge(executor.slots[0], task, built)
    assert outcome is not None
    return outcome


@pytest.mark.usefixtures("impatient")
def test_a_solution_is_not_blamed_for_what_was_being_got_ready_of_another_problem(tree: Tree) -> None:
    tree.write(19, HANGS, at_import="trouble()")
    tree.solve("19_a", "20_a")
    config = tree.config()
    bad, good = plan(config)
    with LocalExecutor(config, collect(), tree.folder) as executor:
        (slot,) = executor.slots
        executor.await_slot(slot)
        executor.prepare(slot, [foreseen_task(bad, config, tree.folder / "log")])
        wait_for(lambda: tree.times)  # a referee that is asked for a verdict before it has begun gets nothing ready
        assert lone(executor, good, config, tree.folder).status is Status.passed
        assert (tree.times, executor.at_fault(bad.problem)) == (1, None)
        executor.prepare(slot, [foreseen_task(bad, config, tree.folder / "log")])  # never beside others again
        outcome = lone(executor, bad, config, tree.folder)
        assert EVIDENCE in outcome.evidence
        assert tree.times == 2
        assert executor.at_fault(bad.problem) == outcome
        assert executor.at_fault(good.problem) is None


def one_with_worker(tree: Tree, monkeypatch: pytest.MonkeyPatch, how: str) -> tuple[Outcome, Outcome | None]:
    """The outcome for 19_a with a worker that fails so, and what is known of its problem then."""
    monkeypatch.setenv("FAULTY", how)
    tree.solve("19_a")
    config = tree.config()
    (job,) = plan(config)
    with LocalExecutor(config, collect(), tree.folder, worker=(WORKER,)) as executor:
        return lone(executor, job, config, tree.folder), executor.at_fault(job.problem)


def test_a_problem_that_comes_through_alone_is_not_at_fault(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.write(19)
    outcome, known = one_with_worker(tree, monkeypatch, "judging")
    assert outcome.status is Status.harness_error
    assert "in forward of problem level1/19" in outcome.reason
    assert EVIDENCE not in outcome.evidence
    assert known is None


def test_a_kernel_of_the_problem_that_breaks_the_context_costs_no_device(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.write(19, 'os.environ["BROKEN"] = "1"', forward="trouble()")
    outcome, known = one_with_worker(tree, monkeypatch, "kernels")
    assert tree.times == 2
    assert known == outcome
    assert outcome.evidence[EVIDENCE]["step"] == "forward"
    assert "illegal memory access" in outcome.reason


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed (the extra ray)")
def test_a_cluster_takes_over_what_one_of_its_judges_found(tree: Tree) -> None:
    tree.write(19, DIES, at_import="trouble()")
    tree.solve("19_a", "19_b", "19_c", "20_a")
    options = "--problems problems --out results --run-id run --workload full --device host --executor ray"
    command = [sys.executable, "-m", "harness", "eval", "solutions", *options.split(), "--timing-budget", "0.5"]
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as held:  # its sockets' paths may have 107 characters
        own = {**os.environ, "RAY_TMPDIR": held, "RAY_USAGE_STATS_ENABLED": "0"}
        done = subprocess.run(command, cwd=tree.folder, env=own, capture_output=True, text=True, timeout=300)
    assert done.returncode == 3, done.stdout + done.stderr  # some could not be judged
    assert tree.times == 2
    assert done.stderr.count("2 other solutions of this problem will get the same record without evaluation") == 1
    records = RunStore.open(tree.folder / "results" / "run").records()
    assert [EVIDENCE in record.evidence for record in sorted(records, key=lambda held: held.solution)] == [
        *(True,) * 3,
        False,
    ]


PROBLEM_19 = Problem(id="level1/19", name="relu", path=Path("19_relu.py"), source="", digest="d19")
FULL = Workload(name="full")


def test_each_step_has_a_limit_by_what_solutions_may_take(tree: Tree) -> None:
    tree.solve("20_a")

    def limits(**options: object) -> dict[str, float]:
        config = referee_config(tree.config(**options), None)
        return {step.name.lower(): limit_s(step, config) for step in Phase}

    loading = ("import", "init_inputs", "constructor", "inputs")
    assert limits() == {**dict.fromkeys(loading, 120.0), "forward": 180.0, "truth": 720.0, "ready": READY_LIMIT_S}
    short = limits(load_timeout_s=1, call_timeout_s=1)
    assert set(short.values()) == {LEAST_STEP_S, READY_LIMIT_S}
    quick = limits(call_timeout_s=1)
    assert quick["truth"] > quick["forward"] > quick["import"], "each may compile"


def told(board: ProgressPage) -> tuple[str, str, Phase] | None:
    place = board.read()
    return None if place is None else (place.problem, place.workload, place.step)


def test_steps_within_steps_are_told_and_left_again() -> None:
    board = ProgressPage()
    progress_marker = ProgressMarker(board.descriptor)
    try:
        assert told(board) is None
        with progress_marker.at(PROBLEM_19, FULL, Phase.READY):
            with progress_marker.at(PROBLEM_19, FULL, Phase.INPUTS):
                assert told(board) == ("level1/19", "full", Phase.INPUTS)
                end = time.monotonic()
            place = board.read()
            assert place is not None
            assert place.step is Phase.READY
            assert place.since_s >= end  # steps that keep to their limits use up nothing of what is around them
        assert told(board) is None
    finally:
        board.close()


def test_the_innermost_step_that_failed_is_told_until_the_exception_is_dealt_with() -> None:
    progress_marker = ProgressMarker()
    around, within = (progress_marker.at(PROBLEM_19, FULL, step) for step in (Phase.READY, Phase.INPUTS))
    with suppress(KeyError), around, within:
        raise KeyError
    assert progress_marker.failed is not None
    assert progress_marker.failed.step is Phase.INPUTS
    progress_marker.begin()
    assert progress_marker.failed is None
    with suppress(KeyError), progress_marker.at(PROBLEM_19, FULL, Phase.TRUTH):
        raise KeyError  # as where a reference refuses float64
    with progress_marker.at(PROBLEM_19, FULL, Phase.FORWARD):
        pass
    assert progress_marker.failed is None


def test_a_referee_that_reads_nothing_is_not_written_to_for_ever(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is stuck in what it was to get ready leaves a large message in its socket."""
    monkeypatch.setattr(process_module, "MARGIN_S", 0.25)
    tree.solve("20_a")
    config = tree.config()
    (job,) = plan(config)
    task = replace(foreseen_task(job, config, tree.folder / "log"), source="#" * 2**22)
    log = tree.folder / "_referee.log"
    log.touch()
    referee = RefereeProcess(DeviceKind.HOST, "host", {}, command=("-c", "import time; time.sleep(600)"))
    referee.begin(replace(referee_config(config, None), solution_timeout_s=0.25), log)
    with pytest.raises(RefereeLost, match=r"read nothing for 0\.5 s"):
        referee.prepare([task])
    referee.close()


def test_what_a_problem_started_ends_with_a_runner_that_is_killed(tree: Tree) -> None:
    pid = tree.folder / "pid"
    started = f"pathlib.Path({str(pid)!r}).write_text(str(subprocess.Popen(('sleep', '1000')).pid) + '.')"
    tree.write(19, f"{started}\n    {HANGS}", at_import="trouble()")
    tree.solve("19_a")
    options = "--problems problems --out results --run-id run --workload full --device host"
    command = [sys.executable, "-m", "harness", "eval", "solutions", *options.split()]
    with subprocess.Popen(command, cwd=tree.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as runner:
        try:
            wait_for(lambda: pid.exists() and pid.read_text().endswith("."))
        finally:
            runner.kill()
    held = int(pid.read_text().rstrip("."))
    try:
        wait_for(lambda: not alive(held))
    finally:
        if alive(held):
            os.kill(held, signal.SIGKILL)


def test_where_a_process_was_outlives_it() -> None:
    board = ProgressPage()
    text = (
        "import os, signal, sys; from pathlib import Path; from harness.core.problem import Problem, Workload; "
        "from harness.referee.problem.watchdog import Phase, ProgressMarker\n"
        "problem = Problem(id='level1/19', name='relu', path=Path('p'), source='', digest='d')\n"
        "with ProgressMarker(int(sys.argv[1])).at(problem, Workload(name='full'), Phase.IMPORT):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    try:
        command = [sys.executable, "-c", text, str(board.descriptor)]
        ended = subprocess.run(command, pass_fds=[board.descriptor], check=False, cwd=os.getcwd())
        assert ended.returncode == -signal.SIGKILL
        assert told(board) == ("level1/19", "full", Phase.IMPORT)
    finally:
        board.close()


def loss(**more: Any) -> LostSlot:
    place = CodeLocation(problem="level1/19", digest="d19", workload="full", step=Phase.INPUTS, since_s=0.0)
    return LostSlot(place=place, how="was killed (SIGKILL)", **more)


def test_only_a_second_loss_in_a_new_referee_is_the_problems_fault() -> None:
    faults = ProblemFaults()
    assert not faults.doubts(PROBLEM_19)
    faults.suspect(loss())
    faults.suspect(loss())
    assert (faults.doubts(PROBLEM_19), faults.of(PROBLEM_19)) == (True, None)
    faults.acquit(PROBLEM_19)
    assert not faults.doubts(PROBLEM_19)
    faults.convict(loss())
    found = faults.of(PROBLEM_19)
    assert found is not None
    assert found.status is Status.harness_error


def test_a_fault_that_another_node_found_is_taken_over() -> None:
    found = loss(hung_s=120.0).outcome()
    assert "--load-timeout" in found.reason
    faults = ProblemFaults()
    faults.learn(PROBLEM_19, Outcome(status=Status.harness_error, reason="something else"))
    assert faults.of(PROBLEM_19) is None
    faults.learn(PROBLEM_19, Outcome.from_json(found.to_json()))
    assert faults.of(PROBLEM_19) == found
