"""Asks a contestant for calls back to back, with the referee's clock around nothing else, and for a graph of them.

Trusted side; used by `session`. Of the three manners (`messages.Manner`) queued calls prove most: the contestant
submits them behind a shut gate and is stopped; then the inputs are drawn elsewhere and copied to where they belong,
some words of each only at the last moment (`arrival`), so that a kernel that looks out for them gains nothing; then the
gate opens, and until the last call is done nothing but the device is at work. Code that waits for the device in its
forward can't be queued; it is asked to make ready, stopped, and started by one short message once the inputs are there.
In either case outputs are copied aside at once: what is written later shows by the difference.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch

from harness.arrival import Arrival
from harness.bench import Bench
from harness.claims import LAUNCHED, QUEUED, BackToBackVerdict, judge_back_to_back
from harness.devices import DeviceError
from harness.gate import PATIENCE_S, opened_after
from harness.guest import Guest, GuestFailed
from harness.measure import Turn, calls_of
from harness.messages import Burst, BurstDone, Call, CallMode, Manner, Prepare
from harness.model import Failure, Status, one_line
from harness.quiet import NONSTOP_BELOW_S, SHORT_S, Known
from harness.verify import Finding

TRIES = 3
"""Bursts before the wall clock is held against a solution: a machine may be busy for one."""

WAITS = "they wait for the device, or take long to submit"
"""Why calls can't be queued whose forward synchronises."""

NO_MEMORY = "there is no memory for copies of the inputs and outputs"
"""Why they can't be queued where the device is full."""

COPY_NOISE_S = 200e-6
COPY_NOISE = 0.5
"""Seconds, and share of its shortest time, by which copying outputs aside may at most be longer behind a burst."""

LEAST_COPY_NOISE_S = 150e-6
COPY_NOISE_FACTOR = 2.0
"""By how much it may be longer than behind queued calls of trusted code: seconds, and multiples of how far those lay
apart. The device changes from one process's work to another's in between, which takes a while for all code alike."""

QUEUE_LIMIT_S = 5.0
"""How long queued calls may take, which by all that is known take milliseconds."""

TOLD_EARLY = Failure(
    status=Status.disqualified,
    reason="queued calls were said to be done before they could begin",
    evidence={"rule": "told early"},
)

LATE_WRITE = Failure(
    status=Status.disqualified,
    reason="outputs were written after the calls that they are of had closed",
    evidence={"rule": "late write"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nonstop:
    """One such burst: the referee's seconds around it, and the claims. `copied_s` is what it took to copy the outputs
    aside behind it; `still` tells whether they still are as they were then."""

    turns: tuple[Turn, ...]
    done: BurstDone
    wall_s: float
    copied_s: float
    still: Callable[[], bool]

    @property
    def claimed_s(self) -> float:
        """Seconds a call, as claimed."""
        return statistics.fmean(claim.device_s for claim in self.done.claims)


def copying_s(bench: Bench) -> float:
    """How long copying outputs aside may take, in seconds, before it shows that the device was still at work."""
    return min(bench.copying_s, COPY_NOISE_S + (1.0 + COPY_NOISE) * bench.copy_aside_s)


def learn_copying(bench: Bench, trusted: Sequence[Nonstop]) -> None:
    """Note how long the copies took behind queued calls of trusted code. Who disturbs these can only make it more: the
    least that was ever learnt of the problem counts."""
    took_s = [held.copied_s for held in trusted]
    middle_s = statistics.median(took_s)
    apart_s = max(abs(each_s - middle_s) for each_s in took_s)
    bench.copying_s = min(bench.copying_s, middle_s + COPY_NOISE_FACTOR * apart_s + LEAST_COPY_NOISE_S)


def reserve(bench: Bench, indices: Sequence[int]) -> None:
    """Have the memory that copies for such a burst take in this process's hands, before a contestant's code may take
    all there is: torch keeps what is let go of here. Where there is none, a burst finds out."""
    if not indices:
        return
    with suppress(torch.OutOfMemoryError):
        held = [Arrival(bench, indices), [torch.empty_like(tensor) for tensor in _answers(bench, indices)]]
        del held


def _answers(bench: Bench, indices: Sequence[int]) -> list[torch.Tensor]:
    """Outputs and state of these sets, as bytes."""
    return [
        tensor.view(-1).view(torch.uint8)
        for index in indices
        for tensor in bench.tensors((*bench.sets[index].outputs, *bench.sets[index].state))
        if tensor.numel()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """How to ask one contestant: `request` makes a burst of calls. `limit_s` bounds each answer, in seconds."""

    bench: Bench
    guest: Guest
    request: Callable[[tuple[Call, ...]], Burst]
    limit_s: float

    def run(self, indices: Sequence[int], manner: Manner, *, drawn: bool = False) -> Nonstop | str:
        """Make one call on each of these sets, drawn anew, without a pause; or why that can't be had.

        With `drawn` the inputs are taken as they are: for trusted code. Raises `GuestFailed`.
        """
        bench = self.bench
        turns = tuple(Turn(index=index, mode=CallMode.COLD) for index in indices)
        calls = tuple(replace(call, late=()) for call in calls_of(bench, turns))
        try:
            coming, aside = None if drawn else Arrival(bench, indices), _Aside(bench, indices)
        except torch.OutOfMemoryError:
            return NO_MEMORY
        if (refused := self._prepare(self.request(calls), manner)) is not None:
            return refused
        if coming is not None:
            coming.draw()
            coming.deliver()
            coming.complete()
        wall_s = self._open() if manner is Manner.QUEUED else self.guest.go(self.limit_s)
        if wall_s is None:
            return "they did not end in time"
        copied_s = aside.take()
        if manner is Manner.QUEUED:
            # It is the contestant's device that says it is done. What it still had to do then holds up the copies.
            wall_s += max(0.0, copied_s - copying_s(bench))
        done = self.guest.collect(len(turns), self.limit_s)
        return Nonstop(turns=turns, done=done, wall_s=wall_s, copied_s=copied_s, still=aside.same)

    def _prepare(self, burst: Burst, manner: Manner) -> str | None:
        if manner is not Manner.QUEUED:
            return self.guest.prepare(Prepare(burst=burst, manner=manner), self.limit_s)
        try:
            gate = self.bench.device.own_gate().owner
        except DeviceError as error:
            return str(error)
        request = Prepare(burst=burst, manner=manner, number=gate.begin())
        with opened_after(gate, PATIENCE_S):
            refused = self.guest.prepare(request, self.limit_s, gate.fd)
        if refused is None and gate.is_open:
            refused = WAITS
        if refused is not None:
            gate.open()  # whatever was queued must not stand before what comes next
        return refused

    def _open(self) -> float | None:
        gate = self.bench.device.own_gate().owner
        if gate.told:
            gate.open()
            raise GuestFailed(TOLD_EARLY)
        begin_s = gate.open()
        end_s = gate.wait_done(min(self.limit_s, QUEUE_LIMIT_S))
        return None if end_s is None else end_s - begin_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """A solution's calls without a pause, seconds a call; those of a manner that was `refused` are None.

    `verdict` is the referee's; the figures are claims within it. `data` says whether all sets together fit the cache
    that the device shares (`cached`) or not (`cold`).
    """

    manner: Manner
    data: str
    verdict: BackToBackVerdict
    seconds: Mapping[Manner, float]
    refused: Mapping[Manner, str]
    copied_s: Sequence[float] = ()
    copying_s: float | None = None
    """What copying the outputs aside took behind each burst of queued calls, and how long it may take."""

    @property
    def proven(self) -> bool:
        """Whether queued calls explain the claims."""
        return self.manner is Manner.QUEUED and self.verdict.charge_s == 0.0

    @property
    def waits(self) -> bool:
        """Whether its calls wait for the device, so that they could not be queued."""
        return self.refused.get(Manner.QUEUED) == WAITS

    @property
    def unqueued(self) -> bool:
        """Whether queueing its calls failed for a reason that lies with them, and is not that they wait."""
        return _own_fault(self.refused)


def _own_fault(refused: Mapping[Manner, str]) -> bool:
    return refused.get(Manner.QUEUED, NO_MEMORY) not in (NO_MEMORY, WAITS)


class Nonstops:
    """Holds one solution's claims against calls back to back.

    `verify` judges a burst's answers; what it says of calls that every solution must be able to make is added to
    `findings`.
    """

    def __init__(
        self, asker: Asker, known: Known, verify: Callable[[Nonstop], list[Finding]], findings: list[Finding]
    ) -> None:
        self._asker = asker
        self._known = known
        self._verify = verify
        self._findings = findings
        self._indices = range(known.quiet.nonstop_sets)
        self._seconds: dict[Manner, float] = {}
        self._refused: dict[Manner, str] = {}
        self._copied_s: list[float] = []

    @property
    def starved(self) -> bool:
        """Whether there was no memory for the copies, of which there was enough before the solution was loaded."""
        return NO_MEMORY in self._refused.values()

    def measure(self, claimed_s: float, latencies_s: Sequence[float]) -> Figures | None:
        """None where nothing is gained, or where a finding is a failure. Raises `GuestFailed`.

        `claimed_s` is the median of the accepted device times, `latencies_s` are claims too.
        """
        if claimed_s >= NONSTOP_BELOW_S or not self._indices:
            return None
        latency_s = statistics.median(latencies_s) if latencies_s else None
        verdict = self._hold(Manner.QUEUED, claimed_s, None)
        if verdict is None:
            # Where calls have to be launched one by one, and only there, waiting for launches counts as explained.
            granted_s = None if _own_fault(self._refused) else latency_s
            verdict = self._hold(Manner.LAUNCHED, claimed_s, granted_s)
        if verdict is None:
            return None
        return Figures(
            manner=Manner.QUEUED if Manner.QUEUED in self._seconds else Manner.LAUNCHED,
            data=(
                "cached"
                if len(self._indices) * self._asker.bench.set_bytes <= self._asker.bench.device.cache_bytes
                else "cold"
            ),
            verdict=verdict,
            seconds=self._seconds,
            refused=self._refused,
            copied_s=self._copied_s,
            copying_s=copying_s(self._asker.bench) if self._copied_s else None,
        )

    def _hold(self, manner: Manner, claimed_s: float, latency_s: float | None) -> BackToBackVerdict | None:
        """Rule 6 of `claims` on bursts of this manner."""
        calibration = self._known.nonstop.get(manner)
        if calibration is None:
            return None
        walls_s: list[float] = []
        while True:
            held = self._right(manner)
            if held is None:
                return None
            walls_s.append(held.wall_s)
            if manner is Manner.QUEUED:
                self._copied_s.append(held.copied_s)
            self._seconds[manner] = min(self._seconds.get(manner, held.claimed_s), held.claimed_s)
            verdict = judge_back_to_back(
                walls_s,
                calls=len(self._indices),
                claimed_s=claimed_s,
                latency_s=latency_s,
                calibration=calibration,
                tolerance=QUEUED if manner is Manner.QUEUED else LAUNCHED,
            )
            if verdict.charge_s == 0.0 or len(walls_s) >= TRIES:
                return verdict

    def _right(self, manner: Manner) -> Nonstop | None:
        """One burst whose answers are right; else why not is noted: only launched ones must be."""
        held = self._asker.run(self._indices, manner)
        if isinstance(held, str):
            self._refused[manner] = one_line(held, limit=200)
            return None
        latest = self._verify(held)
        if not held.still():
            raise GuestFailed(LATE_WRITE)
        wrong = [finding.failure for finding in latest if finding.failure is not None]
        if wrong and manner is not Manner.LAUNCHED:
            self._refused[manner] = one_line(f"not right then: {wrong[0].reason}", limit=200)
            return None
        self._findings += latest
        return None if wrong else held

    def graph(self, claimed_s: float) -> tuple[float | None, str | None]:
        """Seconds a call inside of a graph, where calls are so short that it matters; or why there is none.

        Nothing of worth may be asked of the contestant afterwards: code need not bear being captured, and no failure
        is a verdict.
        """
        if claimed_s >= SHORT_S or self._known.quiet.graph_s is None:
            return None, None
        try:
            held = self._right(Manner.GRAPH)
        except GuestFailed as failed:
            return None, one_line(failed.failure.reason, limit=200)
        return (None, self._refused[Manner.GRAPH]) if held is None else (held.claimed_s, None)


class _Aside:
    """Copies of the outputs and the state of some sets."""

    def __init__(self, bench: Bench, indices: Sequence[int]) -> None:
        self._bench = bench
        self._tensors = _answers(bench, indices)
        self._copies = [torch.empty_like(tensor) for tensor in self._tensors]
        bench.device.synchronize()
        self._copy()  # loads what it needs
        # The shortest of all solutions', the trusted one's first: nobody can make it longer by keeping the device busy.
        bench.copy_aside_s = min(bench.copy_aside_s, self._copy())

    def take(self) -> float:
        """Make the copies; the seconds that this took."""
        return self._copy()

    def _copy(self) -> float:
        begin = time.perf_counter()
        if self._tensors:
            torch._foreach_copy_(self._copies, self._tensors)
        self._bench.device.synchronize()
        return time.perf_counter() - begin

    def same(self) -> bool:
        return all(torch.equal(copy, tensor) for copy, tensor in zip(self._copies, self._tensors, strict=True))
