"""The reference on its own: when its noise floor is known, and the whole of it on the host device."""

from __future__ import annotations

import math
import random
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.bench import Bench
from harness.devices import CallTime, DeviceError, open_device
from harness.measure import ReferenceRunner
from harness.messages import Manner
from harness.model import DeviceKind, Problem, Workload, digest_text
from harness.quiet import (
    LEAST_BURSTS,
    MOST_BURSTS,
    PROCESS_BIAS,
    QUEUE_TRIES,
    enough,
    least_width,
    measure_quiet,
    so_many,
)

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


def make_bench() -> Bench:
    text = textwrap.dedent(PROBLEM)
    problem = Problem(id="level1/23", name="test", path=Path("23_test.py"), source=text, digest=digest_text(text))
    return Bench(
        problem,
        Workload(name="small"),
        open_device(DeviceKind.HOST),
        sets_wanted=6,
        secret=random.Random(1),
    )


def test_the_reference_is_measured_alone() -> None:
    bench = make_bench()
    quiet = measure_quiet(bench, sets=6)
    assert 0.0 < quiet.reference_s < 1.0
    assert quiet.floor.log_width == max(quiet.measured_log_width, quiet.least_log_width)
    assert quiet.floor_json()["pairs"] in (4, 6, 8)
    assert quiet.nonstop_sets == 6
    assert quiet.back_to_back_s is not None
    assert "queued" in quiet.refused, "the host device has no gate"
    bench.close()


@pytest.mark.parametrize(("fails", "queued"), [(0, True), (QUEUE_TRIES - 1, True), (QUEUE_TRIES, False)])
def test_a_reference_that_waits_once_is_queued_again(monkeypatch: pytest.MonkeyPatch, fails: int, queued: bool) -> None:
    asked = 0
    launched = ReferenceRunner.back_to_back

    def back_to_back(self: ReferenceRunner, indices: Sequence[int], manner: Manner) -> CallTime:
        nonlocal asked
        if manner is Manner.QUEUED:
            asked += 1
            if asked <= fails:
                raise DeviceError("calls wait for the device to finish")
        return launched(self, indices, Manner.LAUNCHED)

    monkeypatch.setattr(ReferenceRunner, "back_to_back", back_to_back)
    bench = make_bench()
    quiet = measure_quiet(bench, sets=6)
    bench.close()
    assert asked == min(fails + 1, QUEUE_TRIES)
    assert (quiet.queued_s is not None) is queued
    assert ("queued" in quiet.refused) is not queued
