"""The command `harness` with its sub-commands.

Outside layer; trusted side. Help and reports answer at once: torch is imported by the commands that need it.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

import harness
from harness.cli import (
    ci,
    compare,
    evaluate,
    exchange,
    files,
    lint,
    machine,
    problems,
    reports,
    results,
    screen,
    timeline,
)
from harness.cli.output import UNABLE, guarded, put

COMMANDS: dict[str, Callable[..., None]] = {
    "eval": evaluate.eval_command,
    "extract": files.extract_command,
    "screen": screen.screen_command,
    "show": results.show_command,
    "leaderboard": results.leaderboard_command,
    "compare": compare.compare_command,
    "report": reports.report_command,
    "plot": reports.plot_command,
    "merge": results.merge_command,
    "ci": ci.ci_command,
    "doctor": machine.doctor_command,
    "warmup": machine.warmup_command,
    "timeline": timeline.timeline_command,
}

PROBLEMS_COMMANDS: dict[str, Callable[..., None]] = {
    "list": problems.problems_list,
    "show": problems.problems_show,
    "lint": lint.problems_lint,
}
IMPORT_COMMANDS: dict[str, Callable[..., None]] = {"kernelbench": exchange.import_kernelbench}
EXPORT_COMMANDS: dict[str, Callable[..., None]] = {"kernelbench": exchange.export_kernelbench}

GROUPS: dict[str, tuple[str, dict[str, Callable[..., None]]]] = {
    "problems": ("The problems there are.", PROBLEMS_COMMANDS),
    "import": ("Other tools' results into runs.", IMPORT_COMMANDS),
    "export": ("Runs into other tools' files.", EXPORT_COMMANDS),
}
"""Command with sub-commands -> its help and these."""


def main(arguments: Sequence[str] | None = None, *, run: evaluate.Evaluate = evaluate.evaluate) -> int:
    """Run one command and return its exit code. `run` is what `eval` evaluates with."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may lack the characters shown
    try:
        _app()(args=None if arguments is None else list(arguments), prog_name="harness", obj=run)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0 if ended.code is None else UNABLE
    return 0


def _app() -> typer.Typer:
    settings = {"help_option_names": ["-h", "--help"]}
    app = typer.Typer(
        name="harness",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=settings,
    )
    app.callback(invoke_without_command=True)(_root)
    for name, command in COMMANDS.items():
        app.command(name)(guarded(command))
    for group, (help_text, commands) in GROUPS.items():
        made = typer.Typer(help=help_text, no_args_is_help=True, rich_markup_mode=None)
        for name, command in commands.items():
            made.command(name)(guarded(command))
        app.add_typer(made, name=group)
    return app


def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Scores GPU kernels: builds them, checks them against a reference in a sandbox, and times both.

    \b
    Start with:
      harness doctor
      harness eval solutions/examples
    """
    if version:
        put(harness.__version__)
        raise typer.Exit
