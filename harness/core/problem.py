"""Value types of problems, workloads and solutions.

Both sides. Nothing here reads files, starts processes or uses a GPU.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.core.choices import PrecisionClass
from harness.core.status import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One set of sizes of a problem.

    Attributes:
        name: `full`, `small`, or another declared name.
        sizes: Module global -> its value (lists may be nested); empty means the file as shipped.
        precision: Precision class that outputs must reach; None means the problem's.
        derived: Whether the harness derives the sizes, because the problem declares no workload of this name.
    """

    name: str
    sizes: Mapping[str, int | float | bool | str | list[Any]] = field(default_factory=dict)
    precision: PrecisionClass | None = None
    derived: bool = False

    @property
    def title(self) -> str:
        """Its name for readers."""
        return f"{self.name} (derived)" if self.derived else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRules:
    """Input variants that a problem allows beyond its own distribution.

    Attributes:
        variants: Stress inputs that are valid for the problem (`zero_mean`, `large_values`, `structured`); empty if
            only its own distribution is valid.
        own_only: Whether the run uses only the problem's own distribution, although others are valid.
    """

    variants: tuple[str, ...] = ("zero_mean", "large_values", "structured")
    own_only: bool = False

    @property
    def stress(self) -> tuple[str, ...]:
        """Stress inputs to draw."""
        return () if self.own_only else self.variants


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Declared work of one call, as expressions over the problem's constants.

    `harness.catalog.sizes.evaluate` computes the numbers, with `ReferenceModule.sizes` as names.

    Attributes:
        flops: Floating-point operations; None if not declared.
        bytes: Bytes read and written; None if not declared.
        rate: Class at whose peak rate the products can run; None: that of the problem.
    """

    flops: str | None = None
    bytes: str | None = None
    rate: PrecisionClass | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRange:
    """Values that one size may take: `low`, `low + step`, … up to `high`."""

    low: int
    high: int
    step: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedShape:
    """One entry of a list of sizes.

    Attributes:
        sizes: Module global -> its value, as of a `Workload`.
        calls: Weight of this entry in the score, for example the number of calls with these sizes.
    """

    sizes: Mapping[str, int | float | bool | str | list[Any]]
    calls: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeRules:
    """Sizes from which secret shapes are drawn.

    If both are empty, the harness derives ranges.

    Attributes:
        ranges: Module global -> the values that it may take. Other sizes stay as the workload has them.
        listed: A list of sizes with weights, instead of ranges.
    """

    ranges: Mapping[str, SizeRange] = field(default_factory=dict)
    listed: tuple[ListedShape, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem: its reference, workloads and rules.

    Attributes:
        id: Level and number, such as `level1/16`.
        name: Name from the file name.
        path: The problem's file.
        source: Text of the file.
        digest: SHA-256 of the file and its declarations.
        precision: Precision class that outputs must reach.
        workloads: Workloads by name.
        rules: Valid input variants.
        costs: Declared work of one call.
        shapes: Declared sizes for secret shapes.
        notes: Free text for readers.
        compare_state: Whether solutions must update parameters and buffers as the reference does.
        backward: What a call differentiates besides its forward: `inputs`, `parameters`, both or nothing.
        dtype: Type to convert inputs and parameters to (`float16`, `bfloat16`); None leaves them.
        model_seed: Seed under which models are constructed, of an evaluation that is repeated; None draws one.
        failure: Why the file or its declarations can't be read, or None. If set, the other fields are unreliable.
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
    shapes: ShapeRules = field(default_factory=ShapeRules)
    notes: str = ""
    compare_state: bool = True
    backward: tuple[str, ...] = ()
    dtype: str | None = None
    model_seed: int | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """One file under evaluation.

    Attributes:
        problem_id: The problem that it solves, such as `level1/16`.
        author: Who wrote it.
        label: Its path below the solutions folder, or its file name; unique in a run.
        path: Its file.
        source: Text of the file. If the file is not UTF-8, an encoding of its bytes that is unique to them.
        sample: Its number among several of one author for one problem.
        failure: Why the file is not UTF-8 text, or None.
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
    """Return the SHA-256 of texts in hex.

    Each text is prefixed by its length, so that boundaries matter.
    """
    state = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        state.update(f"{len(data)}:".encode())
        state.update(data)
    return state.hexdigest()
