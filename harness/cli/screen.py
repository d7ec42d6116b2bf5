"""`harness screen`: what a reviewer may want to look at in a solution's source.

Outside layer; trusted side. The files are read and parsed, nothing of them is executed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from harness.catalog.problems import read_source
from harness.cli.output import NOT_FOUND, Json, fail, option, print_json, put, say
from harness.config import ConfigError
from harness.report.format import block
from harness.screen import CUDA_SUFFIXES, RULES, Finding, Screening, Weight, screen, screen_cuda

ADVICE = "advice for reviewers: honest code has such constructs too, and no verdict rests on them"

_GROUPS = {"any": frozenset(RULES), "strong": frozenset(n for n, r in RULES.items() if r.weight is Weight.STRONG)}


def screen_command(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILES", help="Solutions, C++ or CUDA sources, or folders of them.")
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        option("--fail-on", "Exit with 1 where this rule finds something (also: strong, any). May be repeated."),
    ] = None,
    rules: Annotated[bool, typer.Option("--rules", help="List the rules instead.")] = False,
    as_json: Json = False,
) -> None:
    """List suspicious constructs in solutions: rule, line, excerpt and why a reviewer would look.

    Advice: it changes no verdict. Honest code has streams, caches and libraries too; rules marked ! are rare there.
    Exit code 1 where a file can't be parsed, or where --fail-on finds something.

    \b
    Examples:
      harness screen solutions/someone/level1/16_fast.py
      harness screen solutions/ --json
      harness screen submission.py --fail-on clock_patch --fail-on process_exit
    """
    if rules:
        _list_rules(as_json=as_json)
        return
    wanted = _wanted(fail_on or [])
    if not files:
        raise ConfigError("no file to screen: name solutions, sources or folders (--rules lists what is looked for)")
    screened = [(path, _screen(path)) for path in _files(files)]
    if as_json:
        print_json([{"file": str(path), **held.to_json()} for path, held in screened])
    else:
        put(*(line for path, held in screened for line in _page(path, held)))
        say(ADVICE)
    unreadable = [path for path, held in screened if held.unreadable is not None]
    gated = sorted({item.rule for _, held in screened for item in held.findings if item.rule in wanted})
    if unreadable:
        fail(f"{len(unreadable)} of {len(screened)} files can't be parsed, first {unreadable[0]}", NOT_FOUND)
    if gated:
        fail(f"found what --fail-on names: {', '.join(gated)}", NOT_FOUND)


def _wanted(names: Iterable[str]) -> frozenset[str]:
    wanted: set[str] = set()
    for name in names:
        if name not in RULES and name not in _GROUPS:
            raise ConfigError(f"--fail-on {name}: there is no such rule; harness screen --rules lists them")
        wanted |= _GROUPS.get(name, {name})
    return frozenset(wanted)


def _files(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.is_file() and p.suffix in {".py", *CUDA_SUFFIXES})
            if not inside:
                raise ConfigError(f"{path}: the folder holds no Python, C++ or CUDA file")
            found += inside
        else:
            found.append(path)
    return list(dict.fromkeys(found))


def _screen(path: Path) -> Screening:
    try:
        source = read_source(path)
    except OSError as error:
        raise ConfigError(f"{path}: can't be read: {error.strerror or error}") from error
    except ValueError as error:
        return Screening(findings=(), unreadable=str(error))
    return screen_cuda(source) if path.suffix in CUDA_SUFFIXES else screen(source)


def _page(path: Path, held: Screening) -> list[str]:
    if held.unreadable is not None:
        return [block(f"{path}: can't be parsed: {held.unreadable}")]
    count = len(held.findings)
    lines = [block(f"{path}: {count or 'no'} finding{'' if count == 1 else 's'}")]
    lines += [block(f"  note: {note}") for note in held.notes]
    explained: set[str] = set()
    for item in held.findings:
        lines += _entry(item, explain=item.rule not in explained)
        explained.add(item.rule)
    return lines


def _entry(item: Finding, *, explain: bool) -> list[str]:
    mark = "!" if item.described.weight is Weight.STRONG else " "
    lines = [block(f"{item.line:6} {mark} {item.rule:20} {item.excerpt}")]
    # Once a file: the same sentence at every line would bury the lines.
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
