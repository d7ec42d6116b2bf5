"""`harness mcp`: the harness as tools of an agent (Model Context Protocol).

Trusted side.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import signal
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.catalog import load_problems
from harness.cli.output import (
    DEVICES,
    Json,
    ProblemsRoot,
    choice,
    chosen,
    ended_by_signals,
    flush_results,
    option,
    print_json,
    say,
)
from harness.core.config import ConfigError
from harness.core.environment import MachineError

if TYPE_CHECKING:
    from harness.api import Harness

NO_MCP = "harness mcp needs the package mcp: pip install 'kernel-harness[mcp]'"
TOKEN, LEAST_TOKEN_CHARS = "HARNESS_MCP_TOKEN", 16
PORT = 8730


def mcp_command(
    problems: ProblemsRoot = None,
    device: Annotated[
        str, choice("--device", DEVICES, "Where solutions are evaluated: auto, cuda or host.  [auto]")
    ] = ("auto"),
    results: Annotated[
        Path | None, option("--results", "Folder of a run to create or continue, with all records.  [none]")
    ] = None,
    hide: Annotated[
        list[str] | None,
        option("--hide", "Never show the text of problems with these ids, for example 'level2/*'. May be repeated."),
    ] = None,
    http: Annotated[bool, typer.Option("--http", help="Serve streamable HTTP instead of stdio.")] = False,
    host: Annotated[str, option("--host", "For --http: address to listen on.  [127.0.0.1]")] = "127.0.0.1",
    port: Annotated[int, option("--port", f"For --http: port; 0 means any free one.  [{PORT}]")] = PORT,
    as_json: Json = False,
) -> None:
    """Offer the harness to agents as tools of the Model Context Protocol.

    The tools list and show problems, evaluate solutions, explain failures, profile, compare, lint, screen and time
    baselines. An agent's client starts this command and talks to it over standard input and output. With --http, it
    serves many clients. If HARNESS_MCP_TOKEN is set, each request over HTTP must carry this token; for an address that
    other machines reach, it must be set. With --http --json, it prints its address when it listens.

    \b
    Examples:
      harness mcp --device host
      harness mcp --http --hide 'level2/*'
    """
    chosen("--device", device, DEVICES)
    if not 0 <= port <= 65535:
        raise ConfigError(f"--port must be from 0 to 65535, not {port}")
    if as_json and not http:
        raise ConfigError("--json prints the address of --http: pass --http, or leave out --json")
    token = os.environ.pop(TOKEN, None)  # taken out: commands that the server starts don't need it
    if http and token is not None and len(token) < LEAST_TOKEN_CHARS:
        raise ConfigError(
            f"{TOKEN} has {len(token)} characters: set it to a random text of at least {LEAST_TOKEN_CHARS}"
        )
    if http and token is None and not _is_loopback(host):
        raise ConfigError(f"--host {host}: other machines reach this address; set {TOKEN} to a random text first")
    if importlib.util.find_spec("mcp") is None:
        raise MachineError(NO_MCP)
    catalog = load_problems(problems or Path("problems"))
    listening = _listening(host, port) if http else None
    # Imported here, so that --help is fast.
    from harness.api import Harness
    from harness.api.servers.mcp.tool_set import PreparingNow, ToolSet
    from harness.api.servers.mcp.transports import ToolServer, serve_http, serve_stdio

    preparation = PreparingNow()
    settings: dict[str, Any] = {"device": device, "problems": catalog.root, "results": results}
    with ended_by_signals(), Harness(**settings, on_event=preparation.note) as judge:
        server = ToolServer(ToolSet(judge, catalog, hide or [], preparation))
        if listening is None:
            _end_at_once(judge)
            serve_stdio(server)
        else:
            url = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}/mcp"
            say(f"ready at {url}, device {judge.device.value}")
            if as_json:
                print_json({"url": url, "pid": os.getpid(), "device": judge.device.value})
                flush_results()
            serve_http(server, listening, token)


def _end_at_once(judge: Harness) -> None:
    """End this process on a signal.

    A thread waits for standard input, which nothing interrupts, so unwinding would wait for the client.
    """

    def end(number: int, _: object) -> None:
        def close() -> None:
            judge.close()
            os._exit(128 + number)

        threading.Thread(target=close).start()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listening(host: str, port: int) -> socket.socket:
    """Return a bound socket.

    Raises:
        ConfigError: The address can't be used.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise ConfigError(f"can't listen on {host} port {port}: {why}; pass another --host or --port") from error
