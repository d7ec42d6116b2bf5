"""What the CPU decides before the GPU, by scripted verdicts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.core.choices import DeviceKind
from harness.core.config import ConfigError, Machine, RunConfig, resolve
from harness.core.environment import Environment, collect
from harness.core.problem import Problem, Solution, Workload, digest_text
from harness.core.status import Status
from harness.core.task import Outcome, Task
from harness.runner.cascade import ANYWHERE, AT_SIZES, Cascade, even_sizes, host_config, names_sizes, open_cascade
from harness.runner.events import SolutionFinished
from harness.runner.executors import Built, ExecutorError, Slot, SlotLost
from harness.runner.plan import PendingSolution, PlannedSolution
from harness.runner.record_builder import foreseen_task
from harness.runner.runner import Runner
from tests.support.scripted import PROBLEM, SOON_S, Scripted

SHOWN = Workload(name="full")
SMALL = Workload(name="small", sizes={"ROWS": 37, "WIDTH": 5})
TEXT = PROBLEM + "ROWS = 4096\nWIDTH = 48\n"


class OnHost(Scripted):
    """The executor of the CPU: `found` says what it finds at a workload."""

    def __init__(self, found: Callable[[str], Status]) -> None:
        super().__init__()
        self.found, self.judged = found, list[Workload]()
        self.labels: tuple[str, ...] = ()

    def judge(self, slot: Slot, task: Task, built: Built, ahead: Sequence[tuple[Task, Built]] = ()) -> Outcome | None:
        self.judged.append(task.workload)
        return Outcome(
            status=self.found(task.workload.name), reason=f"at {task.workload.name} sizes", labels=self.labels
        )


@pytest.fixture(scope="module")
def here() -> Environment:
    return collect()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def config_of(folder: Path, cache: Path, **options: object) -> RunConfig:
    machine = Machine(device=DeviceKind.CUDA, cpu_count=4, memory_bytes=2**34)
    given = {"paths": [folder], "cache_dir": cache, "cascade": True, **options}
    return resolve(machine=machine, run_id="run", options=given)


def work_of(
    folder: Path, source: str, *, workload: Workload = SHOWN, small: Workload | None = SMALL
) -> PendingSolution:
    held = {"full": SHOWN} | ({} if small is None else {"small": small})
    problem = Problem(id="level1/1", name="1", path=Path("1.py"), source=TEXT, digest=digest_text(TEXT), workloads=held)
    solution = Solution(problem_id=problem.id, author="a", label=f"a/{source}.py", path=Path("1.py"), source=source)
    job = PlannedSolution(solution=solution, problem=problem, workload=workload)
    return PendingSolution(job=job, log_path=folder / "1.log")


@contextmanager
def on_host(
    found: Callable[[str], Status], folder: Path, here: Environment, cache: Path
) -> Iterator[tuple[Cascade, OnHost]]:
    executor = OnHost(found)
    cascade = Cascade(executor, config_of(folder, cache), here)
    try:
        yield cascade, executor
    finally:
        cascade.end()


def always(status: Status) -> Callable[[str], Status]:
    return lambda workload: status


@pytest.mark.parametrize("status", sorted(Status))
def test_what_the_cpu_finds_decides_or_not(tmp_path: Path, here: Environment, cache: Path, status: Status) -> None:
    work = work_of(tmp_path, "source")
    with on_host(always(status), tmp_path, here, cache) as (cascade, executor):
        record = cascade.convicts(work, {"gpu": "H200"}, lambda event: None)
    assert work.job.on_host is not None
    assert work.job.on_host["status"] == status
    looks = ["small", "even"] if status in AT_SIZES else ["small"]
    assert [workload.name for workload in executor.judged] == looks
    if status not in ANYWHERE | AT_SIZES:
        assert record is None
        return
    assert record is not None
    assert (record.status, record.device, record.workload) == (status, DeviceKind.CUDA, "full")
    assert record.reason == "on the CPU: at small sizes"
    assert record.environment == {"gpu": "H200"}
    assert record.evidence["cascade"]["device"] == "host"


def test_only_small_sizes_decide_nothing(tmp_path: Path, here: Environment, cache: Path) -> None:
    """A kernel without a check for the last tile is right at the sizes of the run."""
    work = work_of(tmp_path, "source")

    def found(workload: str) -> Status:
        return Status.memory_error if workload == "small" else Status.passed

    with on_host(found, tmp_path, here, cache) as (cascade, executor):
        assert cascade.convicts(work, {}, lambda event: None) is None
    assert executor.judged[1].sizes == {"ROWS": 128, "WIDTH": 16}
    assert work.job.on_host is not None
    assert work.job.on_host["not_decisive"] == "passed at even sizes"


def test_a_solution_that_names_a_size_is_left_to_the_gpu(tmp_path: Path, here: Environment, cache: Path) -> None:
    work = work_of(tmp_path, "rows = 4096")
    with on_host(always(Status.wrong_value), tmp_path, here, cache) as (cascade, executor):
        assert cascade.convicts(work, {}, lambda event: None) is None
    assert len(executor.judged) == 1
    assert work.job.on_host is not None
    assert work.job.on_host["not_decisive"] == "the source names the size 4096"


def test_at_its_own_sizes_the_cpu_decides_at_once(tmp_path: Path, here: Environment, cache: Path) -> None:
    work = work_of(tmp_path, "rows = 37", workload=SMALL)
    with on_host(always(Status.wrong_value), tmp_path, here, cache) as (cascade, executor):
        assert cascade.convicts(work, {}, lambda event: None) is not None
    assert len(executor.judged) == 1


def test_without_small_sizes_the_gpu_decides(tmp_path: Path, here: Environment, cache: Path) -> None:
    with on_host(always(Status.data_race), tmp_path, here, cache) as (cascade, executor):
        assert cascade.convicts(work_of(tmp_path, "source", small=None), {}, lambda event: None) is None
    assert not executor.judged


def test_a_cpu_stage_that_is_lost_leaves_everything_to_the_gpu(tmp_path: Path, here: Environment, cache: Path) -> None:
    def lost(workload: str) -> Status:
        raise SlotLost("gone")

    with on_host(lost, tmp_path, here, cache) as (cascade, _):
        assert cascade.convicts(work_of(tmp_path, "source"), {}, lambda event: None) is None


def test_a_runner_gives_the_gpu_only_what_the_cpu_did_not_convict(
    tmp_path: Path, here: Environment, cache: Path
) -> None:
    config = config_of(tmp_path, cache)

    class Mixed(OnHost):
        def judge(self, slot: Slot, task: Task, built: Built, ahead: Sequence[tuple[Task, Built]] = ()) -> Outcome:
            return Outcome(status=Status.data_race if task.source == "racy" else Status.passed, reason="judged")

    gpu, seen = Scripted(), list[SolutionFinished]()
    cascade = open_cascade(config, here, tmp_path, lambda settings, folder: Mixed(always(Status.passed)))
    runner = Runner(gpu, config, here, lambda work, event: event, cascade=cascade)
    try:
        for future in runner.submit([work_of(tmp_path, source) for source in ("racy", "right")]):
            seen.append(future.result(SOON_S))
    finally:
        runner.end()
    assert [(each.record.status, each.slot) for each in seen] == [
        (Status.data_race, None),
        (Status.passed, "slot 0"),
    ]
    assert [source for what, source in gpu.told if what == "judged"] == ["right"]
    assert seen[1].record.evidence["cascade"]["status"] == "passed"


def test_a_runner_that_is_closed_meanwhile_says_so(tmp_path: Path, here: Environment, cache: Path) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def found(workload: str) -> Status:
        begun.set()
        assert goes_on.wait(SOON_S)
        return Status.passed

    config = config_of(tmp_path, cache)
    cascade = open_cascade(config, here, tmp_path, lambda settings, folder: OnHost(found))
    runner = Runner(Scripted(), config, here, lambda work, event: event, cascade=cascade)
    try:
        (future,) = runner.submit([work_of(tmp_path, "source")])
        assert begun.wait(SOON_S)
        runner.close()
        with pytest.raises(ExecutorError, match="was closed before this solution was evaluated"):
            future.result(SOON_S)
    finally:
        goes_on.set()
        runner.end()


@pytest.mark.parametrize(
    ("audit", "labels", "skipped"),
    [
        ("auto", (), True),
        ("auto", ("static_buffer",), True),
        ("auto", ("no_custom_kernel",), False),
        ("auto", ("uncounted_kernels",), False),
        ("always", (), False),
    ],
)
def test_what_passed_on_the_cpu_is_audited_again_only_on_demand_or_if_its_kernels_did_not_run(
    tmp_path: Path, here: Environment, cache: Path, audit: str, labels: tuple[str, ...], skipped: bool
) -> None:
    work = work_of(tmp_path, "source")
    config = config_of(tmp_path, cache, audit=audit)
    assert not foreseen_task(work.job, config, work.log_path).checked_on_host
    with on_host(always(Status.passed), tmp_path, here, cache) as (cascade, executor):
        executor.labels = labels
        cascade.convicts(work, {}, lambda event: None)
    assert foreseen_task(work.job, config, work.log_path).checked_on_host is skipped


def test_names_of_sizes() -> None:
    shown, small = {"N": 4096, "M": [64, 256], "BLOCK": 256}, {"N": 97, "M": [8, 16], "BLOCK": 256}
    assert names_sizes("int n = 4096;", "", shown, small) == 4096
    assert names_sizes("int m = 64;", "", shown, small) == 64
    assert names_sizes("int block = 256;", "", shown, small) is None, "a constant that small sizes do not change"
    assert names_sizes("x4096 = 1.64 + 640", "", shown, small) is None
    assert names_sizes("N = 4096\ny = 2", "N = 4096\nx = 1", shown, small) is None, "a line of the problem"


def test_even_sizes() -> None:
    def even(shown: dict[str, object], **small: object) -> object:
        found = even_sizes(Workload(name="small", sizes=small), shown)  # type: ignore[arg-type]
        return found and dict(found.sizes)

    assert even({"N": 4096}, N=97) == {"N": 128}
    assert even({"N": 4096, "K": 3}, N=97, K=2) == {"N": 128, "K": 2}
    assert even({"S": [64, 48]}, S=[5, 7]) == {"S": [64, 16]}
    assert even({"A": 4096, "B": 4096, "C": 4096}, A=5, B=5, C=5) == {"A": 16, "B": 16, "C": 16}, (
        "not 32 times as large"
    )
    assert even({"A": 4096, "B": 4096, "C": 4096}, A=2, B=2, C=2) is None
    assert even({"N": object()}, N=97) is None
    assert even({}, N=97) is None


def test_the_settings_of_the_cpu(tmp_path: Path, cache: Path) -> None:
    config = config_of(tmp_path, cache, shapes=3, gpu_memory_bytes="1GiB", baselines="eager,compile", jobs=3)
    held = host_config(config)
    assert (held.device, held.workload, held.workers, held.shapes) == (DeviceKind.HOST, "small", 3, 0)
    assert held.gpu_memory_bytes is None
    limits = {("32GiB", 4): 8, ("32GiB", 32): 3, ("2GiB", 8): 2}
    for (limit, jobs), gib in limits.items():
        held = host_config(config_of(tmp_path, cache, memory_limit_bytes=limit, jobs=jobs))
        assert held.memory_limit_bytes == gib * 2**30


def test_it_needs_a_gpu(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(ConfigError, match=r"--cascade\) judges on the CPU before the GPU, but the device is host"):
        config_of(tmp_path, cache, device="host")
    assert open_cascade(config_of(tmp_path, cache, cascade=False), collect(), tmp_path, lambda *_: OnHost(str)) is None  # type: ignore[arg-type]
