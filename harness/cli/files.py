"""`harness extract`: files of responses and solutions.

Outside layer; trusted side. Nothing of a response is executed here.
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
        list[Path], typer.Argument(metavar="RESPONSES", help="Files of raw model output; - is standard input.")
    ],
    problem: Annotated[str | None, option("--problem", "The problem they answer: level1/16.")] = None,
    author: Annotated[str, typer.Option("--author", help="Whose solutions they are.")] = "local",
    out: Annotated[Path, typer.Option("--out", help="Folder of solutions.")] = Path("solutions"),
    problems: ProblemsRoot = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite instead of numbering samples.")] = False,
    as_json: Json = False,
) -> None:
    """Take solutions out of raw model responses.

    The last complete fenced Python block that defines ModelNew, after the reasoning if that is marked. Nothing is
    overwritten: a second solution of one problem becomes a numbered sample. Exit code 1 where a response has none.

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
