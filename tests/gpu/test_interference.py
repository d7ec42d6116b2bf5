"""A neighbour that works on the GPU beside a measurement is noticed, rounds are made again, and the record says so.

What was learnt of a problem beside one convicts nobody, and spares nobody.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.core.choices import DeviceKind
from harness.core.config import resolve
from harness.core.environment import collect, machine
from harness.core.record import Record
from harness.core.status import Status
from harness.core.visible_gpus import visible_gpus
from harness.devices.interference import DISTURBED
from harness.devices.nvml import GpuMonitor
from harness.referee.referee import Referee
from harness.referee.timing.reference_timing import ProblemCalibration
from harness.referee.worker import PRELOADED, PRELOADED_CUDA
from harness.runner.run import evaluate_run
from harness.sandbox.zygote import Zygote
from harness.toolchain import default_root
from tests.unit.referee.test_referee import config, judge

pytestmark = [pytest.mark.gpu, pytest.mark.exclusive_gpu]

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.rand(4096, 4096) - 0.5]
def get_init_inputs():
    return []
"""
SOLUTION = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.clamp(x, min=0)
"""
NEIGHBOUR = """
import torch
a = torch.randn(4096, 4096, device="cuda")
print("up", flush=True)
while True:
    for _ in range(50):
        a @ a
    torch.cuda.synchronize()
"""


@pytest.fixture
def neighbour() -> Iterator[None]:
    """A process that is none of the harness's, busy until the test ends."""
    process = subprocess.Popen([sys.executable, "-c", NEIGHBOUR], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    try:
        yield
    finally:
        process.kill()
        process.communicate()


def evaluated(folder: Path) -> Record:
    level = folder / "problems" / "level1"
    level.mkdir(parents=True)
    (level / "19_relu.py").write_text(PROBLEM)
    place = folder / "solutions" / "somebody" / "level1"
    place.mkdir(parents=True)
    (place / "19_clamp.py").write_text(SOLUTION)
    environment = collect()
    config = resolve(
        machine=machine(environment),
        run_id="run",
        options={
            "paths": [folder / "solutions"], "problems": folder / "problems", "out": folder / "results",
            "device": DeviceKind.CUDA.value, "workload": "full", "cache_dir": default_root(), "audit": "never",
            "seeds": 1, "budget_s": 3.0,
        },
    )  # fmt: skip
    (record,) = evaluate_run(config, environment=environment).records
    assert record.timing is not None, record.reason
    return record


def test_alone_nothing_is_noticed(tmp_path: Path) -> None:
    # Other workers of the test run are on the GPU too, and idle now.
    before = len(GpuMonitor(visible_gpus(collect())[0].uuid).reading().processes or ())
    record = evaluated(tmp_path)
    assert record.timing is not None
    seen = record.timing["disturbed"]
    assert (seen["rounds_repeated"], seen["seen"]) == (0, []), seen
    assert DISTURBED not in record.labels
    # The contestant's process, which is on the GPU too, is no other process.
    counted = {state["other_processes"] for state in record.timing["gpu_after_rounds"]} - {None}
    assert not counted or max(counted) <= before
    assert seen["other_processes"]["busy"] in (0, None)


def test_a_working_neighbour_is_noticed(tmp_path: Path, neighbour: None) -> None:
    record = evaluated(tmp_path)
    assert record.timing is not None
    seen = record.timing["disturbed"]
    if seen["other_processes"]["busy"] is None:
        pytest.skip("the driver does not say here which processes work on the GPU")
    assert seen["rounds_repeated"] > 0, seen
    assert "ran kernels on this GPU" in seen["seen"][0]
    assert DISTURBED in record.labels


HONEST = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)
"""
CLAIMS_IT_ALL = """
import time
from harness.protocol.channel import Channel
send, receive = Channel.send, Channel.receive
asked_s = [0.0]
def receive_and_note(self, *args, **kwargs):
    received = receive(self, *args, **kwargs)
    asked_s[0] = time.perf_counter()
    return received
def send_more(self, message, *args, **kwargs):
    claims = message.get("claims", ())
    for claim in claims:
        claim["device_s"] = claim["window_s"] = 0.98 * (time.perf_counter() - asked_s[0]) / len(claims)
    return send(self, message, *args, **kwargs)
Channel.receive, Channel.send = receive_and_note, send_more
"""
"""Says that its calls took all the time of a burst, which leaves none for what must be done beside them."""


@pytest.fixture(scope="module")
def referee(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Referee]:
    log = tmp_path_factory.mktemp("zygote") / "zygote.log"
    with (
        Zygote(preload=(*PRELOADED, *PRELOADED_CUDA), log_path=log) as zygote,
        Referee(config(DeviceKind.CUDA), zygote) as held,
    ):
        yield held


def learnt_in_noise(referee: Referee, folder: Path, *, calm: bool) -> ProblemCalibration:
    """What the referee knows after an honest solution, as if bursts had cost twenty times as much, noticed or not."""
    assert judge(referee, HONEST, folder, timed=True).status is Status.passed
    known = referee.at_hand.known
    assert known is not None
    assert known.pauses is not None
    costs = known.pauses
    slow = replace(costs, per_call_s=20 * costs.per_call_s, least_s=20 * costs.least_s, calm=calm)
    referee.at_hand.known = replace(known, pauses=slow, calm=calm)
    return known


@pytest.mark.parametrize("calm", [True, False], ids=["unnoticed", "noticed"])
def test_a_calibration_beside_a_neighbour_convicts_nobody(referee: Referee, tmp_path: Path, calm: bool) -> None:
    before = learnt_in_noise(referee, tmp_path, calm=calm)
    outcome = judge(referee, HONEST, tmp_path, timed=True)
    assert outcome.status is Status.passed, outcome
    assert outcome.timing is not None
    assert ("calibrated_again" in outcome.timing) is calm
    assert referee.at_hand.known is not None
    assert referee.at_hand.known.calm
    assert referee.at_hand.known.pauses is not None
    assert before.pauses is not None
    assert referee.at_hand.known.pauses.least_s < 2 * before.pauses.least_s
    referee.at_hand.known = before


def test_it_spares_nobody(referee: Referee, tmp_path: Path) -> None:
    before = learnt_in_noise(referee, tmp_path, calm=True)
    outcome = judge(referee, CLAIMS_IT_ALL + HONEST, tmp_path, timed=True)
    assert outcome.status is Status.disqualified, outcome
    assert "cache flushes and output copies" in outcome.reason
    assert outcome.timing is not None
    assert outcome.timing["calibrated_again"]["times"] == 1
    referee.at_hand.known = before


def test_what_is_learnt_beside_a_neighbour_is_known_to_be(referee: Referee, tmp_path: Path, neighbour: None) -> None:
    referee.at_hand.known = None
    judge(referee, HONEST, tmp_path, timed=True)
    assert referee.at_hand.known is not None
    assert not referee.at_hand.known.calm
    referee.at_hand.known = None
