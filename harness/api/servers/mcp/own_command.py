"""Run a command of the harness in a process of its own.

Trusted side. What executes references (`problems show`, `lint`) or ends with an exit code runs apart from the server:
it can be cancelled, its output can't reach the protocol's stream, and its checks are those of the command line.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass

import anyio

from harness.core.subprocesses import python, search_path

LIMIT_S = 900.0
"""Longest run of a command."""

COLUMNS = 100
"""Width of tables."""

MAX_MESSAGE_CHARS = 4000
"""How much of the end of standard error is kept."""

GRACE_S = 5.0
"""Time to end after SIGTERM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A command that has ended: its exit code and what it wrote."""

    code: int
    output: str
    messages: str


async def run(*arguments: str) -> Done:
    """Run `harness` with these arguments.

    Raises:
        TimeoutError: It took longer than `LIMIT_S`.
    """
    environment = {**os.environ, **search_path(os.environ), "COLUMNS": str(COLUMNS)}
    process = await asyncio.create_subprocess_exec(
        *python("-m", "harness", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    try:
        output, messages = await asyncio.wait_for(process.communicate(), LIMIT_S)
    except TimeoutError:
        raise TimeoutError(f"harness {arguments[0]} took longer than {LIMIT_S:.0f} s") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.terminate()
            # A cancelled call must not leave it behind: nothing cancels this wait.
            with anyio.move_on_after(GRACE_S, shield=True):
                await process.wait()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return Done(
        code=process.returncode if process.returncode is not None else -1,
        output=output.decode(errors="replace"),
        messages=messages.decode(errors="replace")[-MAX_MESSAGE_CHARS:],
    )
