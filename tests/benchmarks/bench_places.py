"""Whether a short call's time goes by where its data lies, or by its launch's place in the GPU's queue.

    python -m tests.benchmarks.bench_places --out results/time-h200/queue-places.md

Needs a GPU with 4 GiB free; some 5 s. A call spins for 5 us and doubles 4096 numbers, with a cold cache, timed as
`CudaDevice.time_cold` does it but without the launch that it makes more before every other call: how times go without
that one is the question. Each row is a series of calls with the same addresses and as many launches a call as it says:
the flush, the two of the call and those that touch a page ahead of it. Where the place decides, series with an odd
number of launches have both times and those with an even number one of them.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch

from harness.core.environment import collect
from harness.devices.cuda import CudaDevice
from tests.benchmarks.place_tables import Series, document, series_of
from tests.benchmarks.spinning import rate_hz

COUNT = 4096
"""Numbers that a call doubles."""

SPIN_S = 5e-6

FIRST_LEFT_OUT = 3
"""Calls of a series that do not count."""

FLUSH, SPIN_AND_DOUBLE = 1, 2
"""Launches."""

ARENA_BYTES = 2 * 2**30


def cold_s(device: CudaDevice, call: Callable[[], object], before: Callable[[], None] | None = None) -> float:
    device._shifted = True  # this was the turn with a launch more: so none is made
    return device.time_cold(call, lambda _: None, before).device_s


def cleared(tensor: torch.Tensor) -> Callable[[], object]:
    """One launch that touches an output's page."""
    return lambda: tensor[:1].zero_()


def rewritten(tensor: torch.Tensor) -> Callable[[], object]:
    """One launch that touches an input's page and leaves what is there."""
    return lambda: tensor[:1].mul_(1)


def measure(device: CudaDevice, calls: int) -> Iterator[Series]:
    """`calls` calls a series; the tensors of all are held to the end, so that no address comes twice."""
    cycles = int(SPIN_S * rate_hz())
    place = device.torch_device
    inputs = [torch.rand(COUNT, device=place) for _ in range(8)]
    small = [torch.empty(COUNT, device=place) for _ in range(4)]

    def spin_and_double(read: torch.Tensor, written: torch.Tensor) -> None:
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
        torch.mul(read, 2, out=written)

    def series(
        title: str, read: torch.Tensor, written: torch.Tensor, touches: Sequence[Callable[[], object]] = ()
    ) -> Series:
        def before() -> None:
            for touch in touches:
                touch()

        times_s = [
            cold_s(device, lambda: spin_and_double(read, written), before) for _ in range(FIRST_LEFT_OUT + calls)
        ]
        return series_of(
            title,
            times_s[FIRST_LEFT_OUT:],
            launches=FLUSH + SPIN_AND_DOUBLE + len(touches),
            read_from=read.data_ptr(),
            written_to=written.data_ptr(),
        )

    for number, written in enumerate(small):
        yield series(f"output {number} of torch's small ones", inputs[0], written)
    for number, read in enumerate(inputs[:4]):
        yield series(f"input {number}", read, small[0])
    segments = [torch.empty(8 << 20, dtype=torch.uint8, device=place) for _ in range(6)]
    outputs = [
        segment[offset : offset + 4 * COUNT].view(torch.float32)
        for segment in segments
        for offset in (0, 2 << 20, 5 << 20)
    ]
    for title, some in (("", outputs[:12]), (", again", outputs[:6])):
        for number, written in enumerate(some):
            yield series(f"segment {number // 3}, piece {number % 3}{title}", inputs[0], written)
    for number, written in enumerate(outputs[:4]):
        yield series(f"output's page touched, {number}", inputs[0], written, [cleared(written)])
    for number, written in enumerate(outputs[:4]):
        touches = [cleared(written), rewritten(inputs[0])]
        yield series(f"both pages touched, {number}", inputs[0], written, touches)
    arena = device.allocate(ARENA_BYTES)
    shared = [arena.tensor(number << 24, (COUNT,), torch.float32) for number in range(4)]
    for number, read in enumerate(shared):
        yield series(f"input {number} in an arena", read, small[0])
    for number, read in enumerate(shared):
        yield series(f"input {number} in an arena, its page touched", read, small[0], [rewritten(read)])
    chosen = random.Random(1)
    times_s = []
    for _ in range(4 * calls):
        call = partial(spin_and_double, chosen.choice(inputs), chosen.choice(outputs))
        times_s.append(cold_s(device, call))
    yield series_of("a new place for each", times_s, launches=FLUSH + SPIN_AND_DOUBLE, read_from=None, written_to=None)
    halves: dict[str, Callable[[], object]] = {
        "doubling alone": lambda: torch.mul(inputs[0], 2, out=small[0]),
        "spin alone": lambda: torch.cuda._sleep(cycles),  # type: ignore[no-untyped-call]
    }
    for title, half in halves.items():
        times_s = [cold_s(device, half) for _ in range(calls)]
        yield series_of(title, times_s, launches=FLUSH + 1, read_from=None, written_to=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=24, help="calls of a series (default 24)")
    parser.add_argument("--out", type=Path, help="Markdown file to write, anew after each series")
    given = parser.parse_args()
    if given.calls < 4:
        parser.error("--calls: quartiles need at least 4")
    if not torch.cuda.is_available():
        parser.error("torch sees no GPU: `harness doctor` says why")
    device, environment = CudaDevice(0), collect()
    title = f"A short call's time by place, on {device.name}"
    about = f"Driver {environment.driver}, torch {environment.torch}."
    found: list[Series] = []
    with torch.no_grad():
        for one in measure(device, given.calls):
            found.append(one)
            if given.out:
                given.out.write_text(document(title, about, found), encoding="utf-8")
    print(document(title, about, found))


if __name__ == "__main__":
    main()
