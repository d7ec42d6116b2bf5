"""Judge a solution at secret shapes: sizes that are drawn in each run.

Trusted side. A shape is a workload. The contestant's process stays the same; it gets other shared memory and, if the
constructor's arguments differ, a new model. It sees sizes only when their inputs are there. See
guides/design/secret_shapes.md.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from harness.core.choices import DeviceKind
from harness.core.problem import Workload, digest_text
from harness.core.stats import SpeedupEstimate, geometric_mean, interval_of_logs, quotient
from harness.core.status import VERDICT_FREE, Failure, Status, one_line
from harness.core.task import Outcome, RefereeConfig, Task
from harness.devices.empty_kernel import Compared
from harness.protocol.messages import Keep
from harness.referee.contestants.client import ContestantClient
from harness.referee.contestants.process import ContestantFailed, ContestantProcess
from harness.referee.context import EvidenceLog, RefereeContext
from harness.referee.correctness_stage import CorrectnessStage
from harness.referee.problem.keyed_random import KeyedRandom
from harness.referee.problem.loader import ProblemError
from harness.referee.problem.size_ranges import DrawnShape, NoShapes, ShapeDrawer
from harness.referee.problem.workspace import NO_MEMORY, Workspace, key_of
from harness.referee.problem_state import CurrentProblem
from harness.referee.timing.output_copies import reserve
from harness.referee.timing_stage import TimingStage

ONE_SHAPE = "one_shape"
"""Label: the problem has no secret shapes that could be judged."""

SHOWN_FASTER = "faster_at_shown_sizes"
"""Label: the specialisation gap is at least `GAP`."""

GAP = 1.25
"""Specialisation gap from which a solution gets the label: its interval lies above."""

SAMPLES, HALF_WIDTH = 8, 0.02
BUDGET_S = {DeviceKind.CUDA: 0.1, DeviceKind.HOST: 1.5}
"""Timing at one secret shape. The score is a mean over several, and its interval is narrower than each of theirs."""


def brief(config: RefereeConfig) -> RefereeConfig:
    """Return the settings for one secret shape: few calls and a short timing."""
    return replace(
        config,
        seeds=1,
        min_samples=min(config.min_samples, SAMPLES),
        relative_half_width=max(config.relative_half_width, HALF_WIDTH),
        budget_s=min(config.budget_s, BUDGET_S[config.device]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnShapes:
    """The secret shapes of one problem in one run.

    `why` says why there are fewer than wanted; `ranges` are their ranges for readers.
    """

    shapes: tuple[DrawnShape, ...]
    ranges: tuple[str, ...] = ()
    why: str = ""


class ShapeDraws:
    """Draws the secret shapes of a referee's tasks. Not thread-safe.

    Args:
        count: Number of shapes.
        cache_dir: Folder that keeps derived ranges, or None.
    """

    def __init__(self, count: int, cache_dir: Path | None = None) -> None:
        self._count = count
        self._cache_dir = cache_dir
        self._key: object = None
        self._drawn = DrawnShapes(shapes=())

    def of(self, task: Task, key: str) -> DrawnShapes:
        """Return the shapes of a task.

        Args:
            task: The task; its workload is the shown shape.
            key: Key from which the sizes follow; secret until the verdict.
        """
        wanted = key, key_of(task.problem, task.workload), task.problem.shapes
        if wanted != self._key:
            self._drawn, self._key = self._draw(task, key), wanted
        return self._drawn

    def _draw(self, task: Task, key: str) -> DrawnShapes:
        secret = KeyedRandom(digest_text(key, task.problem.id), "shapes")
        try:
            drawer = ShapeDrawer(task.problem, task.workload, self._cache_dir)
            shapes = tuple(drawer.draw(self._count, secret))
        except NoShapes as error:
            return DrawnShapes(shapes=(), why=one_line(str(error)))
        except ProblemError as error:
            return DrawnShapes(shapes=(), why=one_line(f"its sizes can't be changed: {error}"))
        titles = tuple(each.title for each in drawer.ranges)
        why = "" if len(shapes) == self._count else f"only {len(shapes)} different ones were found"
        return DrawnShapes(shapes=shapes, ranges=titles, why=why)


@dataclass(slots=True, kw_only=True)
class ShapeVerdict:
    """The verdict at one secret shape."""

    shape: DrawnShape
    status: Status
    reason: str
    timing: Mapping[str, Any] | None = None
    wall_s: float = 0.0

    @property
    def estimate(self) -> SpeedupEstimate | None:
        """The speedup with its interval; None if it was not timed."""
        return None if self.timing is None else estimate_of(self.timing)

    def to_json(self) -> dict[str, Any]:
        """Return the verdict for a record."""
        held = self.timing or {}
        estimate = self.estimate
        return {
            "sizes": dict(self.shape.workload.sizes),
            "weight": self.shape.weight,
            "status": self.status.value,
            "reason": self.reason,
            "speedup": None if estimate is None else estimate.to_json(),
            "solution_s": _median_s(held, "solution"),
            "reference_s": _median_s(held, "reference"),
            "noise_log_width": (held.get("noise_floor") or {}).get("log_width"),
            "hidden_per_call_s": held.get("hidden_per_call_s"),
            "wall_s": self.wall_s,
        }


def _median_s(timing: Mapping[str, Any], side: str) -> float | None:
    device: Mapping[str, Any] = (timing.get(side) or {}).get("device") or {}
    return device.get("median_s")


def estimate_of(timing: Mapping[str, Any]) -> SpeedupEstimate:
    """Return the speedup of a timing."""
    return SpeedupEstimate(**timing["speedup"])


@dataclass(slots=True, kw_only=True)
class SecretShapes:
    """The secret shapes of one evaluation and their verdicts so far.

    Args:
        context: What the referee's evaluations share.
        task: The task at the shown shape.
        drawn: The shapes.
        key: Key of the inputs.
    """

    context: RefereeContext
    task: Task
    drawn: DrawnShapes
    key: str
    verdicts: list[ShapeVerdict] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """The drawn workloads."""
        return tuple(each.workload for each in self.drawn.shapes)

    def prepare(self, problem: CurrentProblem) -> None:
        """Prepare and calibrate all shapes, before the contestant exists.

        Faulty shapes are left out.
        """
        problem.forget_shapes(self.task.problem, self.workloads)
        for shape in self.drawn.shapes:
            task = replace(self.task, workload=shape.workload)
            try:
                problem.ready_shape(task)
                problem.learn(task)
            except (ProblemError, *NO_MEMORY) as error:
                self._leave_out(shape, error)
        problem.park()

    def _leave_out(self, shape: DrawnShape, error: BaseException) -> None:
        """Note that a shape can't be judged, which is not the solution's fault."""
        self.drawn = replace(self.drawn, shapes=tuple(each for each in self.drawn.shapes if each is not shape))
        self.unjudged.append(one_line(f"{sizes_text(shape.workload)}: {error}", limit=300))

    def judge(self, shown: ContestantClient, compared: Compared | None) -> Failure | None:
        """Judge the loaded solution at every shape, then load it at the shown one again.

        Args:
            shown: The client at the shown shape, where the solution is right.
            compared: Empty kernels of the solution's process, compared with the referee's.

        Returns:
            The first failure, which names the sizes; None if the solution is right at all of them.

        Raises:
            ContestantFailed: The solution can't be loaded at the shown sizes again.
        """
        failure: Failure | None = None
        latest = shown.workspace
        for shape in self.drawn.shapes:
            if shown.contestant.exit_report is not None:
                self.unjudged.append(f"{sizes_text(shape.workload)}: the solution's process had ended before")
                continue
            begin = time.perf_counter()
            task = replace(self.task, workload=shape.workload, timed=self.task.timed and failure is None)
            try:
                workspace = self.context.problem.ready_shape(task)
                if self.context.problem.known is None:  # a large shape whose calibration was disturbed
                    self.context.problem.learn(task)
            except (ProblemError, *NO_MEMORY) as error:
                self._leave_out(shape, error)
                continue
            outcome = self._judge_one(task, shown.contestant, workspace, latest, compared)
            latest = workspace
            verdict = ShapeVerdict(shape=shape, status=outcome.status, reason=outcome.reason, timing=outcome.timing)
            verdict.wall_s = time.perf_counter() - begin
            self.verdicts.append(verdict)
            self.labels += [label for label in outcome.labels if label not in self.labels]
            if outcome.status is not Status.passed:
                worse = failure is None or (failure.status in VERDICT_FREE and outcome.status not in VERDICT_FREE)
                failure = self._named(shape, outcome) if worse else failure
        if failure is None:
            self._return(shown, latest)
        return failure

    def _judge_one(
        self,
        task: Task,
        contestant: ContestantProcess,
        workspace: Workspace,
        latest: Workspace,
        compared: Compared | None,
    ) -> Outcome:
        log, begin = EvidenceLog(), time.perf_counter()
        context = replace(self.context, config=brief(self.context.config), baselines=None)
        problem = context.problem
        try:
            with workspace.seeded(digest_text(self.key, task.workload.name)):
                client = context.client(workspace, contestant, task, log, begin)
                if task.timed and problem.known is not None:
                    reserve(workspace, range(problem.known.quiet.back_to_back_sets))
                client.load_again(kept(latest, workspace))
                correctness = CorrectnessStage(context, client, log, repeats=False)
                if (failure := correctness.run()) is not None:
                    return log.failed(failure)
                if not task.timed:
                    return Outcome(status=Status.passed, reason="right on every input variant", labels=(*log.labels,))
                timing = TimingStage(context, client, log, known=problem.known, compared=compared)
                outcome = timing.run_rounds_only(correctness.call_s)
        except ContestantFailed as refused:
            return log.failed(refused.failure)
        except ProblemError as error:  # inputs drawn for a solution may be the first to reveal a fault
            return log.failed(
                Failure(status=Status.harness_error, reason=one_line(f"problem {task.problem.id}: {error}"))
            )
        except torch.OutOfMemoryError as error:
            reason = one_line(f"problem {task.problem.id}: too little GPU memory; take a smaller --workload: {error}")
            return log.failed(Failure(status=Status.harness_error, reason=reason), short_of_memory=True)
        if outcome.status is Status.passed and contestant.exit_report is not None:
            reason = "the machine was too disturbed to time it in one process; repeat with --resume"
            return log.failed(Failure(status=Status.harness_error, reason=reason))
        return outcome

    def _named(self, shape: DrawnShape, outcome: Outcome) -> Failure:
        """Return the failure of an outcome with the sizes in its reason."""
        reason = f"right at the shown sizes, but at secret sizes {sizes_text(shape.workload)}: {outcome.reason}"
        return Failure(
            status=outcome.status,
            reason=one_line(reason, limit=600),
            evidence={**outcome.evidence, "failed_at_sizes": dict(shape.workload.sizes)},
            detail=outcome.detail,
        )

    def _return(self, shown: ContestantClient, latest: Workspace) -> None:
        """Load the solution at the shown shape again, as it was there."""
        workspace = self.context.problem.ready_shape(self.task)
        assert workspace is shown.workspace
        shown.forget_outputs()
        if latest is not workspace:
            shown.load_again(kept(latest, workspace))
            if shown.took_state:
                shown.take_state()

    def to_json(self, asked: int) -> dict[str, Any]:
        """Return the evidence for a record."""
        return {
            "asked": asked,
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
            **({"ranges": list(self.drawn.ranges)} if self.drawn.ranges else {}),
            **({"unjudged": self.unjudged} if self.unjudged else {}),
            **({"why_fewer": self.drawn.why} if self.drawn.why else {}),
        }

    def complete(self, outcome: Outcome, asked: int) -> Outcome:
        """Add the verdicts and, if all shapes were timed, the score to an outcome.

        Args:
            outcome: The outcome at the shown shape, or a failure.
            asked: Number of shapes that the run asks for.
        """
        if outcome.status is not Status.passed and not self.verdicts:
            return outcome  # it failed before
        labels = [label for label in self.labels if label not in outcome.labels]
        if outcome.status is Status.passed and not self.verdicts:
            labels.append(ONE_SHAPE)
        outcome = replace(
            outcome,
            evidence={**outcome.evidence, "shapes": self.to_json(asked)},
            labels=(*outcome.labels, *labels),
        )
        if outcome.status is not Status.passed or not self.verdicts:
            return outcome
        count = f"{len(self.verdicts)} secret size" + "s" * (len(self.verdicts) > 1)
        shown, timed = outcome.timing, all(verdict.timing is not None for verdict in self.verdicts)
        if shown is None or outcome.speedup is None or not timed:
            words = "right on every input variant"
            return replace(outcome, reason=outcome.reason.replace(words, f"{words} at {count}, too", 1))
        score, gap, timing = scored(shown, self.verdicts)
        if gap.speedup >= GAP and (gap.low or gap.speedup) >= GAP:
            outcome = replace(outcome, labels=(*outcome.labels, SHOWN_FASTER))
        reason = (
            f"right on every input variant at {count}, too; {score.speedup:.3g}x there, "
            f"{estimate_of(shown).speedup:.3g}x at the shown sizes"
        )
        return replace(outcome, reason=reason, speedup=score.speedup, timing=timing)


def scored(
    shown: Mapping[str, Any], verdicts: Sequence[ShapeVerdict]
) -> tuple[SpeedupEstimate, SpeedupEstimate, dict[str, Any]]:
    """Compute the score of a solution that is right and timed at all shapes.

    Only calls at the shown shape are relaunched. If their work takes longer than claimed, the times at the other shapes
    count as that much longer, too.

    Args:
        shown: Timing at the shown shape.
        verdicts: Verdicts at the secret shapes, each with a timing.

    Returns:
        The score, the specialisation gap, and the record's timing: `speedup` is the score, `shapes` says what it
        consists of.
    """
    weights = [verdict.shape.weight for verdict in verdicts]
    factor = (shown.get("relaunched") or {}).get("factor", 1.0)
    estimates = [slowed(estimate, factor) for verdict in verdicts if (estimate := verdict.estimate) is not None]
    score = geometric_mean(estimates, weights)
    gap = quotient(estimate_of(shown), score)
    over = interval_of_logs([math.log(each.speedup) for each in estimates])
    shapes = {
        "count": len(verdicts),
        "weighted": len(set(weights)) > 1,
        "shown": dict(shown["speedup"]),
        "gap": gap.to_json(),
        "over_sizes": {"low": over.low, "high": over.high},
        "speedups": [estimate.to_json() for estimate in estimates],
        "weights": weights,
    }
    timing = {**shown, "speedup": score.to_json(), "shapes": shapes}
    widths = [(verdict.timing or {}).get("noise_floor", {}).get("log_width") for verdict in verdicts]
    if (floor := shown.get("noise_floor")) is not None and all(width is not None for width in widths):
        # Errors of all shapes may have one sign, so that their mean does not shrink.
        mean = math.fsum(w * weight for w, weight in zip(widths, weights, strict=True)) / math.fsum(weights)
        timing["noise_floor"] = {**floor, "log_width": mean, "shown_log_width": floor["log_width"]}
    return score, gap, timing


def slowed(estimate: SpeedupEstimate, factor: float) -> SpeedupEstimate:
    """Return the speedup of a solution whose calls take `factor` times as long."""
    low, high = (None if end is None else end / factor for end in (estimate.low, estimate.high))
    return replace(estimate, speedup=estimate.speedup / factor, low=low, high=high)


def kept(latest: Workspace, coming: Workspace) -> Keep:
    """Return what a contestant keeps when its sizes change.

    The same model, if a constructor with the same arguments and seed gives the same state; as in service.
    """
    same_arguments = (
        latest.model_seed == coming.model_seed
        and latest.init_tree == coming.init_tree
        and len(latest.init_leaves) == len(coming.init_leaves)
        and all(map(_equal, latest.init_leaves, coming.init_leaves))
    )
    states = ([(name, slot.shape, slot.dtype) for name, slot in each.state_slots.items()] for each in (latest, coming))
    one, other = states
    return Keep.MODEL if same_arguments and one == other else Keep.MODULE


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)


def sizes_text(workload: Workload) -> str:
    """Return a workload's sizes for readers: `M=37, N=150`."""
    return ", ".join(f"{name}={value}" for name, value in workload.sizes.items())
