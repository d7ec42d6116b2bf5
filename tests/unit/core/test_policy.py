"""Policies: what a run refuses although it is right, and what a wrong policy is told."""

from __future__ import annotations

import ast
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import harness
from harness.core import labels
from harness.core.choices import DeviceKind
from harness.core.config import ConfigError, Machine, RunConfig, resolve
from harness.core.labels import LABELS
from harness.core.policy import Policy, apply, parse_policy
from harness.core.status import Status
from harness.core.task import Outcome

MACHINE = Machine(device=DeviceKind.HOST, cpu_count=2, memory_bytes=8 * 2**30)


def settled(tmp_path: Path, text: str = "", **options: object) -> RunConfig:
    file = tmp_path / "run.yaml"
    file.write_text(f"paths: [solutions]\n{text}")
    return resolve(machine=MACHINE, run_id="r", file=file, options=options)


def passed(*labels: str, **evidence: object) -> Outcome:
    return Outcome(status=Status.passed, reason="right", speedup=2.5, labels=labels, evidence=evidence)


def refuses(policy: Policy, outcome: Outcome) -> bool:
    return apply(policy, outcome).status is Status.disqualified


def test_without_a_policy_no_label_refuses() -> None:
    outcome = passed(*LABELS)
    assert apply(Policy(), outcome) is outcome
    assert not Policy()


def test_a_label_refuses_by_name() -> None:
    policy = parse_policy({"refuse_labels": ["specialised_shape", "unexplained_time"]})
    refused = apply(policy, passed("static_buffer", "unexplained_time", found="kept"))
    assert refused.status is Status.disqualified
    assert refused.speedup is None
    assert "policy refuse_labels: unexplained_time" in refused.reason
    assert refused.evidence["policy"] == {"rule": "refuse_labels", "status_without": "passed", "speedup_without": 2.5}
    assert refused.evidence["found"] == "kept"
    assert not refuses(policy, passed("static_buffer"))


@pytest.mark.parametrize("status", Status)
def test_only_who_passed_may_be_refused(status: Status) -> None:
    outcome = replace(passed("static_buffer"), status=status)
    after = apply(parse_policy({"refuse_labels": ["static_buffer"]}), outcome)
    assert outcome.policy_may_refuse is (after is not outcome) is (status is Status.passed)


def test_a_kernel_of_its_own_may_be_required() -> None:
    policy = parse_policy({"require_custom_kernel": True})
    refused = apply(policy, passed(labels.TORCH_ONLY, labels.NO_CUSTOM_KERNEL))
    assert refused.status is Status.disqualified
    assert "require_custom_kernel" in refused.reason
    assert not refuses(policy, passed(labels.FALLS_BACK))
    # What could not be found out refuses only where the policy says so.
    assert not refuses(policy, passed(labels.UNCOUNTED))
    both = parse_policy({"require_custom_kernel": True, "refuse_labels": [labels.UNCOUNTED]})
    assert refuses(both, passed(labels.UNCOUNTED))


@pytest.mark.parametrize(("share", "refused"), [(0.4, True), (0.5, False), (None, False), ("much", False)])
def test_a_share_may_be_required(share: object, refused: bool) -> None:
    policy = parse_policy({"min_own_share": 0.5})
    assert refuses(policy, passed(census={"own_share": share})) is refused
    assert not refuses(policy, passed())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "policy: {refuse_labels: [specialized_shape]}",
            ("specialized_shape", "nearest: specialised_shape", "falls_back"),
        ),
        ("policy: {require_custom: true}", ("require_custom", "nearest: require_custom_kernel")),
        ("policy: {require_custom_kernel: maybe}", ("require_custom_kernel", "true or false")),
        ("policy: {refuse_labels: static_buffer}", ("refuse_labels", "list of labels")),
        ("policy: {min_own_share: 50}", ("min_own_share", "at most 1")),
        ("policy: {min_own_share: 0}", ("min_own_share", "above 0")),
        ("policy: {min_own_share: true}", ("min_own_share", "above 0")),
        ("policy: {min_own_share: -0.5}", ("min_own_share", "above 0")),
        ("policy: strict", ("a mapping of require_custom_kernel",)),
    ],
)
def test_a_wrong_policy_is_told_what_would_be_right(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        settled(tmp_path, text)
    for word in ("policy", *words):
        assert word in str(caught.value)


def test_from_the_configuration_and_from_a_file_of_its_own(tmp_path: Path) -> None:
    held = settled(tmp_path, "policy: {require_custom_kernel: true, refuse_labels: [static_buffer]}")
    assert held.policy == Policy(require_custom_kernel=True, refuse_labels=("static_buffer",))
    assert settled(tmp_path).policy == Policy()
    for text in ("min_own_share: 0.5\n", "policy:\n  min_own_share: 0.5\n"):
        (tmp_path / "policy.yaml").write_text(text)
        assert settled(tmp_path, policy=tmp_path / "policy.yaml").policy == Policy(min_own_share=0.5)
    with pytest.raises(ConfigError, match="no such"):
        settled(tmp_path, policy=tmp_path / "missing.yaml")


def test_a_run_repeats_with_its_policy(tmp_path: Path) -> None:
    held = settled(tmp_path, "policy: {refuse_labels: [falls_back], min_own_share: 0.25}")
    stored: dict[str, Any] = json.loads(json.dumps(held.to_json()))
    again = settled(tmp_path, f"policy: {json.dumps(stored['policy'])}")
    assert again.policy == held.policy


def test_from_python_a_wrong_policy_is_told_as_well() -> None:
    with pytest.raises(ConfigError, match="nearest: falls_back"):
        harness.Harness(device="host", policy={"refuse_labels": ["fall_back"]})


def test_every_label_in_the_code_is_known() -> None:
    """A constant explained as "Label: ..." must be in the list that policies are checked against."""
    found = set()
    for path in Path(harness.__file__).parent.rglob("*.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for item, following in itertools.pairwise(body):
            if (
                isinstance(item, ast.Assign)
                and isinstance(item.value, ast.Constant)
                and isinstance(following, ast.Expr)
                and isinstance(following.value, ast.Constant)
                and str(following.value.value).startswith("Label:")
            ):
                found.add(item.value.value)
    assert {"static_buffer", "specialised_shape", "unexplained_time", "degenerate_problem"} <= found
    assert found <= set(LABELS), f"tell harness.core.labels about {sorted(found - set(LABELS))}"
