"""`harness serve`: keep builders and referees running for later runs.

Trusted side.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.evaluate import server_at, settle
from harness.cli.options import Settings, with_options
from harness.cli.output import INTERRUPTED, Json, ended_by_signals, flush_results, option, print_json, say
from harness.core import environment
from harness.core.config import ConfigError
from harness.core.environment import MachineError
from harness.runner.service import ServiceError


@with_options(
    *("socket", "config", "device", "workers"),
    device="Device to start processes for: auto, cuda or host.  [auto]",
    workers="Number of solutions to evaluate in parallel.  [as for harness eval]",
)
def serve_command(
    settings: Settings,
    socket: Annotated[
        Path | None, option("--socket", "Unix socket to listen on.  [server/socket in the cache folder]")
    ] = None,
    config: Annotated[
        Path | None, option("--config", "YAML file with the settings to start processes for.  [none]")
    ] = None,
    idle: Annotated[
        float, option("--idle", "End the worker processes after this many seconds without a run.  [1800]")
    ] = 1800.0,
    as_json: Json = False,
) -> None:
    """Keep builders, referees and the state of recent problems for later runs.

    Then harness eval --server auto starts faster: the processes run already and recent problems are already calibrated.
    Several runs can use the server at the same time. A run with other settings waits for the current runs, and starts
    new processes. Stop the server with Ctrl-C. With --json, it prints its socket and process id when it listens.

    \b
    Examples:
      harness serve &                            # says when it is ready
      harness eval solutions/ --server auto
      HARNESS_SERVER=auto harness eval solutions/
    """
    if not idle > 0.0:
        raise ConfigError(f"--idle must be a number of seconds above 0, not {idle:g}")
    settled = settle(environment.collect(), config, {**settings, "paths": [Path()]})
    if settled.executor != "local":
        raise ConfigError("a server evaluates on this machine only: set `executor: local` in the file of --config")
    # Imported here, so that --help is fast.
    from harness.runner.service.server import Server
    from harness.runner.service.words import shared_settings

    try:
        server = Server(server_at(socket), idle_s=idle, tell=_tell)
        server.open()
    except ServiceError as error:
        raise MachineError(str(error)) from error
    try:
        with ended_by_signals():
            _tell(f"ready at {server.path}, device {settled.device.value} (process {os.getpid()})")
            if as_json:
                print_json({"socket": str(server.path), "pid": os.getpid(), "device": settled.device.value})
                flush_results()
            server.warm(shared_settings(settled))
            server.serve()
    except KeyboardInterrupt:
        say("harness: interrupted")
        raise typer.Exit(INTERRUPTED) from None
    finally:
        server.close()


def _tell(line: str) -> None:
    say(f"{datetime.now():%H:%M:%S} {line}")
