"""Check one problem against every rule of lint.

Trusted side. Executes the problem, never a solution. "Rejected" means: by the rule and on the calls that solutions are
judged with.
"""

from __future__ import annotations

import collections
import functools
import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch

from harness.catalog.sizes import SizeError, evaluate
from harness.core.choices import PrecisionClass
from harness.core.problem import Problem, ShapeRules, Workload
from harness.core.status import one_line
from harness.devices.device import Device
from harness.devices.layout import copied
from harness.devices.out_of_memory import is_shortage
from harness.protocol.tensor_tree import flatten, unflatten
from harness.referee.correctness.precision import class_limits
from harness.referee.problem.flops import count_flops
from harness.referee.problem.loader import ProblemError, ReferenceModule, load_reference, state_of
from harness.referee.problem.size_ranges import ShapeDrawer
from harness.referee.problem.truth import Reference, all_finite
from harness.referee.soundness.blind import blind, blind_thorough
from harness.referee.soundness.computed import coarser, run_model, unread_tiles, unused_inputs, unused_parameters
from harness.referee.soundness.graph import mutants
from harness.referee.soundness.problem_report import ProblemReport, RuleCheck, RuleVerdict
from harness.referee.soundness.samples import Leaves, ReferenceCall, SampleDrawer, make_sample
from harness.referee.soundness.wrong import Fate, Trial, Wrong, run_trials

FLOPS_TOLERANCE = 0.1
"""Allowed relative difference between declared flops and torch's count (additions of a bias, a last partial tile)."""

ROOM = 2.0
"""Factor by which the class's tolerance must exceed the float32 reference's own error.

Solutions may have four times the reference's error (`limits_for`), so this keeps them within twice the class's own
limit. The reference may use the arithmetic of its class itself: torch's convolutions use TF32 on a GPU, half types
round every result, and each takes a quarter to a third of the limit; cuBLAS's float32 products of 4,096 terms take 0.29
to 0.43 of it. `lower_precision` checks on every problem that the next coarser type is still rejected.

On `large_values` inputs, only the RMS error of a class coarser than fp32 counts: if terms a thousand times the others
cancel, an entry keeps their rounding, and of 1e8 entries a few always do (0.02 of 0.011 for one TF32 convolution). On
all other inputs single entries count.
"""

ROOM_IN_TF32 = 1.25
"""The same for TF32: cuDNN's gradient of a convolution's weights truncates operands, where its other kernels round.

Truncating takes 0.72 of the limit (`precision.LIMITS`).
"""

SHAPES = 2
"""Secret shapes that are tried."""

LAUNCH_FACTOR = 1.3
LAUNCH_SAMPLES = 15

MAX_DETAILS = 12
"""Maximum number of lines for one broken rule."""

MAX_HOST_BYTES = 2**26
"""Inputs larger than this make a problem too slow on the CPU; it then needs a small workload."""

_RULES_OF_TRIALS = (
    "constants",
    "previous_output",
    "half_written",
    "neighbouring_index",
    "moves_with_inputs",
    "moves_with_parameters",
    "dropped_tile",
    "lower_precision",
    "dropped_operation",
)


def lint_problem(problem: Problem, workload: Workload, device: Device) -> ProblemReport:
    """Check every rule of lint on one problem.

    Args:
        problem: The problem; it is executed in this process.
        workload: The sizes, and the precision class if the workload has its own.
        device: The device that the reference runs on.

    Returns:
        The report; every fault of the problem is a finding in it.

    Raises:
        torch.OutOfMemoryError: The machine has too little memory.
    """
    begin = time.perf_counter()
    checks: list[RuleCheck] = []
    notes: list[str] = []
    try:
        linted = _Linted(problem, workload, device)
        checks.append(RuleCheck(rule="loads", verdict=RuleVerdict.KEPT))
        checks += linted.checks()
        notes += linted.notes
    except (ProblemError, ValueError, RuntimeError, TypeError, NotImplementedError) as error:
        if is_shortage(error):
            raise
        told = str(error) if isinstance(error, ProblemError) else f"{type(error).__name__}: {error}"
        checks.append(_broken("loads", [one_line(told, limit=300)]))
    return ProblemReport(
        problem=problem.id,
        workload=workload.name,
        device=device.torch_device.type,
        processor=device.name,
        digest=problem.digest,
        checks=tuple(checks),
        notes=tuple(notes),
        wall_s=time.perf_counter() - begin,
    )


def too_large_for_host(problem: Problem, workload: Workload) -> int | None:
    """Return the bytes of the inputs if they are too large to lint on the CPU.

    Returns:
        Bytes, if more than `MAX_HOST_BYTES`. None otherwise, or if the sizes are unknown without drawing inputs.
    """
    try:
        with torch.device("meta"):
            leaves, _ = flatten(list(load_reference(problem, workload).get_inputs()))
    except Exception:
        return None
    nbytes = sum(leaf.numel() * leaf.element_size() for leaf in leaves)
    return nbytes if nbytes > MAX_HOST_BYTES else None


class _Linted:
    """One problem, loaded, with its reference and one sample."""

    def __init__(self, problem: Problem, workload: Workload, device: Device) -> None:
        self.problem = problem
        self.workload = workload
        self.required = workload.precision or problem.precision
        self.device = device
        self.notes: list[str] = []
        self.reference: ReferenceModule = load_reference(problem, workload)
        self.oracle = Reference(self.reference, device, seed=4242)
        self.drawer = SampleDrawer(self.reference, device)
        leaves, tree = self.drawer.inputs("own")
        self.traits = self.oracle.try_out(unflatten(tree, [copied(leaf) for leaf in leaves]), 4242)
        self.first = make_sample("own", leaves, tree, 4242, self.oracle, self.required)
        if self.first.source != "float64 " + device.torch_device.type:
            because = f": {self.oracle.float32_because}" if self.oracle.float32_because else ""
            self.notes.append(f"the truth was computed in {self.first.source}{because}")

    def checks(self) -> list[RuleCheck]:
        found = [self._deterministic(), self._flops(), self._launch_floor()]
        if not self.first.own:
            reason = "the reference returns only numbers, no tensor"
            rules = ("finite", "reference_precision", "shapes", *_RULES_OF_TRIALS)
            return found + [_unchecked(rule, reason) for rule in rules]
        wrongs, unchecked = self._wrongs()
        non_finite: list[str] = []
        imprecise: list[str] = []
        watched = self._watched(non_finite, imprecise)
        trials = run_trials(wrongs, watched, self._elsewhere)
        tried = [
            _check_of_trials(rule, [t for t in trials if t.wrong.rule == rule], unchecked.get(rule))
            for rule in _RULES_OF_TRIALS
        ]
        # The remaining variants are only watched. A sample of the largest problems, and what it takes to make the next
        # one, fill most of an 80 GB GPU; a loop variable would keep one sample alive too long.
        del wrongs, trials, self.first
        collections.deque(watched, maxlen=0)
        found += [_check("finite", non_finite), _check("reference_precision", imprecise), self._shapes()]
        return [*found, *tried]

    def _wrongs(self) -> tuple[list[Wrong], dict[str, str]]:
        """The wrong answers for this problem, and for each rule why it may have none."""
        first, oracle, device = self.first, self.oracle, self.device
        graph = mutants(first, oracle, device)
        if graph.not_traced is not None:
            self.notes.append(
                f"no operation was left out, because torch.fx does not trace the model: {graph.not_traced}"
            )
        elif graph.untried:
            self.notes.append(
                f"{len(graph.untried)} of {graph.operations} operations were neither left out nor replaced (no "
                f"argument of the same shape, no similar operation): {', '.join(graph.untried[:6])}"
            )
        if graph.left_out:
            self.notes.append(f"{graph.left_out} changed graphs beyond the first {len(graph.wrongs)} were not tried")
        wrongs = [
            *blind(len(first.own)),
            *blind_thorough(first.own),
            *unused_inputs(first, self.drawer, oracle, device),
            *unused_parameters(oracle, device),
            *unread_tiles(first, oracle, device),
            *coarser(first, self.required, oracle, device),
            *graph.wrongs,
        ]
        traced = (
            f"torch.fx does not trace the model: {graph.not_traced}"
            if graph.not_traced
            else "the model has no operation to leave out"
        )
        unchecked = {
            "moves_with_inputs": "the problem has no tensor input",
            "moves_with_parameters": "the model has no parameters",
            "dropped_tile": "the problem has no floating-point input of more than one entry",
            "lower_precision": "the class has no coarser arithmetic, or the problem no floating-point values",
            "neighbouring_index": "the outputs have one entry",
            "half_written": "the outputs have one entry",
            "dropped_operation": traced,
        }
        return wrongs, unchecked

    def _elsewhere(self, sample: ReferenceCall) -> Leaves:
        """The reference's outputs on other inputs of the same variant."""
        leaves, _ = self.drawer.inputs(sample.variant)
        return run_model(self.oracle.model, leaves, sample, self.oracle, self.device)

    def _watched(self, non_finite: list[str], imprecise: list[str]) -> Iterator[ReferenceCall]:
        """The samples, each checked on the way: is the reference finite and exact enough?"""
        samples = self.drawer.samples(self.oracle, self.problem, self.required, self.first)
        # `map`, because a generator's variable would keep a sample alive while the next is made.
        return map(functools.partial(self._look_at, non_finite=non_finite, imprecise=imprecise), samples)

    def _look_at(self, sample: ReferenceCall, non_finite: list[str], imprecise: list[str]) -> ReferenceCall:
        base = class_limits(self.required, longest=sample.longest)
        paths = self.traits.output_names or [f"result {number}" for number in range(len(sample.own))]
        room = ROOM_IN_TF32 if self.required is PrecisionClass.TF32 else ROOM
        singly = self.required is PrecisionClass.FP32 or sample.variant != "large_values"
        for path, leaf, error in zip(paths, sample.own, sample.errors, strict=True):
            if leaf.is_floating_point() and not all_finite(leaf):
                non_finite.append(f"{path} on {sample.variant} inputs")
            if error.rms_error is None or error.max_error is None:
                continue
            if room * error.rms_error > base.rms or (singly and room * error.max_error > base.max):
                imprecise.append(
                    f"{path} on {sample.variant} inputs: RMS error {error.rms_error:.2g} (limit {base.rms:.2g}), "
                    f"largest error {error.max_error:.2g} (limit {base.max:.2g})"
                )
        return sample

    def _deterministic(self) -> RuleCheck:
        broken = []
        if self.traits.draws_random:
            broken.append("forward draws random numbers")
        first = self.first
        again = run_model(self.oracle.model, first.inputs, first, self.oracle, self.device)
        if not first.equals(again) and (self.device.torch_device.type == "cpu" or first.rejects(again)):
            broken.append("two calls on the same inputs differ")
        twin = state_of(self.reference.model(4242, self.device.torch_device))
        if any(not torch.equal(value, twin[name]) for name, value in self.oracle.initial_state.items()):
            broken.append("two models constructed with the same seed have different parameters")
        one, two = (SampleDrawer(self.reference, self.device).inputs("own")[0] for _ in range(2))
        if any(not torch.equal(a, b) for a, b in zip(one, two, strict=True)):
            broken.append("get_inputs gives different values for the same seed")
        return _check("deterministic", broken)

    def _flops(self) -> RuleCheck:
        if self.problem.costs.flops is None:
            return _unchecked("flops", "the problem declares no flops")
        try:
            declared = evaluate(self.problem.costs.flops, self.reference.sizes)
        except SizeError as error:
            return _broken("flops", [str(error)])
        first = self.first
        counted = count_flops(lambda: run_model(self.oracle.model, first.inputs, first, self.oracle, self.device)).total
        if counted == 0:
            return _unchecked("flops", f"torch's counter knows none of the operations; declared: {declared:.3g}")
        if math.isclose(declared, counted, rel_tol=FLOPS_TOLERANCE):
            return RuleCheck(rule="flops", verdict=RuleVerdict.KEPT)
        return _broken("flops", [f"declared {declared:.4g} flops, counted {counted:.4g}"])

    def _shapes(self) -> RuleCheck:
        declared = self.problem.shapes != ShapeRules()
        try:
            drawer = ShapeDrawer(self.problem, self.workload)
            shapes = drawer.draw(SHAPES, random.Random(0))  # the same ones in each lint
        except ProblemError as error:
            return _broken("shapes", [str(error)]) if declared else _unchecked("shapes", str(error))
        if drawer.ranges:
            self.notes.append(f"secret sizes: {'; '.join(each.title for each in drawer.ranges)}")
        broken = []
        for shape in shapes:
            sizes = ", ".join(f"{name}={value}" for name, value in shape.workload.sizes.items())
            try:
                first = _Linted(self.problem, shape.workload, self.device).first
            except (ProblemError, ValueError, RuntimeError, TypeError, NotImplementedError) as error:
                if is_shortage(error):
                    raise
                broken.append(f"at {sizes}: {one_line(str(error), limit=200)}; declare shapes in workloads.yaml")
                continue
            if not all(all_finite(leaf) for leaf in first.own if leaf.is_floating_point()):
                broken.append(f"at {sizes}: an output is not finite")
            elif first.own and not first.rejects([torch.zeros_like(leaf) for leaf in first.own]):
                broken.append(f"at {sizes}: zeros are accepted")
        return replace(_check("shapes", broken), tried=len(shapes))

    def _launch_floor(self) -> RuleCheck:
        if self.device.torch_device.type != "cuda":
            return _unchecked("launch_floor", "needs a GPU")
        first = self.first
        arguments = unflatten(first.tree, list(first.inputs))
        tiny = torch.zeros(1, device=self.device.torch_device)

        def median_s(call: Callable[[], object]) -> float:
            held = [self.device.time_cold(call, lambda _: None).device_s for _ in range(LAUNCH_SAMPLES)]
            return statistics.median(held[LAUNCH_SAMPLES // 3 :])

        with torch.no_grad():
            floor_s = median_s(tiny.zero_)
            call_s = median_s(lambda: self.oracle.forward(arguments))
        self.oracle.restore_state()
        self.notes.append(f"one call takes {call_s * 1e6:.1f} us, an empty launch {floor_s * 1e6:.1f} us")
        if call_s >= LAUNCH_FACTOR * floor_s:
            return RuleCheck(rule="launch_floor", verdict=RuleVerdict.KEPT)
        return _broken(
            "launch_floor", [f"one call takes {call_s * 1e6:.1f} us, an empty launch {floor_s * 1e6:.1f} us"]
        )


def _check_of_trials(rule: str, trials: Sequence[Trial], unchecked: str | None) -> RuleCheck:
    tried = [trial for trial in trials if trial.fate is not Fate.UNTRIED]
    if not tried:
        return _unchecked(rule, unchecked or "no wrong answer to try")
    broken = []
    for trial in tried:
        if trial.survived:
            how = "equals the reference's output" if trial.fate is Fate.AGREES else "is accepted"
            broken.append(f"{trial.wrong.name}: {how} on {', '.join(trial.seen)} inputs")
    check = _check(rule, broken)
    accepted = tuple(dict.fromkeys(trial.wrong.name for trial in tried if trial.kernelbench_accepts))
    return replace(check, tried=len(tried), kernelbench_accepts=accepted)


def _check(rule: str, broken: Sequence[str]) -> RuleCheck:
    return _broken(rule, list(dict.fromkeys(broken))) if broken else RuleCheck(rule=rule, verdict=RuleVerdict.KEPT)


def _broken(rule: str, details: Sequence[str]) -> RuleCheck:
    shown = list(itertools.islice(details, MAX_DETAILS))
    if len(details) > MAX_DETAILS:
        shown.append(f"and {len(details) - MAX_DETAILS} more")
    return RuleCheck(rule=rule, verdict=RuleVerdict.BROKEN, details=tuple(shown))


def _unchecked(rule: str, reason: str) -> RuleCheck:
    return RuleCheck(rule=rule, verdict=RuleVerdict.NOT_CHECKED, details=(reason,))
