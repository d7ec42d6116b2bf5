"""Asks a contestant for calls back to back, with the referee's clock around nothing else, and for a graph of them.

Trusted side; used by `session`. The contestant makes everything ready first (`Prepare`) and is stopped; then the inputs
are drawn, so that nothing can be computed early; then one short message starts all calls (`Go`), and once they are
over and everything is stopped, the outputs are copied aside at once: what is written later shows by the difference.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from harness.bench import Bench
from harness.claims import BackToBackVerdict, Calibration, judge_back_to_back
from harness.guest import Guest, GuestFailed
from harness.measure import Turn, calls_of
from harness.messages import Burst, BurstDone, Call, CallMode, Prepare
from harness.model import Failure, Status, one_line
from harness.quiet import NONSTOP_BELOW_S, SHORT_S, Known
from harness.verify import Finding

TRIES = 3
"""Bursts before the wall clock is held against a solution: a machine may be busy for one."""

LATE_WRITE = Failure(
    status=Status.disqualified,
    reason="outputs were written after the calls that they are of had closed",
    evidence={"rule": "late write"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nonstop:
    """One such burst: the referee's seconds around it, and the claims. `still` tells whether outputs still are as they
    were when it ended."""

    turns: tuple[Turn, ...]
    done: BurstDone
    wall_s: float
    still: Callable[[], bool]


def run_nonstop(
    bench: Bench,
    guest: Guest,
    request: Callable[[tuple[Call, ...]], Burst],
    indices: Sequence[int],
    *,
    graph: bool,
    timeout_s: float,
    drawn: bool = False,
) -> Nonstop | str:
    """Make one call on each of these sets, drawn anew, without a pause; or why no graph of them could be captured.

    With `drawn` the inputs are taken as they are, held back words included: for trusted code. Raises `GuestFailed`.
    """
    turns = tuple(Turn(index=index, mode=CallMode.COLD) for index in indices)
    calls = tuple(replace(call, late=()) for call in calls_of(bench, turns))
    if (refused := guest.prepare(Prepare(burst=request(calls), graph=graph), timeout_s)) is not None:
        return refused
    if not drawn:
        for index in indices:
            bench.draw(index)
            bench.hold_back(index)
            bench.mask(index)
    aside = _Aside(bench, indices)
    if not drawn:
        # Until now they were there but for some secret words: whoever waits for them on the device has next to no time.
        bench.complete_all(indices)
    wall_s = guest.go(timeout_s)
    aside.take()
    return Nonstop(turns=turns, done=guest.collect(len(turns), timeout_s), wall_s=wall_s, still=aside.same)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """A solution's calls without a pause. Seconds a call: `back_to_back_s` and `graph_s` are claims, `verdict` is the
    referee's. `data` says whether all sets together fit the cache that the device shares (`cached`) or not (`cold`)."""

    calls: int
    data: str
    back_to_back_s: float
    verdict: BackToBackVerdict
    graph_s: float | None
    graph_refused: str | None


def measure_nonstop(
    bench: Bench,
    guest: Guest,
    request: Callable[[tuple[Call, ...]], Burst],
    *,
    known: Known,
    calibration: Calibration,
    claimed_s: float,
    latencies_s: Sequence[float],
    verify: Callable[[Nonstop], list[Finding]],
    findings: list[Finding],
    timeout_s: float,
) -> Figures | None:
    """Hold the claimed device time of single calls against calls back to back; None for calls too long to gain by it.

    `calibration` is of trusted bursts of this kind. What `verify` finds is added to `findings`; with a failure among
    them nothing more is measured. Raises `GuestFailed`.
    """
    indices = range(known.quiet.nonstop_sets)
    if claimed_s >= NONSTOP_BELOW_S:
        return None
    walls_s: list[float] = []
    claims_s: list[float] = []
    while True:
        held = run_nonstop(bench, guest, request, indices, graph=False, timeout_s=timeout_s)
        assert isinstance(held, Nonstop)  # only a graph can be refused
        latest = verify(held)
        if not held.still():
            raise GuestFailed(LATE_WRITE)
        findings += latest
        if any(finding.failure for finding in latest):
            return None
        walls_s.append(held.wall_s)
        claims_s.append(statistics.fmean(claim.device_s for claim in held.done.claims))
        verdict = judge_back_to_back(
            walls_s,
            calls=len(indices),
            claimed_s=claimed_s,
            latency_s=statistics.median(latencies_s) if latencies_s else None,
            calibration=calibration,
        )
        if verdict.charge_s == 0.0 or len(walls_s) >= TRIES:
            break
    graph_s, refused = None, None
    if claimed_s < SHORT_S and known.quiet.graph_s is not None:
        graph_s, refused = _graph(bench, guest, request, indices, verify, timeout_s)
    return Figures(
        calls=len(indices),
        data="cached" if len(indices) * bench.set_bytes <= bench.device.cache_bytes else "cold",
        back_to_back_s=min(claims_s),
        verdict=verdict,
        graph_s=graph_s,
        graph_refused=refused,
    )


def _graph(
    bench: Bench,
    guest: Guest,
    request: Callable[[tuple[Call, ...]], Burst],
    indices: Sequence[int],
    verify: Callable[[Nonstop], list[Finding]],
    timeout_s: float,
) -> tuple[float | None, str | None]:
    """Seconds a call inside a graph, or why there is none. Code need not bear being captured: no failure is a verdict,
    and nothing is asked of the contestant afterwards."""
    try:
        held = run_nonstop(bench, guest, request, indices, graph=True, timeout_s=timeout_s)
        if isinstance(held, str):
            return None, one_line(held, limit=200)
        wrong = [finding.failure for finding in verify(held) if finding.failure is not None]
        if wrong or not held.still():
            return None, one_line(f"replayed it is not right: {wrong[0].reason if wrong else 'late writes'}", limit=200)
    except GuestFailed as failed:
        return None, one_line(failed.failure.reason, limit=200)
    return statistics.fmean(claim.device_s for claim in held.done.claims), None


class _Aside:
    """Copies of the outputs and the state of some sets."""

    def __init__(self, bench: Bench, indices: Sequence[int]) -> None:
        self._bench = bench
        self._tensors = [
            tensor.view(-1).view(torch.uint8)
            for index in indices
            for tensor in bench.tensors((*bench.sets[index].outputs, *bench.sets[index].state))
            if tensor.numel()
        ]
        self._copies = [torch.empty_like(tensor) for tensor in self._tensors]
        bench.device.synchronize()

    def take(self) -> None:
        if self._tensors:
            torch._foreach_copy_(self._copies, self._tensors)
        self._bench.device.synchronize()

    def same(self) -> bool:
        return all(torch.equal(copy, tensor) for copy, tensor in zip(self._copies, self._tensors, strict=True))
