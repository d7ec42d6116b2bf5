"""Load on the HTTP service: `python -m tests.benchmarks.bench_http_service [--jobs N] [--json FILE]`.

First 200 clients submit jobs at a fixed rate, undisturbed: how long does a submission take? Then clients, runners and
the server are killed (SIGKILL) at random while all jobs go through: has each job exactly one record, and its own?

A client is a connection that submits a job under a key of its own, waits for the record, and pauses. Ten client
processes have 20 each; one that is killed starts again and submits what it has no result of, under the same keys. The
executor is simulated (`tests.support.http_server`): no solution is compiled. All traffic stays on this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from harness.api.servers.http.tenants import new_token
from harness.core.problem import digest_text
from tests.support.http_server import source
from tests.support.paths import ROOT

PROCESSES, CLIENTS = 10, 200
TENANTS = 4
SLOTS = 4
MOST_S = 420.0


class Connection:
    """A kept HTTP/1.1 connection, opened again when it is lost."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._token = port, token
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
        """Status and JSON of an answer. Raises `OSError` or `EOFError` if the server is gone."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {self._token}\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n" if body else "\r\n"
        try:
            writer.write(head.encode() + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
            length = next(int(line[15:]) for line in answer if line.startswith("content-length:"))
            content = await reader.readexactly(length)
        except BaseException:
            self._streams = None
            writer.close()
            raise
        return int(answer[0].split()[1]), json.loads(content)


async def client(port: int, token: str, keys: Sequence[str], pause_s: float, out: Any) -> None:
    """Submit the jobs of these keys one after another, and write what became of each."""
    connection = Connection(port, token)
    await asyncio.sleep(random.random() * pause_s)
    for key in keys:
        text = source(key)
        body = json.dumps({"problem": "level1/19", "source": text, "key": key, "name": key}).encode()
        tries, due_s = 0, time.monotonic() + pause_s * random.uniform(0.5, 1.5)
        while True:
            tries += 1
            try:
                begin = time.perf_counter()
                status, job = await connection.ask("POST", "/v1/jobs", body)
                took_s = time.perf_counter() - begin
                if status not in (200, 201):
                    raise OSError(f"{status} {job}")
                while job["state"] != "done":
                    status, job = await connection.ask("GET", f"/v1/jobs/{job['id']}?wait_s=30")
                    if status != 200:
                        raise OSError(f"{status} {job}")
                break
            except (OSError, EOFError) as error:
                out.write(json.dumps({"error": str(error)[:100]}) + "\n")
                await asyncio.sleep(0.2 + 0.3 * random.random())
        record = job["record"]
        right = record["evidence"].get("echo") == key and record["solution_digest"] == digest_text(text)
        out.write(json.dumps({"key": key, "id": job["id"], "submit_s": took_s, "tries": tries, "right": right}) + "\n")
        out.flush()
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))


async def clients(port: int, token: str, keys: Sequence[str], count: int, pause_s: float, file: str) -> None:
    with open(file, "a", encoding="utf-8") as out:
        await asyncio.gather(*(client(port, token, keys[n::count], pause_s, out) for n in range(count)))


class Crowd:
    """Server and client processes of one phase."""

    def __init__(self, folder: Path, port: int, store: str, rate: float) -> None:
        self.folder, self.port, self.store = folder, port, store
        self.pause_s = CLIENTS / rate
        made = {f"tenant-{n}": new_token() for n in range(TENANTS)}
        self.tokens = {name: token for name, (token, _) in made.items()}
        limits = {"requests_per_s": 10_000, "connections": 1_000, "open_jobs": 100_000}
        held = {name: {"tokens": [{"sha256": digest}], **limits} for name, (_, digest) in made.items()}
        (folder / "tenants.yaml").write_text(yaml.safe_dump({"format": 1, "tenants": held}))
        self.log = (folder / "server.log").open("ab")
        self.server = self.serve()

    def serve(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.support.http_server", f"127.0.0.1:{self.port}", self.store]
        command += ["--tenants", str(self.folder / "tenants.yaml"), "--slots", str(SLOTS)]
        made = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=self.log, text=True)
        assert made.stdout is not None
        if not made.stdout.readline():
            raise SystemExit(f"the server did not start: {(self.folder / 'server.log').read_text()[-2000:]}")
        return made

    def begin(self, name: str, number: int, keys: Sequence[str]) -> subprocess.Popen[str]:
        file = self.folder / f"{name}-{number}.jsonl"
        done = {line["key"] for line in lines(file) if "key" in line}
        left = [key for key in keys if key not in done]
        order = {"port": self.port, "token": self.token(number), "keys": left, "pause_s": self.pause_s}
        order |= {"count": CLIENTS // PROCESSES, "file": str(file)}
        command = [sys.executable, "-m", "tests.benchmarks.bench_http_service", "--client"]
        made = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, text=True)
        assert made.stdin is not None
        made.stdin.write(json.dumps(order))
        made.stdin.close()
        return made

    def token(self, number: int) -> str:
        return self.tokens[f"tenant-{number % TENANTS}"]

    def run(self, name: str, jobs: int, kills: bool) -> dict[str, Any]:
        """Send jobs through, with or without kills, and return what was seen."""
        keys = [[f"{name}.{number}.{n}" for n in range(jobs // PROCESSES)] for number in range(PROCESSES)]
        begin, killed = time.monotonic(), Counter[str]()
        delay_s = waited_s(self.server.pid)
        running = {number: self.begin(name, number, keys[number]) for number in range(PROCESSES)}
        server_s = time.monotonic() + 8.0
        while running and time.monotonic() < begin + MOST_S:
            time.sleep(1.0)
            for number, process in list(running.items()):
                if process.poll() == 0:
                    del running[number]
                elif process.poll() is not None:
                    running[number] = self.begin(name, number, keys[number])
            if not kills or not running:
                continue
            if time.monotonic() > server_s:
                self.server.kill()
                self.server.wait()
                killed["server"] += 1
                self.server = self.serve()
                server_s = time.monotonic() + random.uniform(5.0, 12.0)
            elif random.random() < 0.3:
                random.choice(list(running.values())).kill()
                killed["client"] += 1
            if runners := children(self.server.pid):
                with suppress(ProcessLookupError):
                    os.kill(random.choice(runners), signal.SIGKILL)
                    killed["runner"] += 1
        for process in running.values():
            process.kill()
        told = [line for number in range(PROCESSES) for line in lines(self.folder / f"{name}-{number}.jsonl")]
        results = {line["key"]: line for line in told if "key" in line}
        submits = sorted(line["submit_s"] for line in told if "key" in line)
        wall_s = time.monotonic() - begin
        return {
            "jobs": jobs,
            "answered": len(results),
            "wrong": sum(not line["right"] for line in results.values()),
            "failed_tries": sum("error" in line for line in told),
            "killed": dict(killed),
            "wall_s": round(wall_s, 1),
            "load_average": [round(load, 1) for load in os.getloadavg()],
            # Of the last server: how long its event loop waited for a processor that others used.
            "event_loop_waited_s": round(waited_s(self.server.pid) - (0.0 if killed["server"] else delay_s), 2),
            "jobs_per_s": round(len(results) / wall_s, 1),
            "submit_ms": {
                "median": round(statistics.median(submits) * 1e3, 1),
                "p99": round(submits[int(len(submits) * 0.99)] * 1e3, 1),
                "worst": round(submits[-1] * 1e3, 1),
            },
        }


def waited_s(pid: int) -> float:
    """How long the main thread of a process was ready to run without a processor, in seconds."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def lines(file: Path) -> list[dict[str, Any]]:
    """Lines of a file; the last one of a killed process may be cut."""
    found = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    found = [int(word) for task in tasks for word in task.read_text().split()]
    return [child for child in found if b"json.loads(line)" in Path(f"/proc/{child}/cmdline").read_bytes()]


def stored(file: Path, name: str) -> dict[str, int]:
    """What the database holds of a phase: jobs, records, and records that belong to another job."""
    with sqlite3.connect(file) as database:
        rows = database.execute(
            "SELECT tenant, key, state, record FROM harness_jobs_1 WHERE key LIKE ?", (f"{name}.%",)
        ).fetchall()
    wrong = 0
    for tenant, key, _, text in rows:
        record = json.loads(text) if text else {}
        own = f"tenant-{int(key.split('.')[1]) % TENANTS}"
        wrong += not (record.get("evidence", {}).get("echo") == key and record["author"] == tenant == own)
    states = Counter(state for _, _, state, _ in rows)
    keys = len({(tenant, key) for tenant, key, _, _ in rows})
    return {
        "jobs": len(rows),
        "keys": keys,
        "done": states["done"],
        "records": sum(bool(r[3]) for r in rows),
        "wrong": wrong,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000, help="jobs of the phase with kills")
    parser.add_argument("--quiet-jobs", type=int, default=4_000, help="jobs of the phase without")
    parser.add_argument("--rate", type=float, default=100.0, help="submissions a second, of all clients together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--client", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.client:
        order = json.loads(sys.stdin.read())
        asyncio.run(clients(**order))
        return 0
    random.seed(given.seed)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "jobs.sqlite"
        crowd = Crowd(Path(folder), port, str(store), given.rate)
        try:
            seen: dict[str, Any] = {"processors": os.cpu_count(), "clients": CLIENTS, "rate_per_s": given.rate}
            for name, jobs, kills in (("quiet", given.quiet_jobs, False), ("killed", given.jobs, True)):
                seen[name] = crowd.run(name, jobs, kills) | {"stored": stored(store, name)}
                print(json.dumps({name: seen[name]}, indent=2), flush=True)
        finally:
            crowd.server.send_signal(signal.SIGTERM)
            crowd.server.wait()
    if given.json:
        given.json.write_text(json.dumps(seen, indent=2) + "\n")
    ends = [seen[name] for name in ("quiet", "killed")]
    right = all(
        end["jobs"] == end["answered"] == end["stored"]["jobs"] == end["stored"]["keys"] == end["stored"]["records"]
        and not end["wrong"] + end["stored"]["wrong"]
        for end in ends
    )
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
