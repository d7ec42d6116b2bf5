"""The command `harness` with its sub-commands.

Trusted side. The module of a command is imported when that command is called, so that help and completion stay fast.
Commands that need torch import it after they have checked their arguments.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

import harness
from harness.cli.forked_command import code_of_broken, watched
from harness.cli.output import STANDARD_OUTPUT, UNABLE, flush_results, guarded, put, refused

if TYPE_CHECKING:
    from harness.cli.evaluate import Evaluate


class Lazy(NamedTuple):
    """A command: its module, its function, and its line in the list of commands."""

    module: str
    function: str
    summary: str


COMMANDS: Mapping[str, Lazy] = {
    "eval": Lazy("evaluate", "eval_command", "Evaluate solutions: build, check correctness, time, record."),
    "serve": Lazy("serve", "serve_command", "Keep worker processes ready, so that later runs start faster."),
    "mcp": Lazy("mcp", "mcp_command", "Offer the harness as tools for agents (MCP)."),
    "prompt": Lazy("sampling", "prompt_command", "Print the prompt that asks a model for a solution."),
    "generate": Lazy("sampling", "generate_command", "Ask a model for solutions through an endpoint."),
    "extract": Lazy("files", "extract_command", "Extract solutions from raw model responses."),
    "screen": Lazy("screen", "screen_command", "List suspicious constructs in the source of solutions."),
    "show": Lazy("results", "show_command", "Show a run or one solution; write feedback for its author."),
    "leaderboard": Lazy("results", "leaderboard_command", "Rank authors, problems or solutions over runs."),
    "profile": Lazy("profile", "profile_command", "Show which kernels a solution runs and how long they take."),
    "compare": Lazy("compare", "compare_command", "Compare two runs or two solutions: faster, slower or the same."),
    "report": Lazy("reports", "report_command", "Write one HTML page about runs, with figures and sources."),
    "plot": Lazy("reports", "plot_command", "Write the report's figures as pdf, svg or png files."),
    "verify": Lazy("verify", "verify_command", "Check a run offline: files, digests, statistics, signature."),
    "replay": Lazy("replay", "replay_command", "Judge a run's solutions again with its seeds: same, or differs."),
    "merge": Lazy("results", "merge_command", "Merge several runs into one."),
    "ci": Lazy("ci.command", "ci_command", "Score the solutions that a branch adds or changes, for CI."),
    "baseline": Lazy("baseline", "baseline_command", "Time the reference implementations, eager and compiled."),
    "doctor": Lazy("machine", "doctor_command", "Check this machine: GPU, tools, sandbox, and missing parts."),
    "warmup": Lazy("machine", "warmup_command", "Prepare this machine, so that the first run starts faster."),
    "timeline": Lazy("timeline", "timeline_command", "Show how each GPU spent its time during a run."),
}

PROBLEMS_COMMANDS: Mapping[str, Lazy] = {
    "list": Lazy("problems", "problems_list", "List problems: shapes, bytes, flops, speed of light."),
    "show": Lazy("problems", "problems_show", "Show one problem: declarations, costs, source."),
    "derive": Lazy("derive", "problems_derive", "Derive small sizes for problems that declare none."),
    "lint": Lazy("lint", "problems_lint", "Check that each problem rejects wrong answers."),
}
IMPORT_COMMANDS: Mapping[str, Lazy] = {
    "kernelbench": Lazy("exchange", "import_kernelbench", "Import KernelBench's result files as a run."),
    "kernelbench-parquet": Lazy("foreign", "import_kernelbench_parquet", "Import KernelBench's problems from Parquet."),
    "flashinfer": Lazy("foreign", "import_flashinfer", "Import flashinfer-bench's definitions and traces."),
    "gpumode": Lazy("foreign", "import_gpumode", "Import GPU MODE's tasks and submissions."),
}
EXPORT_COMMANDS: Mapping[str, Lazy] = {
    "kernelbench": Lazy("exchange", "export_kernelbench", "Export a run as KernelBench's result files."),
    "kernelbench-parquet": Lazy("foreign", "export_kernelbench_parquet", "Export problems as KernelBench's Parquet."),
    "parquet": Lazy("tables", "export_parquet", "Export the records of runs as one Parquet file."),
    "schema": Lazy("tables", "export_schema", "Print the JSON Schema of records or of run.yaml."),
    "flashinfer": Lazy("foreign", "export_flashinfer", "Export problems and runs for flashinfer-bench."),
    "gpumode": Lazy("foreign", "export_gpumode", "Export problems and solutions as GPU MODE's tasks."),
}

NEW_COMMANDS: Mapping[str, Lazy] = {
    "problem": Lazy("files", "new_problem", "Write a new problem to fill in."),
    "solution": Lazy("files", "new_solution", "Write a new solution of a problem to fill in."),
}

GROUPS: Mapping[str, tuple[str, Mapping[str, Lazy]]] = {
    "problems": (
        """List, show and check the problems.

        \b
        Examples:
          harness problems list level2 --gpu H100
          harness problems show level1/19
        """,
        PROBLEMS_COMMANDS,
    ),
    "new": (
        """Write a problem or solution to fill in.

        \b
        Examples:
          harness new problem my_problem
          harness new solution my_problem.py
        """,
        NEW_COMMANDS,
    ),
    "import": (
        """Import problems, solutions and results of other tools.

        \b
        Examples:
          harness import kernelbench runs/x/eval_results.json --level 1 --out results/x
          harness import gpumode ../reference-kernels --out gpumode
        """,
        IMPORT_COMMANDS,
    ),
    "export": (
        """Export problems, solutions and runs for other tools.

        \b
        Examples:
          harness export kernelbench results/nightly --out runs/nightly
          harness export flashinfer level1/19 --out trace
        """,
        EXPORT_COMMANDS,
    ),
}
"""Command with sub-commands -> its help text and its sub-commands."""


def main(arguments: Sequence[str] | None = None, *, run: Evaluate | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: Words after `harness`; by default those of this process.
        run: Function that `eval` evaluates with; by default the pipeline.
    """
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may lack the characters shown
    # A Python caller gives the arguments. Its process is never forked: it may use threads, a GPU or its own streams.
    if arguments is None and sys.argv[1:2] == ["problems"]:
        listed = sys.argv[2:3] == ["list"]  # prints only after it has read all problems, so it can run again
        return watched(lambda: _flushed(None, run), broken=code_of_broken(sys.argv[1:]), again=listed)
    return _flushed(arguments, run)


def _flushed(arguments: Sequence[str] | None, run: Evaluate | None) -> int:
    try:
        code = _called(arguments, run)
        flush_results()
    except OSError as error:  # help and version are printed outside of any command
        error.filename = error.filename or STANDARD_OUTPUT
        return refused(error)
    return code


def _open_streams() -> None:
    """Open /dev/null in place of standard streams that the caller closed (`>&-`).

    Otherwise the next opened file would get their descriptor, and output of other programs would be written to it.
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
    """Add a stand-in for every command, with only a name and a summary."""
    for name, lazy in commands.items():
        app.command(name, help=lazy.summary, short_help=lazy.summary)(_never_called)


def _never_called() -> None:
    raise AssertionError("a stand-in was called instead of its command")


def _loading(commands: Mapping[str, Lazy]) -> type[TyperGroup]:
    """Return a group class that replaces a stand-in by the called command."""

    class Loading(TyperGroup):
        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
            name, command, rest = super().resolve_command(ctx, args)
            lazy = commands.get(name) if name is not None else None
            return name, command if name is None or lazy is None else _load(name, lazy), rest

    return Loading


def _load(name: str, lazy: Lazy) -> Any:
    """Import a command's function and make the command with its options."""
    function = getattr(importlib.import_module(f"harness.cli.{lazy.module}"), lazy.function)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    alone.command(name)(guarded(function))
    return typer.main.get_command(alone)


def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Score GPU kernels: build, check against a reference in a sandbox, and time them.

    \b
    Start with:
      harness doctor
      harness eval solutions/examples
    """
    if version:
        put(harness.__version__)
        raise typer.Exit
