"""What builds need begins as soon as some are expected: before the first one where shapes have to be found out."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from harness.catalog import load_problems
from harness.core.problem import Problem, Workload, digest_text
from harness.referee.problem.signature import Signatures
from harness.sandbox.zygote import ZygoteError
from harness.toolchain import BuilderZygotes
from harness.toolchain.zygotes import LateZygote

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.rand(8, 3)]
def get_init_inputs():
    return [3]
"""

START_ANOTHER = "import os, pathlib, subprocess, time; another = subprocess.Popen(('sleep', '1000')).pid"


def test_a_zygote_starts_when_it_is_expected_and_once(tmp_path: Path) -> None:
    zygote = LateZygote(("json",), tmp_path / "log")
    try:
        assert not zygote.started
        zygote.start()
        pid = zygote.pid
        zygote.start()
        assert zygote.pid == pid
        zygote.wait_ready()
        assert zygote.alive
    finally:
        zygote.close()
    with pytest.raises(ZygoteError, match="closed"):
        zygote.start()


def test_what_compiles_does_not_wait_for_torch(tmp_path: Path) -> None:
    with BuilderZygotes(tmp_path / "log") as zygotes:
        zygotes.light.start()
        zygotes.light.wait_ready()
        maps = Path(f"/proc/{zygotes.light.pid}/maps").read_text()
        assert not zygotes.torch.started
        assert "libtorch" not in maps


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    folder = tmp_path / "problems" / "level1"
    folder.mkdir(parents=True)
    (folder / "19_relu.py").write_text(PROBLEM)
    return load_problems(tmp_path / "problems")["level1/19"]


def test_builds_are_expected_where_a_problems_shapes_are_not_remembered(problem: Problem, tmp_path: Path) -> None:
    missed: list[int] = []
    with Signatures(tmp_path / "cache", 2**20) as first:
        found = first.of(problem, on_miss=lambda: missed.append(1))
        assert found is not None
        assert found["inputs"]["leaves"] == [[[8, 3], "float32"]]
        assert first.of(problem, on_miss=lambda: missed.append(2)) == found
    with Signatures(tmp_path / "cache", 2**20) as another_run:
        assert another_run.of(problem, on_miss=lambda: missed.append(3)) == found
    assert missed == [1]


def test_every_build_that_waits_for_shapes_is_expected_before_it_waits(problem: Problem, tmp_path: Path) -> None:
    """None stands behind another that is finding them out: each gets past here only when all have come."""
    together = threading.Barrier(4, timeout=300)
    with Signatures(tmp_path / "cache", 2**20) as signatures, ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: signatures.of(problem, on_miss=lambda: together.wait() and None), range(4)))
    assert found[0] is not None
    assert found == [found[0]] * 4


def test_inputs_of_a_small_workload_may_look_at_their_values(problem: Problem, tmp_path: Path) -> None:
    """They are drawn with contents; those of other workloads may be too large to be."""
    drawn = "    x = torch.rand(8, 3)\n    assert x.min() >= 0\n    return [x]"
    source = PROBLEM.replace("    return [torch.rand(8, 3)]", drawn)
    looks = replace(problem, source=source, digest=digest_text(source))
    small = replace(looks, workloads={"small": Workload(name="small")})
    with Signatures(tmp_path / "cache", 2**20) as signatures:
        assert signatures.of(looks) is None
    with Signatures(tmp_path / "other", 2**20) as signatures:
        found = signatures.of(small)
    assert found is not None
    assert found["inputs"]["leaves"] == [[[8, 3], "float32"]]


@pytest.mark.parametrize(
    ("old", "new", "constructs"),
    [
        ("", "", True),
        ("self, width", "self", False),
        ("super().__init__()", "raise OSError", False),
        ("super().__init__()", "import os; os._exit(0)", False),
        ("return [3]", "return 3", False),
    ],
)
def test_whether_the_reference_can_be_constructed_itself(
    problem: Problem, tmp_path: Path, old: str, new: str, constructs: bool
) -> None:
    source = PROBLEM.replace(old, new)
    asked = replace(problem, source=source, digest=digest_text(source))
    with Signatures(tmp_path / "cache", 2**20) as signatures:
        assert signatures.constructs(asked) is constructs
        assert signatures.constructs(problem)  # the next one has its answer, whatever became of this one


ASK = """
import sys
from pathlib import Path
from harness.catalog import load_problems
from harness.referee.problem.signature import Signatures
with Signatures(Path(sys.argv[1]) / "cache", 2**20) as signatures:
    found = signatures.of(load_problems(Path(sys.argv[1]) / "problems")["level1/19"])
print(found is not None, "torch" in sys.modules)
"""


def test_the_runner_imports_no_torch_for_it(problem: Problem, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", ASK, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


@pytest.mark.parametrize(
    "inputs", ["import os; os._exit(3)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "raise OSError"]
)
def test_a_problem_that_does_not_tell_leaves_the_next_one_its_answer(
    problem: Problem, tmp_path: Path, inputs: str
) -> None:
    source = PROBLEM.replace("    return [torch.rand(8, 3)]", f"    {inputs}")
    broken = replace(problem, source=source, digest=digest_text(source))
    with Signatures(tmp_path / "cache", 2**20) as signatures:
        assert signatures.of(broken) is None
        assert signatures.of(problem) is not None


def test_a_problem_that_hangs_is_given_up_and_the_next_one_has_its_answer(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.referee.problem.signature.LIMIT_S", 4.0)
    source = PROBLEM.replace("    return [torch.rand(8, 3)]", "    import time; time.sleep(1000)")
    hanging = replace(problem, source=source, digest=digest_text(source))
    with Signatures(tmp_path / "cache", 2**20) as signatures:
        assert signatures.of(hanging) is None
        assert signatures.of(problem) is not None


def test_what_finds_shapes_out_ends_with_its_runner(problem: Problem, tmp_path: Path) -> None:
    """A killed one, too, and in the middle of a problem that hangs; and with it what that problem started."""
    marker = tmp_path / "begun"
    write = f"{START_ANOTHER}; pathlib.Path({str(marker)!r}).write_text(f'{{os.getpid()}} {{another}} .')"
    hang = PROBLEM.replace("    return [torch.rand(8, 3)]", f"    {write}; time.sleep(1000)")
    problem.path.write_text(hang)
    with subprocess.Popen([sys.executable, "-c", ASK, str(tmp_path)], stdout=subprocess.DEVNULL) as runner:
        while not (marker.exists() and marker.read_text().endswith(".")):
            assert runner.poll() is None
            time.sleep(0.02)
        pids = [int(pid) for pid in marker.read_text().split()[:2]]
        held = [os.pidfd_open(pid) for pid in pids]
        try:
            runner.kill()
            for process in held:
                assert select.select([process], [], [], 60.0)[0]
        finally:
            for process in held:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(process, signal.SIGKILL)
                os.close(process)


def test_a_finder_that_cannot_start_is_no_fault_of_the_run(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError("no more processes")

    with Signatures(tmp_path / "cache", 2**20) as signatures, monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", refuse)
        assert signatures.of(problem) is None


def test_a_problem_that_hangs_ends_with_its_run(problem: Problem, tmp_path: Path) -> None:
    marker = tmp_path / "begun"
    hang = f"{START_ANOTHER}; pathlib.Path({str(marker)!r}).write_text(f'{{another}} .'); time.sleep(1000)"
    source = PROBLEM.replace("    return [torch.rand(8, 3)]", f"    {hang}")
    signatures = Signatures(tmp_path / "cache", 2**20)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(signatures.of, replace(problem, source=source, digest=digest_text(source)))
        while not (marker.exists() and marker.read_text().endswith(".")):
            assert not asked.done()
            time.sleep(0.02)
        another = os.pidfd_open(int(marker.read_text().split()[0]))
        try:
            signatures.close()
            assert asked.result(timeout=300) is None
            assert select.select([another], [], [], 60.0)[0], "what the problem started"
        finally:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(another, signal.SIGKILL)
            os.close(another)
    assert signatures.of(problem) is None
