"""`harness serve`: keep worker processes running, for later runs or HTTP.

Trusted side.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from harness.api.servers.http import NO_SERVICE
from harness.cli.evaluate import server_at, settle
from harness.cli.options import Settings, with_options
from harness.cli.output import INTERRUPTED, Json, ended_by_signals, flush_results, option, print_json, print_text, say
from harness.core import environment
from harness.core.config import ConfigError
from harness.core.environment import MachineError
from harness.runner.executors import ExecutorError
from harness.runner.service import ServiceError


@with_options(
    *("socket", "http", "tenants", "store", "drain", "new_token", "config", "problems", "device", "workers"),
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
        float | None, option("--idle", "End the worker processes after this many seconds without a run.  [1800]")
    ] = None,
    http: Annotated[
        str | None, option("--http", "Serve HTTP at [HOST:]PORT instead of a socket; the host defaults to 127.0.0.1.")
    ] = None,
    tenants: Annotated[
        Path | None, option("--tenants", "YAML file with tenants and hashed tokens, for --http.")
    ] = None,
    store: Annotated[
        str | None,
        option(
            "--store",
            "Jobs of --http: an SQLite file or a URL postgresql://…  [server/jobs.sqlite in the cache folder]",
        ),
    ] = None,
    drain: Annotated[
        float | None, option("--drain", "Seconds that running evaluations of --http may take at the end.  [300]")
    ] = None,
    new_token: Annotated[
        bool, typer.Option("--new-token", help="Print a new token and its hash for --tenants, and exit.")
    ] = False,
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
      harness serve --http 8000

    With --http, programs submit solutions and read records over HTTP; see the guide http.md.
    """
    if new_token:
        _print_token(as_json)
        return
    if http is not None:
        if socket is not None or idle is not None:
            raise ConfigError("--socket and --idle are options of the server without --http: leave them out")
        _serve_http(settings, config, http=http, tenants=tenants, store=store, drain=drain, as_json=as_json)
        return
    given = {"--tenants": tenants, "--store": store, "--drain": drain, "--problems": settings.get("problems")}
    if alone := [name for name, value in given.items() if value is not None]:
        raise ConfigError(f"{', '.join(alone)}: only together with --http")
    idle = 1800.0 if idle is None else idle
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


def _serve_http(
    settings: Settings,
    config: Path | None,
    *,
    http: str,
    tenants: Path | None,
    store: str | None,
    drain: float | None,
    as_json: bool,
) -> None:
    drain_s = 300.0 if drain is None else drain
    if not drain_s >= 0.0:
        raise ConfigError(f"--drain must be a number of seconds, 0 or more, not {drain_s:g}")
    try:
        from harness.api.servers.http.serving import HttpService, ServiceOptions
    except ImportError as error:
        raise MachineError(f"{NO_SERVICE} ({error})") from error
    found = environment.collect()
    settled = settle(found, config, {**settings, "paths": [Path()]})
    options = ServiceOptions(
        address=http,
        store=str(settled.cache_dir / "server" / "jobs.sqlite") if store is None else store,
        tenants=tenants,
        drain_s=drain_s,
    )
    try:
        service = HttpService(options, settled, found, _tell)
    except ExecutorError as error:
        raise MachineError(str(error)) from error
    _tell(f"ready at {service.url}, device {settled.device.value}, jobs in {service.store} (process {os.getpid()})")
    if as_json:
        print_json({"url": service.url, "pid": os.getpid(), "device": settled.device.value})
        flush_results()
    if service.serve_until_ended():
        raise typer.Exit(INTERRUPTED)


def _print_token(as_json: bool) -> None:
    from harness.api.servers.http.tenants import new_token

    token, hashed = new_token()
    if as_json:
        print_json({"token": token, "sha256": hashed})
    else:
        print_text(f"token   {token}\nsha256  {hashed}\n")


def _tell(line: str) -> None:
    say(f"{datetime.now():%H:%M:%S} {line}")
