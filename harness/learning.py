"""What is learnt of a problem before any solution to it is started: the reference on its own, and what bursts cost.

Trusted side; used by the referee, once a problem. What bursts cost beside their calls is measured on a contestant like
any other whose code is the harness's own (`idle`), so that its claims can be believed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from harness import idle
from harness.bench import Bench
from harness.claims import Calibration, calibrate
from harness.guest import Guest, GuestFailed
from harness.measure import plan_turns
from harness.messages import Manner
from harness.nonstop import Nonstop
from harness.quiet import Known, measure_quiet
from harness.session import EXTRA_SETS, Session, Terms
from harness.tasks import Task

BURSTS = 6
NONSTOP_BURSTS = {Manner.QUEUED: 4, Manner.LAUNCHED: 2}
"""Bursts of the trusted contestant: with pauses, and in each manner without."""


def learn(terms: Terms, bench: Bench, task: Task, guest_for: Callable[[Task], Guest]) -> Known:
    """Measure it all; where the trusted contestant fails, the first solution shows why."""
    sets = min(len(bench.sets), terms.config.sets_per_burst + EXTRA_SETS)
    quiet = measure_quiet(bench, sets=sets)
    own = replace(
        task,
        source=idle.source(bench.traits, bench.oracle.initial_state),
        filename="idle.py",
        modules=(),
        parts=(),
        readable=(),
    )
    try:
        with guest_for(own) as guest:
            session = _Trusted(terms, bench, guest, own, {}, {}, time.perf_counter())
            pauses = session.with_pauses(sets)
            nonstop = session.without(quiet.nonstop_sets) if quiet.nonstop_sets else {}
            process_bytes = session.end_guest(bench.device.taken_bytes())
    except GuestFailed:
        return Known(quiet=quiet)
    return Known(quiet=quiet, pauses=pauses, nonstop=nonstop, process_bytes=process_bytes)


class _Trusted(Session):
    """A session with the harness's own solution, which is loaded, timed and not judged."""

    def with_pauses(self, sets: int) -> Calibration:
        """What bursts over `sets` sets take beside the device times of their calls."""
        self._load()
        bursts = []
        for number in range(BURSTS + 1):
            turns = plan_turns(sets, self._secret, number + 1)
            for turn in turns:
                self._bench.mask(turn.index)
            self._bench.device.synchronize()
            done, wall_s = self._burst(turns)
            bursts.append((wall_s, [claim.device_s for claim in done.claims]))
        return calibrate(bursts[1:])  # the first one loads and allocates

    def without(self, sets: int) -> dict[Manner, Calibration]:
        """What calls back to back over the first `sets` sets, as drawn, take in each manner that this device has.

        Their device times are taken as nothing: what launches take here counts as what launches take.
        """
        found: dict[Manner, Calibration] = {}
        for manner, number in NONSTOP_BURSTS.items():
            bursts = [self._asker().run(range(sets), manner, drawn=True) for _ in range(number + 1)]
            walls_s = [held.wall_s for held in bursts[1:] if isinstance(held, Nonstop)]
            if walls_s:
                found[manner] = calibrate([(wall_s, [0.0] * sets) for wall_s in walls_s])
        return found
