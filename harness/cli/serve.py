"""`harness serve`: keep builders and referees for the runs to come.

Outside layer; trusted side.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.evaluate import server_at, settle
from harness.cli.output import INTERRUPTED, Json, ended_by_signals, flush_results, option, print_json, say
from harness.core import environment
from harness.core.config import ConfigError
from harness.core.environment import MachineError
from harness.runner.service import ServiceError


def serve_command(
    socket: Annotated[Path | None, option("--socket", "Where to listen.  [server/socket in the cache]")] = None,
    config: Annotated[Path | None, option("--config", "YAML file of settings to be ready for.")] = None,
    device: Annotated[str | None, option("--device", "Be ready for auto, cuda or host.  [auto]")] = None,
    workers: Annotated[int | None, option("--workers", "Be ready for so many at once.  [as eval]")] = None,
    idle: Annotated[float, option("--idle", "Seconds without a run after which processes end.  [1800]")] = 1800.0,
    as_json: Json = False,
) -> None:
    """Keep builders, referees and what they know of problems for runs to come.

    harness eval --server auto then begins at once: no process is started, no problem learnt again. Several runs may
    be under way at the same time. Runs with other settings than the ones before wait for those, and start processes
    anew. Ends with Ctrl-C. With --json it prints its socket and process once it listens.

    \b
    Examples:
      harness serve &                            # says when it is ready
      harness eval solutions/ --server auto
      HARNESS_SERVER=auto harness eval solutions/
    """
    if not idle > 0.0:
        raise ConfigError(f"--idle: must be a number of seconds above 0, not {idle:g}")
    settled = settle(environment.collect(), config, {"paths": [Path()], "device": device, "workers": workers})
    if settled.executor != "local":
        raise ConfigError("a server judges on this machine: on a Ray cluster, processes stay with the cluster")
    # Not at the top: help should answer at once.
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
