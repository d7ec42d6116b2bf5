"""Rules of the screen and the names that trigger them, read from `rules.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import yaml


class Family(StrEnum):
    """The possible misuse of a construct."""

    CLOCK = "clock"
    """To appear faster than it is."""
    ANSWER = "answer"
    """To return outputs without computing them, or outputs that are correct only in this evaluation."""
    KERNEL = "kernel"
    """To do the work without a kernel of its own."""
    HARNESS = "harness"
    """To disturb or deceive the harness."""


class Weight(StrEnum):
    """How strong a finding is alone."""

    STRONG = "strong"
    """Rare in honest kernels."""
    WEAK = "weak"
    """Frequent in honest kernels; relevant together with other findings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One kind of construct.

    Attributes:
        name: The rule's name.
        family: The possible misuse.
        weight: How strong a finding is alone.
        why: Explanation for the reviewer.
    """

    name: str
    family: Family
    weight: Weight
    why: str


_FILE = yaml.safe_load(Path(__file__).with_name("rules.yaml").read_text(encoding="utf-8"))

RULES: Mapping[str, Rule] = {
    name: Rule(name=name, family=Family(rule["family"]), weight=Weight(rule["weight"]), why=rule["why"])
    for name, rule in _FILE["rules"].items()
}
"""All rules by name."""


def triggers(kind: str) -> dict[str, str]:
    """Return the names of one kind (`python`, `cpp`, …) with their rules."""
    return {word: name for name, rule in _FILE["rules"].items() for word in rule.get(kind, "").split()}


def names(group: str) -> tuple[str, ...]:
    """Return one group of `names` of the file."""
    return tuple(_FILE["names"][group].split())
