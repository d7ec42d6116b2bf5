"""The Python API with real builders and a real referee on the host device: results are values, from any thread."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import harness
from harness import Harness, Preparing, Result, as_completed, reward
from harness.api import HarnessClosed, keeper, session
from harness.api.session import HarnessSettings
from harness.catalog import CatalogError
from harness.core.choices import DeviceKind, PrecisionClass
from harness.core.config import ConfigError
from harness.core.problem import Workload
from harness.core.record import Record
from harness.core.status import Status
from harness.results.leaderboard import leaderboard
from harness.results.scoring import is_noisy, main_baseline, scored
from harness.results.writer import RunStore
from harness.runner.events import BuildFinished, Event
from harness.runner.executors import ExecutorError

PROBLEM = """
import torch
SIZE = 64
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.rand(SIZE, SIZE) - 0.5]
def get_init_inputs():
    return []
"""

SOLUTION = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        {}
"""
RIGHT = SOLUTION.format("return torch.clamp(x, min=0)")
WRONG = SOLUTION.format("return x")
DIES = SOLUTION.format("import os; os._exit(1)")
BROKEN = "def ModelNew(:\n"


@pytest.fixture(scope="module")
def h(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    problems = tmp_path_factory.mktemp("problems")
    (problems / "level1").mkdir()
    (problems / "level1" / "19_relu.py").write_text(PROBLEM)
    with Harness(device="host", problems=problems, call_timeout_s=30.0) as made:
        yield made


def test_importing_the_package_is_cheap() -> None:
    code = (
        "import sys, harness; "
        "print(harness.__version__, 'torch' in sys.modules, any(name.startswith('harness.') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[1:] == ["False", "False"]
    with pytest.raises(ImportError):
        from harness import NoSuchThing  # type: ignore[attr-defined]  # noqa: F401


def test_a_right_solution_gives_speedup_reward_and_feedback(h: Harness) -> None:
    result = h.evaluate("level1/19", RIGHT, author="ann", sample=3)
    assert (result.status, result.passed, h.device) == (Status.passed, True, DeviceKind.HOST)
    assert result.speedup is not None
    assert (result.record.author, result.record.sample, result.record.workload_title) == ("ann", 3, "small (derived)")
    assert result.record.solution.startswith("ann/level1/19_")
    worth = reward(result)
    assert worth is not None
    entry = scored(result.record, main_baseline(result.record))
    assert worth == 0.3 if is_noisy(entry.low, entry.high) else 0.3 < worth < 1.0
    assert "passed" in result.feedback()
    again = h.evaluate("1/19", RIGHT, author="ann", sample=3)
    assert (again.status, again.record.solution) == (Status.passed, result.record.solution)


def test_a_result_is_one_line_and_in_a_notebook_its_feedback(h: Harness) -> None:
    right, wrong = (h.evaluate("level1/19", source, author="a<b>", name="x") for source in (RIGHT, WRONG))
    for result in (right, wrong):
        assert len(repr(result).splitlines()) == 1
        assert len(repr(result)) < 300
    assert repr(right).startswith("<Result a<b>/level1/19_x.py: passed, speedup ")
    assert repr(wrong) == f"<Result a<b>/level1/19_x.py: wrong_value, {wrong.reason[:119]}…>"
    page = wrong._repr_html_()
    assert "wrong_value</span>" in page
    assert "What failed" in page
    assert "<b>" not in page, "texts of a submission are escaped"


def test_events_reach_the_callers_function_and_the_logger(
    h: Harness, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[Event] = []

    def show(event: Event) -> None:
        events.append(event)
        raise RuntimeError("a display that fails")

    caplog.set_level("DEBUG", logger="harness")
    with Harness(device="host", problems=h.config.problems, on_event=show) as made:
        result = made.evaluate("level1/19", BROKEN)
    assert result.status is Status.syntax_error
    built = [event for event in events if isinstance(event, BuildFinished)]
    assert [(event.solution.label, event.failed) for event in built] == [(result.record.solution, True)]
    said = [record.getMessage() for record in caplog.records]
    assert any(text.startswith(f"{result.record.solution}: built in ") for text in said)
    assert "on_event raised" in said


def test_what_is_prepared_once_is_told_to_python_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="harness")
    told: list[Event] = []
    session._tell(told.append, Preparing(what="the host device, once for torch 2.13.0", done=3, total=36))
    assert [record.getMessage() for record in caplog.records] == [
        "preparing the host device, once for torch 2.13.0: 3 of 36 steps"
    ]
    assert len(told) == 1


def test_names_and_arguments_can_be_looked_up() -> None:
    assert set(harness.__all__) <= set(dir(harness))
    documented = set(re.findall(r"^        (\w+): ", (inspect.getdoc(Harness) and Harness.__doc__) or "", re.MULTILINE))
    arguments = set(inspect.signature(Harness).parameters) - {"settings"} | set(HarnessSettings.__annotations__)
    assert arguments <= documented
    for name in ("submit", "evaluate", "close", "as_completed_async", "evaluate_async"):
        assert (getattr(Harness, name).__doc__ or "").strip(), name


def test_sizes_of_memory_may_have_units_as_on_the_command_line() -> None:
    with Harness(device="host", memory_limit_bytes="2GiB") as made:
        assert made.config.memory_limit_bytes == 2**31
    with pytest.raises(ConfigError, match="a number of bytes, such as 8589934592 or 8GiB"):
        Harness(device="host", memory_limit_bytes="2 gigs")


def test_what_is_done_to_its_json_leaves_a_result_as_it_is() -> None:
    record = Record(
        problem="level1/19",
        author="ann",
        solution="ann/level1/19_a.py",
        device=DeviceKind.HOST,
        workload="full",
        status=Status.passed,
        reason="right",
        speedup=2.0,
        timing={"speedup": {"low": 1.5, "high": 2.5}},
    )
    result = Result(record=record, source="", log="")
    result.to_json()["timing"]["speedup"].clear()
    assert result.interval == (1.5, 2.5)


def test_speedups_against_every_baseline(h: Harness) -> None:
    result = h.evaluate("level1/19", RIGHT)
    assert result.speedups == {"eager": result.speedup}
    timing = {**(result.record.timing or {}), "baseline": "compile", "baselines": {"eager": {"speedup": 3.0}}}
    other = replace(result, record=replace(result.record, timing=timing, speedup=1.5))
    assert other.speedups == {"compile": 1.5, "eager": 3.0}
    failed = h.evaluate("level1/19", WRONG)
    assert failed.speedups == {}


def test_failures_are_values_and_leave_the_next_alone(h: Harness) -> None:
    expected = {
        WRONG: Status.wrong_value,
        DIES: Status.crashed,
        BROKEN: Status.syntax_error,
        RIGHT: Status.passed,
    }
    futures: dict[Future[Result], str] = {h.submit(PROBLEM, source): source for source in expected}
    found = {futures[done]: done.result() for done in as_completed(futures)}
    assert {source: result.status for source, result in found.items()} == expected
    assert found[WRONG].speedup is None
    assert "wrong value" in found[WRONG].feedback()
    assert reward(found[BROKEN]) == 0.0
    assert all(result.source == source for source, result in found.items())


def test_a_group_is_timed_until_its_rewards_are_settled(h: Harness) -> None:
    sources = [RIGHT, "import torch\n", f"{RIGHT}# again\n"]
    for until in ("reward", "ranking"):
        right, wrong, again = h.evaluate_group(PROBLEM, sources, until=until)  # type: ignore[arg-type]
        assert (right.status, wrong.status, again.status) == ("passed", "no_model_new", "passed")
        assert [result.record.sample for result in (right, wrong, again)] == [0, 1, 2]
        for result in (right, again):
            assert result.record.timing is not None
            assert result.record.timing["stopped_by"] in ("group", "budget"), "a busy machine may need longer"


def test_a_senseless_group_is_refused(h: Harness) -> None:
    with pytest.raises(ValueError, match="until must be ranking or reward, not 'speed'"):
        h.evaluate_group(PROBLEM, [RIGHT], until="speed")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tolerance must be above 0, not -1"):
        h.evaluate_group(PROBLEM, [RIGHT], until="reward", tolerance=-1)


def test_many_threads_share_one(h: Harness) -> None:
    results: list[Result] = []

    def run(number: int) -> None:
        results.append(h.evaluate("level1/19", RIGHT + f"# {number}\n", author=f"author{number}"))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {result.record.author for result in results} == {f"author{number}" for number in range(4)}
    assert all(result.passed for result in results)


def test_from_an_event_loop(h: Harness) -> None:
    async def run() -> tuple[Result, list[Result]]:
        first = await h.evaluate_async("level1/19", RIGHT)
        futures = [h.submit("level1/19", source) for source in (WRONG, BROKEN)]
        return first, [item async for item in h.as_completed_async(futures)]

    first, others = asyncio.run(run())
    assert first.passed
    assert {item.status for item in others} == {Status.wrong_value, Status.syntax_error}


def test_files_other_sizes_and_what_does_not_exist(h: Harness, tmp_path: Path) -> None:
    folder = tmp_path / "level7"
    folder.mkdir()
    (folder / "5_relu.py").write_text(PROBLEM)
    (folder / "workloads.yaml").write_text("format: 1\nproblems: {5: {workloads: {tiny: {SIZE: 3}}}}\n")
    (tmp_path / "kernel.py").write_text(RIGHT)
    result = h.evaluate(folder / "5_relu.py", tmp_path / "kernel.py", workload="tiny")
    assert (result.passed, result.record.problem, result.record.workload) == (True, "level7/5", "tiny")
    result = h.evaluate("level1/19", RIGHT, workload=Workload(name="odd", sizes={"SIZE": 7}))
    assert (result.passed, result.record.workload) == (True, "odd")
    with pytest.raises(CatalogError, match="there is no problem 'level1/20'"):
        h.submit("level1/20", RIGHT)
    with pytest.raises(CatalogError, match="declares no workload 'huge'"):
        h.submit("level1/19", RIGHT, workload="huge")
    rounded = SOLUTION.format("return torch.relu(x.bfloat16()).float()")
    lower = Workload(name="odd", sizes={"SIZE": 7}, precision=PrecisionClass.BF16)
    found = [
        h.evaluate("level1/19", rounded, workload=held).status
        for held in (replace(lower, precision=None), lower, replace(lower, precision=PrecisionClass.FP32))
    ]
    assert found == [Status.low_precision, Status.passed, Status.low_precision], "a workload may have its own class"
    for size in (float("nan"), object()):
        with pytest.raises(CatalogError, match=r"workload .odd. is invalid: .*; sizes must map names"):
            h.submit("level1/19", RIGHT, workload=Workload(name="odd", sizes={"SIZE": size}))  # type: ignore[dict-item]
    with pytest.raises(CatalogError, match=r"nothing\.py: can't be read"):
        h.submit("level1/19", tmp_path / "nothing.py")
    with pytest.raises(ConfigError, match="device"):
        Harness(device="tpu")  # type: ignore[arg-type]


def test_a_wrong_setting_is_named_as_python_callers_know_it() -> None:
    with pytest.raises(ConfigError) as caught:
        Harness(device="host", load_timeout_s=-1.0)
    assert str(caught.value) == "Harness: `load_timeout_s` must be a number above 0, not -1.0"
    for name in ("seed", "paths", "shard"):  # the last two are settings of a run
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            Harness(device="host", **{name: None})  # type: ignore[arg-type]


@pytest.mark.parametrize("timing", ["slow", 3, None])
def test_a_timing_that_there_is_none_of_is_refused(timing: Any) -> None:
    with pytest.raises(ConfigError, match=r"`timing` must be quick, full or a TimingConfig, not"):
        Harness(device="host", timing=timing)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"source": None}, "not NoneType"),
        ({"source": b"x"}, "not bytes"),
        ({"author": None}, "`author` must be a text, not None"),
        ({"name": 5}, "`name` must be a text, not 5"),
        ({"sample": "x"}, "`sample` must be an integer or None, not 'x'"),
        ({"sample": 1.5}, "`sample` must be an integer or None, not 1.5"),
        ({"workload": {"SIZE": 3}}, "`workload` must be a name or a Workload, not {'SIZE': 3}"),
        ({"problem": None}, "`problem` must be an id, a source text, a Path or a Problem, not NoneType"),
        ({"problem": b"level1/19"}, "`problem` must be an id, .*, not bytes"),
    ],
)
def test_what_is_handed_over_in_another_kind_is_refused_at_once(h: Harness, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        h.submit(**{"problem": "level1/19", "source": RIGHT, **wrong})


def test_files_and_authors_that_can_not_be_are_refused_at_once(h: Harness, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    for path, said in ((tmp_path / "pipe.py", "not a regular file"), (Path("/dev/zero"), "not a regular file")):
        with pytest.raises(CatalogError, match=said):
            h.submit("level1/19", path)
    for author in ("", "two\nlines"):
        with pytest.raises(CatalogError, match="is invalid: it is empty or not printable"):
            h.submit("level1/19", RIGHT, author=author)


def test_numbers_of_samples_from_arrays_are_kept_as_plain_ones(tmp_path: Path) -> None:
    with Harness(device="host", results=tmp_path / "run") as mine:
        assert mine.evaluate(PROBLEM, BROKEN, sample=np.int64(7)).record.sample == 7  # type: ignore[arg-type]
    assert [item.sample for item in RunStore.open(tmp_path / "run").records()] == [7]


FORKS = """
import os, sys
from harness import Harness
from harness.api import HarnessClosed

def forked(do):
    if (child := os.fork()) == 0:
        do()
    else:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

def work():
    try:
        h.evaluate({problem!r}, {source!r})
    except HarnessClosed as error:
        print(error, flush=True)
        os._exit(0)

def close():
    h.close()
    os._exit(0)

with Harness(device="host") as h:
    h.evaluate({problem!r}, {source!r})
    with h._lock:  # as another thread may, at a fork
        forked(work)
        forked(close)
    forked(sys.exit)
    print(h.evaluate({problem!r}, {source!r} + "# another").status)
"""


def test_a_forked_process_is_refused_and_takes_nothing_from_its_parent(tmp_path: Path) -> None:
    done = subprocess.run(
        # From 3.12 on Python warns of every fork beside threads.
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKS.format(problem=PROBLEM, source=RIGHT)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "a forked process can't use this Harness; make one in each process, after the fork\npassed\n"
    assert list(tmp_path.glob("harness-*")) == []


def test_results_are_kept_where_asked_for_and_continued(tmp_path: Path) -> None:
    run = tmp_path / "results" / "loop"
    for source, name in ((BROKEN, "first"), (BROKEN + "# again", "second")):
        with Harness(device="host", results=run) as mine:
            mine.evaluate(PROBLEM, source, author="ann", name=name)
    records = RunStore.open(run).records()
    assert [Path(item.solution).stem.partition("_")[2] for item in records] == ["first", "second"]
    (row,) = leaderboard(records)
    assert (row.passed, row.results) == (0, 1)
    assert RunStore.open(run).log_path(records[1].solution).is_file()


def test_what_an_author_says_is_kept_with_the_results(tmp_path: Path) -> None:
    for name, text in (("ann", "model: m-1\n"), ("bob", "model: [\n")):
        file = tmp_path / "solutions" / name / "level1" / "19_broken.py"
        file.parent.mkdir(parents=True)
        file.write_text(BROKEN)
        (file.parent.parent / "author.yaml").write_text(text)
    run = tmp_path / "run"
    with Harness(device="host", results=run) as mine:
        mine.evaluate(PROBLEM, tmp_path / "solutions/ann/level1/19_broken.py", author="ann", name="a")
        mine.evaluate(PROBLEM, tmp_path / "solutions/ann/level1/19_broken.py", author="cid", name="a")
        mine.evaluate(PROBLEM, BROKEN, author="dan", name="a")
        with pytest.warns(UserWarning, match=r"bob/author\.yaml: not valid YAML"):
            mine.evaluate(PROBLEM, tmp_path / "solutions/bob/level1/19_broken.py", author="bob", name="a")
        # Told once: warnings are errors in these tests.
        mine.evaluate(PROBLEM, tmp_path / "solutions/bob/level1/19_broken.py", author="bob", name="b")
    held = RunStore.open(run)
    assert {record.author for record in held.records()} == {"ann", "bob", "cid", "dan"}
    assert held.head["authors"] == {"ann": {"display_name": None, "model": "m-1", "notes": None}}


def test_a_result_that_comes_while_it_is_closed_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delivering, go_on = threading.Event(), threading.Event()
    tail = keeper._tail

    def waits(path: Path) -> str:
        delivering.set()
        assert go_on.wait(60)
        return tail(path)

    monkeypatch.setattr(keeper, "_tail", waits)
    mine = Harness(device="host", results=tmp_path / "run")
    future = mine.submit(PROBLEM, BROKEN)
    assert delivering.wait(60)
    closing = threading.Thread(target=mine.close)
    closing.start()
    while not mine._closed:
        time.sleep(0.01)
    go_on.set()
    closing.join(60)
    assert future.result(60).status is Status.syntax_error
    assert [item.status for item in RunStore.open(tmp_path / "run").records()] == [Status.syntax_error]


def test_closing_ends_what_waits_and_nothing_more_is_taken() -> None:
    mine = Harness(device="host")
    futures = [mine.submit(PROBLEM, RIGHT + f"# {number}\n") for number in range(8)]
    mine.close()
    for future in futures:
        with pytest.raises((ExecutorError, CancelledError)):
            future.result(timeout=300)
    with pytest.raises(HarnessClosed):
        mine.submit(PROBLEM, RIGHT)
    mine.close()


def test_a_script_that_forgets_to_close_ends_and_leaves_nothing(tmp_path: Path) -> None:
    script = (
        f"from harness import Harness\nh = Harness(device='host')\nprint(h.evaluate({PROBLEM!r}, {RIGHT!r}).status)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "passed\n", "")
    assert list(tmp_path.glob("harness-*")) == []


CUDA_SOLUTION = '''
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
__global__ void relu(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] > 0.f ? x[i] : 0.f;
}
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  int n = x.numel();
  relu<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}
"""
built = load_inline("api_relu", "torch::Tensor forward(torch::Tensor x);", SOURCE, functions=["forward"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return built.forward(x)
'''


@pytest.mark.gpu
def test_on_a_gpu_repeated_evaluations_share_warm_processes() -> None:
    with Harness(device="cuda") as mine:
        first = mine.evaluate(PROBLEM, CUDA_SOLUTION)
        again = mine.evaluate(PROBLEM, CUDA_SOLUTION)
    for result in (first, again):
        assert result.passed, result.feedback()
        assert result.speedup is not None
        assert result.record.environment["gpu"]
    assert again.record.build is not None
    assert again.record.build["cache_hits"] >= 1
