"""`harness extract`: extract solutions from raw model responses.

Trusted side. No code of a response is executed here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.catalog import load_problems, transcripts
from harness.cli.output import NOT_FOUND, Json, ProblemsRoot, fail, option, print_json, put
from harness.core.cache_dir import kind_of
from harness.report import terminal


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
    catalog = load_problems(problems or Path("problems"))
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
