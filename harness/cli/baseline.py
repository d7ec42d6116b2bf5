"""`harness baseline`: time the references of problems before any run.

Trusted side. The times are stored in the cache folder, where `harness eval --baseline` finds them; `--out` also writes
them to files for people.
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
from harness.cli.completion import baseline_names, problem_ids
from harness.cli.options import with_options
from harness.cli.output import (
    DEVICES,
    UNABLE,
    Json,
    ProblemsRoot,
    choice,
    chosen,
    fail,
    option,
    print_json,
    put,
    results_alone,
    say,
    writable,
)
from harness.core import environment
from harness.core.cache_dir import ready_cache
from harness.core.choices import Baseline, DeviceKind
from harness.core.config import CACHE_LIMIT_BYTES, ConfigError, cache_folder
from harness.core.config_values import parse_baselines
from harness.core.environment import Environment, MachineError
from harness.core.problem import Problem, Workload
from harness.core.visible_gpus import visible_gpus
from harness.referee.small_sizes import SMALL, NoSmallSizes, SmallSizes, no_sizes
from harness.report import baselines as pages
from harness.report import format as show
from harness.report.table import Fitting
from harness.results.reader import timestamp
from harness.results.writer import write_whole

if TYPE_CHECKING:
    from harness.devices.gpu_specs import Peaks
    from harness.referee.baselines import BaselineRequest
    from harness.referee.problem.roofline import SpeedOfLight

ROWS_FILE, ENVIRONMENT_FILE = "baselines.csv", "environment.json"
FORMAT = 1

MOST_JOBS = 8
"""Most processes on one GPU. Each holds a CUDA context and the inputs of one problem (`SETS_BYTES`); the largest
problem must still find room. Only one process times at a time."""

EAGER_JOBS = 2
"""Processes on one GPU if nothing is compiled: one prepares its problem while the other is timed."""

EACH_BUDGET_S = 1.0
"""Most seconds of timed bursts for each baseline of a problem."""

SAME = {DeviceKind.CUDA: ("gpu", "driver", "torch"), DeviceKind.HOST: ("cpu", "torch")}
"""Facts that must be equal for all times in one file. Each session also records which GPUs of that model it used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineOptions:
    """What to time, and where to write the times."""

    wanted: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROBLEMS]",
            help="Problems to time: levels (level1), ids (level1/16) or files.  [all]",
            autocompletion=problem_ids,
        ),
    ] = None
    baseline: Annotated[
        str,
        option(
            "--baseline",
            "Baselines to time, separated by commas: eager, compile, max-autotune, eager_tf32, ….  [eager,compile]",
            complete=baseline_names,
        ),
    ] = "eager,compile"
    problems: ProblemsRoot = None
    solved: Annotated[
        Path | None, option("--solved", "Time only problems that have a solution below this folder.  [all problems]")
    ] = None
    workload: Annotated[
        str | None, option("--workload", "Workload (set of sizes) to time.  [full on cuda, small on host]")
    ] = None
    device: Annotated[
        str,
        choice("--device", DEVICES, "cuda (the GPU), host (the CPU), or a GPU if there is a usable one.  [auto]"),
    ] = "auto"
    out: Annotated[
        Path | None,
        option("--out", "Also write the times to baselines.csv and environment.json in this folder.  [none]"),
    ] = None
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the files in --out: time only the baselines that they lack.")
    ] = False
    refresh: Annotated[bool, typer.Option("--refresh", help="Measure again even if the cache folder has a time.")] = (
        False
    )
    budget_s: Annotated[
        float | None, option("--budget", "Start no further problem after this many seconds.  [no limit]")
    ] = None
    jobs: Annotated[
        int | None,
        option(
            "--jobs", "Processes that compile in parallel.  [three quarters of the processors, at most 8 for each GPU]"
        ),
    ] = None
    cache: Annotated[
        Path | None, option("--cache", "Folder for cached files.  [$HARNESS_CACHE, or ~/.cache/kernel-harness]")
    ] = None


@with_options()
def baseline_command(options: BaselineOptions, as_json: Json = False) -> None:
    """Time the reference implementations: eager and compiled by torch.compile.

    Problems are compiled in parallel and timed one at a time on each GPU. Each baseline is timed in turns with eager,
    and its outputs must meet the problem's precision class. All GPUs of the first GPU's model are used; set
    CUDA_VISIBLE_DEVICES to use fewer.

    The times are stored for this GPU, driver and torch, and harness eval --baseline uses them. They are measured again
    if the eager time has changed by more than 2 %. A baseline that fails or is wrong is a result. The exit code is 3 if
    a baseline has no result at all.

    \b
    Examples:
      harness baseline level1 --baseline eager,compile
      harness baseline --baseline eager --out results/mine
      harness baseline --solved solutions/tuned --baseline max-autotune --out results/mine --resume --budget 300
    """
    out, jobs, budget_s = options.out, options.jobs, options.budget_s
    if options.resume and out is None:
        raise ConfigError("--resume continues the files in a folder: pass --out FOLDER too")
    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs must be at least 1, not {jobs}")
    if budget_s is not None and not budget_s > 0:
        raise ConfigError(f"--budget must be a number of seconds above 0, not {budget_s:g}")
    found = environment.collect()
    kind = _device(options.device, found)
    try:
        asked = parse_baselines(options.baseline)
    except ValueError as error:
        raise ConfigError(f"--baseline must be {error}, not {options.baseline!r:.80}") from None
    gpus = _like_gpus(found) if kind is DeviceKind.CUDA else ()
    catalog = load_problems(options.problems or Path("problems"))
    sizes = options.workload or ("full" if kind is DeviceKind.CUDA else "small")
    cache_dir = ready_cache(cache_folder(options.cache))
    with SmallSizes(cache_dir, CACHE_LIMIT_BYTES) as small_sizes:
        chosen, unreadable = _chosen(catalog, options.wanted or [], options.solved, sizes, small_sizes)
    for reason in unreadable:
        say(f"{reason}; the other problems are timed")
    files = None if out is None else _BaselineFiles(out, found, kind, gpus, resume=options.resume)
    ahead = [(*held, names) for held in chosen if (names := files.missing(*held, asked) if files else asked)]
    if done_before := len(chosen) - len(ahead):
        say(f"skipped: {done_before} of {len(chosen)} problems have all their times in {out}")
    begin = time.perf_counter()
    rows, not_begun = _measure(
        ahead,
        kind=kind,
        files=files,
        cache_dir=cache_dir,
        jobs=jobs or _jobs(asked, found.cpu_count, len(gpus)),
        gpus=gpus,
        budget_s=budget_s,
        refresh=options.refresh,
    )
    if as_json:
        print_json({"wall_s": time.perf_counter() - begin, "not_begun": not_begun, "rows": list(map(dict, rows))})
    else:
        put(Fitting(pages.table(rows)))
    if not_begun:
        goes_on = " with --resume" if out is not None else ": stored times are not measured again"
        say(f"--budget was used up before {len(not_begun)} problems started; run the command again{goes_on}")
    lost = [f"{row['problem']}: {row['reason']}" for row in rows if row["outcome"] == pages.LOST]
    if lost := [*lost, *unreadable]:
        fail(f"no result for {len(lost)}, first {lost[0]}", UNABLE)


def _like_gpus(found: Environment) -> tuple[str, ...]:
    """Return the UUIDs of all GPUs of the first GPU's model (one model per file)."""
    visible = visible_gpus(found)
    return tuple(gpu.uuid for gpu in visible if gpu.name == visible[0].name)


def _jobs(asked: Sequence[Baseline], cpu_count: int, gpus: int) -> int:
    """Return the number of measuring processes; one on the host device."""
    each = MOST_JOBS if any(baseline.mode is not None for baseline in asked) else EAGER_JOBS
    return max(1, min(each * gpus, cpu_count * 3 // 4))


def _device(asked: str, found: Environment) -> DeviceKind:
    chosen("--device", asked, DEVICES)
    why = environment.cuda_unusable(found)
    if asked == "auto":
        return DeviceKind.HOST if why else DeviceKind.CUDA
    if asked == DeviceKind.CUDA.value and why:
        raise MachineError(f"{why}; pass --device host to time on the CPU")
    return DeviceKind(asked)


def _chosen(
    catalog: Catalog, wanted: Sequence[str], solved: Path | None, workload: str, small_sizes: SmallSizes
) -> tuple[list[tuple[Problem, Workload]], list[str]]:
    """Return the chosen problems, and the reasons of those that can't be timed.

    Raises:
        CatalogError: No problem or no workload has this name.
    """
    known = catalog.known
    levels = [name for name in wanted if name in catalog.levels]
    named = {catalog.locate(name).id for name in wanted if name not in catalog.levels}
    ids = [key for key in known if not wanted or key in named or key.partition("/")[0] in levels]
    if solved is not None:
        of = {
            item.problem_id
            for item in find_solutions([solved], catalog, on_rejected=lambda file: say(f"not read: {file}"))
        }
        ids = [key for key in ids if key in of]
        if not ids:
            raise CatalogError([f"--solved {solved}: no solution in this folder solves one of the chosen problems"])
    found = []
    unreadable = []
    for key in ids:
        problem, held = known[key], known[key].workloads.get(workload)
        if problem.failure is not None:
            unreadable.append(problem.failure.reason)
            continue
        if held is None and workload == SMALL:
            try:
                held = small_sizes.of(problem)
            except NoSmallSizes as error:
                unreadable.append(no_sizes(problem, error).reason)
        if held is not None:
            found.append((replace(problem, precision=held.precision or problem.precision), held))
    if not found:
        if unreadable:
            raise UnreadableProblem(unreadable)
        raise CatalogError([f"none of the chosen problems in {catalog.root} declares a workload {workload!r}"])
    return found, unreadable


def _measure(
    ahead: Sequence[tuple[Problem, Workload, Sequence[Baseline]]],
    *,
    kind: DeviceKind,
    files: _BaselineFiles | None,
    cache_dir: Path,
    jobs: int,
    gpus: Sequence[str],
    budget_s: float | None,
    refresh: bool,
) -> tuple[list[pages.Row], list[str]]:
    """Return the rows, and the problems that were not started."""
    from harness.referee.baselines import BaselineRequest
    from harness.referee.baselines.measuring_pool import MeasuringPool

    begin = time.perf_counter()
    # The models of the last level compile longest, so they start first: none runs alone at the end. Within a level the
    # order is by number, which spreads the few problems with gigabytes of inputs: they wait for free memory.
    requests = [
        BaselineRequest(
            problem=problem,
            workload=workload,
            baselines=names,
            budget_s=EACH_BUDGET_S * len(names),
            refresh=refresh,
        )
        for problem, workload, names in sorted(ahead, key=lambda item: item[0].id.partition("/")[0], reverse=True)
    ]
    rows: list[pages.Row] = []
    peaks: Peaks | None = None
    pool = MeasuringPool(kind, cache_dir, cache_dir / "baselines" / "logs", jobs=jobs, gpus=gpus)
    # If the baselines of a problem take too long together, the pool runs each of them alone.
    left = {problem.id: set(names) for problem, _, names in ahead}
    for told in pool.run(requests, budget_s=budget_s):
        peaks = told.peaks or peaks
        problem, workload = told.request.problem, told.request.workload
        left[problem.id] -= set(told.request.baselines)
        light = _light(told.request, peaks)
        if told.reason is None:
            own = [pages.row_of(problem, workload, entry, light) for entry in told.entries]
        else:
            own = [pages.lost_row(problem, workload, name, told.reason, light) for name in told.request.baselines]
        rows += own
        if files is not None:
            files.add(own, peaks, wall_s=time.perf_counter() - begin)
        _say_done(sum(not names for names in left.values()), len(requests), problem, own, told.wall_s)
    return rows, [key for key, names in left.items() if names]


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
    """`baselines.csv` and `environment.json`, rewritten after each problem."""

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
            raise ConfigError(f"{rows} exists: pass --resume to add to it, or another --out")
        try:
            self._rows = {pages.identity(row): row for row in pages.from_csv(rows.read_text(encoding="utf-8"))}
            before: Mapping[str, Any] = json.loads(held.read_text(encoding="utf-8"))
            differing = [name for name in SAME[kind] if before["environment"][name] != machine[name]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{folder}: can't continue these files: {error}; pass another --out") from error
        if differing:
            raise ConfigError(
                f"{folder} was measured on another machine ({', '.join(differing)} differ): pass another --out"
            )
        self._held |= {"peaks": before.get("peaks"), "sessions": list(before.get("sessions", []))}

    def missing(self, problem: Problem, workload: Workload, asked: Sequence[Baseline]) -> list[Baseline]:
        """Return the baselines that have no valid row in the files."""
        rows = {name: self._rows.get((problem.id, workload.name, name.value)) for name in asked}
        return [
            name
            for name, row in rows.items()
            if row is None or row["outcome"] == pages.LOST or row["problem_digest"] != problem.digest
        ]

    def add(self, rows: Sequence[pages.Row], peaks: Peaks | None, *, wall_s: float) -> None:
        self._rows |= {pages.identity(row): row for row in rows}
        told = {**self._held, "sessions": [*self._held["sessions"], {**self._session, "wall_s": wall_s}]}
        if peaks is not None:
            told["peaks"] = peaks.to_json()
        write_whole(self._folder / ROWS_FILE, pages.to_csv(self._rows.values()).encode("utf-8"))
        text = json.dumps(told, indent=1, allow_nan=False) + "\n"
        write_whole(self._folder / ENVIRONMENT_FILE, text.encode("utf-8"))
