"""`harness extract` and `harness new`: write problems and solutions.

Trusted side. No code of a response is executed here.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from harness.catalog import CatalogError, load_problems, skeletons, transcripts
from harness.cli.completion import problem_ids
from harness.cli.output import NOT_FOUND, Json, ProblemsRoot, fail, option, print_json, put, say
from harness.core.cache_dir import kind_of
from harness.report import terminal
from harness.results.writer import write_whole


def extract_command(
    responses: Annotated[
        list[Path],
        typer.Argument(metavar="RESPONSES", help="Files with raw output of a model; - is standard input."),
    ],
    problem: Annotated[
        str | None,
        option(
            "--problem",
            "Problem that the responses solve, for example level1/16.  [from file names like level_1_problem_16.txt]",
            complete=problem_ids,
        ),
    ] = None,
    author: Annotated[
        str, typer.Option("--author", help="Author of the solutions: the name of their folder below --out.")
    ] = "local",
    out: Annotated[Path, typer.Option("--out", help="Folder of solutions to write to.")] = Path("solutions"),
    problems: ProblemsRoot = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite an existing solution instead of writing a numbered sample.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Extract solutions from raw model responses.

    From each response, the command takes the last complete fenced Python block that defines ModelNew. If the reasoning
    part of a response is marked, it looks only after it. Existing files stay: a second solution of one problem becomes
    a numbered sample. The exit code is 1 if a response holds no solution.

    \b
    Examples:
      harness extract response.txt --problem level1/16 --author some-model --out solutions
      harness extract runs/level_1_problem_*_sample_*.txt --author some-model
      cat response.txt | harness extract - --problem level1/16
    """
    catalog = load_problems(problems or Path("problems"), problem)
    try:
        placed = transcripts.place(responses, catalog, problem=problem, author=author, out=out, force=force)
    except OSError as error:
        raise kind_of(error)(f"{error.filename or out}: can't be written: {error.strerror or error}") from error
    if as_json:
        print_json([item.to_json() for item in placed])
    else:
        put(*(terminal.placed_line(item.response, item.path, item.written, item.extraction.reason) for item in placed))
    if lacking := sum(item.path is None for item in placed):
        fail(f"{lacking} of {len(placed)} responses hold no solution", NOT_FOUND)


NewFile = Annotated[Path | None, option("--out", "File to write; it must not exist.  [named after the argument]")]


def new_problem(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the problem, for example my_problem.")],
    out: NewFile = None,
) -> None:
    """Write a new problem: a file to fill in, which is a valid problem as it is.

    \b
    Example:
      harness new problem my_problem
    """
    file = out or Path(f"{name.removesuffix('.py')}.py")
    _write_new(file, skeletons.PROBLEM)
    say(f"next: harness new solution {shlex.quote(str(file))}")


def new_solution(
    problem: Annotated[
        str,
        typer.Argument(
            metavar="PROBLEM", help="Problem: its id, for example level1/16, or its file.", autocompletion=problem_ids
        ),
    ],
    out: NewFile = None,
    problems: ProblemsRoot = None,
) -> None:
    """Write a new solution of a problem: a file to fill in, which passes as it is.

    It computes as the reference does, in PyTorch. Comments hold a CUDA kernel and its build.

    \b
    Examples:
      harness new solution my_problem.py
      harness new solution level1/16 --out solutions/me/level1/16_mine.py
    """
    held = load_problems(problems or Path("problems"), problem).resolve(problem)
    file = out or Path(f"{held.name}_solution.py")
    folder = f" --problems {shlex.quote(str(problems))}" if problems is not None else ""
    command = f"harness eval {shlex.quote(str(file))} --problem {shlex.quote(problem)}{folder}"
    _write_new(file, skeletons.new_solution(held, command))
    say(f"next: {command}")


def _write_new(file: Path, text: str) -> None:
    if file.suffix != ".py":
        raise CatalogError([f"{file}: the name must end in .py"])
    if file.exists():
        raise CatalogError([f"{file} exists already: name another file by --out"])
    write_whole(file, text.encode("utf-8"))
    put(str(file))
