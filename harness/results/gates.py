"""Gates of a submission: read rules from YAML and apply them to records.

The guide on CI shows a file; every key is optional. Speed rules do not apply on the host device, which times plain C++
and torch on a CPU. But a solution that passed at the base and does not pass now is a regression there, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import yaml

from harness.core.choices import DeviceKind
from harness.core.config import ConfigError
from harness.core.config_values import parse_baselines
from harness.core.labels import expect_known
from harness.core.record import Record
from harness.core.status import VERDICT_FREE, Status
from harness.core.yaml_file import fault_of_yaml, parse_yaml
from harness.results.compare import Change, SolutionDifference, compare_records
from harness.results.scoring import EAGER, is_noisy, scored

GATES_FORMAT = 1
PASSED, FAILED, SKIPPED = "passed", "failed", "not_applied"
_ON_HOST = "speed rules do not apply on the host device"
_KEYS = frozenset({"format", "require_passed", "minimum_speedup", "no_regression", "refused_labels"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """The rules. None or an empty tuple means that a rule is not set.

    Attributes:
        require_passed: The status must be `passed`.
        baseline: Baseline of `minimum_speedup`.
        minimum_speedup: Required lower end of the speedup's 95 % interval.
        regression_tolerance: Share by which a solution may be slower than at the base.
        refused_labels: Labels that a record must not have.
    """

    require_passed: bool = True
    baseline: str = EAGER
    minimum_speedup: float | None = None
    regression_tolerance: float | None = None
    refused_labels: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "format": GATES_FORMAT,
            "require_passed": self.require_passed,
            "minimum_speedup": None
            if self.minimum_speedup is None
            else {"baseline": self.baseline, "speedup": self.minimum_speedup},
            "no_regression": None if self.regression_tolerance is None else {"tolerance": self.regression_tolerance},
            "refused_labels": list(self.refused_labels),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """Result of one rule for one record: `passed`, `failed` or `not_applied`, and why."""

    gate: str
    outcome: str
    detail: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_gates(text: str, name: str) -> Gates:
    """Parse the rules of a file; messages use its name.

    Raises:
        ConfigError: The file is not valid; the message names the key.
    """
    try:
        held = parse_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # such as a date 2026-99-99, or unclosed brackets
        raise ConfigError(f"{name}: not valid YAML: {fault_of_yaml(error)}") from error
    held = _mapping(name, {} if held is None else held, _KEYS)
    version = held.get("format", GATES_FORMAT)
    if type(version) is not int or not 1 <= version <= GATES_FORMAT:
        raise ConfigError(f"{name}: format {version!r}; this harness reads 1 to {GATES_FORMAT}")
    required = held.get("require_passed", True)
    if not isinstance(required, bool):
        raise ConfigError(f"{name}: require_passed must be true or false, not {required!r}")
    fast = held.get("minimum_speedup")
    fast = None if fast is None else _mapping(f"{name}: minimum_speedup", fast, {"baseline", "speedup"})
    slow = held.get("no_regression")
    slow = None if slow is None else _mapping(f"{name}: no_regression", slow, {"tolerance"})
    labels = held.get("refused_labels") or []
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise ConfigError(f"{name}: refused_labels must be a list of label names, not {labels!r:.80}")
    try:
        expect_known(labels)
    except ValueError as error:
        raise ConfigError(f"{name}: refused_labels: {error}") from error
    baseline = EAGER if fast is None else fast.get("baseline", EAGER)
    try:
        (named,) = parse_baselines([baseline])
    except ValueError as error:
        raise ConfigError(f"{name}: minimum_speedup.baseline: {error}, not {baseline!r:.80}") from error
    return Gates(
        require_passed=required,
        baseline=named.value,
        minimum_speedup=None if fast is None else _number(f"{name}: minimum_speedup.speedup", fast.get("speedup")),
        regression_tolerance=None
        if slow is None
        else _number(f"{name}: no_regression.tolerance", slow.get("tolerance", 0.02), below=1.0),
        refused_labels=tuple(labels),
    )


def weigh(
    record: Record, before: Record | None, gates: Gates
) -> tuple[tuple[GateResult, ...], SolutionDifference | None]:
    """Apply every rule to one record.

    Returns one result per rule, and the difference to `before`, the solution's record at the base, if there is one.
    """
    results = []
    if gates.require_passed:
        results.append(_passed(record))
    if gates.minimum_speedup is not None:
        results.append(_fast_enough(record, gates.baseline, gates.minimum_speedup))
    difference = compare_records(before, record, tolerance=gates.regression_tolerance or 0.0) if before else None
    if gates.regression_tolerance is not None:
        results.append(_no_slower(record, difference, gates.regression_tolerance))
    if gates.refused_labels:
        found = [label for label in record.labels if label in gates.refused_labels]
        detail = f"has {', '.join(found)}" if found else "has none of the refused labels"
        results.append(GateResult(gate="refused_labels", outcome=FAILED if found else PASSED, detail=detail))
    return tuple(results), difference


def _passed(record: Record) -> GateResult:
    on_host = record.device is DeviceKind.HOST
    if record.status is Status.passed:
        outcome = PASSED
    elif record.status is Status.harness_error or (record.status in VERDICT_FREE and on_host):
        # No verdict: a harness_error is reported as such, and the others need a GPU.
        outcome = SKIPPED
    else:
        outcome = FAILED
    return GateResult(gate="require_passed", outcome=outcome, detail=f"{record.status.value}: {record.reason}")


def _fast_enough(record: Record, baseline: str, least: float) -> GateResult:
    name = "minimum_speedup"
    entry = scored(record, baseline)
    if record.status is not Status.passed:
        return GateResult(gate=name, outcome=SKIPPED, detail="the solution did not pass, so its speed does not count")
    if record.device is DeviceKind.HOST:
        return GateResult(gate=name, outcome=SKIPPED, detail=_ON_HOST)
    if entry.speedup is None:
        return GateResult(gate=name, outcome=FAILED, detail=f"the record has no speedup over {baseline}")
    if is_noisy(entry.low, entry.high):
        detail = f"the speedup over {baseline} is too noisy to tell; required: {least:g}x"
        return GateResult(gate=name, outcome=FAILED, detail=detail)
    reached = entry.low if entry.low is not None else entry.speedup
    shown = f"{entry.speedup:.3g}x over {baseline}" + (f", at least {entry.low:.3g}x" if entry.low else "")
    outcome = PASSED if reached >= least else FAILED
    return GateResult(gate=name, outcome=outcome, detail=f"{shown}; required: {least:g}x")


def _no_slower(record: Record, difference: SolutionDifference | None, tolerance: float) -> GateResult:
    name = "no_regression"
    if difference is None:
        return GateResult(gate=name, outcome=SKIPPED, detail="the base has no record of this solution")
    if difference.outcome in (Change.unlike, Change.untimed, Change.unjudged):
        why = "; ".join(difference.unlike) or difference.outcome.value
        return GateResult(gate=name, outcome=SKIPPED, detail=f"the record at the base can't be compared ({why})")
    if record.device is DeviceKind.HOST and difference.ratio is not None:
        return GateResult(gate=name, outcome=SKIPPED, detail=_ON_HOST)
    if difference.regressed:
        ratio = "" if difference.ratio is None else f" ({difference.ratio:.3g}x as fast as at the base)"
        detail = f"{difference.outcome.value}: {difference.reason or 'slower beyond noise'}{ratio}"
        return GateResult(gate=name, outcome=FAILED, detail=f"{detail}; tolerance: {tolerance:.1%}")
    ratio = "" if difference.ratio is None else f", {difference.ratio:.3g}x as fast as at the base"
    return GateResult(gate=name, outcome=PASSED, detail=f"{difference.outcome.value}{ratio}")


def _mapping(where: str, value: Any, known: frozenset[str] | set[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: must hold `key: value` lines, not {type(value).__name__}")
    if unknown := sorted(str(key) for key in value if key not in known):
        raise ConfigError(f"{where}: unknown key {', '.join(unknown)}; known keys: {', '.join(sorted(known))}")
    return value


def _number(where: str, value: Any, *, below: float = math.inf) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < below:
        raise ConfigError(
            f"{where} must be a number, at least 0{'' if below == math.inf else f' and below {below:g}'}, not {value!r}"
        )
    return float(value)
