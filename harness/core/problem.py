"""Problems, their workloads and the solutions to them, as values.

No file, process or GPU is touched here. Both sides of the trust boundary use it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.core.choices import PrecisionClass
from harness.core.status import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One set of sizes for a problem: values for module globals; empty means the file as shipped.

    `precision` is the class that answers must reach here; None means the problem's own.
    """

    name: str
    sizes: Mapping[str, int | float | bool | str] = field(default_factory=dict)
    precision: PrecisionClass | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRules:
    """Which inputs a problem allows beyond its own.

    `variants` names the stress variants that its domain admits (`zero_mean`, `large_values`, `structured`);
    an empty tuple means that only the problem's own distribution is valid.
    """

    variants: tuple[str, ...] = ("zero_mean", "large_values", "structured")


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Declared work of one call as arithmetic over the problem's constants; None where nothing is declared.

    `harness.catalog.sizes.evaluate` gives the number, with `ReferenceModule.sizes` as names.
    """

    flops: str | None = None
    bytes: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A reference to be matched. `id` is `level1/16`; `digest` is the SHA-256 of the file and its declarations.

    `failure` says why its file or its declarations can't be read; nothing else of it can be relied on then.
    """

    id: str
    name: str
    path: Path
    source: str
    digest: str
    precision: PrecisionClass = PrecisionClass.FP32
    workloads: Mapping[str, Workload] = field(default_factory=lambda: {"full": Workload(name="full")})
    rules: InputRules = field(default_factory=InputRules)
    costs: Costs = field(default_factory=Costs)
    notes: str = ""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """One submission. `label` is its path below the solutions folder (or its file name), unique in a run.

    `failure` says why its file is no text; its `source` then only stands for the bytes, and is that of no other file.
    """

    problem_id: str
    author: str
    label: str
    path: Path
    source: str
    sample: int | None = None
    failure: Failure | None = None

    @property
    def digest(self) -> str:
        return digest_text(self.source)


def digest_text(*parts: str) -> str:
    """SHA-256 in hex over texts, each length-prefixed so that boundaries count."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        state.update(f"{len(data)}:".encode())
        state.update(data)
    return state.hexdigest()
