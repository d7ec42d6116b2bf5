"""The command `harness` with its sub-commands.

Outside layer; trusted side. Help and completion answer at once: a command's module is imported when the command is
called, so that nobody waits for what another command needs (numpy, templates, parsers); torch is imported by the
commands that need it once the call is known to be right.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

import harness
from harness.cli.forked_command import code_of_broken, watched
from harness.cli.output import STANDARD_OUTPUT, UNABLE, flush_results, guarded, put, refused

if TYPE_CHECKING:
    from harness.cli.evaluate import Evaluate


@dataclass(frozen=True, slots=True, kw_only=True)
class Lazy:
    """A command: the module in `harness.cli` and the function in it, and what the list of commands says of it."""

    module: str
    function: str
    summary: str


COMMANDS: Mapping[str, Lazy] = {
    "eval": Lazy(
        module="evaluate", function="eval_command", summary="Evaluate solutions: build, verify, time, record."
    ),
    "serve": Lazy(module="serve", function="serve_command", summary="Keep processes for the runs to come."),
    "extract": Lazy(module="files", function="extract_command", summary="Take solutions out of raw model responses."),
    "screen": Lazy(module="screen", function="screen_command", summary="List what a reviewer may want to look at."),
    "show": Lazy(module="results", function="show_command", summary="Show a run or a solution; write its feedback."),
    "leaderboard": Lazy(module="results", function="leaderboard_command", summary="Rank authors, problems, solutions."),
    "profile": Lazy(module="profile", function="profile_command", summary="Show where a solution's time goes."),
    "compare": Lazy(module="compare", function="compare_command", summary="Faster, slower, same, or can't tell."),
    "report": Lazy(module="reports", function="report_command", summary="Write one self-contained page of runs."),
    "plot": Lazy(module="reports", function="plot_command", summary="Write the report's figures as files."),
    "merge": Lazy(module="results", function="merge_command", summary="Make one run of several."),
    "ci": Lazy(
        module="ci.command", function="ci_command", summary="Score what a branch adds or changes, against rules."
    ),
    "baseline": Lazy(
        module="baseline", function="baseline_command", summary="Time the references, eager and compiled."
    ),
    "doctor": Lazy(
        module="machine", function="doctor_command", summary="Say what this machine can do, and what lacks."
    ),
    "warmup": Lazy(module="machine", function="warmup_command", summary="Prepare what the first evaluation waits for."),
    "timeline": Lazy(module="timeline", function="timeline_command", summary="Show where each GPU's seconds went."),
}

PROBLEMS_COMMANDS: Mapping[str, Lazy] = {
    "list": Lazy(module="problems", function="problems_list", summary="Shapes, bytes, flops, speed of light of each."),
    "show": Lazy(module="problems", function="problems_show", summary="Everything about one problem, and its source."),
    "lint": Lazy(module="lint", function="problems_lint", summary="Let each prove that it rejects wrong answers."),
}
IMPORT_COMMANDS: Mapping[str, Lazy] = {
    "kernelbench": Lazy(module="exchange", function="import_kernelbench", summary="KernelBench's result files."),
}
EXPORT_COMMANDS: Mapping[str, Lazy] = {
    "kernelbench": Lazy(module="exchange", function="export_kernelbench", summary="KernelBench's result files."),
}

GROUPS: Mapping[str, tuple[str, Mapping[str, Lazy]]] = {
    "problems": (
        """The problems there are.

        \b
        Examples:
          harness problems list level2 --gpu H100
          harness problems show level1/19
        """,
        PROBLEMS_COMMANDS,
    ),
    "import": (
        """Other tools' results into runs.

        \b
        Example:
          harness import kernelbench runs/x/eval_results.json --level 1 --out results/x
        """,
        IMPORT_COMMANDS,
    ),
    "export": (
        """Runs into other tools' files.

        \b
        Example:
          harness export kernelbench results/nightly --out runs/nightly
        """,
        EXPORT_COMMANDS,
    ),
}
"""Command with sub-commands -> its help and these."""


def main(arguments: Sequence[str] | None = None, *, run: Evaluate | None = None) -> int:
    """Run one command and return its exit code. `run` is what `eval` evaluates with; by default the pipeline."""
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may lack the characters shown
    # Of a Python caller, who gives the arguments, nothing is forked: it may have threads, a GPU, streams of its own.
    if arguments is None and sys.argv[1:2] == ["problems"]:
        listed = sys.argv[2:3] == ["list"]  # at once, when all were looked at
        return watched(lambda: _flushed(None, run), broken=code_of_broken(sys.argv[1:]), again=listed)
    return _flushed(arguments, run)


def _flushed(arguments: Sequence[str] | None, run: Evaluate | None) -> int:
    try:
        code = _called(arguments, run)
        flush_results()
    except OSError as error:  # help and the version are written outside of any command
        error.filename = error.filename or STANDARD_OUTPUT
        return refused(error)
    return code


def _open_streams() -> None:
    """Standard streams that the caller closed (`>&-`) lead nowhere; else the next file opened would take their place,
    and what other programs print would be written into it.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            setattr(sys, name, os.fdopen(descriptor, "w" if descriptor else "r", encoding="utf-8", closefd=False))


def _called(arguments: Sequence[str] | None, run: Evaluate | None) -> int:
    try:
        _app()(args=None if arguments is None else list(arguments), prog_name="harness", obj=run)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0 if ended.code is None else UNABLE
    return 0


def _app() -> typer.Typer:
    settings = {"help_option_names": ["-h", "--help"]}
    app = typer.Typer(
        name="harness",
        cls=_loading(COMMANDS),
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=settings,
    )
    app.callback(invoke_without_command=True)(_root)
    _add_stand_ins(app, COMMANDS)
    for group, (help_text, commands) in GROUPS.items():
        made = typer.Typer(cls=_loading(commands), help=help_text, no_args_is_help=True, rich_markup_mode=None)
        _add_stand_ins(made, commands)
        app.add_typer(made, name=group)
    return app


def _add_stand_ins(app: typer.Typer, commands: Mapping[str, Lazy]) -> None:
    """A command that only has a name and a summary for every one that there is."""
    for name, lazy in commands.items():
        app.command(name, help=lazy.summary, short_help=lazy.summary)(_never_called)


def _never_called() -> None:
    raise AssertionError("a stand-in was called instead of its command")


def _loading(commands: Mapping[str, Lazy]) -> type[TyperGroup]:
    """A group that, once it is known which command is meant, puts the real one in its stand-in's place."""

    class Loading(TyperGroup):
        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
            name, command, rest = super().resolve_command(ctx, args)
            lazy = commands.get(name) if name is not None else None
            return name, command if name is None or lazy is None else _load(name, lazy), rest

    return Loading


def _load(name: str, lazy: Lazy) -> Any:
    """The command with its options, made from its function."""
    function = getattr(importlib.import_module(f"harness.cli.{lazy.module}"), lazy.function)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    alone.command(name)(guarded(function))
    return typer.main.get_command(alone)


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
