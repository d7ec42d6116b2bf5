"""`harness baseline`: the time of problems' references, eager and compiled, measured ahead of any run.

Outside layer; trusted side. What is measured is kept in the cache folder, where `harness eval --baseline` finds it;
`--out` writes it to a folder for people as well.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.catalog import Catalog, CatalogError, UnreadableProblem, find_solutions, load_problems
from harness.cli.output import UNABLE, Json, ProblemsRoot, fail, option, print_json, put, results_alone, say, writable
from harness.core import environment
from harness.core.cache_dir import ready_cache
from harness.core.choices import Baseline, DeviceKind
from harness.core.config import ConfigError, cache_folder
from harness.core.config_values import parse_baselines
from harness.core.environment import Environment, MachineError
from harness.core.problem import Problem, Workload
from harness.core.visible_gpus import visible_gpus
from harness.report import baselines as pages
from harness.report import format as show
from harness.report.narrow import Fitting
from harness.results.reader import timestamp
from harness.results.writer import write_whole

if TYPE_CHECKING:
    from harness.devices.gpu_specs import Peaks
    from harness.referee.baselines import BaselineRequest
    from harness.referee.problem.roofline import SpeedOfLight

ROWS_FILE, ENVIRONMENT_FILE = "baselines.csv", "environment.json"
FORMAT = 1

MOST_JOBS = 8
"""Processes on one GPU: each holds a CUDA context and one problem's sets (`SETS_BYTES`), beside which the largest
problem must find room; timing goes one at a time anyway."""

EAGER_JOBS = 2
"""The same where nothing is compiled: one makes its problem ready while the other is timed."""

EACH_BUDGET_S = 1.0
"""Seconds of bursts for each baseline of a problem, at most."""

SAME = {DeviceKind.CUDA: ("gpu", "driver", "torch"), DeviceKind.HOST: ("cpu", "torch")}
"""What must be the same for times to go into one file. Which of several like GPUs it was stands with each session."""


def baseline_command(
    wanted: Annotated[
        list[str] | None, typer.Argument(metavar="[PROBLEMS]", help="level1, level1/16, files ...  [all]")
    ] = None,
    baseline: Annotated[
        str, typer.Option("--baseline", help="Which: eager, compile, max-autotune, eager_tf32, …")
    ] = "eager,compile",
    problems: ProblemsRoot = None,
    solved: Annotated[
        Path | None, option("--solved", "Only problems that a solution below this folder is of.  [all]")
    ] = None,
    workload: Annotated[str | None, option("--workload", "Sizes.  [full on cuda, small on host]")] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cuda or host.")] = "auto",
    out: Annotated[Path | None, option("--out", "Folder for baselines.csv and environment.json.  [none]")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Add to the files in --out, leaving out what is measured there.")
    ] = False,
    refresh: Annotated[bool, typer.Option("--refresh", help="Measure again what the cache folder has.")] = False,
    budget_s: Annotated[
        float | None, option("--budget-s", "Seconds after which no further problem begins.  [none]")
    ] = None,
    jobs: Annotated[
        int | None, option("--jobs", "Processes that compile.  [three quarters of the processors, at most 8 a GPU]")
    ] = None,
    cache: Annotated[
        Path | None, option("--cache", "Folder of caches.  [$HARNESS_CACHE, or ~/.cache/kernel-harness]")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure the references' times: eager, and compiled by torch in its modes.

    Problems are compiled side by side and timed one at a time on each GPU, each baseline in turns with eager, its
    values held to the problem's class. All GPUs of the first one's model are used; CUDA_VISIBLE_DEVICES names fewer.
    Times are kept for this GPU, driver and torch, for harness eval --baseline, and measured again where eager no longer
    takes what it took (2 %). A baseline that fails or is wrong is a result; the exit code is 3 where nothing is known
    of some.

    \b
    Examples:
      harness baseline level1 --baseline eager,compile
      harness baseline --baseline eager --out results/mine
      harness baseline --solved solutions/tuned --baseline max-autotune --out results/mine --resume --budget-s 300
    """
    if resume and out is None:
        raise ConfigError("--resume adds to files: name their folder by --out")
    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs {jobs}: a number of processes from 1 on")
    if budget_s is not None and not budget_s > 0:
        raise ConfigError(f"--budget-s {budget_s:g}: a number of seconds above 0")
    found = environment.collect()
    kind = _device(device, found)
    try:
        asked = parse_baselines(baseline)
    except ValueError as error:
        raise ConfigError(f"--baseline must be {error}, not {baseline!r:.80}") from None
    gpus = _like_gpus(found) if kind is DeviceKind.CUDA else ()
    catalog = load_problems(problems or Path("problems"))
    sizes = workload or ("full" if kind is DeviceKind.CUDA else "small")
    chosen, unreadable = _chosen(catalog, wanted or [], solved, sizes)
    for reason in unreadable:
        say(f"{reason}; the others are measured")
    files = None if out is None else _BaselineFiles(out, found, kind, gpus, resume=resume)
    ahead = [(held, files.missing(held, asked) if files else asked) for held in chosen]
    if done_before := sum(not names for _, names in ahead):
        say(f"{done_before} of {len(ahead)} problems have all their times in {out} already")
    cache_dir = ready_cache(cache_folder(cache))
    done = _measure(
        [(held, names) for held, names in ahead if names],
        kind=kind,
        files=files,
        cache_dir=cache_dir,
        jobs=jobs or _jobs(asked, found.cpu_count, len(gpus)),
        gpus=gpus,
        budget_s=budget_s,
        refresh=refresh,
    )
    if as_json:
        print_json({"wall_s": done.wall_s, "not_begun": done.not_begun, "rows": [dict(row) for row in done.rows]})
    else:
        put(Fitting(pages.table(done.rows)))
    if done.not_begun:
        goes_on = "--resume continues" if out is not None else "call again: times that are kept are not measured again"
        say(f"not begun within the budget: {len(done.not_begun)} problems; {goes_on}")
    lost = [f"{row['problem']}: {row['reason']}" for row in done.rows if row["outcome"] == pages.LOST]
    if lost := [*lost, *unreadable]:
        fail(f"nothing is known of {len(lost)}: {lost[0]}", UNABLE)


def _like_gpus(found: Environment) -> tuple[str, ...]:
    """Names of the GPUs of the model that comes first: times of one file are of one model."""
    visible = visible_gpus(found)
    return tuple(gpu.uuid for gpu in visible if gpu.name == visible[0].name)


def _jobs(asked: Sequence[Baseline], cpu_count: int, gpus: int) -> int:
    """How many processes measure; on the host device one, which has the processors to itself."""
    each = MOST_JOBS if any(baseline.mode is not None for baseline in asked) else EAGER_JOBS
    return max(1, min(each * gpus, cpu_count * 3 // 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    problem: Problem
    workload: Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    rows: Sequence[pages.Row]
    not_begun: Sequence[str]
    wall_s: float


def _device(asked: str, found: Environment) -> DeviceKind:
    if asked not in ("auto", *(kind.value for kind in DeviceKind)):
        raise ConfigError(f"--device must be auto, cuda or host, not {asked!r:.40}")
    why = environment.cuda_unusable(found)
    if asked == "auto":
        return DeviceKind.HOST if why else DeviceKind.CUDA
    if asked == DeviceKind.CUDA.value and why:
        raise MachineError(f"{why}; --device host measures on the CPU")
    return DeviceKind(asked)


def _chosen(
    catalog: Catalog, wanted: Sequence[str], solved: Path | None, workload: str
) -> tuple[list[_Chosen], list[str]]:
    """Problems by level, id or file, at a workload, and why others can't be read. Raises `CatalogError`."""
    known = catalog.known
    levels = [name for name in wanted if name in catalog.levels]
    named = {catalog.locate(name).id for name in wanted if name not in catalog.levels}
    ids = [key for key in known if not wanted or key in named or key.partition("/")[0] in levels]
    if solved is not None:
        of = {item.problem_id for item in find_solutions([solved], catalog)}
        ids = [key for key in ids if key in of]
        if not ids:
            raise CatalogError([f"{solved}: no solution there is of a problem that was asked for"])
    found = []
    unreadable = []
    for key in ids:
        problem, held = known[key], known[key].workloads.get(workload)
        if problem.failure is not None:
            unreadable.append(problem.failure.reason)
        elif held is not None:
            found.append(
                _Chosen(problem=replace(problem, precision=held.precision or problem.precision), workload=held)
            )
    if not found:
        if unreadable:
            raise UnreadableProblem(unreadable)
        raise CatalogError([f"no such problem in {catalog.root} declares a workload {workload!r}"])
    return found, unreadable


def _measure(
    ahead: Sequence[tuple[_Chosen, Sequence[Baseline]]],
    *,
    kind: DeviceKind,
    files: _BaselineFiles | None,
    cache_dir: Path,
    jobs: int,
    gpus: Sequence[str],
    budget_s: float | None,
    refresh: bool,
) -> _Done:
    from harness.referee.baselines import BaselineRequest
    from harness.referee.baselines.measuring_pool import MeasuringPool

    begin = time.perf_counter()
    # The blocks of the last level compile longest: they begin first, so that none is left over when all others are
    # done. Within a level by number, which spreads the few with inputs of gigabytes: these wait for room.
    requests = [
        BaselineRequest(
            problem=held.problem,
            workload=held.workload,
            baselines=names,
            budget_s=EACH_BUDGET_S * len(names),
            refresh=refresh,
        )
        for held, names in sorted(ahead, key=_level, reverse=True)
    ]
    rows: list[pages.Row] = []
    peaks: Peaks | None = None
    pool = MeasuringPool(kind, cache_dir, cache_dir / "baselines" / "logs", jobs=jobs, gpus=gpus)
    # One whose baselines take too long together is asked for each of them alone.
    left = {held.problem.id: set(names) for held, names in ahead}
    for told in pool.run(requests, budget_s=budget_s):
        peaks = told.peaks or peaks
        problem = told.request.problem
        left[problem.id] -= set(told.request.baselines)
        light = _light(told.request, peaks)
        own = [pages.row_of(problem, told.request.workload, entry, light) for entry in told.entries]
        if told.reason is not None:
            own = [
                pages.lost_row(problem, told.request.workload, name, told.reason, light)
                for name in told.request.baselines
            ]
        rows += own
        if files is not None:
            files.add(own, peaks, wall_s=time.perf_counter() - begin)
        done = sum(not names for names in left.values())
        _say_done(done, len(requests), problem, own, told.wall_s)
    return _Done(rows=rows, not_begun=[key for key, names in left.items() if names], wall_s=time.perf_counter() - begin)


def _level(item: tuple[_Chosen, Sequence[Baseline]]) -> str:
    return item[0].problem.id.partition("/")[0]


def _say_done(number: int, total: int, problem: Problem, rows: Sequence[pages.Row], wall_s: float) -> None:
    parts = []
    for row in rows:
        time_s = pages.number(row, "device_s")
        said = row["outcome"] if time_s is None else show.duration(time_s)
        if time_s is not None and row["baseline"] != Baseline.EAGER.value:
            said += f", {pages.compared(row)}"
        parts.append(f"{row['baseline']} {said}")
    say(f"[{number}/{total}] {problem.id} {problem.name}: {'; '.join(parts)}; {wall_s:.1f} s")


def _light(request: BaselineRequest, peaks: Peaks | None) -> SpeedOfLight | None:
    from harness.referee.problem.loader import ProblemError
    from harness.referee.problem.shapes import sketch

    if peaks is None:
        return None
    try:
        with results_alone():
            made = sketch(request.problem, request.workload)
    except ProblemError:
        return None
    return made.light(request.problem, request.workload, peaks)


class _BaselineFiles:
    """`baselines.csv` and `environment.json` in one folder, written again with each problem that is done."""

    def __init__(
        self, folder: Path, found: Environment, kind: DeviceKind, gpus: Sequence[str], *, resume: bool
    ) -> None:
        self._folder = folder
        self._rows: dict[pages.Identity, pages.Row] = {}
        machine = found.for_record(kind)
        self._session = {"begun_at": timestamp(), "gpu_uuids": list(gpus)}
        self._held: dict[str, Any] = {"format": FORMAT, "environment": machine, "peaks": None, "sessions": []}
        rows, held = folder / ROWS_FILE, folder / ENVIRONMENT_FILE
        writable(folder / f".{ROWS_FILE}.draft", "--out")
        if not rows.exists():
            return
        if not resume:
            raise ConfigError(f"{rows} is there already: --resume adds to it, another --out leaves it alone")
        try:
            self._rows = {pages.identity(row): row for row in pages.from_csv(rows.read_text(encoding="utf-8"))}
            before: Mapping[str, Any] = json.loads(held.read_text(encoding="utf-8"))
            differing = [name for name in SAME[kind] if before["environment"][name] != machine[name]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{folder}: can't be continued: {error}") from error
        if differing:
            raise ConfigError(
                f"{folder} was measured on another machine ({', '.join(differing)} differ): take another --out"
            )
        self._held |= {"peaks": before.get("peaks"), "sessions": list(before.get("sessions", []))}

    def missing(self, held: _Chosen, asked: Sequence[Baseline]) -> list[Baseline]:
        """Which of the baselines have no row that still holds."""
        found = []
        for name in asked:
            row = self._rows.get((held.problem.id, held.workload.name, name.value))
            if row is None or row["outcome"] == pages.LOST or row["problem_digest"] != held.problem.digest:
                found.append(name)
        return found

    def add(self, rows: Sequence[pages.Row], peaks: Peaks | None, *, wall_s: float) -> None:
        self._rows |= {pages.identity(row): row for row in rows}
        told = {**self._held, "sessions": [*self._held["sessions"], {**self._session, "wall_s": wall_s}]}
        if peaks is not None:
            told["peaks"] = peaks.to_json()
        write_whole(self._folder / ROWS_FILE, pages.to_csv(self._rows.values()).encode("utf-8"))
        text = json.dumps(told, indent=1, allow_nan=False) + "\n"
        write_whole(self._folder / ENVIRONMENT_FILE, text.encode("utf-8"))
