"""What is told of all calls of a verification together."""

from __future__ import annotations

from harness.core.status import Failure, Status
from harness.referee.correctness.value_check import CallVerdict
from harness.referee.correctness.verifier import kernelbench_rules, overall, summarise

WRONG = Failure(status=Status.wrong_value, reason="3 values wrong")
SHAPE = Failure(status=Status.wrong_shape, reason="another shape")


def call(variant: str, failure: Failure | None = None, kernelbench: bool | None = None) -> CallVerdict:
    return CallVerdict(variant=variant, failure=failure, kernelbench=kernelbench)


def test_calls_and_failures_are_counted_by_variant() -> None:
    found = summarise([call("own"), call("own", WRONG, kernelbench=False), call("structured")])
    counts = {name: (held["calls"], held["failed"]) for name, held in found["variants"].items()}
    assert counts == {"own": (2, 1), "structured": (1, 0)}
    assert found["kernelbench_would_pass"] is False


def test_the_gravest_failure_is_the_verdict_and_says_how_many_calls_failed() -> None:
    assert overall([call("own"), call("structured")]) is None
    verdict = overall([call("own", WRONG), call("own"), call("structured", SHAPE)])
    assert verdict is not None
    assert verdict.status is Status.wrong_shape
    assert verdict.reason.endswith("2 of 3 calls wrong")
    everything = overall([call("own", WRONG), call("own", WRONG)])
    assert everything is not None
    assert "calls wrong" not in everything.reason


def test_kernelbench_looks_at_own_inputs_alone() -> None:
    assert kernelbench_rules([call("structured")]) is None
    assert kernelbench_rules([call("own"), call("structured", WRONG)]) is True
    assert kernelbench_rules([call("own", WRONG), call("structured")]) is False
