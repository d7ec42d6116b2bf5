"""What a command takes by a server and by processes of its own: `harness eval` of the same solutions, by turns.

    python -m tests.benchmarks.bench_serve solutions/tuned/level1/10_split_tf32.py --device cuda
    python -m tests.benchmarks.bench_serve transcripts --runs 5 --callers 1 4 --json serve.json

The first call fills the cache of builds, and the first to the server lets it learn the problems; neither counts. Then
each run is one command with processes of its own, one by the server, and, for each number of `--callers`, as many
commands at once by the server, to which the solutions are dealt out: seconds from the first command's start to the last
one's end. Exit code 1 where two calls give a solution different verdicts.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.catalog import CatalogError, find_solutions, load_problems
from harness.results.writer import RunStore

ROOT = Path(__file__).parent.parent.parent
READY_S = 60.0


class Calls:
    """Commands in a folder of results of their own."""

    def __init__(self, folder: Path, files: Sequence[Path], more: Sequence[str]) -> None:
        self._folder, self._files, self._more = folder, files, more
        self.socket = folder / "socket"
        self._number = 0
        self.verdicts: dict[str, set[str]] = {}

    def take(self, callers: int, *, served: bool) -> float:
        """Seconds that the solutions take, dealt out to so many commands."""
        runs: list[tuple[str, subprocess.Popen[bytes]]] = []
        begin = time.perf_counter()
        for caller in range(callers):
            self._number += 1
            run_id = f"run-{self._number}"
            by = ("--server", str(self.socket)) if served else ()
            files = map(str, self._files[caller::callers])
            command = [sys.executable, "-m", "harness", "eval", *files, "--out", str(self._folder), "--run-id", run_id]
            process = subprocess.Popen([*command, *by, *self._more], cwd=ROOT, **QUIET)
            runs.append((run_id, process))
        codes = [process.wait() for _, process in runs]
        took_s = time.perf_counter() - begin
        if any(codes):
            raise SystemExit(f"exit codes {codes}: call one of them by hand")
        for run_id, _ in runs:
            for record in RunStore.open(self._folder / run_id).records():
                self.verdicts.setdefault(record.solution, set()).add(record.status.value)
        return took_s


QUIET: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}


def served_by(calls: Calls, more: Sequence[str]) -> subprocess.Popen[bytes]:
    """A server that listens."""
    command = [sys.executable, "-m", "harness", "serve", "--socket", str(calls.socket), *more]
    server = subprocess.Popen(command, cwd=ROOT, **QUIET)
    deadline = time.monotonic() + READY_S
    while not calls.socket.exists():
        if server.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("no server came up: call harness serve by hand")
        time.sleep(0.05)
    return server


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--count", type=int, help="no more solutions than these, in order")
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--callers", type=int, nargs="*", default=[], help="besides one")
    parser.add_argument("--device", default="auto", choices=["auto", "cuda", "host"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    try:
        found = find_solutions(options.paths, load_problems(ROOT / "problems"))[: options.count]
    except CatalogError as error:
        parser.error(str(error))
    os.environ.pop("HARNESS_SERVER", None)
    device = ("--device", options.device)
    kinds = [("own", 1, False), ("server", 1, True), *((f"server, {n} at once", n, True) for n in options.callers)]
    taken: dict[str, list[float]] = {name: [] for name, _, _ in kinds}
    with tempfile.TemporaryDirectory() as folder:
        calls = Calls(Path(folder), [solution.path.absolute() for solution in found], device)
        first = {"own": calls.take(1, served=False)}
        server = served_by(calls, device)
        try:
            first["server"] = calls.take(1, served=True)
            for number in range(options.runs):
                for name, callers, served in kinds if number % 2 == 0 else reversed(kinds):
                    taken[name].append(calls.take(callers, served=served))
                    print(f"{name}: {taken[name][-1]:.2f} s", flush=True)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()
    print(f"\n{len(found)} solutions, {options.runs} runs by turns; seconds\n")
    print("| by | median | all |\n|---|---|---|")
    for name, held in taken.items():
        print(f"| {name} | {statistics.median(held):.2f} | {', '.join(f'{value:.2f}' for value in held)} |")
    print(f"\nfirst: {', '.join(f'{name} {value:.2f} s' for name, value in first.items())}")
    if options.json is not None:
        options.json.write_text(json.dumps({"solutions": len(found), "first_s": first, "taken_s": taken}, indent=1))
    differing = {solution: sorted(held) for solution, held in calls.verdicts.items() if len(held) > 1}
    if differing:
        print(f"verdicts differ: {differing}", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
