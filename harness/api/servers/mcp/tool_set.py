"""The tools of the MCP server: each returns the text of one reply.

Trusted side. Problems are named by their ids only: text or a path would be code that the referee trusts. Solutions are
texts. The docstrings and the descriptions of arguments are what an agent reads.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections import OrderedDict
from collections.abc import Awaitable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from mcp.server.mcpserver import Context
from pydantic import Field

from harness.api import Harness, Preparing, Result
from harness.api.servers.mcp.own_command import run
from harness.api.servers.mcp.replies import Replies
from harness.catalog import Catalog, CatalogError
from harness.catalog.screen import screen
from harness.core.problem import Problem
from harness.report import format as show
from harness.runner.events import Event

KEPT_EVALUATIONS = 64
"""Evaluations that `feedback` and other tools can refer to."""

BEAT_S = 2.0
"""Time between two notes of progress."""

ProblemId = Annotated[str, Field(description="Id of a problem, for example level1/19.")]
Source = Annotated[
    str, Field(description="Python source of the solution with the class ModelNew, or the id of an evaluation.")
]
Workload = Annotated[
    str | None,
    Field(description="Name of a set of sizes, as show_problem lists them. Default: full, on the CPU small."),
]
T = TypeVar("T")


class PreparingNow:
    """What the harness prepares on this machine, for notes of progress."""

    def __init__(self) -> None:
        self.text = ""

    def note(self, event: Event) -> None:
        """Take an event of a `Harness`."""
        if isinstance(event, Preparing):
            done = event.done == event.total
            self.text = "" if done else f"preparing {event.what}: {event.done} of {event.total} steps"


class ToolSet:
    """The tools and what they share.

    Args:
        harness: Evaluates solutions.
        catalog: The problems.
        hidden: Patterns of ids, such as `level2/*`, of problems whose text is never shown.
        preparation: Gets the events of `harness`.
    """

    def __init__(self, harness: Harness, catalog: Catalog, hidden: Sequence[str], preparation: PreparingNow) -> None:
        self._harness, self._catalog, self._hidden, self._preparation = harness, catalog, hidden, preparation
        self._replies = Replies()
        self._evaluations: OrderedDict[str, Result] = OrderedDict()
        self._one_command = asyncio.Semaphore(1)

    def refused(self, reason: str) -> str:
        """Return the reply for a call that failed."""
        return self._replies.write({"status": "error"}, reason)

    async def list_problems(
        self, level: Annotated[str | None, Field(description="Only this level, for example level1.")] = None
    ) -> str:
        """List the problems: id, name, precision class, workloads (sets of sizes)."""
        known = self._catalog.known
        if level is not None and level not in self._catalog.levels:
            raise CatalogError([f"no level {level!r:.40}; the levels are {', '.join(sorted(self._catalog.levels))}"])
        chosen = [item for key, item in known.items() if level is None or key.partition("/")[0] == level]
        lines = [
            f"{item.id} {item.name}: {item.precision.value}; {', '.join(item.workloads) or 'small (derived)'}"
            f"{' (hidden)' if self._is_hidden(item) else ''}{' (unreadable)' if item.failure else ''}"
            for item in chosen
        ]
        return self._replies.write({"problems": len(chosen), "device": self._harness.device.value}, "\n".join(lines))

    async def show_problem(self, problem: ProblemId, ctx: Context) -> str:
        """Show a problem: shapes, costs, speed of light, source of the reference."""
        found = self._open(problem)
        return await self._command(ctx, {"problem": found.id}, "problems", "show", found.id)

    async def evaluate(self, problem: ProblemId, source: Source, ctx: Context, workload: Workload = None) -> str:
        """Evaluate a solution: compile, check against the reference, time.

        The reply has the verdict and the feedback. The status `passed` means correct; the speedup is over eager
        PyTorch. On the CPU nothing is timed.
        """
        found = self._catalog.resolve(problem)
        work = self._harness.evaluate_async(found, self._source(source), workload=workload)
        result = await self._awaited(ctx, work)
        name = secrets.token_hex(8)
        self._evaluations[name] = result
        while len(self._evaluations) > KEPT_EVALUATIONS:
            self._evaluations.popitem(last=False)
        return self._replies.write(self._verdict(name, result), result.feedback())

    async def feedback(
        self,
        evaluation: Annotated[str, Field(description="Id of an evaluation, from the reply of evaluate.")],
        part: Annotated[Literal["feedback", "log"], Field(description="Which text.")] = "feedback",
    ) -> str:
        """Return the feedback or the log of an earlier evaluation.

        The log is the output of its build and its process.
        """
        result = self._evaluations.get(evaluation)
        if result is None:
            raise CatalogError([f"evaluation {evaluation!r:.40} is not kept; call evaluate again"])
        text = result.feedback() if part == "feedback" else result.log
        return self._replies.write(self._verdict(evaluation, result) | {"part": part}, text)

    async def compare(self, problem: ProblemId, before: Source, after: Source, ctx: Context) -> str:
        """Evaluate two solutions in turn and compare: faster, slower, same, unclear."""
        found = self._catalog.resolve(problem)
        with tempfile.TemporaryDirectory(prefix="harness-mcp-") as folder:
            files = [_file(folder, "before", self._source(before)), _file(folder, "after", self._source(after))]
            options = ["--problem", found.id, "--out", f"{folder}/results", *self._device()]
            return await self._command(ctx, {"problem": found.id}, "compare", *files, *options)

    async def profile(self, problem: ProblemId, source: Source, ctx: Context, workload: Workload = None) -> str:
        """Show the kernels of a solution and the reference, with times; needs a GPU."""
        found = self._open(problem)
        with tempfile.TemporaryDirectory(prefix="harness-mcp-") as folder:
            options = ["--problem", found.id, *(["--workload", workload] if workload else [])]
            file = _file(folder, "solution", self._source(source))
            return await self._command(ctx, {"problem": found.id}, "profile", file, *options)

    async def lint(self, problem: ProblemId, ctx: Context) -> str:
        """Check that a problem rejects wrong answers."""
        found = self._open(problem)
        return await self._command(ctx, {"problem": found.id}, "problems", "lint", found.id, *self._device())

    async def screen(self, source: Source) -> str:
        """List suspicious constructs in a solution: advice; executes nothing."""
        held = await asyncio.to_thread(screen, self._source(source))
        lines = [f"line {item.line}: {item.rule}: {item.excerpt}\n  {item.described.why}" for item in held.findings]
        lines = [*([held.unreadable] if held.unreadable else []), *held.notes, *lines]
        return self._replies.write({"findings": len(held.findings)}, "\n".join(lines))

    async def baseline(
        self,
        problem: ProblemId,
        ctx: Context,
        baselines: Annotated[str, Field(description="Names with commas: eager, compile, ...")] = "eager,compile",
    ) -> str:
        """Time the reference of a problem, eager and compiled by torch.compile."""
        found = self._catalog.resolve(problem)
        options = ["--baseline", baselines, *self._device()]
        return await self._command(ctx, {"problem": found.id}, "baseline", found.id, *options)

    async def more(
        self,
        reply: Annotated[str, Field(description="Id of the reply, from its line `page`.")],
        page: Annotated[int, Field(description="Number of the page.")],
    ) -> str:
        """Return a further page of an earlier reply."""
        return self._replies.page(reply, page)

    async def _command(self, ctx: Context, head: dict[str, object], *arguments: str) -> str:
        """Run a command of the harness; an exit code of 2 or more is an error."""
        async with self._one_command:
            done = await self._awaited(ctx, run(*arguments, "--problems", str(self._catalog.root.absolute())))
        if done.code not in (0, 1):
            raise CommandFailed(done.messages.strip() or f"the command ended with code {done.code}")
        said = done.output if done.code == 0 else f"{done.output}\n{done.messages}"
        return self._replies.write({"status": ("ok", "failed")[done.code], **head}, said)

    async def _awaited(self, ctx: Context, work: Awaitable[T]) -> T:
        """Wait for long work; tell the client of progress, so that it does not give up."""
        begin = time.monotonic()

        async def beat() -> None:
            while True:
                await asyncio.sleep(BEAT_S)
                passed = time.monotonic() - begin
                await ctx.report_progress(passed, message=self._preparation.text or f"{passed:.0f} s")

        beating = asyncio.create_task(beat())
        try:
            return await work
        finally:
            beating.cancel()

    def _is_hidden(self, problem: Problem) -> bool:
        return any(fnmatchcase(problem.id, pattern) for pattern in self._hidden)

    def _open(self, wanted: str) -> Problem:
        """Return a problem that is not hidden."""
        found = self._catalog.resolve(wanted)
        if self._is_hidden(found):
            raise CatalogError([f"{found.id} is hidden: only evaluate, feedback, compare and baseline take it"])
        return found

    def _source(self, text: str) -> str:
        held = self._evaluations.get(text)
        return text if held is None else held.source

    def _device(self) -> list[str]:
        return ["--device", self._harness.device.value]

    def _verdict(self, name: str, result: Result) -> dict[str, object]:
        timed = show.speedup_with_interval(result.speedup, *(result.interval or (None, None)))
        return {
            "status": result.status.value,
            "problem": result.record.problem,
            "device": result.record.device.value,
            "workload": result.record.workload,
            "speedup": timed if result.speedup is not None else "not timed" if result.passed else None,
            "evaluation": name,
        }


class CommandFailed(Exception):
    """A command could not do its work; the message is what it wrote."""


def _file(folder: str, name: str, source: str) -> str:
    path = Path(folder) / f"{name}.py"
    path.write_text(source, encoding="utf-8", errors="surrogatepass")
    return str(path)
