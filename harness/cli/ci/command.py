"""`harness ci`: score a branch's solutions and check them against gates.

Trusted side. Everything except the solutions comes from the base revision.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

import harness
from harness.catalog import Catalog, RejectedFile, find_solutions, label_of, load_problems
from harness.catalog.solutions import AUTHOR_FILE
from harness.catalog.source_files import MAX_SOURCE_BYTES
from harness.cli import ci
from harness.cli.evaluate import Evaluate, carry_out
from harness.cli.options import Settings, with_options
from harness.cli.output import Json, in_actions, no_commands_in_output, option, print_json, put, say
from harness.cli.results import known_authors
from harness.core import environment
from harness.core.cache_dir import ready_cache
from harness.core.choices import Baseline, DeviceKind
from harness.core.config import ConfigError, RunConfig, resolve
from harness.core.environment import MachineError
from harness.core.git import REGULAR, TreeEntry
from harness.core.problem import Solution
from harness.core.record import Record
from harness.report import board, terminal
from harness.report import csv as report_csv
from harness.results.leaderboard import By, LeaderboardRow, leaderboard
from harness.results.reader import StoreError, find_runs, new_run_id
from harness.results.writer import RunStore, write_whole

GATES = ".ci/gates.yaml"
SOLUTIONS, RESULTS = "solutions", "results"
"""Default folders. A repository may lack these; a folder that the user names must exist."""
PACKAGE = Path(harness.__file__).resolve().parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What to score: two revisions, and the folders in their repository."""

    base: Annotated[
        str,
        typer.Option(
            "--base", help="Git revision that is trusted: gates, problems and earlier results. Example: origin/main."
        ),
    ]
    head: Annotated[str, typer.Option("--head", help="Git revision with the submitted solutions.")] = "HEAD"
    gates: Annotated[
        str | None,
        option("--gates", f"YAML file of gates (rules), as a path in the base revision.  [{GATES}, if it exists]"),
    ] = None
    solutions: Annotated[str, typer.Option("--solutions", help="Folder of solutions in the repository.")] = SOLUTIONS
    problems: Annotated[str, typer.Option("--problems", help="Folder of problems in the repository.")] = "problems"
    results: Annotated[str, typer.Option("--results", help="Folder of committed runs in the repository.")] = RESULTS
    out: Annotated[Path, typer.Option("--out", help="Folder for the verdict and the run.")] = Path("ci-results")
    repository: Annotated[
        Path, typer.Option("--repository", help="Git repository: its folder or any folder in it.")
    ] = Path()


@with_options(
    *("base", "head", "gates", "solutions", "problems", "results", "out", "repository"),
    *("device", "workload", "sandbox", "jobs", "budget_s", "cache_dir"),
    workload="Workload (set of sizes) of the problems.  [full on cuda, small on host]",
)
def ci_command(
    context: typer.Context,
    submission: Submission,
    settings: Settings,
    annotations: Annotated[
        bool | None,
        typer.Option(
            "--annotations/--no-annotations",
            help="Print annotations for GitHub Actions.  [if GITHUB_ACTIONS is true]",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Score the solutions that a branch adds or changes, and check them against gates.

    The command also compares the solutions with the earlier results of the base.

    Only solution files are read from the branch. Problems, gates and earlier results come from --base; the working tree
    is not read. The command writes verdict.json, summary.md (also as GitHub's step summary), junit.xml, findings.sarif,
    gl-code-quality.json, leaderboard.csv and the run to --out.

    The exit code is 0 if all gates are met, 1 if one is not, 2 if the arguments are wrong, and 3 if the machine or the
    harness could not judge.

    \b
    Examples:
      harness ci --base origin/main
      harness ci --base origin/main --head refs/pull/7/head --device host --out ci-results
    """
    annotated = annotations if annotations is not None else in_actions()
    base, head, out = submission.base, submission.head, submission.out
    repo = ci.Repository(submission.repository)
    base_commit, head_commit = repo.commit(base), repo.commit(head)
    _refuse_own_code(repo, base_commit)
    changed = repo.changes(repo.merge_base(base_commit, head_commit), head_commit)
    rules = _rules(repo, base_commit, submission.gates)
    solutions, problems, results = submission.solutions, submission.problems, submission.results
    if solutions != SOLUTIONS and not any(repo.entries(commit, [solutions]) for commit in (base_commit, head_commit)):
        raise ConfigError(f"neither {base} nor {head} has a folder {solutions}: name another with --solutions")
    if results != RESULTS and not repo.entries(base_commit, [results]):
        raise ConfigError(f"the base {base} has no folder {results}: name its folder of runs with --results")
    inside = [item for item in changed if _is_solution(item.path, solutions)]
    deleted = [item.path for item in inside if item.kind == "deleted"]
    ignored = [item.path for item in changed if item not in inside]
    kinds = {item.path: item.kind for item in inside if item.kind != "deleted"}
    with tempfile.TemporaryDirectory(prefix="harness-ci-") as scratch:
        trusted, submitted = Path(scratch, "base"), Path(scratch, "head")
        notes = repo.write(repo.entries(base_commit, [problems, results]), trusted)
        for path in notes:
            say(f"note: {path} of the base is left out: it is no plain file, or too large")
        if not (trusted / problems).is_dir():
            raise ConfigError(f"the base {base} has no folder {problems}: name its folder of problems with --problems")
        catalog = load_problems(trusted / problems)
        entries = [entry for entry in repo.entries(head_commit, [solutions]) if entry.path in kinds]
        known = repo.entries(base_commit, [solutions])
        found, rejected = _submitted(repo, entries, submitted, solutions, catalog, known)
        _write_introductions(repo, known, found, submitted)
        paths = [submitted / solutions if found else submitted]
        settled = _settled(rules, trusted / problems, paths, out, settings)
        say(f"solutions to score: {len(found)}; rejected: {len(rejected)}; other changes, ignored: {len(ignored)}")
        records: list[Record] = []
        fault = None
        with no_commands_in_output(on=annotated and not as_json):
            try:
                records = _evaluated(context.obj, settled, quiet=as_json) if found else []
            except MachineError as error:
                fault = str(error)
                say(f"harness: {fault}")
        base_records, before = _records_below(trusted / results)
        sources = {
            item.label: ((path := item.path.relative_to(submitted).as_posix()), kinds[path], item.source)
            for item in found
        }
        verdict = ci.CiVerdict(
            base=base_commit,
            head=head_commit,
            device=settled.device.value,
            workload=settled.workload,
            gates=rules,
            scored=ci.score(records, paths=sources, base_records=base_records, gates=rules),
            rejected=rejected,
            deleted=deleted,
            ignored=ignored,
            fault=fault,
        )
    authors = known_authors([*before, *([RunStore.open(settled.run_dir)] if records else [])])
    rows = leaderboard([*base_records, *records], by=By.author, authors=authors)
    _publish(verdict, rows, records, out, settled)
    if annotated:
        # With --json, standard output holds only JSON; GitHub reads annotations from standard error too.
        (sys.stderr if as_json else sys.stdout).write("".join(f"{line}\n" for line in ci.github_annotations(verdict)))
    if as_json:
        print_json(verdict.to_json())
    else:
        with no_commands_in_output(on=annotated):
            put(*ci.broken_rules(verdict))
        put(f"verdict: {verdict.word} (exit code {verdict.exit_code}); details are in {out}")
    raise typer.Exit(verdict.exit_code)


def _refuse_own_code(repo: ci.Repository, base: str) -> None:
    """Refuse to run a harness of the repository that differs from the base's."""
    root = repo.root.resolve()
    if PACKAGE.is_relative_to(root) and repo.entries(base, ["harness"]) and repo.differs_from(base, PACKAGE):
        raise ConfigError(
            f"the running harness {PACKAGE} differs from the harness of {base[:12]}: a submission must not be "
            f"judged by its own harness. Check out the base in another folder and run its harness: "
            f"git worktree add --detach ../base {base[:12]} && make -C ../base warmup && ../base/.venv/bin/harness ci …"
        )


def _rules(repo: ci.Repository, base: str, named: str | None) -> ci.Gates:
    path = named or GATES
    data = repo.read(base, path)
    if data is None:
        if named is not None:
            raise ConfigError(
                f"--gates {named}: no such file in {base[:12]}; gates come from the base: commit it there"
            )
        return ci.Gates()
    try:
        return ci.read_gates(data.decode(), path)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} of {base[:12]}: not UTF-8; save it as UTF-8") from error


def _is_solution(path: str, folder: str) -> bool:
    """Return whether the catalogue would read this changed file as a solution."""
    parts = PurePosixPath(path)
    if not parts.is_relative_to(folder) or parts.suffix != ".py":
        return False
    names = parts.relative_to(folder).parts
    return not any(name.startswith((".", "_")) for name in names) and names[-1] != "conftest.py"


def _submitted(
    repo: ci.Repository,
    entries: Sequence[TreeEntry],
    into: Path,
    folder: str,
    catalog: Catalog,
    known: Sequence[TreeEntry],
) -> tuple[list[Solution], list[ci.Rejected]]:
    """Write the submitted files below `into`; return solutions and rejected files.

    Args:
        repo: The repository.
        entries: The submitted files.
        into: Folder to write to; no rejected file stays there.
        folder: Folder of solutions in the repository.
        catalog: The problems.
        known: Files of the base in `folder`.
    """
    rejected = []
    sound = []
    for entry in entries:
        if entry.mode not in REGULAR:
            rejected.append(ci.Rejected(path=entry.path, reason="it is a link or a submodule, not a plain file"))
        elif (entry.size_bytes or 0) > MAX_SOURCE_BYTES:
            rejected.append(ci.Rejected(path=entry.path, reason=f"it has more than {MAX_SOURCE_BYTES} bytes"))
        else:
            sound.append(entry)
    unwritten = repo.write(sound, into)
    rejected += [
        ci.Rejected(path=path, reason="a file with its name can't be written: rename it") for path in unwritten
    ]
    if len(unwritten) == len(sound):
        return [], rejected

    def reject(file: RejectedFile) -> None:
        # Temporary paths mean nothing to the reader, and this command lacks the options that end a message.
        reason = file.reason.replace(f"{into}/", "").replace(str(catalog.root), "problems").partition(", or name ")[0]
        rejected.append(ci.Rejected(path=file.path.relative_to(into).as_posix(), reason=reason))
        if file.path.is_dir():
            shutil.rmtree(file.path)
        else:
            file.path.unlink()

    given = into / folder
    # A new solution may not take the name in results of one in the base.
    taken = {label_of(into / entry.path, given): into / entry.path for entry in known}
    found = []
    for solution in find_solutions([given], catalog, on_rejected=reject):
        if (path := taken.get(solution.label, solution.path)) == solution.path:
            found.append(solution)
        else:
            reason = f"{path} has the same name in results, {solution.label}: rename this file"
            reject(RejectedFile(path=solution.path, reason=reason))
    return found, rejected


def _write_introductions(
    repo: ci.Repository, known: Sequence[TreeEntry], found: Sequence[Solution], into: Path
) -> None:
    """Copy the authors' descriptions from the base to where the run reads them."""
    folders = {folder for item in found for folder in item.path.relative_to(into).parents}
    wanted = {(folder / AUTHOR_FILE).as_posix() for folder in folders}
    # The branch may hold a folder of this name.
    repo.write([entry for entry in known if entry.path in wanted and not (into / entry.path).exists()], into)


def _settled(rules: ci.Gates, problems: Path, paths: list[Path], out: Path, options: Settings) -> RunConfig:
    """Resolve the run's configuration; on a GPU, add the baseline of the gates."""
    found = environment.collect()
    settled = resolve(
        machine=environment.machine(found),
        run_id=new_run_id(),
        options={**options, "paths": paths, "problems": problems, "out": out / "runs"},
    )
    why = environment.cuda_unusable(found)
    if settled.device is DeviceKind.CUDA and why:
        raise MachineError(f"{why}; pass --device host to check correctness on the CPU")
    ready_cache(settled.cache_dir)
    if rules.minimum_speedup is not None and settled.device is DeviceKind.CUDA:
        baselines = dict.fromkeys((Baseline.EAGER, Baseline(rules.baseline)))
        settled = replace(settled, baselines=tuple(baselines))
    return settled


def _evaluated(run: Evaluate | None, settled: RunConfig, *, quiet: bool) -> list[Record]:
    done = carry_out(run, settled, environment.collect(), quiet_stdout=quiet)
    if not quiet:
        put(terminal.summary(done.records, skipped=done.skipped, wall_s=done.wall_s))
    return list(RunStore.open(settled.run_dir).records())


def _records_below(folder: Path) -> tuple[list[Record], list[RunStore]]:
    """Return the records and runs of the base; report runs that can't be read."""
    records: list[Record] = []
    stores = []
    for run in find_runs(folder):
        try:
            store = RunStore.open(run)
            records += store.records()
        except StoreError as error:
            say(f"note: run {run.name} of the base is left out: {error}")
            continue
        stores.append(store)
        for note in store.notes:
            say(f"note: run {run.name} of the base: {note}")
    return records, stores


def _publish(
    verdict: ci.CiVerdict,
    rows: Sequence[LeaderboardRow],
    records: Sequence[Record],
    out: Path,
    settled: RunConfig,
) -> None:
    page = ci.summary(verdict, board.markdown(rows, By.author) if rows else "")
    document = {**verdict.to_json(), "run": f"runs/{settled.run_id}" if records else None}
    for name, text in (
        ("verdict.json", json.dumps(document, indent=2, allow_nan=False) + "\n"),
        ("summary.md", page),
        ("junit.xml", ci.junit(verdict)),
        ("findings.sarif", ci.sarif(verdict)),
        ("gl-code-quality.json", ci.gitlab_code_quality(verdict)),
        ("leaderboard.csv", report_csv.leaderboard(rows)),
    ):
        write_whole(out / name, text.encode("utf-8"))
    if step := os.environ.get("GITHUB_STEP_SUMMARY"):
        with contextlib.suppress(OSError), Path(step).open("a", encoding="utf-8") as stream:
            stream.write(page)
