"""The reference on its own: when its noise floor is known, and the whole of it on the host device."""

from __future__ import annotations

import math
import random
import textwrap
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from harness.core.choices import DeviceKind
from harness.core.problem import Problem, Workload, digest_text
from harness.devices.device import CallTime, DeviceError, open_device
from harness.protocol.messages import LaunchMode
from harness.referee.problem.workspace import Workspace
from harness.referee.timing.reference_timing import (
    FEW_NONSTOP_SETS,
    LEAST_BURSTS,
    MOST_BURSTS,
    NONSTOP_BELOW_S,
    PROCESS_BIAS,
    QUEUE_TRIES,
    ReferenceTimer,
    enough,
    least_width,
    proves_more,
    sets_without_pause,
    so_many,
)
from harness.referee.timing.rounds import ReferenceRunner

PROBLEM = """
    import torch
    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.softmax(x, dim=1)
    def get_inputs():
        return [torch.rand(64, 256)]
    def get_init_inputs():
        return []
"""


def bursts(count: int, noise: float, seed: int = 1, time_s: float = 1e-3) -> list[list[float]]:
    generator = random.Random(seed)
    return [[time_s * math.exp(generator.gauss(0.0, noise)) for _ in range(10)] for _ in range(count)]


def test_even_times_need_the_least_number_of_bursts() -> None:
    held = bursts(MOST_BURSTS, 1e-4)
    assert [enough(held[:count], MOST_BURSTS) for count in range(1, MOST_BURSTS + 1)] == [
        count >= LEAST_BURSTS and count % 2 == 0 for count in range(1, MOST_BURSTS + 1)
    ]


def test_scattered_times_need_all_of_them() -> None:
    held = bursts(MOST_BURSTS, 0.2)
    assert [enough(held[:count], MOST_BURSTS) for count in range(1, MOST_BURSTS + 1)] == [
        count == MOST_BURSTS for count in range(1, MOST_BURSTS + 1)
    ]
    assert enough(held[:6], 6)


@pytest.mark.parametrize("seed", range(5))
def test_where_few_are_enough_more_leave_the_floor_as_it_is(seed: int) -> None:
    held = bursts(MOST_BURSTS, 5e-4, seed)
    assert enough(held[:LEAST_BURSTS], MOST_BURSTS)
    assert enough(held, MOST_BURSTS + 2)


def test_short_calls_have_a_wider_least_floor() -> None:
    assert least_width(1e-3) == PROCESS_BIAS
    assert least_width(3e-6) == pytest.approx(0.1)
    assert enough(bursts(LEAST_BURSTS, 0.02, time_s=3e-6), MOST_BURSTS)


def test_few_long_calls_are_enough() -> None:
    assert so_many(10, 20e-6, least=6) == 10
    assert so_many(10, 2e-3, least=6) == 7
    assert so_many(10, 0.5, least=6) == 6
    assert so_many(3, 0.5, least=6) == 3
    assert enough([burst[:count] for burst, count in zip(bursts(4, 1e-4), (10, 6, 6, 6), strict=True)], MOST_BURSTS)


@pytest.mark.parametrize(
    ("set_gib", "memory_gib", "taken_gib", "peak_gib", "sets"),
    [
        (0.25, 80, 70, 1, 16),  # many small ones are made whatever there is
        (1.3, 80, 70, 1, 3),
        (2, 140, 40, 1, 3),
        (2, 80, 40, 1, 3),
        (8, 140, 60, 4, 2),
        (12, 140, 90, 6, 1),
        (12, 140, 105, 6, 0),  # what two calls take is left to the solution
        (8, 140, 60, 40, 0),  # or twice what the reference takes
        (8, 80, 45, 4, 1),
        (12, 80, 30, 6, 0),  # copies would take more than an eighth
        (2, 140, 118, 1, 2),
        (2, 140, 122, 1, 0),  # an eighth is left to the solution
    ],
)
def test_of_large_sets_as_many_are_called_back_to_back_as_there_is_memory_for(
    set_gib: float, memory_gib: int, taken_gib: int, peak_gib: int, sets: int
) -> None:
    device = SimpleNamespace(memory_bytes=lambda: memory_gib * 2**30, taken_bytes=lambda: taken_gib * 2**30)
    workspace = cast(Workspace, SimpleNamespace(set_bytes=int(set_gib * 2**30), device=device))
    assert sets_without_pause(workspace, peak_gib * 2**30) == sets


def test_memory_that_is_no_device_s_own_is_left_alone() -> None:
    device = SimpleNamespace(memory_bytes=lambda: None, taken_bytes=lambda: None)
    assert sets_without_pause(cast(Workspace, SimpleNamespace(set_bytes=2**31, device=device)), 0) == 0


def test_calls_are_made_back_to_back_where_they_are_short_and_all_of_them_too() -> None:
    assert not proves_more(1e-3, 0)
    assert proves_more(0.99 * NONSTOP_BELOW_S, 1)
    assert not proves_more(1.01 * NONSTOP_BELOW_S, 1)
    assert proves_more(4.9e-3, 16)
    assert not proves_more(5.1e-3, 16)


def make_workspace(device: DeviceKind = DeviceKind.HOST, text: str = PROBLEM) -> Workspace:
    text = textwrap.dedent(text)
    problem = Problem(id="level1/23", name="test", path=Path("23_test.py"), source=text, digest=digest_text(text))
    return Workspace(
        problem,
        Workload(name="small"),
        open_device(device),
        sets_wanted=6,
        secret=random.Random(1),
    )


def test_the_reference_is_measured_alone() -> None:
    workspace = make_workspace()
    quiet = ReferenceTimer(workspace, sets=6).result()
    assert 0.0 < quiet.reference_s < 1.0
    assert quiet.floor.log_width == max(quiet.measured_log_width, quiet.least_log_width)
    assert quiet.floor_json()["pairs"] in (4, 6, 8)
    assert quiet.back_to_back_sets == 6
    assert quiet.back_to_back_s is not None
    assert "queued" in quiet.refused, "the host device has no gate"
    workspace.close()


def test_a_single_set_is_enough_to_measure_the_reference() -> None:
    workspace = make_workspace()
    workspace.sets = workspace.sets[:1]
    quiet = ReferenceTimer(workspace, sets=1).result()
    workspace.close()
    assert quiet.floor_json()["pairs"] in (4, 6, 8)
    assert quiet.back_to_back_sets == 1
    assert quiet.back_to_back_s is not None


@pytest.mark.parametrize(("fails", "queued"), [(0, True), (QUEUE_TRIES - 1, True), (QUEUE_TRIES, False)])
def test_a_reference_that_waits_once_is_queued_again(monkeypatch: pytest.MonkeyPatch, fails: int, queued: bool) -> None:
    asked = 0
    launched = ReferenceRunner.back_to_back

    def back_to_back(self: ReferenceRunner, indices: Sequence[int], launch_mode: LaunchMode) -> CallTime:
        nonlocal asked
        if launch_mode is LaunchMode.QUEUED:
            asked += 1
            if asked <= fails:
                raise DeviceError("calls wait for the device to finish")
        return launched(self, indices, LaunchMode.LAUNCHED)

    monkeypatch.setattr(ReferenceRunner, "back_to_back", back_to_back)
    workspace = make_workspace()
    quiet = ReferenceTimer(workspace, sets=6).result()
    workspace.close()
    assert asked == min(fails + 1, QUEUE_TRIES)
    assert (quiet.queued_s is not None) is queued
    assert ("queued" in quiet.refused) is not queued


@pytest.mark.gpu
@pytest.mark.exclusive_gpu
def test_few_calls_on_large_inputs_are_queued() -> None:
    workspace = make_workspace(DeviceKind.CUDA, PROBLEM.replace("torch.rand(64, 256)", "torch.rand(2**14, 2**14)"))
    assert workspace.set_bytes == 2**31
    quiet = ReferenceTimer(workspace, sets=6).result()
    assert quiet.back_to_back_sets == FEW_NONSTOP_SETS
    assert quiet.queued_s is not None
    assert quiet.reference_s < quiet.queued_s < 3 * quiet.reference_s, "outputs are copied behind each call"
    workspace.close()
