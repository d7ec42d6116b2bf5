"""Routes of the HTTP service: jobs, batches, events, problems, metrics, health.

No route serves the text of a problem, or a log. Errors are `{"error": "what is wrong; what to do"}`.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Annotated, Any, Literal

import msgspec
from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

import harness
from harness.api.servers.http.dispatcher import STARTED
from harness.api.servers.http.evaluator import JobEvaluator
from harness.api.servers.http.job_store import OPEN, JobStore, JobSubmission, SubmissionRefused
from harness.api.servers.http.meters import Meters
from harness.api.servers.http.tenants import TOP_PRIORITY, Tenant
from harness.catalog import CatalogError
from harness.core.problem import digest_text
from harness.results.schema import record_schema

MAX_BATCH = 100
MAX_WAIT_S = 60.0
ALIVE_S = 15.0
"""How often a stream without news sends a comment, so that proxies keep it, in seconds."""

LOOK_S = 1.0
"""How often a waiting request looks for changes by other servers, in seconds."""


Wait = Annotated[float, Query(ge=0, le=MAX_WAIT_S, description="Wait this many seconds for the end.")]


class JobRequest(BaseModel):
    """A solution to evaluate: its source, and the problem by id or by text."""

    model_config = ConfigDict(extra="forbid")
    source: str = Field(description="Text of the solution's file.")
    problem: str | None = Field(None, description="Id of a problem, such as level1/19.")
    problem_text: str | None = Field(None, description="Text of a problem's file; needs the right problem_texts.")
    key: str | None = Field(
        None, pattern=r"^[!-~]{1,200}$", description="Your own name of the job. The same key never makes a second job."
    )
    workload: str | None = Field(None, max_length=80, description="Name of a workload of the problem.")
    name: str | None = Field(None, max_length=200, description="Name of the solution in its record.")
    sample: int | None = Field(None, ge=0, lt=2**63, description="Its number among several samples.")
    priority: int = Field(0, ge=-TOP_PRIORITY, le=TOP_PRIORITY, description="Higher is evaluated earlier.")


class BatchRequest(BaseModel):
    """Jobs that are queued together, or none of them."""

    model_config = ConfigDict(extra="forbid")
    jobs: list[JobRequest] = Field(min_length=1, max_length=MAX_BATCH)


class JobView(BaseModel):
    """A job; `record` follows the schema of a record once it is done."""

    id: str
    key: str | None
    batch: str | None
    problem: str
    state: Literal["queued", "running", "done", "cancelled"]
    priority: int
    status: str | None = Field(description="The record's status.")
    attempts: int = Field(description="How often an evaluation began.")
    submitted_at: float = Field(description="Seconds since 1970, as the other times.")
    started_at: float | None
    finished_at: float | None
    record: dict[str, Any] | None = None


class BatchView(BaseModel):
    """The jobs of a batch, and how many of them are unfinished."""

    id: str
    open: int
    jobs: list[JobView]


class JobList(BaseModel):
    """A page of jobs; pass `next` as `after` for the following ones."""

    jobs: list[JobView]
    next: str | None


class Refusal(BaseModel):
    """Why a request failed and what to do."""

    error: str


class Bell:
    """Wakes the requests that wait for a job or batch. Used on the event loop only."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self.closing = False

    def ring(self, names: Collection[str]) -> None:
        """Wake the requests that wait for one of these jobs."""
        for name in names:
            for event in self._waiting.get(name, ()):
                event.set()

    def close(self) -> None:
        """Wake all; they answer with the present state."""
        self.closing = True
        self.ring(self._waiting)

    @contextmanager
    def listening(self, *names: str) -> Iterator[asyncio.Event]:
        """Give the event of one waiting request."""
        event = asyncio.Event()
        for name in names:
            self._waiting.setdefault(name, set()).add(event)
        try:
            yield event
        finally:
            for name in names:
                self._waiting[name].discard(event)
                if not self._waiting[name]:
                    del self._waiting[name]


class GroupedSubmissions:
    """Queues all submissions that arrive during a write in the next transaction."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._waiting: list[tuple[JobSubmission, asyncio.Future[list[dict[str, Any]]]]] = []
        self._writer: asyncio.Task[None] | None = None

    async def add(self, submission: JobSubmission) -> list[dict[str, Any]]:
        """Return the jobs once they are on disk. Raises `SubmissionRefused`."""
        future: asyncio.Future[list[dict[str, Any]]] = asyncio.get_running_loop().create_future()
        self._waiting.append((submission, future))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())
        return await future

    async def _write(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting, []
            try:
                answers: Sequence[Any] = await asyncio.to_thread(self._store.add, [one for one, _ in group])
            except Exception as error:
                answers = [error] * len(group)
            for (_, future), answer in zip(group, answers, strict=True):
                if future.done():
                    continue  # the client is gone
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)


def made_app(
    store: JobStore,
    evaluator: JobEvaluator,
    meters: Meters,
    bell: Bell,
    *,
    wake: Callable[[bool], None],
    trouble: Callable[[], str | None],
    broken: Callable[[], bool],
) -> FastAPI:
    """Return the routes as an application; `HttpGate` has to stand before it.

    Args:
        store: The jobs.
        evaluator: Checks requests.
        meters: The metrics.
        bell: Wakes waiting requests.
        wake: Tells the dispatcher that a job was queued, or (True) cancelled.
        trouble: Why the service is not ready, or None.
        broken: Whether only a restart helps.
    """
    app = FastAPI(title="kernel-harness", version=harness.__version__, docs_url=None, redoc_url=None)
    submissions = GroupedSubmissions(store)
    errors: dict[int | str, dict[str, Any]] = {
        code: {"model": Refusal} for code in (401, 404, 409, 411, 413, 415, 422, 429, 503)
    }

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]  # without `input`, which may be a whole source
        where = ".".join(str(part) for part in first["loc"][1:]) or "body"
        return JSONResponse({"error": f"{where:.200}: {first['msg']:.300}; see /openapi.json"}, 422)

    @app.exception_handler(HTTPException)
    async def failed(_: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)

    @app.exception_handler(SubmissionRefused)
    async def refused(_: Request, error: SubmissionRefused) -> JSONResponse:
        return JSONResponse({"error": str(error)}, error.status, {"retry-after": "5"} if error.status == 429 else None)

    async def queued(request: Request, jobs: Sequence[JobRequest], batch: str | None) -> list[dict[str, Any]]:
        tenant: Tenant = request.state.tenant
        rows = [_row(evaluator, tenant, job, f"jobs.{n}: " if batch else "") for n, job in enumerate(jobs)]
        submission = JobSubmission(tenant=tenant.name, jobs=rows, batch=batch, open_jobs=tenant.open_jobs)
        added = await submissions.add(submission)
        wake(False)
        return added

    async def changes(
        *names: str, read: Callable[[], list[dict[str, Any]]], news_s: float
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        """Yield the jobs now, at news of `names` and every `news_s` s, until none is open."""
        with bell.listening(*names) as rung:
            while True:
                rung.clear()
                jobs = await asyncio.to_thread(read)
                yield jobs
                if bell.closing or not any(job["state"] in OPEN for job in jobs):
                    return
                try:
                    async with asyncio.timeout(min(news_s, LOOK_S) if store.shared else news_s):
                        await rung.wait()
                except TimeoutError:
                    pass

    async def settled(name: str, read: Callable[[], list[dict[str, Any]]], wait_s: float) -> list[dict[str, Any]]:
        """Return jobs when none of them is open, at the latest after `wait_s` seconds."""
        deadline = time.monotonic() + wait_s
        async with aclosing(changes(name, read=read, news_s=max(wait_s, 0.001))) as news:
            async for jobs in news:
                if not jobs or time.monotonic() >= deadline:
                    break
        if not jobs:
            raise HTTPException(404, f"you have no job or batch {name!r:.40}")
        return jobs

    def streamed(name: str, read: Callable[[], list[dict[str, Any]]], view: Callable[[Any], bytes]) -> Response:
        async def events() -> AsyncIterator[bytes]:
            last = None
            async with aclosing(changes(name, STARTED + name, read=read, news_s=ALIVE_S)) as news:
                async for jobs in news:
                    states = [job["state"] for job in jobs]
                    kind = b"changed" if any(state in OPEN for state in states) else b"finished"
                    yield b": nothing new\n\n" if states == last else b"event: %b\ndata: %b\n\n" % (kind, view(jobs))
                    last = states

        return StreamingResponse(events(), media_type="text/event-stream", headers={"cache-control": "no-store"})

    def one(request: Request, job: str) -> Callable[[], list[dict[str, Any]]]:
        tenant = request.state.tenant.name
        return lambda: [found] if (found := store.get(tenant, job)) is not None else []

    def many(request: Request, batch: str) -> Callable[[], list[dict[str, Any]]]:
        tenant = request.state.tenant.name
        return lambda: store.batch(tenant, batch)

    @app.post("/v1/jobs", response_model=JobView, status_code=201, responses={200: {"model": JobView}, **errors})
    async def submit(request: Request, job: JobRequest) -> Response:
        """Queue a job: 201, or 200 if the key is known."""
        (added,) = await queued(request, [job], None)
        return _json(_view(added), 201 if added["created"] else 200)

    @app.get("/v1/jobs", response_model=JobList, responses=errors)
    async def jobs(
        request: Request,
        state: Literal["queued", "running", "done", "cancelled"] | None = None,
        after: Annotated[str, Query(max_length=32)] = "",
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> Response:
        """List your jobs in the order of submission, without records."""
        found = await asyncio.to_thread(store.listed, request.state.tenant.name, state, after, limit)
        following = found[-1]["id"] if len(found) == limit else None
        return _json({"jobs": [_view(job) for job in found], "next": following})

    @app.get("/v1/jobs/{job}", response_model=JobView, responses=errors)
    async def job(request: Request, job: str, wait_s: Wait = 0.0) -> Response:
        """Show a job, with its record if it is done."""
        (found,) = await settled(job, one(request, job), wait_s)
        return _json(_view(found))

    @app.get("/v1/jobs/{job}/events", responses={200: {"content": {"text/event-stream": {}}}, **errors})
    async def job_events(request: Request, job: str) -> Response:
        """Stream the job as server-sent events: `changed`, and at last `finished`."""
        await settled(job, one(request, job), 0.0)
        return streamed(job, one(request, job), lambda jobs: msgspec.json.encode(_view(jobs[0])))

    @app.delete("/v1/jobs/{job}", response_model=JobView, responses=errors)
    async def cancel(request: Request, job: str) -> Response:
        """Cancel a job: it gets no record. 409 if it is done."""
        cancelled = await asyncio.to_thread(store.cancel, request.state.tenant.name, job)
        (found,) = await settled(job, one(request, job), 0.0)
        if not cancelled and found["state"] == "done":
            raise HTTPException(409, "the job is done: it has its record")
        wake(True)
        bell.ring([name for name in (job, found["batch"]) if name])
        return _json(_view(found))

    @app.post("/v1/batches", response_model=BatchView, status_code=201, responses=errors)
    async def submit_batch(request: Request, batch: BatchRequest) -> Response:
        """Queue jobs together; one whose key is known stays in its earlier batch."""
        name = secrets.token_hex(12)
        return _json(_batch_view(name, await queued(request, batch.jobs, name)), 201)

    @app.get("/v1/batches/{batch}", response_model=BatchView, responses=errors)
    async def batch(request: Request, batch: str, wait_s: Wait = 0.0) -> Response:
        """Show the jobs of a batch with their records."""
        return _json(_batch_view(batch, await settled(batch, many(request, batch), wait_s)))

    @app.get("/v1/batches/{batch}/events", responses={200: {"content": {"text/event-stream": {}}}, **errors})
    async def batch_events(request: Request, batch: str) -> Response:
        """Stream the batch at each change of a job."""
        await settled(batch, many(request, batch), 0.0)
        return streamed(batch, many(request, batch), lambda jobs: msgspec.json.encode(_batch_view(batch, jobs)))

    @app.get("/v1/problems", responses=errors)
    async def problems() -> dict[str, list[dict[str, Any]]]:
        """List the problems that jobs may name; their text is not served."""
        found = [(key, held) for key, held in evaluator.problems.known.items() if held.failure is None]
        return {"problems": [{"id": key, "name": held.name, "workloads": [*held.workloads]} for key, held in found]}

    @app.get("/metrics", responses=errors)
    async def metrics() -> Response:
        """Return the metrics in Prometheus' text format."""
        counts = await asyncio.to_thread(store.counts)
        return Response(meters.text(counts), media_type="text/plain; version=0.0.4; charset=utf-8")

    def health(why: str | None) -> Response:
        return JSONResponse({"status": "ok"} if why is None else {"error": why}, 200 if why is None else 503)

    @app.get("/healthz", responses={503: {"model": Refusal}})
    async def healthz() -> Response:
        """Tell whether the server lives; if it does not, restart it."""
        return health(trouble() if broken() else None)

    @app.get("/readyz", responses={503: {"model": Refusal}})
    async def readyz() -> Response:
        """Tell whether the server takes and evaluates jobs."""
        return health(trouble())

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = FastAPI.openapi(app)
            schema = json.loads(json.dumps(record_schema()["$defs"]).replace("#/$defs/", "#/components/schemas/"))
            made["components"]["schemas"] |= schema
            record = {"anyOf": [{"$ref": "#/components/schemas/Record"}, {"type": "null"}]}
            made["components"]["schemas"]["JobView"]["properties"]["record"] = record
            made["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            made["security"] = [{"token": []}]
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
    return app


def _row(evaluator: JobEvaluator, tenant: Tenant, job: JobRequest, where: str) -> dict[str, Any]:
    """Check a job and return its columns. Raises `SubmissionRefused`."""
    if (job.problem is None) == (job.problem_text is None):
        raise SubmissionRefused(422, f"{where}give either problem (an id) or problem_text")
    if job.problem_text is not None and not tenant.problem_texts:
        said = "you may not send problems as text, because they run outside the sandbox: name one of /v1/problems"
        raise SubmissionRefused(403, f"{where}{said}")
    if job.priority > tenant.max_priority:
        raise SubmissionRefused(403, f"{where}your highest priority is {tenant.max_priority}, not {job.priority}")
    request = job.model_dump(exclude={"key", "priority"})
    try:
        planned = evaluator.plan(request, tenant.name)
    except CatalogError as error:
        raise SubmissionRefused(422, f"{where}{error}") from error
    text = json.dumps(request, sort_keys=True)
    columns = {"key": job.key, "priority": job.priority, "problem": planned.problem.id}
    return {**columns, "request": text, "digest": digest_text(text)}


def _view(job: dict[str, Any]) -> dict[str, Any]:
    shown = {name: job[name] for name in JobView.model_fields if name != "record"}
    record = job.get("record")
    return {**shown, "record": None if record is None else msgspec.Raw(record.encode())}


def _batch_view(batch: str, jobs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"id": batch, "open": sum(job["state"] in OPEN for job in jobs), "jobs": [_view(job) for job in jobs]}


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
