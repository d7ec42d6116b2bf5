"""Jobs in a database: SQLite for one machine, PostgreSQL for several servers.

All transactions that write run one after another, on SQLite by its write lock, on PostgreSQL by an advisory lock. So
quotas, keys and claims need no further care. A server that has not reported for `LEASE_S` seconds counts as dead: its
running jobs are queued again, and a result that it still sends is dropped.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from harness.core.config import ConfigError
from harness.core.environment import MachineError

LEASE_S = 15.0
QUEUED, RUNNING, DONE, CANCELLED = "queued", "running", "done", "cancelled"
STATES = (QUEUED, RUNNING, DONE, CANCELLED)
OPEN = (QUEUED, RUNNING)
BUSY_S = 30.0
"""How long a connection waits for another process that writes the same SQLite file, in seconds."""

_LOCK = 4_817_203
"""Number of the advisory lock on PostgreSQL."""

_TABLES = sa.MetaData()
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
# The names hold the version of the format.
JOBS = sa.Table(
    "harness_jobs_1",
    _TABLES,
    sa.Column("seq", _NUMBER, primary_key=True, autoincrement=True),
    sa.Column("id", sa.String(32), nullable=False, unique=True),
    sa.Column("tenant", sa.String(64), nullable=False),
    sa.Column("key", sa.String(200)),
    sa.Column("batch", sa.String(32), index=True),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("problem", sa.Text, nullable=False),
    sa.Column("request", sa.Text, nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("state", sa.String(10), nullable=False),
    sa.Column("owner", sa.String(32)),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("submitted_at", sa.Float, nullable=False),
    sa.Column("started_at", sa.Float),
    sa.Column("finished_at", sa.Float),
    sa.Column("status", sa.String(40)),
    sa.Column("record", sa.Text),
    sa.UniqueConstraint("tenant", "key"),
    sa.Index("harness_jobs_1_queue", "state", "priority", "seq"),
    sa.Index("harness_jobs_1_tenant", "tenant", "state"),
)
_SERVERS = sa.Table(
    "harness_servers_1", _TABLES, sa.Column("id", sa.String(32), primary_key=True), sa.Column("seen", sa.Float)
)
_SHOWN = [column for column in JOBS.c if column.name not in ("tenant", "digest", "request", "owner", "record")]


class SubmissionRefused(Exception):
    """A submission that is not queued: its HTTP status and the reason."""

    def __init__(self, status: int, reason: str) -> None:
        self.status = status
        super().__init__(reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmission:
    """Jobs of one request, queued together or not at all.

    Attributes:
        tenant: Name of the tenant.
        jobs: Columns of each job: `key`, `digest`, `problem`, `request` and `priority`.
        batch: Id that the jobs share; None for a single job.
        open_jobs: Most unfinished jobs that the tenant may have.
    """

    tenant: str
    jobs: Sequence[Mapping[str, Any]]
    batch: str | None
    open_jobs: int


class JobStore:
    """The jobs of one database.

    Safe to use from several threads, processes and (PostgreSQL) machines.

    Args:
        place: Path of an SQLite file, or a URL such as `postgresql://user@host/database`.

    Raises:
        ConfigError: The URL is invalid.
        MachineError: The database can't be opened.
    """

    def __init__(self, place: str) -> None:
        self._lock = threading.Lock()
        try:
            self.shared = "://" in place
            if self.shared:
                url = sa.make_url(place)
                if url.get_backend_name() != "postgresql":
                    raise ConfigError("--store must be the path of a file, or a URL postgresql://…")
                url = url.set(drivername="postgresql+psycopg")
                self._engine = sa.create_engine(url, pool_pre_ping=True)
            else:
                Path(place).parent.mkdir(parents=True, exist_ok=True)
                url = sa.URL.create("sqlite", database=str(Path(place).absolute()))
                self._engine = sa.create_engine(url, connect_args={"timeout": BUSY_S})
                sa.event.listen(self._engine, "connect", _durable)
            self.place = url.render_as_string(hide_password=True) if self.shared else place
            """For messages: without the password."""
            self._alone = f"SELECT pg_advisory_xact_lock({_LOCK})" if self.shared else "BEGIN IMMEDIATE"
            with self._writing() as connection:
                _TABLES.create_all(connection)
        except ArgumentError as error:
            raise ConfigError(f"--store: {error}") from error
        except (SQLAlchemyError, OSError) as error:
            shown = url.render_as_string(hide_password=True) if self.shared else place
            raise MachineError(f"--store {shown}: can't be opened: {str(error).splitlines()[0]}; check it") from error

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        with self._lock, self._engine.begin() as connection:
            connection.exec_driver_sql(self._alone)
            yield connection

    def _now(self, connection: sa.Connection) -> float:
        """Return the time in seconds by the clock that all servers of this database share."""
        if not self.shared:
            return time.time()
        return float(connection.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp())").scalar_one())

    def add(self, submissions: Sequence[JobSubmission]) -> list[list[dict[str, Any]] | SubmissionRefused]:
        """Queue submissions in one transaction.

        Args:
            submissions: The submissions.

        Returns:
            For each submission its jobs as `get` returns them, with `created`: False if the tenant's key was known. Or
            why it was refused.
        """
        answers: list[list[dict[str, Any]] | SubmissionRefused] = []
        with self._writing() as connection:
            now, counts = self._now(connection), dict[str, int]()
            for submission in submissions:
                try:
                    answers.append(_added(connection, submission, counts, now))
                except SubmissionRefused as refused:
                    answers.append(refused)
        return answers

    def get(self, tenant: str, job: str) -> dict[str, Any] | None:
        """Return a job of the tenant with its record (text), or None."""
        return next(iter(self._shown(JOBS.c.tenant == tenant, JOBS.c.id == job, records=True)), None)

    def batch(self, tenant: str, batch: str) -> list[dict[str, Any]]:
        """Return the jobs of a batch of the tenant with their records."""
        return self._shown(JOBS.c.tenant == tenant, JOBS.c.batch == batch, records=True)

    def listed(self, tenant: str, state: str | None, after: str, limit: int) -> list[dict[str, Any]]:
        """Return the tenant's jobs after one of them, in order, without records."""
        begin = sa.select(JOBS.c.seq).where(JOBS.c.tenant == tenant, JOBS.c.id == after).scalar_subquery()
        wanted = [JOBS.c.tenant == tenant, *([JOBS.c.seq > begin] if after else [])]
        return self._shown(*wanted, *([JOBS.c.state == state] if state else []), limit=limit)

    def _shown(
        self, *wanted: sa.ColumnElement[bool], records: bool = False, limit: int | None = None
    ) -> list[dict[str, Any]]:
        columns = [*_SHOWN, JOBS.c.record] if records else _SHOWN
        return self._rows(sa.select(*columns).where(*wanted).order_by(JOBS.c.seq).limit(limit))

    def _rows(self, query: sa.Select[Any]) -> list[dict[str, Any]]:
        with self._engine.connect() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def cancel(self, tenant: str, job: str) -> bool:
        """Cancel a job of the tenant; return whether it was unfinished."""
        with self._writing() as connection:
            mine = (JOBS.c.tenant == tenant, JOBS.c.id == job, JOBS.c.state.in_(OPEN))
            change = sa.update(JOBS).where(*mine).values(state=CANCELLED, finished_at=self._now(connection))
            return connection.execute(change).rowcount == 1

    def counts(self) -> dict[str, int]:
        """Return the number of jobs in each state."""
        found = self._rows(sa.select(JOBS.c.state, sa.func.count().label("jobs")).group_by(JOBS.c.state))
        return dict.fromkeys(STATES, 0) | {row["state"]: row["jobs"] for row in found}

    def beat(self, server: str, running: Collection[int]) -> None:
        """Report that a server lives, and queue running jobs without a server again.

        Args:
            server: The server.
            running: `seq` of the jobs that it evaluates. It may not know of another one if the answer to a claim was
                lost.
        """
        with self._writing() as connection:
            now = self._now(connection)
            connection.execute(sa.delete(_SERVERS).where((_SERVERS.c.id == server) | (_SERVERS.c.seen < now - LEASE_S)))
            connection.execute(sa.insert(_SERVERS).values(id=server, seen=now))
            lost = JOBS.c.owner.not_in(sa.select(_SERVERS.c.id)) | (
                (JOBS.c.owner == server) & JOBS.c.seq.not_in(running)
            )
            connection.execute(
                sa.update(JOBS).where(JOBS.c.state == RUNNING, lost).values(state=QUEUED, owner=None, started_at=None)
            )

    def exchange(
        self, server: str, results: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], limit: int
    ) -> list[dict[str, Any]]:
        """Store records of a server's jobs, and give it up to `limit` new ones.

        Args:
            server: The server.
            results: Pairs of a job as this method returned it and its record. The record of a job that was cancelled,
                or given to another server meanwhile, is dropped.
            limit: Most new jobs.

        Returns:
            The new jobs: `seq`, `id`, `tenant`, `batch`, `request`, `submitted_at`, and `attempts` with this one.
            Higher priorities come first, then earlier submissions.
        """
        columns = [JOBS.c[name] for name in ("seq", "id", "tenant", "batch", "request", "submitted_at", "attempts")]
        queued = sa.select(*columns).where(JOBS.c.state == QUEUED)
        queued = queued.order_by(JOBS.c.priority.desc(), JOBS.c.seq).limit(limit)
        if not results and (limit <= 0 or not self._rows(queued.with_only_columns(JOBS.c.seq).limit(1))):
            return []  # without waiting for the lock
        texts = [(job, record["status"], json.dumps(record, allow_nan=False)) for job, record in results]
        with self._writing() as connection:
            now = self._now(connection)
            for job, status, text in texts:
                mine = (JOBS.c.state == RUNNING, JOBS.c.owner == server, JOBS.c.attempts == job["attempts"])
                values = {"state": DONE, "status": status, "record": text, "finished_at": now}
                connection.execute(sa.update(JOBS).where(JOBS.c.seq == job["seq"], *mine).values(**values))
            jobs = [dict(row) for row in connection.execute(queued).mappings()] if limit > 0 else []
            values = {"state": RUNNING, "owner": server, "attempts": JOBS.c.attempts + 1, "started_at": now}
            claimed = JOBS.c.seq.in_([job["seq"] for job in jobs])
            if jobs:
                connection.execute(sa.update(JOBS).where(claimed).values(**values))
        return [{**job, "attempts": job["attempts"] + 1} for job in jobs]

    def release(self, server: str, jobs: Collection[int]) -> None:
        """Queue claimed jobs again, by `seq`; this attempt does not count."""
        with self._writing() as connection:
            mine = (JOBS.c.seq.in_(jobs), JOBS.c.state == RUNNING, JOBS.c.owner == server)
            values = {"state": QUEUED, "owner": None, "started_at": None, "attempts": JOBS.c.attempts - 1}
            connection.execute(sa.update(JOBS).where(*mine).values(**values))

    def lost(self, server: str, jobs: Collection[int]) -> set[int]:
        """Return which of these jobs were cancelled or given to another server."""
        kept = (JOBS.c.seq.in_(jobs), JOBS.c.state == RUNNING, JOBS.c.owner == server)
        return set(jobs) - {row["seq"] for row in self._rows(sa.select(JOBS.c.seq).where(*kept))}

    def leave(self, server: str) -> None:
        """Forget a server that ends."""
        with self._writing() as connection:
            connection.execute(sa.delete(_SERVERS).where(_SERVERS.c.id == server))

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()


def _durable(connection: Any, _: object) -> None:
    """Set up SQLite: readers don't wait for the writer, a commit is on the disk."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")


def _added(
    connection: sa.Connection, submission: JobSubmission, counts: dict[str, int], now: float
) -> list[dict[str, Any]]:
    """Insert jobs whose keys are new; return all. Raises `SubmissionRefused`."""
    tenant = submission.tenant
    keys = {job["key"] for job in submission.jobs} - {None}
    known: dict[str, dict[str, Any]] = {}
    if keys:
        same = sa.select(*_SHOWN, JOBS.c.record, JOBS.c.digest).where(JOBS.c.tenant == tenant, JOBS.c.key.in_(keys))
        known = {row["key"]: {**row, "created": False} for row in connection.execute(same).mappings()}
    jobs, new = [], []
    for given in submission.jobs:
        if (job := known.get(given["key"])) is None:
            job = dict.fromkeys(column.name for column in JOBS.c if column.name != "seq")
            job |= {**given, "tenant": tenant, "id": secrets.token_hex(12), "batch": submission.batch}
            job |= {"state": QUEUED, "attempts": 0, "submitted_at": now}
            new.append(dict(job))
            job["created"] = True
            if given["key"] is not None:
                known[given["key"]] = job
        elif job["digest"] != given["digest"]:
            raise SubmissionRefused(409, f"key {given['key']!r} belongs to another job of yours: use a new key")
        jobs.append(job)
    if tenant not in counts:
        unfinished = sa.select(sa.func.count()).where(JOBS.c.tenant == tenant, JOBS.c.state.in_(OPEN))
        counts[tenant] = connection.execute(unfinished).scalar_one()
    if new and counts[tenant] + len(new) > submission.open_jobs:
        left = max(0, submission.open_jobs - counts[tenant])
        said = f"quota of {submission.open_jobs} unfinished jobs: {left} left, {len(new)} wanted; wait for results"
        raise SubmissionRefused(429, said)
    if new:
        connection.execute(sa.insert(JOBS), new)
        counts[tenant] += len(new)
    return jobs
