"""`harness screen`: list suspicious constructs in the source of solutions.

Trusted side. Reads and parses the files, executes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from harness.catalog.screen import CUDA_SUFFIXES, RULES, ScreenFinding, Screening, Weight, screen, screen_cuda
from harness.catalog.source_files import RejectedFile, bounded_source, files_below, printable
from harness.catalog.source_lookup import SourceFinder
from harness.cli.output import NOT_FOUND, Json, fail, opened, option, print_json, put, say
from harness.core.config import ConfigError
from harness.core.record import Record
from harness.core.status import Status
from harness.report.format import block
from harness.report.terminal import speedup_of
from harness.results.reader import is_run

ADVICE = "these findings are advice for reviewers: honest code has such constructs too, and no verdict depends on them"

_GROUPS = {"any": frozenset(RULES), "strong": frozenset(n for n, r in RULES.items() if r.weight is Weight.STRONG)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Screened:
    """One file, or the source of one record with its status and speedup."""

    name: str
    held: Screening
    status: str | None = None


def screen_command(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILES", help="Solutions, C++ or CUDA sources, folders that hold them, or runs."),
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        option(
            "--fail-on",
            "Exit with code 1 if this rule finds something; strong and any name groups of rules. May be repeated.",
        ),
    ] = None,
    solutions: Annotated[
        Path, typer.Option("--solutions", help="Folder to search for the sources of a run's records.")
    ] = Path("solutions"),
    rules: Annotated[bool, typer.Option("--rules", help="List the rules and screen nothing.")] = False,
    as_json: Json = False,
) -> None:
    """List suspicious constructs in solutions, with line, rule, excerpt and reason.

    The findings are advice for reviewers and change no verdict. Honest code uses streams, caches and libraries too; the
    rules marked ! rarely match honest code. For a run (results/ID), the command finds the evaluated sources by their
    digests. The exit code is 1 if a file can't be parsed, or if a rule of --fail-on finds something.

    \b
    Examples:
      harness screen solutions/someone/level1/16_fast.py
      harness screen solutions/ --json
      harness screen results/2026-11-21-nightly
      harness screen submission.py --fail-on clock_patch --fail-on process_exit
    """
    if rules:
        _list_rules(as_json=as_json)
        return
    wanted = _wanted(fail_on or [])
    if not files:
        raise ConfigError("no file to screen: name solutions, sources or folders (--rules lists the rules)")
    screened = [item for path in files for item in (_of_run(path, solutions) if is_run(path) else _of_files(path))]
    if as_json:
        print_json([{"file": item.name, "status": item.status, **item.held.to_json()} for item in screened])
    else:
        put(*(line for item in screened for line in _page(item)))
        say(ADVICE)
    unreadable = [item.name for item in screened if item.held.unreadable is not None]
    gated = sorted({item.rule for file in screened for item in file.held.findings if item.rule in wanted})
    if unreadable:
        fail(f"{len(unreadable)} of {len(screened)} files could not be screened, first {unreadable[0]}", NOT_FOUND)
    if gated:
        fail(f"rules of --fail-on found something: {', '.join(gated)}", NOT_FOUND)


def _wanted(names: Iterable[str]) -> frozenset[str]:
    wanted: set[str] = set()
    for name in names:
        if name not in RULES and name not in _GROUPS:
            raise ConfigError(f"--fail-on {name}: no such rule; harness screen --rules lists the rules")
        wanted |= _GROUPS.get(name, {name})
    return frozenset(wanted)


def _of_files(path: Path) -> list[_Screened]:
    if not path.is_dir():
        return [_Screened(name=printable(path), held=_screen(path))]
    inside = list(files_below(path, {".py", *CUDA_SUFFIXES}))
    if not inside:
        raise ConfigError(f"{path}: this folder holds no Python, C++ or CUDA file")
    return [
        _Screened(name=printable(file.path), held=Screening(findings=(), unreadable=file.reason))
        if isinstance(file, RejectedFile)
        else _Screened(name=printable(file), held=_screen(file))
        for file in inside
    ]


def _of_run(path: Path, solutions: Path) -> list[_Screened]:
    """Screen the sources of a run's records."""
    finder = SourceFinder([solutions])
    found = []
    for record in opened(path).records():
        source = finder.source_of(record)
        held = screen(source) if source is not None else Screening(findings=(), unreadable=_why(record, solutions))
        told = (record.status.value, speedup_of(record))
        found.append(_Screened(name=record.solution, held=held, status=", ".join(filter(None, told))))
    return found


def _why(record: Record, solutions: Path) -> str:
    """Return why a record has no source: the file was not text, or was not found."""
    if record.status is Status.syntax_error and record.evidence.get("phase") == "read":
        return record.reason
    return f"no file in {solutions} has the digest of the evaluated source; name its folder with --solutions"


def _screen(path: Path) -> Screening:
    if not os.path.lexists(path):
        raise ConfigError(f"{path}: there is no such file or folder")
    try:
        source, failure = bounded_source(path)
    except ValueError as error:
        return Screening(findings=(), unreadable=str(error))
    if path.suffix in CUDA_SUFFIXES and (failure is None or "byte" not in failure.evidence):
        return screen_cuda(source)
    return screen(source) if failure is None else Screening(findings=(), unreadable=failure.reason)


def _page(file: _Screened) -> list[str]:
    held = file.held
    name = file.name if file.status is None else f"{file.name} ({file.status})"
    if held.unreadable is not None:
        return [block(f"{name}: not screened: {held.unreadable}")]
    count = len(held.findings)
    lines = [block(f"{name}: {count or 'no'} finding{'' if count == 1 else 's'}")]
    lines += [block(f"  note: {note}") for note in held.notes]
    explained: set[str] = set()
    for item in held.findings:
        lines += _entry(item, explain=item.rule not in explained)
        explained.add(item.rule)
    return lines


def _entry(item: ScreenFinding, *, explain: bool) -> list[str]:
    mark = "!" if item.described.weight is Weight.STRONG else " "
    lines = [block(f"{item.line:6} {mark} {item.rule:20} {item.excerpt}")]
    # The reason appears once for each file and rule: repeated, it would hide the lines.
    return [*lines, f"         {'':20} ({item.described.family.value}) {item.described.why}"] if explain else lines


def _list_rules(*, as_json: bool) -> None:
    held = [
        {"rule": rule.name, "family": rule.family.value, "weight": rule.weight.value, "why": rule.why}
        for rule in RULES.values()
    ]
    if as_json:
        print_json(held)
    else:
        put(
            *(
                f"{item['family']:8} {'!' if item['weight'] == 'strong' else ' '} {item['rule']:20} {item['why']}"
                for item in held
            )
        )
