"""A run's policy: refuse correct solutions by label or own kernels' time share.

A refused solution gets the status `disqualified`. Its record names the rule and the status and speedup that it would
have without the policy. Without a policy, labels refuse nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.core.labels import LABELS, NO_CUSTOM_KERNEL, expect_known
from harness.core.status import Status
from harness.core.task import Outcome

KEYS = ("require_custom_kernel", "refuse_labels", "min_own_share")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Rules by which a run refuses correct solutions.

    Attributes:
        require_custom_kernel: Refuse a solution that ran no kernel of its own.
        refuse_labels: Refuse a solution that carries one of these labels.
        min_own_share: Refuse a solution whose own kernels take a smaller share of the device's time (0 to 1);
            None allows any share.
    """

    require_custom_kernel: bool = False
    refuse_labels: tuple[str, ...] = ()
    min_own_share: float | None = None

    def __bool__(self) -> bool:
        """Whether the policy has any rule."""
        return self != Policy()

    def to_json(self) -> dict[str, Any]:
        return {
            "require_custom_kernel": self.require_custom_kernel,
            "refuse_labels": list(self.refuse_labels),
            "min_own_share": self.min_own_share,
        }


def parse_policy(value: object) -> Policy:
    """Make a policy from a mapping (YAML, JSON).

    Args:
        value: A mapping of `KEYS`, a `Policy`, or None for no rules.

    Raises:
        ValueError: The value is no policy. The text says what is valid and fits behind "must be".
    """
    if isinstance(value, Policy):
        return value
    if value is None:
        return Policy()
    if not isinstance(value, Mapping):
        raise ValueError(f"a mapping of {', '.join(KEYS)}")
    for key in value:
        if key not in KEYS:
            raise ValueError(f"a mapping of {', '.join(KEYS)} (unknown key {key!r}{_nearest(key, KEYS)})")
    required = value.get("require_custom_kernel", False)
    if not isinstance(required, bool):
        raise ValueError("a mapping whose require_custom_kernel is true or false")
    return Policy(
        require_custom_kernel=required,
        refuse_labels=_labels(value.get("refuse_labels") or ()),
        min_own_share=_share(value.get("min_own_share")),
    )


def apply(policy: Policy, outcome: Outcome) -> Outcome:
    """Refuse a solution that passed if the run's policy says so.

    Nothing else changes a status after the referee's verdict. A fact that could not be determined refuses nothing,
    unless `refuse_labels` names the label for that (`uncounted_kernels`).

    Args:
        policy: The run's policy.
        outcome: The verdict; `evidence.census.own_share` is the time share of the solution's own kernels.

    Returns:
        The outcome, `disqualified` if the policy refuses it.
    """
    refused = _refused_rule(policy, outcome) if outcome.policy_may_refuse else None
    if refused is None:
        return outcome
    rule, why = refused
    entry = {"rule": rule, "status_without": outcome.status.value, "speedup_without": outcome.speedup}
    return replace(
        outcome,
        status=Status.disqualified,
        reason=f"correct, but refused by this run's policy {rule}: {why}",
        speedup=None,
        evidence={**outcome.evidence, "policy": entry},
    )


def _refused_rule(policy: Policy, outcome: Outcome) -> tuple[str, str] | None:
    """Return the rule that the solution violates, and why; None if there is none."""
    if policy.require_custom_kernel and NO_CUSTOM_KERNEL in outcome.labels:
        return "require_custom_kernel", f"{LABELS[NO_CUSTOM_KERNEL]} ({NO_CUSTOM_KERNEL})"
    for label in policy.refuse_labels:
        if label in outcome.labels:
            return "refuse_labels", f"{label}: {LABELS[label]}"
    census = outcome.evidence.get("census")
    share = census.get("own_share") if isinstance(census, Mapping) else None
    if policy.min_own_share is not None and isinstance(share, int | float) and share < policy.min_own_share:
        text = f"its own kernels took {share:.3g} of the device's time; the policy requires {policy.min_own_share:.3g}"
        return "min_own_share", text
    return None


def _labels(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError("a mapping whose refuse_labels is a list of labels")
    try:
        expect_known(value)
    except ValueError as error:
        raise ValueError(f"a mapping whose refuse_labels are known labels: {error}") from error
    return tuple(dict.fromkeys(value))


def _share(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value <= 1.0:
        raise ValueError("a mapping whose min_own_share is a number above 0 and at most 1")
    return float(value)


def _nearest(name: object, names: Collection[str]) -> str:
    near = difflib.get_close_matches(str(name), list(names), n=1)
    return f" (nearest: {near[0]})" if near else ""
