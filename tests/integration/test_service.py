"""`harness serve` and the runs that it builds and judges for: real servers, referees and contestants on the host
device, and calls that end in the middle."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path

import pytest

from harness.catalog import load_problems
from harness.cli import main
from harness.core.choices import DeviceKind, PrecisionClass
from harness.core.config import Machine, RunConfig, resolve
from harness.core.environment import MachineError
from harness.core.problem import Solution, Workload
from harness.core.status import Failure, Status
from harness.protocol.channel import Channel
from harness.results.reader import StoreUnavailable
from harness.results.writer import RunStore
from harness.runner.executors import ExecutorError, SlotLost
from harness.runner.plan import PendingSolution, PlannedSolution
from harness.runner.service import ServiceError
from harness.runner.service.client import RemoteRunner
from harness.runner.service.place import MAX_ADDRESS_BYTES, checked, read_token, token_file, write_token
from harness.runner.service.surroundings import differing, surroundings
from harness.runner.service.words import (
    OF_ONE_RUN,
    config_of,
    error_json,
    error_of,
    shared_settings,
    work_json,
    work_of,
)
from tests.support.paths import ROOT

pytestmark = pytest.mark.xdist_group("service")
"""One server for all that leave it alive."""

LIMIT_S = 300.0
MACHINE = Machine(device=DeviceKind.HOST, cpu_count=2, memory_bytes=8 * 2**30)

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.rand(64, 64) - 0.5]
def get_init_inputs():
    return []
"""
SOLUTION = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        {body}
"""
BODIES = {
    "19_right": "return torch.clamp(x, min=0)",
    "19_wrong": "return x",
    "19_dies": "import os; os._exit(1)",
}
EXPECTED = {"19_right": Status.passed, "19_wrong": Status.wrong_value, "19_dies": Status.crashed}
SLOW, SLOWER = (f"import time; time.sleep({s}); return torch.clamp(x, min=0)" for s in (0.03, 0.06))
QUICK = ("--device", "host", "--workload", "full", "--min-samples", "4", "--timing-budget", "0.3")


def untold() -> dict[str, str]:
    """The environment, without what a call may say of compilers and GPUs."""
    return {name: value for name, value in os.environ.items() if name not in ("CXX", "CUDA_VISIBLE_DEVICES")}


class Place:
    """A folder with a problem, and a server's socket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "socket"
        (folder / "problems" / "level1").mkdir(parents=True)
        (folder / "problems" / "level1" / "19_relu.py").write_text(PROBLEM)
        self.solutions("ann", BODIES)

    def solutions(self, author: str, bodies: dict[str, str]) -> None:
        """Write these solutions of `author`: the body of `forward` by name."""
        place = self.folder / "solutions" / author / "level1"
        place.mkdir(parents=True)
        for name, body in bodies.items():
            (place / f"{name}.py").write_text(textwrap.dedent(SOLUTION).format(body=body))

    def call(self, *arguments: str, stderr: int = subprocess.STDOUT, **variables: str) -> subprocess.Popen[str]:
        """`harness` with these arguments, in this folder."""
        return subprocess.Popen(
            [sys.executable, "-m", "harness", *arguments],
            cwd=self.folder,
            env={**untold(), "PYTHONPATH": str(ROOT), "COLUMNS": "1000", **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )

    def begin(self, author: str, run_id: str, *more: str, **variables: str) -> subprocess.Popen[str]:
        """`harness eval` of an author's solutions by the server."""
        arguments = ("--run-id", run_id, "--server", str(self.socket), *QUICK, *more)
        return self.call("eval", f"solutions/{author}", *arguments, **variables)

    def run(self, author: str, run_id: str, *more: str, **variables: str) -> tuple[int, str]:
        """Exit code and output of the same."""
        return ended(self.begin(author, run_id, *more, **variables))

    def serve(self) -> subprocess.Popen[str]:
        """A server that listens."""
        child = self.call("serve", "--socket", str(self.socket), "--device", "host")
        wait_until(lambda: self.listens() or child.poll() is not None, "the server's socket")
        assert child.poll() is None, child.communicate()
        return child

    def listens(self) -> bool:
        """Whether a server does so; a socket may be left of one that was killed."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made, suppress(OSError):
            made.connect(str(self.socket))
            return True
        return False

    def statuses(self, run_id: str) -> dict[str, Status]:
        """By the solution's name; one record each."""
        records = RunStore.open(self.folder / "results" / run_id).history()
        found = {Path(held.solution).stem: held.status for held in records}
        assert len(found) == len(records)
        return found


def ended(child: subprocess.Popen[str]) -> tuple[int, str]:
    out, _ = child.communicate(timeout=LIMIT_S)
    return child.returncode, out


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {LIMIT_S:.0f} s"
        time.sleep(0.02)


def workers_of(server: subprocess.Popen[str]) -> set[int]:
    """The referees' processes of this server that are alive."""
    found = set()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and b"harness.referee.worker" in (entry / "cmdline").read_bytes():
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == server.pid:
                    found.add(int(entry.name))
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("serve"))


@pytest.fixture(scope="module")
def server(place: Place) -> Iterator[subprocess.Popen[str]]:
    """One for all tests that leave it alive."""
    child = place.serve()
    yield child
    child.terminate()
    assert ended(child)[0] == 128 + signal.SIGTERM
    assert not place.socket.exists()
    assert not token_file(place.socket).exists()


def test_runs_get_what_they_would_have_got_and_no_process_is_started_for_the_second(
    place: Place, server: subprocess.Popen[str]
) -> None:
    code, out = place.run("ann", "first")
    assert code == 0, out
    assert place.statuses("first") == EXPECTED
    before = workers_of(server)
    assert len(before) == 1
    code, out = place.run("ann", "second", HARNESS_SERVER="/gone")
    assert code == 0, out
    assert workers_of(server) == before
    alone = place.call("eval", "solutions/ann", "--run-id", "alone", *QUICK)
    assert ended(alone)[0] == 0
    assert place.statuses("second") == place.statuses("alone") == EXPECTED
    heads = [RunStore.open(place.folder / "results" / name).head for name in ("second", "alone")]
    for head in heads:
        head["config"].pop("run_id")
    assert heads[0]["config"] == heads[1]["config"]
    assert heads[0]["environment"] == heads[1]["environment"]
    records = [RunStore.open(place.folder / "results" / name).records() for name in ("second", "alone")]
    for served, own in zip(*(sorted(held, key=lambda each: each.solution) for held in records), strict=True):
        assert served.identity == own.identity
        assert served.status is own.status
        assert set(served.evidence) == set(own.evidence)
        assert served.environment == own.environment
        logs = [
            RunStore.open(place.folder / "results" / name).log_path(served.solution) for name in ("second", "alone")
        ]
        assert logs[0].exists() == logs[1].exists()


def test_the_variable_names_the_server_as_the_option_does(place: Place, server: subprocess.Popen[str]) -> None:
    arguments = ("eval", "solutions/ann/level1/19_right.py", "--run-id", "variable", *QUICK)
    assert ended(place.call(*arguments, HARNESS_SERVER="gone"))[0] == 3
    assert ended(place.call(*arguments, HARNESS_SERVER=str(place.socket)))[0] == 0
    assert place.statuses("variable") == {"19_right": Status.passed}
    assert len(workers_of(server)) == 1


def test_runs_at_once_share_processes_and_one_with_other_settings_waits(
    place: Place, server: subprocess.Popen[str]
) -> None:
    place.solutions("bob", {f"19_slow{n}": SLOWER for n in range(3)})
    slow = place.begin("bob", "slow")
    wait_until((place.folder / "results" / "slow" / "run.yaml").exists, "the slow run's begin")
    same = place.begin("ann", "same")
    wait_until((place.folder / "results" / "same" / "run.yaml").exists, "the begin of one beside it")
    other = place.begin("ann", "other", "--seeds", "2")
    for child in (slow, same, other):
        code, out = ended(child)
        assert code == 0, out
        assert ("waiting for other runs to end" in out) == (child is other)
    assert place.statuses("slow") == {f"19_slow{n}": Status.passed for n in range(3)}
    assert place.statuses("same") == place.statuses("other") == EXPECTED
    assert len(workers_of(server)) == 1


def test_an_interrupted_run_goes_on_and_every_solution_has_one_record(
    place: Place, server: subprocess.Popen[str]
) -> None:
    place.solutions("cy", {f"19_slow{n}": SLOW for n in range(4)})
    child = place.begin("cy", "interrupted")
    records = place.folder / "results" / "interrupted" / "records.jsonl"
    wait_until(lambda: records.exists() and b"\n" in records.read_bytes(), "the first record")
    child.send_signal(signal.SIGINT)
    code, out = ended(child)
    assert code == 130, out
    assert "--resume" in out
    kept = place.statuses("interrupted")
    assert 0 < len(kept) < 4
    code, out = place.run("cy", "interrupted", "--resume")
    assert code == 0, out
    assert place.statuses("interrupted") == {f"19_slow{n}": Status.passed for n in range(4)}


def test_a_run_that_is_killed_keeps_nobody(place: Place, server: subprocess.Popen[str]) -> None:
    place.solutions("dan", {f"19_slow{n}": SLOW for n in range(3)})
    child = place.begin("dan", "killed")
    records = place.folder / "results" / "killed" / "records.jsonl"
    wait_until(lambda: records.exists() and b"\n" in records.read_bytes(), "the first record")
    child.kill()
    child.communicate()
    code, out = place.run("ann", "after")
    assert code == 0, out
    assert place.statuses("after") == EXPECTED


def test_a_call_that_stands_still_keeps_nobody(place: Place, server: subprocess.Popen[str]) -> None:
    child = place.begin("ann", "still")
    records = place.folder / "results" / "still" / "records.jsonl"
    wait_until(lambda: records.exists() and b"\n" in records.read_bytes(), "the first record")
    child.send_signal(signal.SIGSTOP)
    code, out = place.run("ann", "beside", "--seeds", "2")
    assert code == 0, out
    assert place.statuses("beside") == EXPECTED
    child.send_signal(signal.SIGCONT)
    code, out = ended(child)
    assert code == 0, out
    assert place.statuses("still") == EXPECTED


SPY = """
import socket
told = []
try:
    told.append("token " + open({token!r}).read())
except OSError as error:
    told.append("no token: " + type(error).__name__)
try:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.connect({socket!r})
    told.append("connected")
except OSError as error:
    told.append("no socket: " + type(error).__name__)
raise RuntimeError("; ".join(told))
"""


def test_a_solution_can_not_reach_the_server(place: Place, server: subprocess.Popen[str]) -> None:
    """Neither where its module is run to be built, nor where it is called."""
    spy = SPY.format(token=str(token_file(place.socket)), socket=str(place.socket))
    place.solutions("eve", {"19_called": textwrap.indent(spy, " " * 8).strip(), "19_built": "return torch.relu(x)"})
    path = place.folder / "solutions" / "eve" / "level1" / "19_built.py"
    path.write_text(spy + path.read_text())
    code, out = place.run("eve", "spy")
    assert code == 0, out
    records = {record.status: record for record in RunStore.open(place.folder / "results" / "spy").records()}
    assert records.keys() == {Status.runtime_error, Status.import_error}
    for record in records.values():
        assert "no token: " in record.reason
        assert "no socket: " in record.reason


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"CUDA_VISIBLE_DEVICES": "7"}, "was started with CUDA_VISIBLE_DEVICES=(not set), but this call has 7"),
        ({"CXX": "c++-elsewhere", "MAX_JOBS": "1"}, "was started with CXX=(not set), but this call has c++-elsewhere"),
        ({"PYTHONPATH": "copy"}, "it runs another version of the code"),
    ],
)
def test_a_call_that_would_get_something_else_is_refused(
    place: Place, server: subprocess.Popen[str], variables: dict[str, str], said: str
) -> None:
    if "PYTHONPATH" in variables:
        shutil.copytree(ROOT / "harness", place.folder / "copy" / "harness")
    code, out = place.run("ann", "refused", **variables)
    assert code == 3, out
    assert said in out
    assert "Traceback" not in out
    assert not (place.folder / "results" / "refused" / "records.jsonl").exists()


def hello(place: Place, token: str) -> dict[str, object]:
    return {"type": "hello", "token": token, "stamp": "", "surroundings": {}}


def answer(place: Place, sent: bytes | None, message: dict[str, object] | None = None) -> dict[str, object] | None:
    """What the server says to who sends this message; None, where these bytes, that it says nothing."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.settimeout(LIMIT_S)
        made.connect(str(place.socket))
        if message is not None:
            data = json.dumps(message).encode()
            sent = struct.pack(">I", len(data)) + data
        made.sendall(sent or b"")
        if message is None:
            made.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):  # it closed without having read all of it
                assert made.recv(1) == b""
            return None
        return Channel(made).receive(LIMIT_S).message


def test_who_is_not_of_this_harness_gets_nothing_and_disturbs_nobody(
    place: Place, server: subprocess.Popen[str]
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.connect(str(place.socket))
        _others_get_nothing(place)
        code, out = place.run("ann", "meanwhile")
        assert code == 0, out


def _others_get_nothing(place: Place) -> None:
    for sent in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff\xff\xff\xff", struct.pack(">I", 2) + b"[]"):
        assert answer(place, sent) is None
    refused = answer(place, None, hello(place, "0" * 64))
    assert refused is not None
    assert "serves another user" in str(refused["reason"])
    refused = answer(place, None, hello(place, read_token(place.socket)))
    assert refused is not None
    assert "another version of the code" in str(refused["reason"])


def test_there_is_one_server_at_a_place(place: Place, server: subprocess.Popen[str]) -> None:
    code, out = ended(place.call("serve", "--socket", str(place.socket), "--device", "host"))
    assert code == 3
    assert "a server is already running there" in out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("serve", "--idle", "0"), 2, "--idle must be a number of seconds above 0"),
        (("serve", "--device", "host", "--socket", "x" * 120), 3, f"at most {MAX_ADDRESS_BYTES} bytes"),
        (("serve", "--device", "host", "--socket", "problems/level1/19_relu.py/x"), 3, "can't listen: "),
        (("serve", "--device", "host", "--socket", "problems/level1/19_relu.py"), 3, "exists and is not a socket"),
        (("serve", "--device", "gpu"), 2, "must be one of auto, cuda, host"),
        (("eval", "solutions/ann", *QUICK, "--server", "gone"), 3, "no server answers ("),
        (("eval", "solutions/ann", *QUICK, "--server", "auto", "--executor", "ray"), 2, "leave out one"),
    ],
)
def test_a_wrong_call_says_so(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(place.folder)
    assert main(arguments) == code
    told = capsys.readouterr().err
    assert said in told
    assert "Traceback" not in told


def test_a_server_that_dies_is_told_of_and_another_does_the_rest(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.solutions("bob", {f"19_slow{n}": SLOW for n in range(3)})
    first = place.serve()
    child = place.begin("bob", "run")
    records = tmp_path / "results" / "run" / "records.jsonl"
    wait_until(lambda: records.exists() and b"\n" in records.read_bytes(), "the first record")
    workers = workers_of(first)
    first.kill()
    first.communicate()
    code, out = ended(child)
    assert code == 3, out
    assert "is gone" in out
    assert "Traceback" not in out
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), "the end of its referees")
    second = place.serve()
    child = place.begin("bob", "run", "--resume")
    wait_until(lambda: records.read_bytes().count(b"\n") > 1, "the second record")
    second.terminate()
    code, out = ended(child)
    assert code in (0, 3), out
    assert ended(second)[0] == 128 + signal.SIGTERM
    third = place.serve()
    code, out = place.run("bob", "run", "--resume")
    assert code == 0, out
    assert place.statuses("run") == {f"19_slow{n}": Status.passed for n in range(3)}
    third.send_signal(signal.SIGINT)
    assert ended(third)[0] == 130


def test_processes_that_nobody_needs_are_ended(tmp_path: Path) -> None:
    place = Place(tmp_path)
    child = place.call("serve", "--socket", str(place.socket), "--device", "host", "--idle", "1.5")
    wait_until(place.listens, "the server's socket")
    wait_until(lambda: bool(workers_of(child)), "its referee")
    wait_until(lambda: not workers_of(child), "its end")
    code, out = place.run("ann", "late")
    assert code == 0, out
    assert place.statuses("late") == EXPECTED
    child.terminate()
    assert "idle: the processes were ended" in ended(child)[1]


def test_a_program_is_told_when_the_server_listens(tmp_path: Path) -> None:
    place = Place(tmp_path)
    arguments = ("serve", "--socket", "its socket", "--device", "host", "--json")
    child = place.call(*arguments, stderr=subprocess.DEVNULL)
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(5)]
    told = json.loads("".join(lines))
    assert told == {"socket": str(tmp_path / "its socket"), "pid": child.pid, "device": "host"}
    place.socket = tmp_path / "its socket"
    assert place.listens()
    child.terminate()
    assert ended(child) == (128 + signal.SIGTERM, "")


@pytest.mark.gpu
def test_a_server_times_on_the_gpu_and_leaves_nothing_on_it(tmp_path: Path) -> None:
    place = Place(tmp_path)
    child = place.call("serve", "--socket", str(place.socket), "--device", "cuda")
    wait_until(place.listens, "the server's socket")
    arguments = ("--server", str(place.socket), "--workload", "full", "--timing-budget", "0.3")
    begun = [place.call("eval", "solutions/ann", "--run-id", name, *arguments) for name in ("one", "two")]
    for call in begun:
        code, out = ended(call)
        assert code == 0, out
    for name in ("one", "two"):
        assert place.statuses(name) == EXPECTED
        (timed,) = [held for held in RunStore.open(tmp_path / "results" / name).records() if held.speedup is not None]
        assert timed.device is DeviceKind.CUDA
        assert timed.environment["gpu_uuid"] is not None
    workers = workers_of(child)
    assert len(workers) >= 1
    child.terminate()
    assert ended(child)[0] == 128 + signal.SIGTERM
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def a_config(**options: object) -> RunConfig:
    return resolve(machine=MACHINE, run_id="x", options={"paths": [Path("here")], **options})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"seeds": 2, "min_samples": 5, "budget_s": 1.5, "workers": 2, "cache_limit_bytes": "1GiB"},
        {"precision": "tf32", "baselines": "eager,compile", "audit": "never", "device_policy": "coerce"},
        {"policy": {"require_custom_kernel": True, "refuse_labels": ["library_only"], "min_own_share": 0.5}},
        {"problem": "level1/1", "author": "me", "shard": "1/2", "out": "elsewhere", "workload": "small"},
    ],
)
def test_settings_arrive_as_they_were_sent(options: dict[str, object]) -> None:
    sent = a_config(**options)
    arrived = config_of(json.loads(json.dumps(shared_settings(sent))), MACHINE)
    assert arrived == replace(sent, **OF_ONE_RUN)


def test_what_is_not_of_one_run_alone_is_shared() -> None:
    names = {item.name for item in fields(RunConfig)}
    assert set(OF_ONE_RUN) < names
    assert shared_settings(a_config(seeds=2)) != shared_settings(a_config())
    assert shared_settings(a_config(out="there", shard="1/2")) == shared_settings(a_config())


def test_works_arrive_as_they_were_sent() -> None:
    problems = load_problems(ROOT / "problems")
    tiny = Workload(name="tiny", sizes={"N": 4, "flag": True, "f": 0.5}, precision=PrecisionClass.BF16)
    failure = Failure(status=Status.syntax_error, reason="no text", evidence={"line": 3}, detail="all of it")
    for problem in problems.values():
        for held in (None, failure):
            path = Path("there/x.py")
            solution = Solution(
                problem_id=problem.id, author="a", label="a/x.py", path=path, source="é\ud800", sample=3, failure=held
            )
            broken = replace(problem, notes="", failure=held)
            work = PendingSolution(
                job=PlannedSolution(solution=solution, problem=broken, workload=tiny), log_path=Path("/tmp/x.log")
            )
            arrived = work_of(json.loads(json.dumps(work_json(work))))
            assert arrived.job == work.job
            assert arrived.log_path == work.log_path


@pytest.mark.parametrize(
    ("sent", "kind", "text"),
    [
        (ExecutorError("no device"), ExecutorError, "no device"),
        (SlotLost("no device"), SlotLost, "no device"),
        (StoreUnavailable("full"), StoreUnavailable, "full"),
        (MachineError("no driver"), MachineError, "no driver"),
        (ServiceError("ended"), ServiceError, "ended"),
        (KeyError("x"), ExecutorError, "KeyError: 'x'"),
        (OSError(28, "No space left", "/there"), OSError, "[Errno 28] No space left: '/there'"),
    ],
)
def test_errors_arrive_as_what_they_are(sent: BaseException, kind: type[BaseException], text: str) -> None:
    arrived = error_of(json.loads(json.dumps(error_json(sent))))
    assert type(arrived) is kind
    assert str(arrived) == text


def test_a_token_that_others_can_read_is_no_servers(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    token = write_token(path)
    assert read_token(path) == token
    assert write_token(path) != token
    token_file(path).chmod(0o644)
    with pytest.raises(ServiceError, match="other users can access this token"):
        read_token(path)


def test_a_socket_that_nobody_listens_at_is_no_server(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.bind(str(path))
    write_token(path)
    with pytest.raises(ServiceError, match=r"no server answers \("):
        RemoteRunner(path, a_config())
    with pytest.raises(ServiceError, match="bytes"):
        checked(tmp_path / ("x" * 200))


class TestSurroundings:
    def test_they_are_the_same_for_a_call_from_another_folder_with_other_words(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ours = surroundings()
        monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setenv("SECRET_TOKEN", "never told")
        theirs = surroundings()
        assert differing(ours, json.loads(json.dumps(theirs))) is None
        assert "never told" not in json.dumps(theirs)

    def test_a_compiler_is_told_by_what_lies_where_it_is_found(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("CXX", raising=False)
        before = surroundings()
        mine = tmp_path / "g++"
        mine.write_text("#!/bin/sh\n")
        mine.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        first = surroundings()
        said = differing(before, first)
        assert said is not None
        assert "the C++ compiler" in said
        assert str(mine) in said
        mine.write_text("#!/bin/sh\n# updated in place\n")
        assert differing(first, surroundings()) is not None

    def test_packages_are_told_by_their_versions(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "thing-1.0.dist-info").mkdir()
        monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
        first = surroundings()
        (tmp_path / "thing").mkdir()
        assert differing(first, surroundings()) is None
        (tmp_path / "thing-1.0.dist-info").rename(tmp_path / "thing-1.1.dist-info")
        said = differing(first, surroundings())
        assert said is not None
        assert "other packages" in said

    def test_all_that_differs_is_named_and_nothing_at_length(self) -> None:
        said = differing({"A": "1", "B": "2" * 10_000, "C": "3"}, {"B": "x", "D": "4", "E": "5", "F": "6"})
        assert said == ("it was started with A=1, but this call has (not set) (also different: B, C, D, ...)")
        long = differing({"B": "2" * 10_000}, {"B": "1"})
        assert long is not None
        assert len(long) < 400

    @pytest.mark.parametrize("theirs", [None, "x", ["CXX"], 3])
    def test_who_tells_none_is_refused(self, theirs: object) -> None:
        assert differing(surroundings(), theirs) is not None
