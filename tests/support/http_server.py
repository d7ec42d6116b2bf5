"""The HTTP service with runners that only repeat what they get: `python -m tests.support.http_server`.

All is real but the executor: each of its slots has a process of its own, the runner, which takes the time that a
solution asks for and returns the solution's words. A runner that is killed is replaced, and its solution tried again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path

from harness.api.servers.http.serving import HttpService, ServiceOptions
from harness.core import environment
from harness.core.config import resolve
from harness.core.status import Status
from harness.core.task import Outcome
from harness.runner.executors import Slot
from tests.support.paths import ROOT
from tests.support.scripted import Scripted

RUNNER = """
import json, sys, time
for line in sys.stdin:
    words = json.loads(line).splitlines()[0].split()
    time.sleep(float(words[1]))
    print(json.dumps(words[2]), flush=True)
"""


def source(echo: str, seconds: float = 0.005) -> str:
    """A solution whose record has `echo` in its evidence, after so many seconds."""
    return f"# {seconds} {echo}\nclass ModelNew: ...\n"


class Repeating(Scripted):
    """Slots with one runner process each."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots=slots, builders=2)
        self.runners: dict[str, subprocess.Popen[str]] = {}
        self.judging = self.ask

    def ask(self, slot: Slot, text: str) -> Outcome:
        del self.told[:], self.made[:]  # what the tests of the runner read would grow
        for _ in range(3):
            runner = self.runners.get(slot.name)
            if runner is None or runner.poll() is not None:
                runner = self.runners[slot.name] = subprocess.Popen(
                    [sys.executable, "-S", "-c", RUNNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            assert runner.stdin is not None
            assert runner.stdout is not None
            try:
                runner.stdin.write(json.dumps(text) + "\n")
                runner.stdin.flush()
                if line := runner.stdout.readline():
                    return Outcome(status=Status.passed, reason="repeated", evidence={"echo": json.loads(line)})
            except BrokenPipeError:
                pass
            runner.wait()
        return Outcome(status=Status.harness_error, reason="its runners died")

    def close(self) -> None:
        for runner in self.runners.values():
            runner.kill()
            runner.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("store")
    parser.add_argument("--tenants", type=Path)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--problems", type=Path, default=ROOT / "problems")
    given = parser.parse_args()
    found = environment.collect()
    settings = {"paths": [Path()], "device": "host", "problems": given.problems}
    config = resolve(machine=environment.machine(found), run_id="http", options=settings)
    options = ServiceOptions(address=given.address, store=given.store, tenants=given.tenants, drain_s=20.0)

    def say(line: str) -> None:
        sys.stderr.write(f"{datetime.now():%H:%M:%S} {line}\n")
        sys.stderr.flush()

    service = HttpService(options, config, found, say, Repeating(given.slots))
    sys.stdout.write(service.url + "\n")
    sys.stdout.flush()
    service.serve_until_ended()


if __name__ == "__main__":
    main()
