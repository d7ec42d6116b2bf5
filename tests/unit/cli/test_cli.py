"""The command line as people and programs call it. What `eval` evaluates with is passed in; the rest is real."""

from __future__ import annotations

import ast
import errno
import functools
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.catalog import find_solutions, load_problems
from harness.cli import main
from harness.cli.app import COMMANDS, GROUPS
from harness.cli.evaluate import Ran, View
from harness.cli.machine import compile_modules
from harness.cli.output import writable
from harness.core.choices import DeviceKind
from harness.core.config import ConfigError, RunConfig
from harness.core.environment import Environment, MachineError
from harness.core.preparing import Preparing, TellPreparing
from harness.core.problem import Solution
from harness.core.record import Record
from harness.core.status import Status
from harness.results.reader import timestamp
from harness.results.writer import RunStore
from tests.support.paths import ROOT
from tests.support.warm_command import WarmCommand

SEEDS = ROOT.parent / "shared" / "seeds"
PROBLEM = "class Model: ...\ndef get_inputs(): return []\ndef get_init_inputs(): return []\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with two problems and three solutions."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    for name in ("16_matmul", "19_relu"):
        path = tmp_path / "problems" / "level1" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PROBLEM)
    for name in ("ann/level1/16_naive", "ann/level1/19_fast", "bob/level1/16_tiled"):
        path = tmp_path / "solutions" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"class ModelNew: '{name}'\n")
    return tmp_path


@dataclass
class Pipeline:
    """Stands in for the pipeline: real store, real catalog; verdicts by the solution's name."""

    configs: list[RunConfig] = field(default_factory=list)
    stop_after: int | None = None
    raises: BaseException | None = None

    def __call__(self, config: RunConfig, found: Environment, view: View) -> Ran:
        self.configs.append(config)
        if self.raises is not None:
            raise self.raises
        solutions = find_solutions(
            config.paths, load_problems(config.problems, config.problem), problem_id=config.problem
        )
        settings = config.to_json()
        store = (
            RunStore.resume(config.run_dir, config=settings)
            if config.resume
            else RunStore.create(config.run_dir, config=settings, environment=found.to_json())
        )
        records = []
        with store:
            done = {solution for _, solution, _, _ in store.finished()}
            todo = [item for item in solutions if item.label not in done]
            view.started(config.run_dir, len(todo), len(solutions) - len(todo))
            for number, item in enumerate(todo):
                if number == self.stop_after:
                    raise KeyboardInterrupt
                view.built()
                records.append(self.record(item, config))
                store.append(records[-1])
                store.log_path(item.label).write_text(f"== build of {item.label} ==\nptxas info: 32 registers\n")
                view.finished(records[-1])
        return Ran(records=records, skipped=len(solutions) - len(todo), wall_s=1.5)

    def record(self, item: Solution, config: RunConfig) -> Record:
        passed = "naive" not in item.label
        timed = passed and config.device is DeviceKind.CUDA
        return Record(
            problem=item.problem_id,
            author=item.author,
            solution=item.label,
            device=config.device,
            workload=config.workload,
            status=Status.passed if passed else Status.wrong_value,
            reason="right" if passed else "3 of 9 values off by up to 0.5, first at [0, 1]",
            speedup=1.5 if timed else None,
            timing={"speedup": {"speedup": 1.5, "low": 1.4, "high": 1.6}} if timed else None,
            finished_at=timestamp(),
        )


@dataclass
class Result:
    code: int
    out: str
    err: str


Call = Callable[..., Result]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: object, pipeline: Pipeline | None = None) -> Result:
        code = main([str(item) for item in arguments], run=pipeline or Pipeline())
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


def test_the_end_of_a_long_run_is_its_summary_and_no_list_of_all(place: Path, call: Call) -> None:
    for number in range(60):
        path = place / "solutions" / "ann" / "level1" / f"16_sample{number}.py"
        path.write_text(f"class ModelNew: {number}\n")
    done = call("eval", "solutions/ann", "--run-id", "r1", "--device", "host")
    assert "Failures" not in done.out
    assert "what it means" in done.out
    _, end = done.out.split("Leaderboard\n")
    assert len(end.splitlines()) < 40
    assert "… 32 more rows: harness leaderboard --by solution with --csv or --json shows all" in end


def test_eval_prints_a_line_a_solution_and_a_summary(place: Path, call: Call) -> None:
    done = call("eval", "solutions", "--run-id", "r1", "--device", "host")
    assert done.code == 0, done.err
    assert "[1/3] ✗ wrong_value" in done.out
    assert done.out.count("3 of 9 values off") == 1, "its feedback has it"
    assert "✓ passed" in done.out
    failures, end = done.out.split("\n── ")[1].split("3 solutions, 2 passed")
    assert failures.startswith("ann/level1/16_naive.py: wrong_value ─")
    assert "passed" not in failures
    assert "what it means" not in done.out
    assert "16_" not in end, "nothing was timed, so no table says more than the lines above"
    assert "no GPU time" in done.out
    assert "harness show results/r1" in done.err
    assert len(RunStore.open(place / "results/r1").records()) == 3


def test_options_reach_the_configuration(place: Path, call: Call) -> None:
    pipeline = Pipeline()
    (place / "my.yaml").write_text("seeds: 7\njobs: 9\ntiming: {min_samples: 64}\n")
    options = "--workload small --out elsewhere --jobs 2 --device-policy coerce --sandbox strict --unchecked"
    options += " --problem level1/16 --compile-timeout 10 --timing-budget 2.5 --memory-limit 4GiB --precision bf16"
    done = call("eval", "solutions/bob", "--config", "my.yaml", "--device", "host", *options.split(), pipeline=pipeline)
    assert done.code == 0, done.err
    (config,) = pipeline.configs
    assert config.paths == (Path("solutions/bob"),)
    assert (config.seeds, config.jobs, config.timing.min_samples, config.timing.budget_s) == (7, 2, 64, 2.5)
    assert (config.workload, config.out, config.problem) == ("small", Path("elsewhere"), "level1/16")
    assert (config.device_policy, config.sandbox, config.checked) == ("coerce", "strict", False)
    assert (config.compile_timeout_s, config.memory_limit_bytes, config.precision) == (10.0, 4 * 2**30, "bf16")


def test_eval_takes_files_of_any_name_in_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my problem.py").write_text(PROBLEM)
    (tmp_path / "my-kernel v2.py").write_text("class ModelNew: ...\n")
    done = call("eval", "my-kernel v2.py", "--problem", "my problem.py", "--device", "host", "--run-id", "r1")
    assert done.code == 0, done.err
    (record,) = RunStore.open(tmp_path / "results" / "r1").records()
    assert (record.problem, record.solution) == ("local/my_problem", "my-kernel v2.py")


@pytest.mark.parametrize("piped", ["solution", "problem"])
def test_eval_reads_a_solution_or_a_problem_from_standard_input(
    place: Path, call: Call, monkeypatch: pytest.MonkeyPatch, piped: str
) -> None:
    (place / "mine.py").write_text("class ModelNew: ...\n")
    text = PROBLEM if piped == "problem" else "class ModelNew: 'piped'\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    words = ["mine.py", "--problem", "-"] if piped == "problem" else ["-", "--problem", "level1/16"]
    pipeline = Pipeline()
    options = ["--device", "host", "--run-id", "r1", "--cache", place / "cache"]
    done = call("eval", *words, *options, pipeline=pipeline)
    assert done.code == 0, done.err
    (record,) = RunStore.open(place / "results" / "r1").records()
    expected = ("local/stdin", "mine.py") if piped == "problem" else ("level1/16", "stdin.py")
    assert (record.problem, record.solution) == expected
    (config,) = pipeline.configs
    file = Path(config.problem or "") if piped == "problem" else config.paths[0]
    assert file.read_text() == text


def test_why_there_is_no_gpu_is_told_if_the_device_was_chosen_for_that(
    place: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.core.environment.cuda_unusable", lambda found: "no driver")
    assert call("eval", "solutions").err.startswith("device host (no driver), workload small\n")
    asked = call("eval", "solutions", "--device", "host")
    assert asked.err.startswith("device host (as asked), workload small\n")
    (place / "my.yaml").write_text("device: host\n")
    in_file = call("eval", "solutions", "--config", "my.yaml")
    assert in_file.err.startswith("device host (as asked), workload small\n")
    (place / "my.yaml").write_text("device: auto\n")
    assert call("eval", "solutions", "--config", "my.yaml").err.startswith("device host (no driver)")


def test_standard_input_is_not_both(place: Path, call: Call) -> None:
    done = call("eval", "-", "--problem", "-", "--device", "host")
    assert (done.code, "name a file for the other one" in done.err) == (2, True), done.err


def test_a_problem_is_named_by_its_number_and_several_select(place: Path, call: Call) -> None:
    done = call("eval", "solutions", "--problem", "19", "--device", "host", "--run-id", "one")
    assert done.code == 0, done.err
    assert {item.problem for item in RunStore.open(place / "results" / "one").records()} == {"level1/19"}
    done = call("eval", "solutions", "--problem", "level1/19,16", "--device", "host", "--run-id", "two")
    assert done.code == 0, done.err
    assert {item.problem for item in RunStore.open(place / "results" / "two").records()} == {"level1/16", "level1/19"}
    (place / "mine.py").write_text("class ModelNew: ...\n")
    done = call("eval", "mine.py", "--problem", "16,19", "--device", "host")
    assert (done.code, "name only one problem by --problem" in done.err) == (2, True), done.err


def test_a_new_problem_and_a_new_solution_are_files_that_eval_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("new", "problem", "mine").out == "mine.py\n"
    done = call("new", "solution", "mine.py")
    assert (done.out, done.err) == (
        "mine_solution.py\n",
        "next: harness eval mine_solution.py --problem mine.py\n",
    )
    again = call("new", "solution", "mine.py")
    assert (again.code, "exists already: name another file by --out" in again.err) == (2, True), again.err
    assert call("eval", "mine_solution.py", "--problem", "mine.py", "--device", "host").code == 0
    shipped = call("new", "solution", "level1/19", "--out", "relu.py")
    assert shipped.code == 0, shipped.err
    assert "class ModelNew(" in (tmp_path / "relu.py").read_text()


def test_eval_as_json_keeps_stdout_for_programs(place: Path, call: Call) -> None:
    done = call("eval", "solutions", "--run-id", "r1", "--device", "host", "--json")
    value = json.loads(done.out)
    assert value["run"] == "results/r1"
    assert [item["status"] for item in value["records"]] == ["wrong_value", "passed", "passed"]
    assert "[1/3]" in done.err


def test_an_interrupted_run_says_how_to_continue_and_does(place: Path, call: Call) -> None:
    first = call("eval", "solutions", "--run-id", "r1", "--device", "host", pipeline=Pipeline(stop_after=1))
    assert first.code == 130
    assert "finished results are in results/r1; the same command with --resume --run-id r1 continues" in first.err
    records = place / "results/r1/records.jsonl"
    records.write_bytes(records.read_bytes() + b'{"format": 1, "probl')
    second = call("eval", "solutions", "--device", "host", "--resume")
    assert second.code == 0, second.err
    assert "the last line was cut short" in second.err
    assert "continues with other settings" not in second.err
    assert "2 to evaluate, 1 already done" in second.err
    assert "skipped 1 that had a record" in second.out
    assert len(RunStore.open(place / "results/r1").records()) == 3
    third = call("eval", "solutions", "--device", "host", "--resume", "--call-timeout", "90", "--timing-budget", "9")
    assert third.code == 0, third.err
    assert "results/r1: continues with other settings (call_timeout_s 90.0, timing.budget_s 9.0)" in third.err


def test_an_interrupt_tells_what_is_there(place: Path, call: Call) -> None:
    eval_r1 = ("eval", "solutions", "--run-id", "r1", "--device", "host")
    before = call(*eval_r1, pipeline=Pipeline(raises=KeyboardInterrupt()))
    assert before.code == 130
    assert before.err.endswith(
        "interrupted; no solution was finished; the same command starts again from the beginning\n"
    )
    early = call(*eval_r1, pipeline=Pipeline(stop_after=0))
    assert "no solution was finished in results/r1; the same command with --resume --run-id r1 continues" in early.err
    other = call(*eval_r1, pipeline=Pipeline(raises=KeyboardInterrupt()))
    assert "no solution was finished; the same command" in other.err, "the run that is there is not this call's"
    again = call(*eval_r1, "--resume", pipeline=Pipeline(raises=KeyboardInterrupt()))
    assert "with --resume --run-id r1 continues" in again.err
    two = [f"solutions/{name}/level1/16_{title}.py" for name, title in (("ann", "naive"), ("bob", "tiled"))]
    compared = call("compare", *two, "--device", "host", pipeline=Pipeline(stop_after=1))
    assert compared.code == 130
    assert "finished results are in results/" in compared.err
    assert "--resume" not in compared.err, "compare has no such option"


def test_last_failed_repeats_the_latest_run_for_what_failed_in_it(place: Path, call: Call) -> None:
    assert call("eval", "solutions/ann", "--device", "host", "--seeds", "2", "-x", "--run-id", "r1").code == 0
    pipeline = Pipeline()
    done = call("eval", "--last-failed", pipeline=pipeline)
    assert done.code == 0, done.err
    assert "solutions and settings as in results/r1" in done.err
    (config,) = pipeline.configs
    assert (config.status, config.paths, config.seeds) == ("failed", (Path("solutions/ann"),), 2)
    assert config.run_id != "r1"
    assert not config.stop_at_failure, "all that failed, not the first"
    named = Pipeline()
    assert call("eval", "solutions", "--last-failed", "--device", "host", pipeline=named).code == 0
    assert (named.configs[0].status, named.configs[0].seeds) == ("failed", 3)


def test_last_failed_needs_an_earlier_run_and_no_other_status(place: Path, call: Call) -> None:
    none = call("eval", "--last-failed", "--out", "gone")
    assert (none.code, none.err) == (2, "harness: --last-failed: there is no run in gone; name the solutions\n")
    other = call("eval", "solutions", "--last-failed", "--status", "timeout")
    assert other.code == 2
    assert "leave out --status timeout" in other.err


def test_resume_without_a_run_is_a_wrong_call(place: Path, call: Call) -> None:
    done = call("eval", "solutions", "--device", "host", "--resume")
    assert done.code == 2
    assert "no run to resume" in done.err


def test_resume_takes_the_latest_run(place: Path, call: Call) -> None:
    for name, started in (("z", "2026-01-01"), ("a", "2026-01-02")):
        call("eval", "solutions", "--run-id", name, "--device", "host")
        path = place / "results" / name / "run.yaml"
        path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "started_at": started}))
    pipeline = Pipeline()
    assert call("eval", "solutions", "--device", "host", "--resume", pipeline=pipeline).code == 0
    assert pipeline.configs[0].run_id == "a"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["eval"], "no solutions named"),
        (["eval", "solutions", "--atol", "1e-4"], "choose a class by --precision"),
        (["eval", "solutions", "--rtol=1e-4"], "choose a class by --precision"),
        (["eval", "gone"], "gone: there is no such file or folder"),
        (["eval", "solutions", "--problem", "level9/9"], "there is no problem 'level9/9'"),
        (["eval", "solutions", "--device", "tpu"], "command line: `device` must be one of auto, cuda, host"),
        (["eval", "solutions", "--sandbox", "of"], "nearest: off"),
        (["eval", "solutions", "--config", "gone.yaml"], "gone.yaml: no such configuration file"),
        (["eval", "solutions", "--problems", "gone"], "no problems found: the folder gone does not exist"),
        (["eval", "solutions", "--jobs", "0"], "`jobs` must be a whole number"),
        (["eval", "solutions", "--jobs", "many"], "--jobs"),
        (["show", "gone"], "gone: no such folder"),
        (["show", "solutions"], "solutions: not a run: it contains neither"),
        (["show", "problems/level1/16_matmul.py"], "16_matmul.py: not a run: it is a file, not a folder"),
        (["merge", "gone", "--out", "x"], "gone: no such folder"),
        (["merge", "solutions", "--out", "x"], "solutions holds no run"),
        (["extract", "gone.txt", "--problem", "level1/16"], "gone.txt: can't be read"),
        (["extract", "solutions", "--problem", "level1/16"], "solutions: is a folder: pass the files in it"),
        (["problems", "show", "level1/17"], "did you mean level1/1"),
        (["problems", "list", "level7"], "no level level7 in problems; it has level1"),
        (["problems", "list", "--workload", "tiny"], "declares a workload 'tiny'"),
        (["problems", "list", "--gpu", "Voodoo2"], "unknown GPU; name one of H200 SXM"),
        (["frobnicate"], "frobnicate"),
        (["show"], "RUN"),
    ],
)
def test_a_wrong_call_is_told_what_is_wrong(place: Path, call: Call, arguments: list[str], said: str) -> None:
    if arguments[0] == "eval" and "--device" not in arguments:
        arguments = [*arguments, "--device", "host"]
    done = call(*arguments)
    assert done.code == 2, done.err
    assert said in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


@pytest.mark.parametrize(
    "command", [["eval", "solutions"], ["warmup"], ["baseline", "--workload", "full"]], ids=lambda c: c[0]
)
def test_a_cache_that_can_not_be_one_is_a_wrong_call(place: Path, call: Call, command: list[str]) -> None:
    (place / "file").write_text("")
    done = call(*command, "--device", "host", "--cache", "file")
    assert done.code == 2, done.err
    assert f"{place / 'file'}: can't hold caches: File exists; name another by --cache" in done.err
    assert "Traceback" not in done.err
    assert not (place / "results").exists()


def test_a_full_disk_is_told_in_one_line(place: Path, call: Call) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "results/r1/logs/a.log")
    done = call("eval", "solutions", "--device", "host", pipeline=Pipeline(raises=full))
    assert done.code == 3
    assert done.err.splitlines()[-1] == (
        "harness: results/r1/logs/a.log: No space left on device; fix that and run the command again"
    )
    assert "Traceback" not in done.err


@pytest.mark.parametrize("arguments", [["show", "results/r1"], ["--version"], ["--help"]], ids=lambda a: a[0])
def test_output_that_can_not_be_written_is_told_in_one_line(place: Path, call: Call, arguments: list[str]) -> None:
    call("eval", "solutions", "--device", "host", "--run-id", "r1", pipeline=Pipeline())
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "harness", *arguments],
            cwd=place,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(os.environ, PYTHONPATH=str(ROOT)),
            timeout=300,
        )
    assert done.returncode == 3
    assert done.stderr == "harness: standard output: No space left on device; fix that and run the command again\n"


STILL_IMPORTING = """
import sys
class Pressed:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Pressed())
from harness.cli import main
sys.exit(main(["show", "results/none"]))
"""


@pytest.mark.parametrize("module", ["harness.cli.app", "typer", "harness.cli.output"])
def test_an_interrupt_while_the_command_is_being_imported_is_told_in_one_line(place: Path, module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STILL_IMPORTING.format(module=module)],
        cwd=place,
        capture_output=True,
        text=True,
        env=dict(os.environ, PYTHONPATH=str(ROOT)),
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "harness: interrupted\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_fault(place: Path, call: Call, closed: str) -> None:
    call("eval", "solutions", "--device", "host", "--run-id", "r1", pipeline=Pipeline())
    command = f"{sys.executable} -m harness merge results/r1 --out merged {closed}"
    done = subprocess.run(
        ["sh", "-c", command], cwd=place, capture_output=True, env=dict(os.environ, PYTHONPATH=str(ROOT)), timeout=300
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(RunStore.open(place / "merged").records()) == 3


def test_what_takes_long_is_not_begun_for_a_file_that_can_not_be_written(place: Path, call: Call) -> None:
    (place / "file").write_text("kept")
    for arguments in (
        ["problems", "lint", "--device", "host", "--markdown", "file/x.md"],
        ["problems", "lint", "--device", "host", "--out", "file/x.jsonl"],
        ["baseline", "--device", "host", "--workload", "full", "--out", "file"],
    ):
        done = call(*arguments)
        assert done.code == 2, done.err
        assert "can't be written: " in done.err
        assert "Traceback" not in done.err
        assert done.err.count("\n") == 1, "nothing was begun"
    assert (place / "file").read_text() == "kept"


def test_trying_an_output_file_leaves_all_as_it_was(tmp_path: Path) -> None:
    link, held = tmp_path / "link.md", tmp_path / "held.md"
    link.symlink_to("later.md")
    held.write_text("held")
    for path in (link, held, tmp_path / "new.md"):
        assert writable(path, "--out") == path
    assert {item.name for item in tmp_path.iterdir()} == {"link.md", "held.md"}
    assert link.is_symlink()
    assert held.read_text() == "held"


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, MachineError), (errno.EROFS, ConfigError)])
def test_a_full_disk_is_the_machines_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as full:
        full.setattr(Path, "open", refuse)
        with pytest.raises(kind, match=r"--csv .*can't be written"):
            writable(tmp_path / "rows.csv", "--csv")


def test_output_in_two_forms_is_a_wrong_call(place: Path, call: Call) -> None:
    call("eval", "solutions", "--device", "host", "--run-id", "r1", pipeline=Pipeline())
    for arguments in (
        ["leaderboard", "results", "--json", "--markdown"],
        ["leaderboard", "results", "--csv", "-", "--json"],
        ["compare", "results/r1", "results/r1", "--json", "--markdown"],
    ):
        done = call(*arguments)
        assert (done.code, done.out) == (2, "")
        assert "standard output takes only one of them" in done.err


@pytest.mark.parametrize("command", [["leaderboard"], ["report", "--no-figures"], ["plot"]], ids=lambda c: c[0])
def test_a_baseline_is_named_as_eval_names_it(place: Path, call: Call, command: list[str]) -> None:
    run = ROOT / "results" / "h200"
    done = call(*command, str(run), "--baseline", "max-autotune")
    assert done.code == 0, done.err
    done = call(*command, str(run), "--baseline", "compile_tf32")
    assert done.code == 2
    assert "no record has a speedup over baseline 'compile_tf32'; name one of compile_max_autotune" in done.err


def test_extract_leaves_no_half_of_a_solution_on_a_full_disk(place: Path) -> None:
    (place / "response.txt").write_text("```python\nclass ModelNew:\n    x = '" + "y" * 5000 + "'\n```\n")
    extract = f"{sys.executable} -m harness extract response.txt --problem level1/16 --author ann --out taken"
    run = functools.partial(
        subprocess.run,
        cwd=place,
        capture_output=True,
        text=True,
        env=dict(os.environ, PYTHONPATH=str(ROOT), PYTHONDONTWRITEBYTECODE="1"),
        timeout=300,
    )
    refused = run(["bash", "-c", f"ulimit -f 1; exec {extract}"])  # files of at most 1 KiB
    assert refused.returncode == 3, refused.stderr
    assert refused.stderr.count("\n") == 1
    assert "can't be written: File too large" in refused.stderr
    assert [path for path in (place / "taken").rglob("*") if path.is_file()] == []
    assert run(["bash", "-c", extract]).returncode == 0
    assert "y" * 5000 in (place / "taken/ann/level1/16_matmul.py").read_text()


def test_times_that_somebody_edited_are_not_exported(place: Path, call: Call) -> None:
    run = place / "run"
    run.mkdir()
    for line in (ROOT / "results" / "h200" / "records.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["speedup"] is not None:
            break
    record["timing"]["solution"]["samples_s"][0] = [1e308, 0.5, 0.25]
    (run / "records.jsonl").write_text(json.dumps(record) + "\n")
    done = call("export", "kernelbench", "run", "--out", "theirs")
    assert done.code == 0, done.err
    (entry,) = next(iter(json.loads((place / "theirs" / "eval_results.json").read_text()).values()))
    assert entry["runtime_stats"]["max"] == 500.0


def test_extract_says_first_that_a_file_is_missing(place: Path, call: Call) -> None:
    done = call("extract", "gone.txt")
    assert done.code == 2
    assert "gone.txt: can't be read: No such file or directory" in done.err


def test_what_the_machine_can_not_do_is_code_3(place: Path, call: Call) -> None:
    done = call("eval", "solutions", "--device", "host", pipeline=Pipeline(raises=MachineError("nvcc is gone")))
    assert done.code == 3
    assert "nvcc is gone" in done.err
    assert "Traceback" not in done.err


def test_a_missing_gpu_is_code_3_before_anything_starts(
    place: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    pipeline = Pipeline()
    done = call("eval", "solutions", "--device", "cuda", pipeline=pipeline)
    assert done.code == 3
    assert "--device host to check correctness on the CPU" in done.err
    assert not pipeline.configs


def test_a_missing_nvcc_is_code_3_before_anything_starts(
    place: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_HOME", str(place / "no_toolkit"))
    pipeline = Pipeline()
    done = call("eval", "solutions", "--device", "host", "--syntax", "nvcc", pipeline=pipeline)
    assert done.code == 3
    assert "nvcc not found: install the CUDA toolkit" in done.err
    assert "leave out --syntax nvcc" in done.err
    assert not pipeline.configs
    assert call("eval", "solutions", "--device", "host", "--syntax", "host", pipeline=pipeline).code == 0
    assert [config.syntax for config in pipeline.configs] == ["host"]


def test_another_syntax_is_a_wrong_call(place: Path, call: Call) -> None:
    done = call("eval", "solutions", "--device", "host", "--syntax", "clang")
    assert done.code == 2
    assert "syntax" in done.err
    assert "host, nvcc" in done.err or "host or nvcc" in done.err


def test_a_fault_of_the_harness_shows_its_traceback_and_is_code_3(place: Path, call: Call) -> None:
    done = call("eval", "solutions", "--device", "host", pipeline=Pipeline(raises=ZeroDivisionError("ours")))
    assert done.code == 3
    assert "ZeroDivisionError: ours" in done.err
    assert "an error of the harness" in done.err


def test_a_solution_that_could_not_be_judged_is_code_3_after_the_report(place: Path, call: Call) -> None:
    class Broken(Pipeline):
        def record(self, item: Solution, config: RunConfig) -> Record:
            made = super().record(item, config)
            return (
                replace(made, status=Status.harness_error, reason="the GPU is gone") if "fast" in item.label else made
            )

    done = call("eval", "solutions", "--device", "host", "--run-id", "r1", pipeline=Broken())
    assert done.code == 3
    assert "3 solutions, 1 passed" in done.out
    assert "1 solution could not be judged" in done.err
    again = call("eval", "solutions", "--device", "host", "--resume", "--run-id", "r1")
    assert again.code == 0
    assert "1 to evaluate, 2 already done" in again.err


def test_piped_output_has_no_trailing_blanks(place: Path, call: Call) -> None:
    evaluated(call)
    for arguments in (["show", "results/r1"], ["show", "results/r1", "naive"], ["leaderboard", "results/r1"]):
        assert not [line for line in call(*arguments).out.splitlines() if line != line.rstrip()]


def test_a_hostile_file_name_can_not_write_to_the_terminal(place: Path, call: Call) -> None:
    (place / "solutions/ann/level1/16_\x1b[31mx.py").write_text("")
    done = call("eval", "solutions", "--device", "host")
    assert done.code == 2
    assert "\x1b" not in done.out + done.err


def evaluated(call: Call, run_id: str = "r1") -> None:
    assert call("eval", "solutions", "--run-id", run_id, "--device", "host").code == 0


def test_show_a_run_and_one_solution_of_it(place: Path, call: Call) -> None:
    evaluated(call)
    run = call("show", "results/r1")
    assert run.code == 0
    assert "ann/level1/16_naive.py" in run.out
    assert "bob/level1/16_tiled.py" in run.out
    for name in ("ann/level1/16_naive.py", "ann/level1/16_naive", "16_naive.py", "16_naive", "naive"):
        one = call("show", "results/r1", name)
        assert one.code == 0, one.err
        assert "3 of 9 values off" in one.out
        assert "ptxas info: 32 registers" not in one.out
        assert "16_tiled" not in one.out
    everything = call("show", "results/r1", "naive", "--all").out
    assert everything.index("3 of 9 values off") < everything.index("ptxas info: 32 registers")


def test_show_selects_by_text_and_status_and_knows_the_last_run(place: Path, call: Call) -> None:
    assert "there is no run in results" in call("show", "last").err
    evaluated(call)
    evaluated(call, "r2")
    last = call("show", "last", "-k", "BOB")
    assert last.code == 0
    assert last.err.startswith("run results/r2\n")
    assert "bob/level1/16_tiled.py" in last.out
    assert "ann/level1" not in last.out
    failed = json.loads(call("show", "last", "--status", "failed", "--json").out)["records"]
    assert [item["solution"] for item in failed] == ["ann/level1/16_naive.py"]
    assert call("show", "last", "--status", "wrong_value", "--feedback").out.startswith(
        "level1/16, ann/level1/16_naive"
    )
    wrong = call("show", "last", "--status", "wrong_valeu")
    assert (wrong.code, "did you mean wrong_value?" in wrong.err) == (2, True), wrong.err


def test_what_show_prints_gives_github_no_commands(place: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log's lines are a submission's, and one that begins with two colons is a command to whoever runs the step."""
    evaluated(call)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    for arguments in (["16_naive"], ["16_naive", "--all"], ["--feedback"]):
        printed = call("show", "results/r1", *arguments).out
        tokens = re.findall(r"^::stop-commands::(\w+)$", printed, flags=re.MULTILINE)
        assert printed.index(f"::stop-commands::{tokens[0]}") < printed.index("3 of 9 values off")
        assert printed.endswith(f"::{tokens[-1]}::\n")


def test_show_as_json(place: Path, call: Call) -> None:
    evaluated(call)
    assert len(json.loads(call("show", "results/r1", "--json").out)["records"]) == 3
    (one,) = json.loads(call("show", "results/r1", "naive", "--json").out)
    assert one["status"] == "wrong_value"
    assert "ptxas info" in one["log"]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("16_", "names 2 solutions: ann/level1/16_naive.py, bob/level1/16_tiled.py"),
        ("16_tilde", "nearest: bob/level1/16_tiled.py"),
        ("@@@@", "; solutions: "),
    ],
)
def test_show_names_what_it_may_have_been(place: Path, call: Call, wanted: str, said: str) -> None:
    evaluated(call)
    done = call("show", "results/r1", wanted)
    assert done.code == 2
    assert said in done.err


def test_files_that_can_not_be_read_are_told_in_a_few_words(place: Path, call: Call) -> None:
    evaluated(call)
    (place / "results/r1/run.yaml").unlink()
    (place / "results/r1/run.yaml").mkdir()
    done = call("show", "results/r1")
    assert (done.code, done.err) == (2, "harness: results/r1/run.yaml: can't be read: Is a directory\n")
    (place / "results/r1/run.yaml").rmdir()
    done = call("eval", "solutions", "--config", "results")
    assert (done.code, done.err) == (2, "harness: results: can't be read: Is a directory\n")
    (place / "problems/level1/workloads.yaml").mkdir()
    done = call("problems", "list")
    assert (done.code, done.err) == (2, "harness: problems/level1/workloads.yaml: Is a directory\n")
    store = RunStore.open(place / "results/r1")
    log = store.log_path(store.records()[0].solution)
    log.unlink()
    log.symlink_to("/proc/self/mem")  # a file that nobody can read from its beginning
    for command, what_to_do in (
        (["show", "results/r1", "--feedback"], "fix or remove the file"),
        (["merge", "results/r1", "--out", "results/r2"], "fix or remove the file"),
    ):
        done = call(*command)
        assert done.code == 2
        told = f"harness: {log.relative_to(place)}: can't be read: Input/output error; {what_to_do}"
        assert done.err.splitlines()[-1] == told
    assert not (place / "results/r2").exists()


def test_show_tells_of_a_line_that_was_cut_short(place: Path, call: Call) -> None:
    evaluated(call)
    path = place / "results/r1/records.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert "cut short" in call("show", "results/r1").out
    for command in (
        *(["show", "results/r1", "naive"], ["show", "results/r1", "--feedback"], ["leaderboard", "results/r1"]),
        *(["screen", "results/r1"], ["report", "results/r1", "--no-figures"], ["timeline", "results/r1"]),
        *(["compare", "results/r1", "results/r1"], ["export", "kernelbench", "results/r1", "--out", "kb"]),
        ["merge", "results/r1", "--out", "results/r2"],
    ):
        assert "results/r1: the last line was cut short" in call(*command).err, command


def test_a_damaged_line_is_named_and_the_others_are_usable(place: Path, call: Call) -> None:
    evaluated(call)
    path = place / "results/r1/records.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b'{"format": 1\n', *lines[1:]]))
    for command in (
        *(["show", "results/r1"], ["show", "results/r1", "--json"], ["leaderboard", "results/r1"]),
        *(["report", "results/r1", "--no-figures"], ["merge", "results/r1", "--out", "results/r2"]),
        ["eval", "solutions", "--device", "host", "--resume", "--run-id", "r1"],
    ):
        done = call(*command)
        assert done.code == 3, (command, done.err)
        assert done.err.count("results/r1/records.jsonl:2: not JSON: ") == 1, done.err
        assert "the line is skipped; fix or remove it" in done.err
    assert len(RunStore.open(place / "results/r2").records()) == 3


def test_merge_takes_runs_and_folders_of_runs(place: Path, call: Call) -> None:
    evaluated(call, "r1")
    evaluated(call, "r2")
    done = call("merge", "results", "results/r1", "--out", "all", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out) == {"run": "all", "records": 3, "superseded": 3, "notes": []}
    assert "holds a run already" in call("merge", "results", "--out", "all").err


def test_the_leaderboard_in_every_form(place: Path, call: Call) -> None:
    evaluated(call)
    table = call("leaderboard", "results/r1", "--csv", "board.csv")
    assert table.code == 0, table.err
    assert "no GPU times" in table.out
    assert "2 rows written to board.csv" in table.err
    assert (place / "board.csv").read_text().startswith("device,processor,workload,baseline,rank,author")
    assert call("leaderboard", "results", "--csv", "-").out == (place / "board.csv").read_text()
    rows = json.loads(call("leaderboard", "results/r1", "--by", "solution", "--json").out)
    assert {item["solution"] for item in rows} == {
        "ann/level1/16_naive.py",
        "ann/level1/19_fast.py",
        "bob/level1/16_tiled.py",
    }
    assert call("leaderboard", "results", "--by", "problem", "--markdown").out.startswith("**host: ")


def test_the_leaderboard_leaves_out_what_is_no_run_and_says_so(place: Path, call: Call) -> None:
    evaluated(call)
    (place / "results/README.md").write_text("notes")
    (place / "results/plots").mkdir()
    done = call("leaderboard", *sorted((place / "results").iterdir()))
    assert done.code == 0
    assert "results/README.md holds no run" in done.err
    assert "results/plots holds no run" in done.err
    alone = call("leaderboard", "results/plots")
    assert alone.code == 2
    assert "holds no run" in alone.err
    assert call("leaderboard", "gone").code == 2
    assert call("leaderboard", "results", "--by", "colour").code == 2
    unwritable = call("leaderboard", "results", "--csv", "results/plots")
    assert unwritable.code == 2
    assert "can't be written" in unwritable.err


def test_eval_ends_with_a_leaderboard(place: Path, call: Call) -> None:
    for number in range(6):
        (place / "solutions" / "bob" / "level1" / f"16_sample{number}.py").write_text(f"class ModelNew: {number}\n")
    both = call("eval", "solutions", "--run-id", "r1", "--device", "host").out.partition("Leaderboard")[2]
    assert "ann" in both
    assert "bob" in both
    alone = call("eval", "solutions/bob", "--run-id", "r2", "--device", "host").out.partition("Leaderboard")[2]
    assert "bob/level1/16_tiled.py" in alone


def test_few_timed_solutions_end_with_one_table(place: Path, call: Call) -> None:
    class Timed(Pipeline):
        def record(self, item: Solution, config: RunConfig) -> Record:
            return super().record(item, replace(config, device=DeviceKind.CUDA))

    done = call("eval", "solutions", "--device", "host", pipeline=Timed())
    assert "Leaderboard" not in done.out
    rows = [line.split() for line in done.out.splitlines() if "1.50x" in line]
    assert {row[2] for row in rows} == {"ann/level1/19_fast.py", "bob/level1/16_tiled.py"}
    assert "speed of light" not in done.out, "a column without content"


def test_extract_writes_what_eval_reads(place: Path, call: Call) -> None:
    (place / "response.txt").write_text("```python\nclass ModelNew: 1\n```\n")
    (place / "empty.txt").write_text("I can't.")
    done = call("extract", "response.txt", "--problem", "level1/16", "--author", "model")
    assert done.code == 0, done.err
    assert "response.txt -> solutions/model/level1/16_matmul.py" in done.out
    assert call("eval", "solutions", "--run-id", "r", "--device", "host").code == 0
    failed = call("extract", "response.txt", "empty.txt", "--problem", "1/16", "--author", "new", "--json")
    assert failed.code == 1
    assert "1 of 2 responses hold no solution" in failed.err
    assert [item["path"] is None for item in json.loads(failed.out)] == [False, True]


def test_extract_into_a_place_that_can_not_be_written(place: Path, call: Call) -> None:
    (place / "response.txt").write_text("```python\nclass ModelNew: 1\n```\n")
    (place / "file").write_text("")
    done = call("extract", "response.txt", "--problem", "level1/16", "--out", "file")
    assert done.code == 2
    assert "can't be written" in done.err


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the five transcripts lie outside the repository and are not here")
def test_extract_takes_real_transcripts_from_standard_input(place: Path) -> None:
    with next(iter(sorted(SEEDS.glob("001_*")))).open("rb") as stream:
        done = harness("extract", "-", "--problem", "level1/16", cwd=place, stdin=stream)
    assert done.returncode == 0, done.stderr
    assert "class ModelNew" in (place / "solutions/local/level1/16_matmul.py").read_text()


TALKATIVE = """
import ctypes, os, torch
print("imported"), os.write(1, b"from below"), ctypes.CDLL(None).printf(b"from C")
class Model(torch.nn.Module):
    def forward(self, x): print("called"); return 2 * x
def get_inputs(): return [torch.randn(3, 5)]
def get_init_inputs(): return []
"""


@pytest.mark.parametrize("command", [("list",), ("show", "level1/16"), ("lint", "level1/16", "--device", "host")])
def test_what_a_problem_prints_does_not_stand_among_the_results(
    place: Path, command: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    (place / "problems/level1/16_matmul.py").write_text(TALKATIVE)
    main(["problems", *command, "--json"])
    told = capfd.readouterr()
    assert "level1/16" in json.dumps(json.loads(told.out))
    assert "imported" in told.err
    assert "from below" in told.err
    assert "called" in told.err


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmCommand]:
    """Starts commands in processes that have imported torch."""
    with WarmCommand(tmp_path_factory.mktemp("warm")) as started:
        yield started


def test_what_c_keeps_of_a_problems_output_does_not_follow_the_results(place: Path, warm: WarmCommand) -> None:
    (place / "problems/level1/16_matmul.py").write_text(TALKATIVE)
    done = warm.run("problems", "list", "--json", cwd=place)
    assert done.returncode == 0
    assert [item["id"] for item in json.loads(done.stdout)] == ["level1/16", "level1/19"]
    assert "from C" in done.stderr


def test_problems_are_listed_and_shown(place: Path, call: Call) -> None:
    assert "level1/19" in call("problems", "list").out
    assert "level1/19" in call("problems", "list", "level1", "--quick").out
    assert [item["id"] for item in json.loads(call("problems", "list", "--json").out)] == ["level1/16", "level1/19"]
    assert "get_inputs" in call("problems", "show", "level1/16").out
    assert "get_inputs" in json.loads(call("problems", "show", "1/16", "--json").out)["source"]


def test_the_doctor_agrees_with_itself(call: Call) -> None:
    done = call("doctor", "--json")
    value = json.loads(done.out)
    assert done.code == (3 if value["device"] is None else 0)
    assert {"torch", "g++", "nvcc", "ninja", "sandbox", "compute-sanitizer"} <= {
        item["name"] for item in value["checks"]
    }
    assert all(item["remedy"] for item in value["checks"] if item["state"] != "ok")
    page = call("doctor")
    assert page.code == done.code
    assert "--device host" in page.out


@pytest.mark.parametrize(
    "command",
    [*([name] for name in COMMANDS), *([group, name] for group, (_, held) in GROUPS.items() for name in held)],
    ids=" ".join,
)
def test_every_command_has_help_with_an_example(call: Call, command: list[str]) -> None:
    done = call(*command, "--help")
    assert done.code == 0
    assert "Example" in done.out
    assert f"harness {' '.join(command)}" in done.out.partition("Example")[2]


@pytest.mark.parametrize("group", GROUPS)
def test_help_of_a_group_has_an_example_too(call: Call, group: str) -> None:
    shown = call(group, "--help").out
    assert f"\n    harness {group} " in shown.partition("Example")[2]
    summary = GROUPS[group][0].partition("\n")[0]
    assert f"  {group:12} {summary}\n" in call("--help").out, "the list of commands has the summary alone"


def test_the_list_of_commands_is_short_enough_to_be_shown_whole(call: Call) -> None:
    shown = call("--help").out
    for name, lazy in COMMANDS.items():
        assert f"  {name:12} {lazy.summary}" in shown
    for group, (_, held) in GROUPS.items():
        shown = call(group, "--help").out
        assert all(lazy.summary in shown for lazy in held.values())


SLOW = ("torch", "numpy", "pandas", "jinja2", "matplotlib", "tree_sitter", "triton")


@pytest.mark.parametrize(
    ("command", "end", "code", "how"),
    [
        (["show", "level1/16"], "os._exit(7)", 3, "with exit code 7"),
        (["lint", "level1", "--device", "host"], "os._exit(0)", 1, "with exit code 0"),
        (["lint", "level1", "--device", "host"], "os.kill(os.getpid(), 11)", 1, "by SIGSEGV"),
        (["lint", "level1", "--device", "host"], "os.kill(os.getpid(), 9)", 3, "by SIGKILL"),
    ],
)
def test_a_problem_that_ends_the_process_is_told_and_no_gate_passes(
    place: Path, warm: WarmCommand, command: list[str], end: str, code: int, how: str
) -> None:
    (place / "problems/level1/16_matmul.py").write_text(f"import os\n{end}\n{PROBLEM}")
    # Sizes that are to be derived would be derived in a process of their own.
    (place / "problems/level1/workloads.yaml").write_text("format: 1\nproblems: {16: {workloads: {small: {}}}}\n")
    done = warm.run("problems", *command, cwd=place)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert f"harness: level1/16 ended the process that executed it, {how}: fix its file" in done.stderr


def test_a_problem_that_ends_the_process_that_derives_its_sizes_is_told_and_the_others_are_checked(
    place: Path, warm: WarmCommand
) -> None:
    (place / "problems/level1/16_matmul.py").write_text(f"import os\nos._exit(0)\n{PROBLEM}")
    done = warm.run("problems", "lint", "level1", "--device", "host", cwd=place)
    assert done.returncode == 1
    assert "no small sizes can be derived: it ended the process that executed it; fix its file" in done.stdout
    assert "[2/2]" in done.stdout


def test_problems_that_end_the_process_are_listed_as_such_beside_the_others(place: Path, warm: WarmCommand) -> None:
    problems = place / "problems/level1"
    for number, end in ((17, "os._exit(0)"), (18, "os.abort()")):
        (problems / f"{number}_other.py").write_text(f"import os\n{end}\n{PROBLEM}")
    done = warm.run("problems", "list", "--json", cwd=place)
    assert done.returncode == 3, "a gate does not pass"
    assert "harness: level1/17 ended the process that executed it, with exit code 0: fix its file" in done.stderr
    assert "harness: level1/18 ended the process that executed it, by SIGABRT: fix its file" in done.stderr
    said = {item["id"]: json.dumps(item["costs"]) for item in json.loads(done.stdout)}
    assert set(said) == {"level1/16", "level1/17", "level1/18", "level1/19"}
    assert "it ended the process that executed it, with exit code 0" in said["level1/17"]
    assert "it ended the process that executed it, by SIGABRT" in said["level1/18"]
    assert "ended the process" not in said["level1/16"] + said["level1/19"]


def test_a_problems_command_that_is_watched_ends_as_it_did_before(place: Path, warm: WarmCommand) -> None:
    assert warm.run("problems", "list", "level7", cwd=place).returncode == 2
    assert warm.run("problems", "list", "--quick", cwd=place).returncode == 0
    assert warm.run("problems", "--help", cwd=place).returncode == 0
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    unread = f"{sys.executable} -m harness problems list --json | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", unread], cwd=place, env=environment, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or dead and not collected yet: on a busy machine init takes its time."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize(
    ("number", "everybody", "code", "said"),
    [
        (signal.SIGINT, True, 130, "harness: interrupted"),
        (signal.SIGTERM, True, -signal.SIGTERM, ""),
        (signal.SIGTERM, False, -signal.SIGTERM, ""),
    ],
)
def test_signals_end_a_watched_command_and_leave_nothing_behind(
    place: Path, warm: WarmCommand, number: signal.Signals, everybody: bool, code: int, said: str
) -> None:
    waiting = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(60)\n"
    (place / "problems/level1/16_matmul.py").write_text(waiting + PROBLEM)
    started = warm.start("problems", "list", cwd=place)
    written = place / "pid"
    for _ in range(2400):
        if written.exists() and written.read_text():
            break
        time.sleep(0.05)
    child = int(written.read_text())
    assert child != started
    (os.killpg if everybody else os.kill)(started, number)
    done = warm.wait()
    assert (done.returncode, done.stderr.strip()) == (code, said)
    for _ in range(1200):
        if has_ended(child):
            break
        time.sleep(0.05)
    else:
        pytest.fail("the child goes on")


@pytest.mark.parametrize(
    ("arguments", "not_needed"),
    [
        (["--help"], SLOW),
        (["--version"], SLOW),
        (["evla"], SLOW),
        (["problems", "--help"], SLOW),
        (["eval", "--help"], ("torch", "pandas", "jinja2", "matplotlib", "tree_sitter")),
        (["show", "--help"], ("torch", "pandas", "jinja2", "matplotlib", "tree_sitter")),
        (["problems", "lint", "--help"], ("torch", "pandas", "jinja2", "matplotlib")),
        (["ci", "--help"], ("torch", "pandas", "jinja2", "matplotlib", "tree_sitter")),
        (["doctor"], ("jinja2", "matplotlib", "triton")),
    ],
    ids=" ".join,
)
def test_a_command_imports_what_it_needs_and_no_more(arguments: list[str], not_needed: tuple[str, ...]) -> None:
    code = (
        "import sys\n"
        "from harness.cli import main\n"
        f"code = main({arguments!r})\n"
        "print(sorted(name for name in sys.modules if '.' not in name), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    imported = set(ast.literal_eval(done.stderr.splitlines()[-1]))
    assert "typer" in imported
    assert not imported & set(not_needed)


def completed(monkeypatch: pytest.MonkeyPatch, call: Call, shell: str, *words: str, ending: str = "") -> str:
    """What the shell's completion function asks the program, for these words and the beginning of another."""
    line = " ".join(["harness", *words, ending])
    monkeypatch.setenv("_HARNESS_COMPLETE", f"complete_{shell}")
    if shell == "bash":
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) + 1))
    else:
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    return call().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_options_and_values(shell: str, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = functools.partial(completed, monkeypatch, call, shell)
    assert "leaderboard" in ask(ending="lea")
    assert "eval" not in ask(ending="lea")
    assert "lint" in ask("problems", ending="li")
    assert "--timing-budget" in ask("eval", ending="--timing")
    values = ask("leaderboard", "--by", ending="")
    assert all(value in values for value in ("author", "problem", "solution"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_is_shown_and_installed(
    shell: str, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    for option in ("--show-completion", "--install-completion"):
        done = call(option, shell)
        assert done.code == 0, done.err
        assert "_HARNESS_COMPLETE" in done.out or option == "--install-completion"
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any("_HARNESS_COMPLETE" in path.read_text() for path in written)


def harness(*arguments: str, cwd: Path, stdin: Any = subprocess.DEVNULL) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "harness", *arguments]
    return subprocess.run(
        command, cwd=cwd, stdin=stdin, capture_output=True, text=True, env=environment, check=False, timeout=300
    )


def test_python_m_harness_is_the_command(tmp_path: Path) -> None:
    done = harness("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, "0.1.0")
    assert harness("eval", "gone", "--device", "host", cwd=tmp_path).returncode == 2


def test_a_reader_that_has_seen_enough_is_no_error(place: Path, call: Call) -> None:
    evaluated(call)
    command = f"{sys.executable} -m harness show results/r1 naive --json | head -c 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


SLEEPING_RUN = """
import sys, time
from harness.cli import main

def run(config, found, view):
    try:
        print("running", flush=True)
        time.sleep(600)
    finally:
        print("unwound", flush=True)

sys.exit(main(["eval", "solutions", "--device", "host"], run=run))
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_unwind_the_run(place: Path, number: signal.Signals, code: int) -> None:
    # Whoever runs the tests may have ignored hangups, as nohup does, and that is inherited.
    heeded = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
    child = subprocess.Popen(
        [sys.executable, "-c", heeded + SLEEPING_RUN],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "running\n"
    child.send_signal(number)
    out, err = child.communicate()
    assert out == "unwound\n"
    assert child.returncode == code, err
    assert "Traceback" not in err
    assert "no solution was finished; the same command starts again" in err


def test_a_hangup_that_nohup_ignores_does_not_end_the_run(place: Path) -> None:
    child = subprocess.Popen(
        ["nohup", sys.executable, "-c", SLEEPING_RUN],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "running\n"
    child.send_signal(signal.SIGHUP)
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate()
    assert out == "unwound\n"
    assert child.returncode == 143, err


UNREAD_RUN = """
import sys
from tests.unit.cli.test_cli import Pipeline
from harness.cli import main

sys.exit(main(["eval", "solutions", "--device", "host", "--run-id", "r", *sys.argv[1:]], run=Pipeline()))
"""


def run_into(stdout: int, place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`UNREAD_RUN` in the place, or Python called by these words, with its results to this descriptor."""
    return subprocess.run(
        [sys.executable, *(words or ("-c", UNREAD_RUN))],
        cwd=place,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


def test_a_run_whose_output_has_no_reader_ends_and_says_how_to_go_on(place: Path) -> None:
    unread, writing = os.pipe()
    os.close(unread)
    done = run_into(writing, place)
    os.close(writing)
    assert done.returncode == 128 + signal.SIGPIPE, done.stderr
    assert "the reader of its output is gone" in done.stderr
    assert "--resume --run-id r continues" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(RunStore.open(place / "results" / "r").records()) == 1


def test_a_run_whose_output_can_not_be_written_ends_and_says_how_to_go_on(place: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = run_into(full.fileno(), place)
    assert done.returncode == 3, done.stderr
    *_, kept, why = done.stderr.splitlines()
    assert "finished results are in results/r; the same command with --resume --run-id r continues" in kept
    assert "standard output: No space left on device" in why


def test_a_finished_run_whose_page_can_not_be_written_is_not_told_to_go_on(place: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = run_into(full.fileno(), place, "-u", "-c", UNREAD_RUN, "--json")
    assert done.returncode == 3, done.stderr
    assert "No space left on device" in done.stderr
    assert "the run ends" not in done.stderr


@pytest.mark.parametrize("lost", ["full", "unread"])
def test_messages_that_can_not_be_written_leave_the_exit_code_as_it_is(place: Path, lost: str) -> None:
    if lost == "full":
        writing = os.open("/dev/full", os.O_WRONLY)
    else:
        unread, writing = os.pipe()
        os.close(unread)
    run = functools.partial(
        subprocess.run,
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=writing,
        check=False,
    )
    assert run([sys.executable, "-m", "harness", "show", "results/none"]).returncode == 2
    assert run([sys.executable, "-m", "harness", "screen", "--rules"]).returncode == 0
    os.close(writing)


def test_warmup_writes_the_bytecode_that_python_was_told_not_to_write(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "inner").mkdir(parents=True)
    for name in ("__init__", "inner/__init__", "inner/module"):
        (package / f"{name}.py").write_text("import sys\n")
    found = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    imported = [sys.executable, "-c", "import package.inner.module as held; open(held.__cached__).close()"]
    told_not_to = subprocess.run(imported, cwd=tmp_path, env=found, capture_output=True, text=True, check=False)
    assert "FileNotFoundError" in told_not_to.stderr
    assert compile_modules(package)
    subprocess.run(imported, cwd=tmp_path, env=found, capture_output=True, check=True)
    (package / "wrong.py").write_text("(")
    assert not compile_modules(package)


def test_warmup_prepares_the_device_that_eval_would_take(
    place: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[Any, ...]] = []

    class Toolchain:
        def warm_up(self) -> dict[str, Any]:
            return {"precompiled": ["plain"]}

    def open_toolchain(
        device: DeviceKind, cache: Path, *, checked: bool, syntax: str, tell: TellPreparing
    ) -> Toolchain:
        tell(Preparing(what="headers, once for torch 2.13.0", done=1, total=1))
        opened.append((device, cache, checked, syntax))
        return Toolchain()

    monkeypatch.setattr("harness.cli.machine.open_toolchain", open_toolchain)
    (place / "my.yaml").write_text("device: host\ncache_dir: built\n")
    done = call("warmup", "--config", "my.yaml", "--unchecked", "--syntax", "nvcc", "--json")
    assert done.code == 0, done.err
    assert "precompiling headers that are not cached" in done.err, "there may be nothing to do"
    assert "preparing headers, once for torch 2.13.0" in done.err
    assert json.loads(done.out)["done"] == {"precompiled": ["plain"]}
    assert opened == [(DeviceKind.HOST, place / "built", False, "nvcc")]
    assert "ready for device host" in call("warmup", "--device", "host", "--cache", "other").out
    assert opened[1] == (DeviceKind.HOST, place / "other", True, "host")
