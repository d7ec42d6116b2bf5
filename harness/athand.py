"""The problem that a referee has at hand: made ready, held against blind answers, and what was learnt of it.

Control layer, trusted side; used by the referee, which keeps the last problem so that solutions to one that follow one
another share inputs' layout, reference and calibration. Nothing of a submission is known here.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from harness.alongside import NO_MEMORY
from harness.bench import Bench
from harness.core.choices import DeviceKind
from harness.core.problem import Problem, Workload
from harness.core.task import RefereeConfig, Task
from harness.devices import Device, empty_kernel, measured_peaks
from harness.devices.gpu_specs import Peaks
from harness.hush import Hush
from harness.learning import learn, learn_again
from harness.lint import Soundness
from harness.quiet import NONSTOP_SETS, Known
from harness.recall import Recall
from harness.session import EXTRA_SETS
from harness.standby import Standby
from harness.verification import Terms
from harness.whereabouts import Step, Whereabouts

STRESS_DRAWS = 2
"""Draws of each stress variant: one draw may hide a mistake (a lost term that happens to be near zero)."""

WARMING = 2
"""How often a problem is learnt ahead for what that loads: the second contestant of trusted code is the first to be
kept (`Standby.give_back`)."""


def variants(config: RefereeConfig, problem: Problem) -> list[tuple[str, int]]:
    """Variant and part of each call of the verification: own inputs with several seeds, each other one twice."""
    stress = [(variant, part) for variant in problem.rules.variants for part in range(STRESS_DRAWS)]
    return [("own", part) for part in range(config.seeds)] + stress


class AtHand:
    """One referee's, on its device. Not safe for threads.

    `terms` are what sessions about a task are lent, `whereabouts` is told when the problem's code runs.
    """

    def __init__(
        self,
        config: RefereeConfig,
        device: Device,
        secret: random.Random,
        *,
        standby: Standby,
        hush: Hush,
        terms: Callable[[Task], Terms],
        whereabouts: Whereabouts,
    ) -> None:
        self.config = config
        self._device = device
        self._secret = secret
        self._standby = standby
        self._hush = hush
        self._terms = terms
        self._whereabouts = whereabouts
        self._soundness = Soundness(allow_degenerate=config.allow_degenerate)
        self._recall = Recall()
        self.bench: Bench | None = None
        self.known: Known | None = None
        """What was learnt of the problem that `bench` is for."""
        self.peaks: Peaks | None = None
        """This GPU's, as measured."""
        self.warmed = 0
        """How often a problem was learnt for what that loads."""

    def close(self) -> None:
        """Have none at hand. Idempotent."""
        if self.bench is not None:
            self._recall.leave(self.bench, self.known)
            self.bench.close()
            self.bench = None
            self.known = None

    def bench_for(self, problem: Problem, workload: Workload) -> Bench:
        """The problem made ready, kept while solutions to it follow one another. Raises `ProblemError`."""
        held = self.bench
        if held is not None and _is_for(held, problem, workload):
            return held
        self.close()
        with self._whereabouts.at(problem, workload, Step.READY):
            self.bench = Bench(
                problem,
                workload,
                self._device,
                sets_wanted=max(self.config.sets_per_burst + EXTRA_SETS, len(variants(self.config, problem)) + 1),
                secret=self._secret,
                small_sets_wanted=NONSTOP_SETS if self.config.device is DeviceKind.CUDA else 0,
                whereabouts=self._whereabouts,
            )
        self.known = self._recall.come_back(self.bench)
        return self.bench

    def has(self, task: Task) -> bool:
        """Whether the bench is for its problem."""
        return self.bench is not None and _is_for(self.bench, task.problem, task.workload)

    def is_ready_for(self, task: Task) -> bool:
        """Whether its problem is prepared, and what there is to learn of it is known."""
        learnt = self.known is not None or not task.timed or self.config.device is DeviceKind.HOST
        return self.has(task) and learnt

    def ready(self, task: Task) -> tuple[Bench, tuple[str, ...]]:
        """The bench of the task's problem, wiped of what a contestant left, and what the problem wrongly takes for
        right. Raises `ProblemError` and `NO_MEMORY`."""
        try:
            bench = self.bench_for(task.problem, task.workload)
            with self._whereabouts.at(task.problem, task.workload, Step.READY):
                degenerate = self._soundness.check(bench)
                bench.publish()
        except NO_MEMORY:
            self.close()
            raise
        return bench, degenerate

    def run_all(self, task: Task) -> None:
        """Run what judging solutions to the task's problem runs of its code, on every variant. Raises as `ready`."""
        bench, _ = self.ready(task)
        with self._whereabouts.at(task.problem, task.workload, Step.READY):
            for variant, part in variants(self.config, task.problem):
                bench.draw(0, variant, part=part)
                bench.truth(0)
                bench.answer(0)
            self._device.synchronize()

    def learn(self, task: Task) -> None:
        """Learn of the problem at hand what there is to learn before its first solution, and again what was learnt
        while others were at work on the GPU."""
        if not task.timed:
            return
        if self.known is not None and not self.known.calm:
            with self._hush.held():
                self.learn_again(task)
        elif self.known is None and self.config.device is DeviceKind.CUDA:
            assert self.bench is not None
            with self._hush.held(), self._whereabouts.at(task.problem, task.workload, Step.READY):
                self.known = learn(self._terms(task), self.bench, task, self._standby)

    def learn_again(self, task: Task) -> Known:
        """Measure anew what bursts over the bench cost; the lower counts, for the next solutions too."""
        assert self.bench is not None
        assert self.known is not None
        with self.bench.ledger.spend("calibration"):
            self.known = learn_again(self.known, self._terms(task), self.bench, task, self._standby)
        return self.known

    def warm_up(self, task: Task) -> None:
        """Learn of the problem at hand for what that loads and starts alone, until the contestant of trusted code is
        kept, or it was done as often as helps."""
        learns = task.timed and self.known is None and self.config.device is DeviceKind.CUDA
        if learns and not self._standby.waits and self.warmed < WARMING:
            self.warmed += 1
            self.learn(task)
            self.known = None
            empty_kernel.of(self._device).forget()

    def find_peaks(self) -> None:
        """Look whether this GPU's peaks were measured before."""
        if self.peaks is None and self.config.cache_dir and (key := measured_peaks.key_of(self._device)) is not None:
            self.peaks = measured_peaks.held(key, Path(self.config.cache_dir))

    def know_peaks(self, task: Task) -> None:
        """Find out this GPU's peaks, once a referee."""
        if task.timed and self.peaks is None and self.config.cache_dir and self.config.device is DeviceKind.CUDA:
            with self._hush.held():
                self.peaks = measured_peaks.ensure(self._device, Path(self.config.cache_dir))


def _is_for(bench: Bench, problem: Problem, workload: Workload) -> bool:
    held = bench.problem
    return (held.digest, held.precision, bench.workload) == (problem.digest, problem.precision, workload)
