"""Runs the HTTP service: socket, event loop, dispatcher, graceful end."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import uvicorn

from harness.api.servers.http.dispatcher import Dispatcher
from harness.api.servers.http.evaluator import JobEvaluator
from harness.api.servers.http.gate import HttpGate
from harness.api.servers.http.job_store import JobStore
from harness.api.servers.http.meters import Meters
from harness.api.servers.http.routes import Bell, made_app
from harness.api.servers.http.tenants import Tenants
from harness.core.config import ConfigError, RunConfig
from harness.core.environment import Environment, MachineError
from harness.runner.executors import Executor

MOST_CONNECTIONS = 2_000
END_S = 5
"""How long open answers may take to end after the drain, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """Where the service listens and what it keeps.

    Attributes:
        address: `[HOST:]PORT`; without a host 127.0.0.1. Port 0 takes a free one.
        store: Path of an SQLite file, or a PostgreSQL URL.
        tenants: The tenants file; None admits everybody on this machine as one tenant.
        drain_s: How long running evaluations may take when the service ends, in seconds.
    """

    address: str
    store: str
    tenants: Path | None
    drain_s: float


def address_of(text: str) -> tuple[str, int]:
    """Return host and port of `[HOST:]PORT`. Raises `ConfigError`."""
    host, _, port = text.rpartition(":")
    host = (host.removeprefix("[").removesuffix("]") if host.startswith("[") else host) or "127.0.0.1"
    if not port.isdecimal() or int(port) > 65535 or (":" in host and not text.startswith("[")):
        raise ConfigError(f"--http must be [HOST:]PORT such as 8000 or 127.0.0.1:8000, not {text!r:.60}")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class HttpService(uvicorn.Server):
    """The service; it listens from its construction on.

    The first SIGTERM or Ctrl-C drains it: no new jobs, the running ones get their records, queued ones stay in the
    store. The second one ends it at once.

    Args:
        options: Where to listen and what to keep.
        config: Settings of the evaluations.
        environment: Facts about this machine.
        say: Gets one line for each event, from several threads.
        executor: Evaluates; None opens the one that `config` names.

    Raises:
        ConfigError: An option is wrong.
        MachineError: The address or the database can't be used, or a tool is missing.
        ExecutorError: The device or cluster can't be used.
    """

    def __init__(
        self,
        options: ServiceOptions,
        config: RunConfig,
        environment: Environment,
        say: Callable[[str], None],
        executor: Executor | None = None,
    ) -> None:
        host, port = address_of(options.address)
        if options.tenants is None and not is_loopback(host):
            raise ConfigError(
                f"--http {options.address}: listens beyond this machine only with tokens: add --tenants FILE"
            )
        tenants = Tenants(options.tenants, say)
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, port), family=family, backlog=1024)
        except OSError as error:
            raise MachineError(f"--http {options.address}: can't listen: {error.strerror or error}") from error
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self._socket.getsockname()[1]}"
        self._say, self._drain_s = say, options.drain_s
        self._signals: list[int] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        try:
            store, meters, self._bell = JobStore(options.store), Meters(), Bell()
            self.store = store.place
            evaluator = JobEvaluator(config, environment, say, executor)
        except BaseException:
            self._socket.close()
            raise
        self._dispatcher = dispatcher = Dispatcher(store, evaluator, meters, self._changed, say)
        app = made_app(
            store,
            evaluator,
            meters,
            self._bell,
            wake=lambda cancelled: dispatcher.wake(cancelled=cancelled),
            trouble=lambda: "shutting down" if dispatcher.draining else dispatcher.trouble,
            broken=lambda: dispatcher.broken,
        )
        gate = HttpGate(app, tenants, meters, lambda: dispatcher.draining)
        super().__init__(
            uvicorn.Config(
                gate,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ws="none",
                lifespan="off",
                limit_concurrency=MOST_CONNECTIONS,
                timeout_keep_alive=60,
                timeout_graceful_shutdown=END_S,
            )
        )

    def serve_until_ended(self) -> bool:
        """Serve until a signal ends it; return whether that was Ctrl-C."""
        self._dispatcher.start()
        try:
            self.run(sockets=[self._socket])
        finally:
            self._dispatcher.close()
            self._socket.close()
        return signal.SIGINT in self._signals

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to answer."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal, end at the second."""
        self._signals.append(sig)
        if len(self._signals) > 1:
            self._bell.close()
            self.should_exit = self.force_exit = True
            return
        self._say("shutting down: running evaluations get their records; interrupt again to end at once")
        threading.Thread(target=self._drain, name="drain", daemon=True).start()

    def _drain(self) -> None:
        self._dispatcher.drain(self._drain_s)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._bell.close)
        self.should_exit = True

    def _changed(self, names: Collection[str]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._bell.ring, names)
