"""The Python API where something ends in the middle: what is told is kept, what is not kept is not there, and no
process outlives what it was for."""

from __future__ import annotations

import copy
import gc
import pickle
import resource
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from harness import Harness, Result
from harness.api import HarnessClosed, keeper, session
from harness.core.environment import MachineError
from harness.core.status import Status
from harness.results.reader import StoreUnavailable
from harness.results.scoring import entries_of, score
from harness.results.writer import RunStore
from harness.runner.executors.local import LocalExecutor
from harness.runner.runner import Runner
from tests.unit.api.test_api import BROKEN, DIES, PROBLEM, RIGHT


def wait_until(true: Callable[[], bool], limit_s: float = 60.0) -> bool:
    end = time.monotonic() + limit_s
    while not (held := true()) and time.monotonic() < end:
        time.sleep(0.02)
    return held


def test_a_result_whose_log_can_not_be_kept_leaves_no_record(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Harness(device="host", results=run) as mine:
        first = mine.evaluate(PROBLEM, DIES, name="first")
        (run / "logs").rename(run / "away")
        (run / "logs").write_text("in the way")
        with pytest.raises(StoreUnavailable, match=r"logs/.*\.log: can't be written: .*submit the solution again"):
            mine.evaluate(PROBLEM, BROKEN, name="second")
        assert len(RunStore.open(run).history()) == 1
        (run / "logs").unlink()
        (run / "away").rename(run / "logs")
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        log = RunStore.open(run).log_path(first.record.solution)
        whole = log.read_text()
        assert whole
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) // 2, limit[1]))  # as a full disk
        try:
            with pytest.raises(StoreUnavailable, match=r"File too large"):
                keeper._write_log(log, whole + "more")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        assert log.read_text() == whole, "the record that is kept keeps its log"
        assert mine.evaluate(PROBLEM, BROKEN, name="second").status is Status.syntax_error
    assert len(RunStore.open(run).history()) == 2


def test_samples_of_one_text_and_name_are_as_many_results(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Harness(device="host", results=run) as mine:
        for sample in range(3):
            mine.evaluate(PROBLEM, BROKEN, sample=sample)
        mine.evaluate(PROBLEM, BROKEN + "#", name="same", sample=3)
        mine.evaluate(PROBLEM, BROKEN + "# another", name="same", sample=4)
    held = RunStore.open(run)
    assert [record.sample for record in held.records()] == [0, 1, 2, 3, 4]
    assert len({held.log_path(record.solution) for record in held.records()}) == 5
    assert len(list((run / "logs").iterdir())) == 5
    assert score(entries_of(held.records()), ks=(5, 6)).pass_at_k == {5: 0.0, 6: None}


def test_a_run_is_kept_where_it_was_meant_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Harness(device="host", results="run") as mine:
        mine.evaluate(PROBLEM, BROKEN, name="first")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert mine.evaluate(PROBLEM, BROKEN, name="second").status is Status.syntax_error
    assert len(RunStore.open(tmp_path / "run").records()) == 2


def test_what_is_called_back_is_told_that_it_can_not_wait() -> None:
    told: list[object] = []
    done = threading.Event()

    def follow(future: Future[Result]) -> None:
        try:
            mine.evaluate(PROBLEM, BROKEN + "# inner")
        except BaseException as error:
            told.append(error)
        mine.submit(PROBLEM, BROKEN + "# next").add_done_callback(lambda _: done.set())

    with Harness(device="host") as mine:
        mine.submit(PROBLEM, BROKEN).add_done_callback(follow)
        assert done.wait(60)
    assert [str(error) for error in told] == [
        "a future's callback can't wait for another evaluation: call `submit` there instead"
    ]


def processes(mine: Harness) -> list[subprocess.Popen[bytes]]:
    assert mine._runner is not None
    return [each._process for each in mine._runner._executor._referees.values()]  # type: ignore[attr-defined]


def test_one_that_nobody_has_any_more_is_ended_after_its_work() -> None:
    mine = Harness(device="host")
    future = mine.submit(PROBLEM, RIGHT)
    (referee,) = processes(mine)
    assert mine._keeper is not None
    folder = mine._keeper.folder
    del mine
    gc.collect()
    assert future.result(300).status is Status.passed, "it is kept as long as there is work"
    gc.collect()
    assert wait_until(lambda: referee.returncode is not None)
    assert wait_until(lambda: not folder.exists())


def test_one_that_takes_the_place_of_another_goes_on_with_its_run(tmp_path: Path) -> None:
    for name in ("first", "second", "third"):
        mine = Harness(device="host", results=tmp_path / "run")
        assert mine.evaluate(PROBLEM, BROKEN, name=name).status is Status.syntax_error
    mine.close()
    assert len(RunStore.open(tmp_path / "run").records()) == 3


def test_a_close_that_was_interrupted_can_be_made_good(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Harness(device="host")
    mine.evaluate(PROBLEM, RIGHT)
    (referee,) = processes(mine)
    end = Runner.end
    interrupts = [KeyboardInterrupt()]

    def interrupted(self: Runner[Result]) -> None:
        if interrupts:
            raise interrupts.pop()
        end(self)

    monkeypatch.setattr(Runner, "end", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mine.close()
    assert referee.poll() is None
    with pytest.raises(HarnessClosed):
        mine.submit(PROBLEM, RIGHT)
    mine.close()
    assert referee.returncode is not None


def test_futures_that_close_it_from_several_threads_do_not_wait_for_each_other() -> None:
    mine = Harness(device="host", jobs=2)
    both = threading.Barrier(2)

    def close(_: Future[Result]) -> None:
        both.wait(60)
        mine.close()

    futures = [mine.submit(PROBLEM, BROKEN + f"# {number}") for number in range(2)]
    for future in futures:
        future.add_done_callback(close)
    ending = threading.Thread(target=mine.close, daemon=True)
    for future in futures:
        future.exception(60)
    ending.start()
    ending.join(60)
    assert not ending.is_alive()


class Interrupted(Future[Result]):
    def result(self, timeout: float | None = None) -> Result:
        raise KeyboardInterrupt


def test_an_interrupted_evaluation_that_had_not_begun_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    future = Interrupted()
    with Harness(device="host") as mine:
        monkeypatch.setattr(mine, "submit", lambda *_, **__: future)
        with pytest.raises(KeyboardInterrupt):
            mine.evaluate(PROBLEM, RIGHT)
    assert future.cancelled()


def test_a_start_that_fails_leaves_no_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[LocalExecutor] = []

    def fails(executor: LocalExecutor, *_: object, **__: object) -> Runner[Result]:
        started.append(executor)
        raise RuntimeError("can't start new thread")

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(session, "Runner", fails)
    with Harness(device="host") as mine:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            mine.submit(PROBLEM, BROKEN)
        assert [len(executor._referees) for executor in started] == [0]
        assert list(tmp_path.glob("harness-*")) == []
        monkeypatch.setattr(session, "Runner", Runner)
        assert mine.evaluate(PROBLEM, BROKEN).status is Status.syntax_error


def test_a_working_folder_that_is_gone_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "working folder of this process was removed; os.chdir to an existing one"
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    with Harness(device="host", results=tmp_path / "run") as mine:
        (tmp_path / "gone").rmdir()
        with pytest.raises(MachineError, match=said):
            mine.submit(PROBLEM, BROKEN)
        with pytest.raises(MachineError, match=said):
            Harness(device="host", results="run")
        monkeypatch.chdir(tmp_path)
        assert mine.evaluate(PROBLEM, BROKEN).status is Status.syntax_error


def test_it_can_not_be_sent_to_another_process() -> None:
    with Harness(device="host") as mine:
        for copied in (pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError, match="can't be copied or sent to another process; make a new one there"):
                copied(mine)
