"""The HTTP service as programs see it: real server processes that are killed, drained and asked wrongly.

Most tests use the server of `tests.support.http_server`, whose executor only repeats; one evaluates with
`harness serve --http`.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml

from harness.cli import main
from harness.core.problem import digest_text
from harness.core.record import Record
from harness.results.schema import record_schema
from tests.support.http_server import source
from tests.support.page_blocks import blocks_in
from tests.support.paths import ROOT

pytest.importorskip("fastapi", reason="needs the extra service")

from harness.api.servers.http.job_store import JobStore, JobSubmission, SubmissionRefused
from harness.api.servers.http.tenants import Tenant, Tenants, new_token

pytestmark = pytest.mark.xdist_group("http")
LIMIT_S = 120.0
SECRET = "the_words_of_the_hidden_problem"
HIDDEN = f"""
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        {SECRET} = torch.relu(x)
        return {SECRET}
def get_inputs():
    return [torch.rand(64, 64) - 0.5]
def get_init_inputs():
    return []
"""
FAILS = HIDDEN.replace("torch.relu(x)", f"1; raise ValueError('{SECRET}')")
BROKEN = f"{SECRET} = = 1\n"
"""A problem file that can't be read; a message about it would quote the line."""

RIGHT = textwrap.dedent(
    """
    import torch
    class ModelNew(torch.nn.Module):
        def forward(self, x):
            return torch.clamp(x, min=0)
    """
)


class Api:
    """Calls of one tenant."""

    def __init__(self, url: str, token: str | None) -> None:
        self.url = url
        self.headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        status, _, data = self.raw(method, path, None if body is None else json.dumps(body), **headers)
        return status, json.loads(data)

    def raw(self, method: str, path: str, body: str | None = None, **headers: str) -> tuple[int, Any, str]:
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=LIMIT_S)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body, {**self.headers, **named})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def submit(self, echo: str, seconds: float = 0.005, **more: Any) -> dict[str, Any]:
        status, job = self("POST", "/v1/jobs", {"problem": "level1/19", "source": source(echo, seconds), **more})
        assert status in (200, 201), job
        return job

    def record(self, job: dict[str, Any]) -> dict[str, Any]:
        """The record, waited for."""
        begin = time.monotonic()
        while job["state"] in ("queued", "running"):
            assert time.monotonic() < begin + LIMIT_S, job
            status, job = self("GET", f"/v1/jobs/{job['id']}?wait_s=30")
            assert status == 200, job
        return job["record"]


class Place:
    """A folder with problems, a store and tenants, and its servers."""

    def __init__(self, folder: Path, store: str | None = None) -> None:
        self.folder, self.store = folder, store or str(folder / "jobs.sqlite")
        (folder / "problems" / "level1").mkdir(parents=True)
        (folder / "problems" / "level1" / "19_hidden.py").write_text(HIDDEN)
        (folder / "problems" / "level1" / "20_broken.py").write_text(BROKEN)
        (folder / "problems" / "level1" / "21_fails.py").write_text(FAILS)
        made = {name: new_token() for name in ("ann", "bob", "eve")}
        self.tokens = {name: token for name, (token, _) in made.items()}
        held: dict[str, Any] = {name: {"tokens": [{"sha256": digest}]} for name, (_, digest) in made.items()}
        held["ann"] |= {"max_priority": 5, "problem_texts": True, "requests_per_s": 1000}
        held["eve"] |= {"open_jobs": 3, "requests_per_s": 5}
        self.write({"format": 1, "tenants": held})
        self.held = held
        self.processes: list[subprocess.Popen[str]] = []

    def write(self, tenants: Any) -> None:
        (self.folder / "tenants.yaml").write_text(yaml.safe_dump(tenants))

    def start(self, *more: str, slots: int = 2, port: int = 0, tenants: bool = True) -> Api:
        """A server that listens; called as ann."""
        command = [sys.executable, "-m", "tests.support.http_server", f"127.0.0.1:{port}", self.store]
        command += ["--slots", str(slots), "--problems", str(self.folder / "problems"), *more]
        command += ["--tenants", str(self.folder / "tenants.yaml")] if tenants else []
        with (self.folder / "log").open("ab") as log:
            made = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
        self.processes.append(made)
        assert made.stdout is not None
        url = made.stdout.readline().strip()
        assert url, (self.folder / "log").read_text()
        return Api(url, self.tokens["ann"] if tenants else None)

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


@contextmanager
def placed(folder: Path, store: str | None = None) -> Iterator[Place]:
    place = Place(folder, store)
    try:
        yield place
    finally:
        place.end()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, Api]]:
    with placed(tmp_path_factory.mktemp("http")) as place:
        yield place, place.start()


@pytest.fixture
def ann(shared: tuple[Place, Api]) -> Api:
    return shared[1]


@pytest.fixture
def bob(shared: tuple[Place, Api]) -> Api:
    return Api(shared[1].url, shared[0].tokens["bob"])


def test_a_job_gets_a_record_of_the_schema_and_a_key_never_makes_a_second_job(ann: Api) -> None:
    job = ann.submit("words", key="one", name="mine", sample=3)
    record = ann.record(job)
    jsonschema.validate(record, record_schema())
    assert Record.from_json(record).author == "ann"
    assert (record["evidence"]["echo"], record["sample"], record["problem"]) == ("words", 3, "level1/19")
    assert record["solution_digest"] == digest_text(source("words"))
    again = ann.submit("words", key="one", name="mine", sample=3)
    assert (again["id"], again["record"]) == (job["id"], record)
    body = {"problem": "level1/19", "source": source("other"), "key": "one"}
    assert ann("POST", "/v1/jobs", body)[0] == 409
    _, odd = ann("POST", "/v1/jobs", {"problem": "level1/19", "source": source("odd") + "# \ud800"})
    assert ann.record(odd)["evidence"]["echo"] == "odd"


def test_a_batch_is_queued_whole_or_not_at_all(ann: Api) -> None:
    jobs = [{"problem": "level1/19", "source": source(f"b{n}"), "key": f"batch-{n}"} for n in range(4)]
    status, refused = ann("POST", "/v1/batches", {"jobs": [*jobs, {"problem": "level1/77", "source": "x"}]})
    assert (status, refused["error"].startswith("jobs.4: there is no problem 'level1/77'")) == (422, True)
    status, batch = ann("POST", "/v1/batches", {"jobs": [*jobs, jobs[0]]})
    assert (status, len({job["id"] for job in batch["jobs"]})) == (201, 4)
    while batch["open"]:
        status, batch = ann("GET", f"/v1/batches/{batch['id']}?wait_s=30")
        assert status == 200
    assert {job["key"]: job["record"]["evidence"]["echo"] for job in batch["jobs"]} == {
        f"batch-{n}": f"b{n}" for n in range(4)
    }


def test_events_tell_each_state_and_end_with_the_record(ann: Api) -> None:
    job = ann.submit("told", 0.6)
    status, headers, text = ann.raw("GET", f"/v1/jobs/{job['id']}/events")
    assert (status, headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
    events = re.findall(r"event: (\w+)\ndata: (.*)\n\n", text)
    assert [kind for kind, _ in events] == ["changed"] * (len(events) - 1) + ["finished"]
    last = json.loads(events[-1][1])
    assert (last["state"], last["record"]["evidence"]["echo"]) == ("done", "told")
    assert "running" in [json.loads(data)["state"] for _, data in events]


def test_a_cancelled_job_gets_no_record_also_if_it_runs_already(ann: Api) -> None:
    job = ann.submit("never", 1.0)
    wait_until(lambda: ann("GET", f"/v1/jobs/{job['id']}")[1]["state"] == "running")
    assert ann("DELETE", f"/v1/jobs/{job['id']}")[1]["state"] == "cancelled"
    time.sleep(1.5)
    _, held = ann("GET", f"/v1/jobs/{job['id']}")
    assert (held["state"], held["record"]) == ("cancelled", None)
    done = ann.submit("done")
    ann.record(done)
    assert ann("DELETE", f"/v1/jobs/{done['id']}")[0] == 409


def test_a_tenant_sees_only_his_own(ann: Api, bob: Api) -> None:
    job, batch = ann.submit("secret", key="same"), ann("POST", "/v1/batches", BATCH)[1]
    for method, path in (
        ("GET", f"/v1/jobs/{job['id']}"),
        ("GET", f"/v1/jobs/{job['id']}/events"),
        ("GET", f"/v1/jobs/{job['id']}?wait_s=1"),
        ("DELETE", f"/v1/jobs/{job['id']}"),
        ("GET", f"/v1/batches/{batch['id']}"),
        ("GET", f"/v1/batches/{batch['id']}/events"),
    ):
        assert bob(method, path)[0] == 404, path
    own = bob.submit("other", key="same")
    assert own["id"] != job["id"]
    assert bob.record(own)["author"] == "bob"
    assert job["id"] not in {each["id"] for each in bob("GET", "/v1/jobs?limit=1000")[1]["jobs"]}
    assert "ann" not in ann.raw("GET", "/metrics")[2]
    _, first = ann("GET", "/v1/jobs?limit=1")
    _, rest = ann("GET", f"/v1/jobs?limit=1000&after={first['next']}")
    assert len(rest["jobs"]) == len(ann("GET", "/v1/jobs?limit=1000")[1]["jobs"]) - 1 > 0
    assert bob("GET", f"/v1/jobs?after={job['id']}")[1]["jobs"] == []


GUIDE = ROOT / "harness" / "guides" / "http.md"
DEPLOY = GUIDE.parent / "deploy"
BATCH = {"jobs": [{"problem": "level1/19", "source": source("x")}]}
BODY = BATCH["jobs"][0]


@pytest.mark.parametrize(
    ("status", "said", "body"),
    [
        (422, "there is no problem '../19_hidden.py'", {**BODY, "problem": "../19_hidden.py"}),
        (422, "there is no problem", {**BODY, "problem": str(ROOT / "problems/level1/19_relu.py")}),
        (422, "level1/20 can't be read; ask the operator", {**BODY, "problem": "level1/20"}),
        (422, "declares no workload 'huge'", {**BODY, "workload": "huge"}),
        (422, "give either problem", {"source": "x"}),
        (422, "give either problem", {**BODY, "problem_text": "x\n"}),
        (422, "key: String should match", {**BODY, "key": "with space"}),
        (422, "prio: Extra inputs", {**BODY, "prio": 1}),
        (422, "source: Field required", {"problem": "level1/19"}),
        (422, "sample", {**BODY, "sample": -1}),
        (403, "your highest priority is 5", {**BODY, "priority": 6}),
        (413, "more than", {**BODY, "source": "x" * (9 * 2**20)}),
        (422, "more than 4194304 bytes", {**BODY, "source": "x" * (5 * 2**20)}),
    ],
)
def test_a_wrong_job_is_refused_with_the_reason(ann: Api, status: int, said: str, body: Any) -> None:
    got, answer = ann("POST", "/v1/jobs", body)
    assert (got, said in answer["error"]) == (status, True), answer
    assert SECRET not in answer["error"]


def test_wrong_requests_are_refused(ann: Api, bob: Api) -> None:
    nobody, wrong = Api(ann.url, None), Api(ann.url, "kh_wrong")
    assert nobody("GET", "/v1/jobs")[0] == wrong("POST", "/v1/jobs", BODY)[0] == nobody("GET", "/metrics")[0] == 401
    assert ann.raw("POST", "/v1/jobs", "source=x", content_type="text/plain")[0] == 415
    assert ann.raw("POST", "/v1/jobs", "{")[0] == 422
    assert ann("GET", "/v1/jobs?limit=0")[0] == ann("GET", "/v1/jobs/x?wait_s=1e9")[0] == 422
    assert ann("GET", "/v1/nothing")[0] == 404
    assert ann("PUT", "/v1/jobs")[0] == 405
    text = {"problem_text": HIDDEN, "source": source("x")}
    status, answer = bob("POST", "/v1/jobs", text)
    assert (status, "outside the sandbox" in answer["error"]) == (403, True)
    status, job = ann("POST", "/v1/jobs", text)
    assert (status, ann.record(job)["problem"].startswith("inline/")) == (201, True)
    with socket.create_connection(ann.url.removeprefix("http://").split(":")) as raw:  # type: ignore[arg-type]
        head = f"POST /v1/jobs HTTP/1.1\r\nhost: x\r\nauthorization: {ann.headers['authorization']}\r\n"
        raw.sendall(f"{head}content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n".encode())
        assert raw.recv(100).startswith(b"HTTP/1.1 411")


def test_quotas_and_rates_bound_a_tenant(shared: tuple[Place, Api]) -> None:
    place, ann = shared
    eve = Api(ann.url, place.tokens["eve"])
    jobs = [{**BODY, "source": source("slow", 2.0)}] * 4
    status, answer = eve("POST", "/v1/batches", {"jobs": jobs})
    assert (status, "quota of 3 unfinished jobs: 3 left, 4 wanted" in answer["error"]) == (429, True)
    assert eve("POST", "/v1/batches", {"jobs": jobs[:3]})[0] == 201
    assert eve("POST", "/v1/jobs", BODY)[0] == 429
    answers = [eve.raw("GET", "/v1/problems")[:2] for _ in range(20)]
    late = [headers["retry-after"] for status, headers in answers if status == 429]
    assert (len(late) >= 5, set(late)) == (True, {"1"})
    assert ann("GET", "/v1/problems")[0] == 200


def test_tokens_rotate_without_a_restart(shared: tuple[Place, Api]) -> None:
    place, ann = shared
    token, digest = new_token()
    fresh, old = Api(ann.url, token), Api(ann.url, place.tokens["bob"])
    both = {**place.held, "bob": {"tokens": [*place.held["bob"]["tokens"], {"sha256": digest}]}}
    ended = {**both, "bob": {"tokens": [{**both["bob"]["tokens"][0], "until": "2020-01-01"}, {"sha256": digest}]}}
    try:
        place.write({"format": 1, "tenants": both})
        wait_until(lambda: fresh("GET", "/v1/jobs")[0] == 200)
        assert old("GET", "/v1/jobs")[0] == 200
        place.write({"format": 1, "tenants": ended})
        wait_until(lambda: old("GET", "/v1/jobs")[0] == 401)
        place.write("broken: [")
        time.sleep(1.5)
        assert fresh("GET", "/v1/jobs")[0] == 200
    finally:
        place.write({"format": 1, "tenants": place.held})
        wait_until(lambda: old("GET", "/v1/jobs")[0] == 200)


def test_the_description_is_open_api_and_metrics_count(ann: Api) -> None:
    _, described = ann("GET", "/openapi.json")
    validator = pytest.importorskip("openapi_spec_validator")
    validator.validate(described)
    assert described["components"]["schemas"]["Record"]["required"]
    assert ann("GET", "/healthz")[0] == ann("GET", "/readyz")[0] == 200
    problems = ann("GET", "/v1/problems")[1]["problems"]
    shown = [{"id": f"level1/{n}", "name": name, "workloads": ["full"]} for n, name in ((19, "hidden"), (21, "fails"))]
    assert problems == shown
    ann.record(ann.submit("counted"))
    metrics = ann.raw("GET", "/metrics")[2]
    assert re.search(r'harness_records_total{status="passed"} [1-9]', metrics)
    assert re.search(r'harness_jobs{state="done"} [1-9]', metrics)
    assert re.search(r'harness_http_requests_total{method="GET",route="/v1/jobs/{job}",status="200"} [1-9]', metrics)


def test_higher_priorities_are_evaluated_first(tmp_path: Path) -> None:
    with placed(tmp_path) as place:
        ann = place.start(slots=1)
        ann.record(ann.submit("warm"))
        jobs = [ann.submit(f"{n}", 0.15, priority=5 if n >= 12 else 0) for n in range(15)]
        for job in jobs:
            ann.record(job)
        ends = {n: ann("GET", f"/v1/jobs/{job['id']}")[1]["finished_at"] for n, job in enumerate(jobs)}
        assert max(ends[n] for n in (12, 13, 14)) < min(ends[n] for n in range(8, 12))


def test_jobs_survive_kill_9_of_the_server_and_of_runners(tmp_path: Path) -> None:
    with placed(tmp_path) as place:
        ann = place.start()
        jobs = [ann.submit(f"{n}", 0.3, key=f"{n}") for n in range(20)]
        wait_until(lambda: any(job["state"] == "done" for job in ann("GET", "/v1/jobs")[1]["jobs"]))
        place.processes[0].kill()
        place.processes[0].wait()
        ann = place.start()
        again = [ann.submit(f"{n}", 0.3, key=f"{n}") for n in range(20)]
        assert [job["id"] for job in again] == [job["id"] for job in jobs]
        for runner in children(place.processes[1].pid):
            os.kill(runner, signal.SIGKILL)
        assert [ann.record(job)["evidence"]["echo"] for job in jobs] == [f"{n}" for n in range(20)]
        states = counted(place.store)
        assert states == {"queued": 0, "running": 0, "done": 20, "cancelled": 0}


def test_a_server_that_is_told_to_end_finishes_what_runs_and_keeps_the_rest(tmp_path: Path) -> None:
    with placed(tmp_path) as place:
        ann = place.start(slots=1)
        ann.record(ann.submit("warm"))
        jobs = [ann.submit(f"{n}", 0.3) for n in range(12)]
        wait_until(lambda: ann("GET", f"/v1/jobs/{jobs[0]['id']}")[1]["state"] == "running")
        waiting: list[Any] = []
        waits = threading.Thread(target=lambda: waiting.append(ann("GET", f"/v1/jobs/{jobs[-1]['id']}?wait_s=60")))
        waits.start()
        place.processes[0].send_signal(signal.SIGTERM)
        wait_until(lambda: ann("POST", "/v1/jobs", BODY)[0] == 503)
        assert ann("GET", "/readyz") == (503, {"error": "shutting down"})
        assert place.processes[0].wait(LIMIT_S) == 0
        waits.join(LIMIT_S)
        assert (waiting[0][0], waiting[0][1]["state"]) == (200, "queued")
        states = counted(place.store)
        assert (states["running"], states["done"] > 1, states["queued"] > 0) == (0, True, True)
        ann = place.start(slots=1)
        assert [ann.record(job)["evidence"]["echo"] for job in jobs] == [f"{n}" for n in range(12)]


def test_a_record_by_a_server_whose_lease_is_over_is_dropped(tmp_path: Path) -> None:
    store = JobStore(str(tmp_path / "jobs.sqlite"))
    row = {"key": None, "digest": "", "problem": "p", "request": "{}", "priority": 0}
    ((job,),) = store.add([JobSubmission(tenant="ann", jobs=[row], batch=None, open_jobs=1)])
    for attempt in (1, 2):
        (claimed,) = store.exchange(f"server {attempt}", [], 1)
        assert claimed["attempts"] == attempt
        store.beat("another", [])  # no server of that name has reported: its lease is over
    (claimed,) = store.exchange("slow", [], 1)
    store.beat("another", [])
    (taken,) = store.exchange("quick", [], 1)
    store.exchange("slow", [(claimed, {"status": "passed", "by": "slow"})], 0)
    assert store.get("ann", job["id"])["record"] is None
    store.exchange("quick", [(taken, {"status": "passed", "by": "quick"})], 0)
    store.exchange("quick", [(taken, {"status": "passed", "by": "late"})], 0)
    assert json.loads(store.get("ann", job["id"])["record"])["by"] == "quick"
    ((refused,),) = [store.add([JobSubmission(tenant="ann", jobs=[row, row], batch="b", open_jobs=1)])]
    assert isinstance(refused, SubmissionRefused)
    store.close()


def test_a_job_that_ends_three_servers_gets_a_record_of_the_harness(tmp_path: Path) -> None:
    store = JobStore(str(tmp_path / "jobs.sqlite"))
    request = json.dumps({"problem": "level1/19", "source": "x", "sample": None, "workload": None})
    row = {"key": None, "digest": "", "problem": "level1/19", "request": request, "priority": 0}
    ((job,),) = store.add([JobSubmission(tenant="ann", jobs=[row], batch=None, open_jobs=1)])
    for attempt in range(3):
        store.exchange(f"server {attempt}", [], 1)
        store.beat("another", [])
    store.close()
    with placed(tmp_path) as place:
        record = place.start().record({"state": "queued", "id": job["id"]})
        assert (record["status"], record["author"]) == ("harness_error", "ann")
        assert record["reason"].startswith("3 servers died")
        jsonschema.validate(record, record_schema())


@pytest.fixture(scope="module")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pgserver = pytest.importorskip("pgserver", reason="needs the package pgserver: a real PostgreSQL")
    server = pgserver.get_server(tmp_path_factory.mktemp("pg"), cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def test_two_servers_share_a_postgresql_database_and_one_takes_over_from_the_other(
    tmp_path: Path, postgresql: str
) -> None:
    with placed(tmp_path, postgresql) as place:
        one, two = place.start(), place.start()
        jobs = [(one, two)[n % 2].submit(f"{n}", 0.1, key=f"{n}") for n in range(30)]
        waiting = one("GET", f"/v1/jobs/{jobs[3]['id']}?wait_s=60")[1]
        assert waiting["record"]["evidence"]["echo"] == "3"
        wait_until(lambda: all("passed" in api.raw("GET", "/metrics")[2] for api in (one, two)))
        place.processes[0].kill()
        assert [two.record(job)["evidence"]["echo"] for job in jobs] == [f"{n}" for n in range(30)]
        assert two.submit("3", 0.1, key="3")["id"] == jobs[3]["id"]
        assert counted(postgresql)["done"] == 30


def test_without_tokens_only_this_machine_and_no_web_page_is_served(tmp_path: Path) -> None:
    with placed(tmp_path) as place:
        local = place.start(tenants=False)
        assert local.record(local.submit("open"))["author"] == "local"
        assert local("GET", "/v1/jobs", host="attacker.example")[0] == 403
        assert local("GET", "/v1/jobs", host="localhost:8000")[0] == 200
        assert local.raw("POST", "/v1/jobs", json.dumps(BODY), content_type="text/plain")[0] == 415
        assert local("POST", "/v1/jobs", {"problem_text": HIDDEN, "source": "x"})[0] == 403


@pytest.mark.parametrize(
    ("code", "said", "arguments"),
    [
        (2, "only with tokens: add --tenants", ["--http", "0.0.0.0:0"]),
        (2, "--http must be [HOST:]PORT", ["--http", "localhost"]),
        (2, "--http must be [HOST:]PORT", ["--http", "::1:8000"]),
        (2, "leave them out", ["--http", "0", "--socket", "x"]),
        (2, "only together with --http", ["--store", "x"]),
        (2, "--drain must be", ["--http", "0", "--drain", "-1"]),
        (2, "no.yaml: No such file", ["--http", "0", "--tenants", "no.yaml"]),
        (2, "must be the path of a file, or a URL", ["--http", "0", "--store", "mysql://x/y"]),
        (3, "can't be opened", ["--http", "0", "--store", "/proc/no/jobs.sqlite"]),
        (3, "can't be opened", ["--http", "0", "--store", "postgresql://u:password@127.0.0.1:9/x"]),
        (2, "does not exist", ["--http", "0", "--problems", "nowhere", "--store", "jobs.sqlite"]),
    ],
)
def test_a_wrong_command_says_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: int,
    said: str,
    arguments: Any,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["serve", "--device", "host", *arguments]) == code
    shown = capsys.readouterr().err
    assert said in shown
    assert "password" not in shown


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("no tenant has a token", "{format: 1, tenants: {}}"),
        ("`format` must be 1", "{format: 2, tenants: {}}"),
        ("open_job", "{format: 1, tenants: {a: {open_job: 1}}}"),
        ("64 hex digits", "{format: 1, tenants: {a: {tokens: [{sha256: x}]}}}"),
        ("is no name of a tenant", "{format: 1, tenants: {a/b: {}}}"),
        ("not valid YAML", "{"),
        ("above 0", "{format: 1, tenants: {a: {open_jobs: 0}}}"),
    ],
)
def test_a_wrong_file_of_tenants_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], said: str, text: str
) -> None:
    (tmp_path / "tenants.yaml").write_text(text)
    assert main(["serve", "--device", "host", "--http", "0", "--tenants", str(tmp_path / "tenants.yaml")]) == 2
    assert said in capsys.readouterr().err


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in [name for name in sys.modules if name.startswith(("harness.api.servers.http.", "fastapi"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert main(["serve", "--http", "0", "--device", "host"]) == 3
    assert "pip install 'kernel-harness[service]'" in capsys.readouterr().err


def test_a_new_token_belongs_to_its_hash(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--new-token", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["sha256"] == hashlib.sha256(made["token"].encode()).hexdigest()


def test_the_command_evaluates_and_serves_no_text_of_a_problem(tmp_path: Path) -> None:
    """The real executor on the host device, a hidden problem, and solutions that fail in several ways."""
    with placed(tmp_path) as place:
        command = [sys.executable, "-m", "harness", "serve", "--http", "0", "--device", "host", "--json"]
        command += ["--problems", "problems", "--store", "jobs.sqlite"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with (tmp_path / "log").open("ab") as log:
            server = subprocess.Popen(
                command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
            )
        place.processes.append(server)
        assert server.stdout is not None
        head = ""
        while "}" not in head:
            line = server.stdout.readline()
            assert line, (tmp_path / "log").read_text()
            head += line
        api = Api(json.loads(head)["url"], None)
        bodies = {
            "passed": RIGHT,
            "wrong_value": RIGHT.replace("min=0", "min=0.25"),
            "runtime_error": RIGHT.replace("torch.clamp(x, min=0)", "1 / 0"),
            "syntax_error": "def",
        }
        jobs = [{"problem": "level1/19", "source": text, "workload": "full"} for text in bodies.values()]
        jobs += [{"problem": "level1/21", "source": RIGHT, "workload": "full"}]
        _, batch = api("POST", "/v1/batches", {"jobs": jobs})
        while batch["open"]:
            _, batch = api("GET", f"/v1/batches/{batch['id']}?wait_s=60")
        assert [job["status"] for job in batch["jobs"]] == [*bodies, "harness_error"]
        for job in batch["jobs"]:
            jsonschema.validate(job["record"], record_schema())
        (block,) = [each for each in blocks_in(GUIDE.read_text()) if each.language == "python"]
        asked = {**environment, "HARNESS_URL": api.url}
        done = subprocess.run([sys.executable, "-c", block.text], env=asked, capture_output=True, text=True, check=True)
        assert done.stdout.startswith("passed "), done.stderr
        paths = ("/v1/jobs", "/v1/problems", "/metrics", "/openapi.json", f"/v1/batches/{batch['id']}/events")
        served = "".join(api.raw("GET", path)[2] for path in paths) + json.dumps(batch)
        assert "level1/19" in served
        assert SECRET not in served
        assert (
            f"of local: problem level1/21: the reference's forward failed: {SECRET}" in (tmp_path / "log").read_text()
        )
        server.send_signal(signal.SIGINT)
        assert server.wait(LIMIT_S) == 130


def test_the_guides_file_of_tenants_is_read(tmp_path: Path) -> None:
    (block,) = [each for each in blocks_in(GUIDE.read_text()) if each.language == "yaml"]
    old, new = re.findall(r"sha256: (\w+)", block.text)
    made = [new_token(), new_token()]
    text = block.text.replace(old, made[0][1]).replace(new, made[1][1]).replace("2027-01-31", "2999-01-31")
    (tmp_path / "tenants.yaml").write_text(text)
    held = Tenants(tmp_path / "tenants.yaml", lambda line: None)
    assert held.holder(f"Bearer {made[0][0]}") == held.holder(f"bearer {made[1][0]}")
    assert held.holder(f"Basic {made[0][0]}") is held.holder(None) is None
    tenant = held.holder(f"Bearer {made[0][0]}")
    assert tenant == msgspec.structs.replace(Tenant(), name="ann", tokens=tenant.tokens), "it shows the defaults"


def test_the_template_for_kubernetes_is_of_its_schema() -> None:
    validate = pytest.importorskip("kubernetes_validate")
    objects = list(yaml.safe_load_all((DEPLOY / "service-kubernetes.yaml").read_text()))
    for each in objects:
        validate.validate(each, "1.34", strict=True)
    assert [each["kind"] for each in objects] == ["Secret", "Deployment", "Service"]
    deployment = objects[1]["spec"]["template"]["spec"]
    deployment["containers"][0]["port"] = 1
    with pytest.raises(validate.ValidationError):
        validate.validate(objects[1], "1.34", strict=True)


def test_the_template_for_slurm_ends_as_the_service_does(tmp_path: Path) -> None:
    """The script is run with a `harness` and a `scontrol` that write down how they are called."""
    for name, text in (
        (
            "harness",
            'trap "echo drained >> $OUT; exit 0" TERM; echo "$@" >> $OUT; for _ in {1..600}; do sleep 0.1; done',
        ),
        ("scontrol", 'echo "scontrol $@" >> $OUT'),
    ):
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    out = tmp_path / "out"
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": "/home/x", "OUT": str(out), "SLURM_JOB_ID": "7"}
    command = ["bash", str(DEPLOY / "service.sbatch")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as script:
        assert script.stdout is not None
        assert script.stdout.readline() == "http://localhost:8000\n"
        wait_until(out.exists)
        script.send_signal(signal.SIGTERM)
        script.wait(LIMIT_S)
    called, *ends = out.read_text().splitlines()
    assert called.startswith("serve --http 0.0.0.0:8000 --tenants /home/x/kernel-harness/tenants.yaml --config")
    assert ends == ["drained", "scontrol requeue 7"]


def test_the_template_for_modal_is_an_app_of_its_package() -> None:
    modal = pytest.importorskip("modal", reason="needs the package modal")
    held = runpy.run_path(str(DEPLOY / "service_modal.py"))
    assert (type(held["app"]), type(held["service"])) == (modal.App, modal.Function)


def counted(place: str) -> dict[str, int]:
    store = JobStore(place)
    try:
        return store.counts()
    finally:
        store.close()


def children(pid: int) -> list[int]:
    return [int(word) for task in Path(f"/proc/{pid}/task").glob("*/children") for word in task.read_text().split()]


def wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)
