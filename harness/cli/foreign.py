"""`harness import` and `harness export` of other projects' problems and solutions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.catalog import CatalogError, find_solutions
from harness.catalog.foreign import parquet, to_gpumode
from harness.catalog.foreign import to_flashinfer as fi
from harness.catalog.foreign.flashinfer import import_flashinfer as convert_flashinfer
from harness.catalog.foreign.gpumode import import_gpumode as convert_gpumode
from harness.catalog.foreign.shared import PROBLEMS, RESULTS, SOLUTIONS, Conversion, NotConvertible, words, write_text
from harness.catalog.problems import load_problems
from harness.cli.completion import problem_ids
from harness.cli.lint import chosen_problems
from harness.cli.output import NOT_FOUND, Json, ProblemsRoot, opened, option, print_json, put, results_alone, say
from harness.core.problem import Problem, Solution
from harness.core.status import one_line
from harness.results.flashinfer_traces import import_traces, trace_of

Source = Annotated[
    Path, typer.Argument(metavar="PATH", help="Folder of the data set, or a checkout.", exists=True, file_okay=False)
]
Table = Annotated[Path, typer.Argument(metavar="PATH", help="Parquet file, or a folder of them.", exists=True)]
Out = Annotated[Path, typer.Option("--out", help="New folder, for problems/, solutions/ and results/.")]
Target = Annotated[Path, typer.Option("--out", help="New folder for the files.")]
Author = Annotated[str | None, option("--author", "Author of all solutions.  [as in the data set]")]
Chosen = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PROBLEMS",
        help="Levels (level1), ids (level1/16), files, or folders of problems.  [all]",
        show_default=False,
        autocompletion=problem_ids,
    ),
]
Solutions = Annotated[
    list[Path] | None, option("--solutions", "Export these solutions, too; a file or folder. May be repeated.  [none]")
]


def import_kernelbench_parquet(path: Table, out: Out, as_json: Json = False) -> None:
    """Import KernelBench's problems from the table of its Hugging Face data set.

    The columns are code, level, name and problem_id. Needs the extra `parquet`.

    \b
    Example:
      harness import kernelbench-parquet KernelBench/data --out kernelbench
    """
    _shown(parquet.import_parquet(path, out), out, as_json=as_json)


def import_flashinfer(path: Source, out: Out, author: Author = None, as_json: Json = False) -> None:
    """Import flashinfer-bench's definitions, workloads, solutions and traces.

    Imported references are executed as trusted code later: read them first. Verdicts and times of traces stay
    flashinfer-bench's. What can't be imported is listed with the reason.

    \b
    Example:
      harness import flashinfer ../flashinfer-trace --out flashinfer
    """
    done = convert_flashinfer(path, out, author)
    traces = {"problems": done.ids, "solutions": done.solutions, "skipped": done.skipped}
    records = import_traces(path, out / RESULTS / "flashinfer-bench", **traces)
    _shown(done, out, as_json=as_json, records=records)


def import_gpumode(path: Source, out: Out, author: Author = None, as_json: Json = False) -> None:
    """Import GPU MODE's tasks (task.yml, reference.py) and submissions.

    Imported references are executed as trusted code later: read them first. What can't be imported is listed with the
    reason.

    \b
    Example:
      harness import gpumode ../reference-kernels --out gpumode
    """
    _shown(convert_gpumode(path, out, author), out, as_json=as_json)


def _shown(done: Conversion, out: Path, *, as_json: bool, records: int | None = None) -> None:
    """Print what an import wrote and skipped."""
    for name, reason in done.skipped.items():
        say(f"skipped {one_line(name, limit=200)}: {one_line(reason, limit=300)}")
    if as_json:
        extra = {} if records is None else {"records": records}
        print_json({"problems": done.ids, "solutions": done.solutions, "skipped": done.skipped, **extra})
    else:
        counts = [f"{len(done.ids)} problems", f"{len(done.solutions)} solutions"]
        counts += [] if records is None else [f"{records} records"]
        put(f"{out}: {', '.join(counts)}, {len(done.skipped)} skipped")
    if not done.ids:
        raise typer.Exit(NOT_FOUND)
    say(f"next: harness problems lint --problems {out / PROBLEMS}")
    if done.solutions:
        say(f"      harness eval {out / SOLUTIONS} --problems {out / PROBLEMS}")


def export_kernelbench_parquet(
    chosen: Chosen = None, *, out: Target, problems: ProblemsRoot = None, as_json: Json = False
) -> None:
    """Export problems as the table of KernelBench's Hugging Face data set.

    Needs the extra `parquet`.

    \b
    Example:
      harness export kernelbench-parquet level1 level2 --out data
    """
    _new_folder(out)
    written = parquet.export_parquet(_readable(chosen, problems, {}), out)
    if as_json:
        print_json({"files": [str(path) for path in written]})
    else:
        put(*map(str, written))


def export_flashinfer(
    chosen: Chosen = None,
    *,
    out: Target,
    solutions: Solutions = None,
    run: Annotated[Path | None, option("--run", "Export the records of this run as traces, too.  [none]")] = None,
    problems: ProblemsRoot = None,
    as_json: Json = False,
) -> None:
    """Export problems, solutions and records in the formats of flashinfer-bench.

    A trace is written for each record of an exported problem and solution. What can't be exported is listed with the
    reason.

    \b
    Examples:
      harness export flashinfer level1/19 level1/40 --out trace
      harness export flashinfer level1 --solutions solutions/mine --run results/nightly --out trace
    """
    _new_folder(out)
    records = opened(run).records() if run is not None else ()
    given = _solutions(solutions, problems)
    skipped: dict[str, str] = {}
    done: dict[str, fi.ExportedProblem] = {}
    known: dict[str, Problem] = {}
    for problem in _readable(chosen, problems, skipped):
        try:
            done[problem.id] = exported = _exported(problem)
        except NotConvertible as error:
            skipped[problem.id] = str(error)
            continue
        known[problem.id] = problem
        place = f"{exported.definition['op_type']}/{exported.name}"
        write_text(out / f"definitions/{place}.json", fi.as_json(exported.definition))
        lines = (fi.as_line(exported.trace(name)) for name in exported.workloads)
        write_text(out / f"workloads/{place}.jsonl", "".join(lines))
    names: dict[str, str] = {}
    for solution in (held for held in given if held.problem_id in known):
        try:
            data = fi.export_solution(solution, known[solution.problem_id], done[solution.problem_id])
        except NotConvertible as error:
            skipped[solution.label] = str(error)
            continue
        names[solution.label] = data["name"]
        op_type = done[solution.problem_id].definition["op_type"]
        folder = out / "solutions" / solution.author / op_type / data["definition"]
        write_text(folder / f"{data['name']}.json", fi.as_json(data))
    traces: dict[Path, list[str]] = {}
    for record in records:
        held = done.get(record.problem)
        workload = held.workloads.get(record.workload) if held is not None else None
        if held is None or workload is None or record.solution not in names:
            skipped[f"{record.solution} at {record.workload}"] = "its problem, workload or solution is not exported"
        elif (
            line := trace_of(record, definition=held.name, workload=workload, solution=names[record.solution])
        ) is None:
            skipped[f"{record.solution} at {record.workload}"] = (
                f"a trace can't say {record.status.value} without a time"
            )
        else:
            path = out / "traces" / held.definition["op_type"] / f"{held.name}.jsonl"
            traces.setdefault(path, []).append(fi.as_line(line))
    for path, found in traces.items():
        write_text(path, "".join(found))
    counts = {"definitions": len(done), "solutions": len(names), "traces": sum(map(len, traces.values()))}
    _summary(out, counts, skipped, as_json=as_json)


def export_gpumode(
    chosen: Chosen = None,
    *,
    out: Target,
    solutions: Solutions = None,
    problems: ProblemsRoot = None,
    as_json: Json = False,
) -> None:
    """Export problems and solutions as GPU MODE's task folders.

    Put the folders into a folder of reference-kernels that holds eval.py and utils.py.

    \b
    Example:
      harness export gpumode level1/19 --solutions solutions/mine --out ../reference-kernels/problems/pmpp_v2/mine
    """
    _new_folder(out)
    given = _solutions(solutions, problems)
    skipped: dict[str, str] = {}
    folders: dict[str, Path] = {}
    known: dict[str, Problem] = {}
    for problem in _readable(chosen, problems, skipped):
        try:
            files = to_gpumode.export_task(problem)
        except NotConvertible as error:
            skipped[problem.id] = str(error)
            continue
        known[problem.id] = problem
        folders[problem.id] = out / words(f"{problem.id}_{problem.name}")
        for name, text in files.items():
            write_text(folders[problem.id] / name, text)
    count = 0
    for solution in (held for held in given if held.problem_id in known):
        try:
            text = to_gpumode.export_submission(solution)
        except NotConvertible as error:
            skipped[solution.label] = str(error)
            continue
        write_text(
            folders[solution.problem_id] / "submissions" / f"{words(solution.label.removesuffix('.py'))}.py", text
        )
        count += 1
    _summary(out, {"tasks": len(folders), "submissions": count}, skipped, as_json=as_json)


def _new_folder(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CatalogError([f"{out} exists and is not an empty folder: name another by --out"])


def _readable(chosen: list[str] | None, root: Path | None, skipped: dict[str, str]) -> Iterator[Problem]:
    """Yield the chosen problems that can be read."""
    for problem, _ in chosen_problems(chosen or [], root):
        if problem.failure is None:
            yield problem
        else:
            skipped[problem.id] = problem.failure.reason


def _exported(problem: Problem) -> fi.ExportedProblem:
    from harness.referee.problem.loader import ProblemError
    from harness.referee.problem.shapes import sketch

    shapes: dict[str, Any] = {}
    has_state = False
    if not fi.is_imported(problem):
        try:
            with results_alone():
                for name, workload in problem.workloads.items():
                    made = sketch(problem, workload)
                    has_state = has_state or made.parameter_bytes > 0
                    leaves = (made.inputs, made.outputs)
                    shapes[name] = tuple([(leaf.path, leaf.dtype, leaf.shape) for leaf in side] for side in leaves)
        except ProblemError as error:
            raise NotConvertible(f"its shapes are not known: {error}") from error
    return fi.export_problem(problem, shapes, has_state=has_state)


def _solutions(paths: list[Path] | None, root: Path | None) -> list[Solution]:
    """Return the readable solutions."""
    if not paths:
        return []
    catalog = load_problems(root or Path("problems"))
    found = find_solutions(paths, catalog, on_rejected=lambda file: say(f"skipped {file}"))
    return [solution for solution in found if solution.failure is None]


def _summary(out: Path, counts: Mapping[str, int], skipped: Mapping[str, str], *, as_json: bool) -> None:
    for name, reason in skipped.items():
        say(f"skipped {one_line(name, limit=200)}: {one_line(reason, limit=300)}")
    if as_json:
        print_json({**counts, "skipped": dict(skipped)})
    else:
        put(f"{out}: {', '.join(f'{count} {name}' for name, count in counts.items())}, {len(skipped)} skipped")
    if not any(counts.values()):
        raise typer.Exit(NOT_FOUND)
