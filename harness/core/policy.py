"""A run's policy: which solutions it refuses although they are right, by label or by their own kernels' share.

Pure. Without a policy a label refuses nobody. A refused solution is `disqualified`, and its record says by which rule
and what it would have been.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from harness.core.labels import LABELS, NO_CUSTOM_KERNEL, expect_known
from harness.core.status import Failure, Status

KEYS = ("require_custom_kernel", "refuse_labels", "min_own_share")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """`require_custom_kernel` refuses what ran no kernel of its own; `refuse_labels` what carries one of these;
    `min_own_share` (0 to 1, None: any) what spends less of the device's time in kernels of its own.
    """

    require_custom_kernel: bool = False
    refuse_labels: tuple[str, ...] = ()
    min_own_share: float | None = None

    def __bool__(self) -> bool:
        """Whether it can refuse anything."""
        return self != Policy()

    def to_json(self) -> dict[str, Any]:
        return {
            "require_custom_kernel": self.require_custom_kernel,
            "refuse_labels": list(self.refuse_labels),
            "min_own_share": self.min_own_share,
        }


def parse_policy(value: object) -> Policy:
    """A policy from a mapping (YAML, JSON). Raises `ValueError` saying what would be right."""
    if isinstance(value, Policy):
        return value
    if value is None:
        return Policy()
    if not isinstance(value, Mapping):
        raise ValueError(f"a mapping of {', '.join(KEYS)}")
    for key in value:
        if key not in KEYS:
            raise ValueError(f"made of {', '.join(KEYS)}; there is no {key!r}{_nearest(key, KEYS)}")
    required = value.get("require_custom_kernel", False)
    if not isinstance(required, bool):
        raise ValueError("a policy whose require_custom_kernel is true or false")
    return Policy(
        require_custom_kernel=required,
        refuse_labels=_labels(value.get("refuse_labels") or ()),
        min_own_share=_share(value.get("min_own_share")),
    )


def refusal(
    policy: Policy, *, labels: Collection[str], evidence: Mapping[str, Any], speedup: float | None = None
) -> Failure | None:
    """Why `policy` refuses a solution that passed with these labels and this evidence; None where it does not.

    What could not be found out refuses nobody, unless the policy names the label that says so.
    """
    if policy.require_custom_kernel and NO_CUSTOM_KERNEL in labels:
        return _refused("require_custom_kernel", f"{LABELS[NO_CUSTOM_KERNEL]} ({NO_CUSTOM_KERNEL})", speedup)
    for label in policy.refuse_labels:
        if label in labels:
            return _refused("refuse_labels", f"{label}: {LABELS[label]}", speedup)
    census = evidence.get("census")
    share = census.get("own_share") if isinstance(census, Mapping) else None
    if policy.min_own_share is not None and isinstance(share, int | float) and share < policy.min_own_share:
        text = f"own kernels took {share:.3g} of the device's time, at least {policy.min_own_share:.3g} is asked for"
        return _refused("min_own_share", text, speedup)
    return None


def _refused(rule: str, why: str, speedup: float | None) -> Failure:
    held = {"rule": rule, "status_without": Status.passed.value, "speedup_without": speedup}
    return Failure(
        status=Status.disqualified,
        reason=f"right, but refused by this run's policy {rule}: {why}",
        evidence={"policy": held},
    )


def _labels(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError("a policy whose refuse_labels is a list of labels")
    try:
        expect_known(value)
    except ValueError as error:
        raise ValueError(f"a policy of known labels: {error}") from error
    return tuple(dict.fromkeys(value))


def _share(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value <= 1.0:
        raise ValueError("a policy whose min_own_share lies above 0 and is at most 1")
    return float(value)


def _nearest(name: object, names: Collection[str]) -> str:
    near = difflib.get_close_matches(str(name), list(names), n=1)
    return f" (nearest: {near[0]})" if near else ""
