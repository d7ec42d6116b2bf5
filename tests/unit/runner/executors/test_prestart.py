"""Referees' processes that start before a run is planned: real commands on the host device, which go wrong in all the
ways that are found out only afterwards. Each Python that a command starts writes itself down (`Place.started`), and all
that is left of a command is found by its environment (`Place.left`)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from harness.core.choices import DeviceKind
from harness.core.config import Machine, RunConfig, resolve
from harness.core.environment import collect
from harness.core.status import Status
from harness.runner.executors import ExecutorError
from harness.runner.executors.local import LocalExecutor, referee_config
from harness.runner.executors.prestart import start_ahead
from harness.runner.executors.process import RefereeLost, RefereeProcess
from harness.runner.run import evaluate_run
from tests.support.paths import ROOT, SUPPORT

WORKER, ZYGOTE = "harness.referee.worker", "harness.sandbox.zygote"
LIMIT_S = 300.0
QUICK = ("--min-samples", "4", "--timing-budget", "0.5")

NOTES = """
import os, sys
with open(os.path.join(os.path.dirname(__file__), "started"), "a") as file:
    file.write(" ".join(sys.orig_argv) + "\\n")
"""

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.rand(16, 16) - 0.5]
def get_init_inputs():
    return []
"""
SOLUTION = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.clamp(x, min=0)
"""


class Place:
    """A folder with a problem, a solution, and a search path by which everything that is started here can be told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes = folder / "notes"
        self.notes.mkdir()
        (self.notes / "sitecustomize.py").write_text(NOTES)
        (folder / "problems" / "level1").mkdir(parents=True)
        (folder / "problems" / "level1" / "19_relu.py").write_text(PROBLEM)
        (folder / "solutions" / "ann" / "level1").mkdir(parents=True)
        (folder / "solutions" / "ann" / "level1" / "19_a.py").write_text(SOLUTION)
        (folder / "empty").mkdir()

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """`harness eval` on the host device with these arguments."""
        return subprocess.Popen(
            [sys.executable, "-m", "harness", "eval", "--device", "host", "--workload", "full", *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(self.notes)]), "COLUMNS": "1000"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        """Exit code and messages."""
        child = self.begin(*arguments)
        _, err = child.communicate(timeout=LIMIT_S)
        return child.returncode, err

    def started(self, what: str) -> int:
        """How many processes of this kind have been started here."""
        noted = self.notes / "started"
        return sum(what in line for line in noted.read_text().splitlines()) if noted.exists() else 0

    def left(self, what: str) -> list[int]:
        """The processes of this kind that were started here and are alive."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and str(self.notes).encode() in (entry / "environ").read_bytes():
                    command = (entry / "cmdline").read_bytes().decode().replace("\0", " ")
                    if what in command:
                        found.append(int(entry.name))
        return found


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {LIMIT_S:.0f} s"
        time.sleep(0.02)


def no_zygote_is_left(place: Place) -> None:
    """One whose referee was killed before it had seen to its own end notices when its imports are done."""
    wait_until(lambda: not place.left(ZYGOTE), "the zygotes' end")


def blocked_in_planning(place: Place) -> None:
    """Make reading the problems wait for ever."""
    os.mkfifo(place.folder / "problems" / "level1" / "workloads.yaml")


@pytest.mark.parametrize(
    ("arguments", "code", "message", "starts"),
    [
        (("gone",), 2, "gone: there is no such file or folder", False),
        ((), 2, "no solutions named: pass files or folders", False),
        (
            ("solutions", "--problems", "gone"),
            2,
            "no problems found: the folder gone does not exist; name another by --problems",
            False,
        ),
        (("solutions", "--seeds", "none"), 2, "seeds", False),
        (("empty",), 2, "empty: no solution in it; solutions are files like", True),
        (("solutions", "--problem", "level1/20"), 2, "there is no problem 'level1/20' in problems", True),
        (("solutions", "--workload", "huge"), 2, "level1/19 declares no workload 'huge'; it has full", True),
        (("solutions", "--out", "problems/level1/19_relu.py"), 2, "19_relu.py", True),
        (("solutions", "--run-id", "there"), 2, "results/there", True),
    ],
)
def test_a_wrong_call_says_so_and_leaves_no_process(
    place: Place, arguments: tuple[str, ...], code: int, message: str, starts: bool
) -> None:
    (place.folder / "results" / "there").mkdir(parents=True)
    (place.folder / "results" / "there" / "run.yaml").write_text("format: 1\n")
    found, err = place.run(*arguments)
    assert found == code, err
    assert message in err
    assert "Traceback" not in err
    assert place.left(WORKER) == []
    # One that was ended at once may not have come so far as to write itself down.
    assert place.started(WORKER) <= starts
    no_zygote_is_left(place)


def test_a_resumed_run_with_nothing_left_to_do_leaves_no_process(place: Place) -> None:
    code, err = place.run("solutions", "--run-id", "r", "--unchecked", *QUICK)
    assert code == 0, err
    assert place.started(WORKER) == 1  # the one that was started ahead, and no other
    assert place.left(WORKER) == []
    code, err = place.run("solutions", "--run-id", "r", "--unchecked", "--resume", *QUICK)
    assert code == 0, err
    assert "0 to evaluate, 1 already done" in err
    assert place.left(WORKER) == []
    no_zygote_is_left(place)


def test_referees_and_their_zygotes_start_before_the_problems_are_read(place: Place) -> None:
    blocked_in_planning(place)
    child = place.begin("solutions", "--workers", "2")
    try:
        wait_until(lambda: len(place.left(WORKER)) == 2, "two referees")
        wait_until(lambda: place.started(ZYGOTE) >= 2, "their zygotes")
        assert not (place.folder / "results").exists()
    finally:
        child.kill()
        child.communicate()
    # Nobody ended them: they end with whoever started them.
    wait_until(lambda: not place.left(WORKER), "the referees' end")
    no_zygote_is_left(place)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_ended_while_it_is_planned_leaves_no_process(
    place: Place, number: signal.Signals, code: int
) -> None:
    blocked_in_planning(place)
    child = place.begin("solutions")
    wait_until(lambda: place.started(WORKER) == 1, "a referee")
    time.sleep(0.5)  # so that it is planning that is interrupted
    child.send_signal(number)
    _, err = child.communicate(timeout=LIMIT_S)
    assert child.returncode == code, err
    assert "no solution was finished; the same command starts again" in err
    assert "Traceback" not in err
    assert place.left(WORKER) == []
    no_zygote_is_left(place)


def test_an_interrupt_ends_with_its_own_code_whatever_it_met(tmp_path: Path) -> None:
    """As in the middle of an import, where dataclasses are made by executing text."""
    meets = "try:\n        exec('raise KeyboardInterrupt')\n    except KeyboardInterrupt:\n        return 130"
    (tmp_path / "sitecustomize.py").write_text(
        f"import harness.cli\ndef main():\n    {meets}\nharness.cli.main = main\n"
    )
    command, own = [sys.executable, "-m", "harness"], os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    assert subprocess.run(command, env=own, timeout=LIMIT_S, check=False).returncode == 130


def test_each_slot_takes_the_process_that_was_started_for_it(place: Place) -> None:
    for name in "bcd":
        (place.folder / "solutions" / "ann" / "level1" / f"19_{name}.py").write_text(SOLUTION + f"# {name}\n")
    code, err = place.run("solutions", "--workers", "2", "--run-id", "r", "--unchecked", *QUICK)
    assert code == 0, err
    records = [json.loads(line) for line in (place.folder / "results/r/records.jsonl").read_text().splitlines()]
    assert [record["status"] for record in records] == ["passed"] * 4
    assert place.started(WORKER) == 2
    assert sorted(path.name for path in (place.folder / "results/r/logs").glob("_referee*")) == [
        "_referee-host-0.log",
        "_referee-host-1.log",
    ]


def settings(folder: Path, **options: object) -> RunConfig:
    return resolve(
        machine=Machine(device=DeviceKind.HOST, cpu_count=2, memory_bytes=2**33),
        run_id="r",
        options={"paths": [folder / "solutions"], "problems": folder / "problems", "out": folder, **options},
    )


def test_what_is_not_for_this_machines_referees_starts_none(place: Place) -> None:
    with start_ahead(settings(place.folder, executor="ray"), collect()) as ahead:
        assert not ahead.slots
    with start_ahead(settings(place.folder, workers=2), collect(), command=("-c", "")) as ahead:
        assert list(ahead.slots) == ["host-0", "host-1"]
    assert not ahead.slots


ZYGOTELESS = (str(SUPPORT / "zygoteless_worker.py"),)


@pytest.mark.parametrize("times", [1, 2])
def test_a_referee_whose_zygote_can_not_start_is_replaced_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """And then its slot is given up, instead of every solution being tried."""
    monkeypatch.setenv("UNREADY_TIMES", str(times))
    monkeypatch.setenv("UNREADY_COUNT", str(place.folder / "count"))
    config, found = settings(place.folder, workload="full", budget_s=1.0), collect()
    (place.folder / "logs").mkdir()
    with LocalExecutor(config, found, place.folder / "logs", worker=ZYGOTELESS) as executor:
        if times == 1:
            (record,) = evaluate_run(config, environment=found, executor=executor).records
            assert record.status is Status.passed
        else:
            message = r"(?s)no device is left: host: the referee can't start: .*no_such_module"
            with pytest.raises(ExecutorError, match=message):
                evaluate_run(config, environment=found, executor=executor)


def test_what_a_process_says_before_it_has_a_log_is_in_the_log_and_told(tmp_path: Path) -> None:
    log = tmp_path / "_referee.log"
    referee = RefereeProcess(DeviceKind.HOST, "host", {}, command=("-c", "raise SystemExit('no torch to import')"))
    referee.begin(referee_config(settings(tmp_path), None), log)
    with pytest.raises(RefereeLost, match="died") as lost:
        referee.wait_ready()
    assert "no torch to import" in lost.value.detail
    referee.close()
    assert log.read_text() == "no torch to import\n"


def test_a_process_that_says_nothing_is_not_told_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.runner.executors.process.START_TIMEOUT_S", 0.25)
    log = tmp_path / "_referee.log"
    log.touch()
    referee = RefereeProcess(DeviceKind.HOST, "host", {}, command=("-c", "import time; time.sleep(600)"))
    referee.begin(referee_config(settings(tmp_path), None), log)
    with pytest.raises(RefereeLost, match=r"gave no answer within 0\.25 s"):
        referee.wait_ready()
    referee.close()


def test_what_a_process_says_once_it_has_a_log_goes_there(tmp_path: Path) -> None:
    """Without that, nothing of a referee that is killed with its conductor could be read."""
    log = tmp_path / "_referee.log"
    says = (
        "import os, socket, sys; from harness.referee import worker; from harness.protocol.channel import Channel;"
        "from contextlib import ExitStack;"
        "channel = Channel(socket.socket(fileno=int(sys.argv[1]))); channel.receive();"
        "os.write(2, b'early\\n'); worker._receive_orders(channel, (), ExitStack()); os.write(2, b'late\\n');"
        "channel.send({'type': 'ready'}); channel.receive()"
    )
    referee = RefereeProcess(DeviceKind.HOST, "host", {}, command=("-c", says))
    referee.begin(referee_config(settings(tmp_path), None), log)
    referee.wait_ready()
    assert log.read_text() == "late\n"
    referee.close()
    assert sorted(log.read_text().split()) == ["early", "late"]
