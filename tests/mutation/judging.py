"""Judge mutants with the harness: worker processes share a list, and append one JSON line for each result.

A sound file is judged before its mutants; the mutants of a file that does not pass are left out. If a mutant passes,
its worker tries whether any thread reaches the mistake: it judges the sound file with a trap at that place.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

from harness.api import Harness, Result
from harness.api.session import HarnessSettings
from harness.core.config import TimingConfig
from harness.core.environment import collect, cpu_count
from harness.core.status import Status
from tests.mutation.kernels import Mutant, content, problem_of

TIMING = TimingConfig(min_samples=4, sets_per_burst=2, relative_half_width=0.5, budget_s=0.1)
SOUND = "sound"
"""The operator of a file without a mistake."""

STAGES = ("compile", "value", "race", "bounds", "uninitialised", "barrier", "other", "survived")
_STAGE = {
    **dict.fromkeys(
        (Status.syntax_error, Status.compile_error, Status.compile_timeout, Status.import_error), "compile"
    ),
    Status.data_race: "race",
    Status.memory_error: "bounds",
    Status.uninitialised_read: "uninitialised",
    Status.barrier_error: "barrier",
    **dict.fromkeys(
        (
            Status.runtime_error,
            Status.cuda_error,
            Status.crashed,
            Status.timeout,
            Status.out_of_memory,
            Status.bad_constructor,
        ),
        "other",
    ),
    **dict.fromkeys(
        (Status.compile_timeout, Status.not_emulated, Status.unsupported, Status.harness_error), "no verdict"
    ),
    Status.passed: "survived",
}
"""Stage of each status; all others are found by comparing values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What all workers share.

    Attributes:
        chunks: Groups of mutants of one file each.
        out: File for the results.
        device: `host` or `cuda`.
        workers: Number of worker processes.
        until: Unix time after which workers stop.
        sound: Status of sound files that are judged already.
    """

    chunks: Sequence[Sequence[Mutant]]
    out: Path
    device: Literal["host", "cuda"]
    workers: int
    until: float
    sound: dict[str, str]


def stage_of(status: Status) -> str:
    """Return the stage of the harness that decided a status."""
    return _STAGE.get(status, "value")


def rows_of(out: Path) -> list[dict[str, Any]]:
    """Return the results in a file; a line that was cut off is left out."""
    found = []
    if out.exists():
        for line in out.read_text(encoding="utf-8").splitlines():
            with suppress(json.JSONDecodeError):
                found.append(json.loads(line))
    return found


def judge(plan: Plan) -> None:
    """Judge all chunks of a plan with its workers, until they are done or the time is over.

    Raises:
        ChildProcessError: A worker failed. The others finished.
    """
    context = get_context("spawn")
    with context.Manager() as manager:
        following, lock = context.Value("i", 0), context.Lock()
        sound = manager.dict(plan.sound)
        workers = [
            context.Process(target=_work, args=(plan, number, following, lock, sound)) for number in range(plan.workers)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    if failed := sum(worker.exitcode != 0 for worker in workers):
        raise ChildProcessError(
            f"{failed} of {plan.workers} workers failed (see above); run the command again to go on"
        )


def _confine(plan: Plan, number: int) -> int:
    """Give a worker its share of the processors or a GPU; return how many builds it may run at once."""
    if plan.device == "cuda":
        gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        gpus = gpus if gpus != [""] else [str(index) for index in range(len(collect().gpus))]
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]
        return max(1, cpu_count() // plan.workers)
    os.environ["OMP_NUM_THREADS"] = "1"
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, processors[number % len(processors) :: plan.workers] or processors)
    return 1


def _work(plan: Plan, number: int, following: Any, lock: Any, sound: Any) -> None:
    jobs = _confine(plan, number)
    settings = HarnessSettings(
        jobs=jobs,
        workers=1,
        seeds=2,
        audit="never" if plan.device == "host" else "auto",
        allow_degenerate=True,
        compile_timeout_s=60.0,
        load_timeout_s=60.0,
        call_timeout_s=20.0,
        solution_timeout_s=60.0,
    )
    with Harness(device=plan.device, timing=TIMING, **settings) as harness:
        judge_one = _Judge(harness, plan, sound)
        while time.time() < plan.until:
            with lock:
                place = following.value
                following.value += 1
            if place >= len(plan.chunks):
                return
            judge_one.chunk(plan.chunks[place])


class _Judge:
    """Judges groups of mutants with one `Harness`, and appends results."""

    def __init__(self, harness: Harness, plan: Plan, sound: Any) -> None:
        self._harness, self._plan, self._sound = harness, plan, sound
        self._reached: dict[str, bool | None] = {}

    def chunk(self, chunk: Sequence[Mutant]) -> None:
        """Judge mutants of one file, if it passes without them; append nothing after the end of the plan's time."""
        file = chunk[0].file
        if file not in self._sound:
            future = self._harness.submit(problem_of(file), content(file).decode())
            if not self._finished({future}):
                return
            self._sound[file] = future.result().status.value
            self._append({"id": f"{file}:{SOUND}", "file": file, "operator": SOUND}, future.result())
        if self._sound[file] == Status.passed:
            self._mutants(chunk)

    def _finished(self, futures: set[Future[Result]]) -> set[Future[Result]]:
        """Return futures that are done; none if the time is over."""
        return wait(futures, max(0.0, self._plan.until - time.time()), FIRST_COMPLETED).done

    def _mutants(self, chunk: Sequence[Mutant]) -> None:
        problem = problem_of(chunk[0].file)
        waiting: dict[Future[Result], tuple[Mutant, Result | None]] = {}
        for mutant in chunk:
            waiting[self._harness.submit(problem, mutant.source())] = mutant, None
        while waiting:
            done = self._finished(set(waiting))
            if not done:
                for future in waiting:
                    future.cancel()
                return
            for future in done:
                mutant, survived = waiting.pop(future)
                result, probed = future.result(), mutant.probed()
                if survived is not None:
                    built = stage_of(result.status) not in ("compile", "no verdict")
                    self._reached[probed] = not result.passed if built else None
                    self._finish(mutant, survived, self._reached[probed])
                elif not result.passed or not mutant.probe or probed in self._reached:
                    self._finish(mutant, result, self._reached.get(probed) if result.passed else None)
                else:
                    waiting[self._harness.submit(problem, probed)] = mutant, result

    def _finish(self, mutant: Mutant, result: Result, reached: bool | None) -> None:
        before, after = mutant.change()
        row = {"id": mutant.id, "file": mutant.file, "operator": mutant.operator, "line": mutant.line()}
        self._append({**row, "before": before, "after": after, "reached": reached}, result)

    def _append(self, row: dict[str, Any], result: Result) -> None:
        row |= {"device": self._plan.device, "status": result.status.value, "stage": stage_of(result.status)}
        row |= {
            "reason": result.reason[:200],
            "labels": list(result.record.labels),
            "wall_s": round(result.record.wall_s or 0.0, 2),
        }
        line = json.dumps(row, ensure_ascii=False) + "\n"
        file = os.open(self._plan.out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(file, line.encode())  # one call, so that lines of several workers do not mix
        finally:
            os.close(file)
