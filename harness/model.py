"""The vocabulary: what a problem, a workload, a solution, a status and a record are.

Imports nothing of the harness. Values only: no file, process or GPU is touched here. Both sides of the trust
boundary may import it. A `Record` that contradicts itself can't be constructed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

RECORD_FORMAT = 1
"""Version of the record format; a reader accepts this and every smaller one."""

RUN_FORMAT = 1
"""Version of `run.yaml` and of a run folder's layout; a reader accepts this and every smaller one."""


class DeviceKind(StrEnum):
    """Where solutions execute."""

    CUDA = "cuda"
    HOST = "host"


class PrecisionClass(StrEnum):
    """How exact an answer must be, named after the arithmetic that reaches it, most exact first."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"


class Baseline(StrEnum):
    """The reference run in one way, for a solution's time to be held against. The names are those in records.

    Eager and compiled runs without a suffix keep torch's default flags: products in full fp32, convolutions by cuDNN
    in TF32 where the GPU has it.
    """

    EAGER = "eager"
    """As torch runs it; what speedups are against unless another is asked for."""
    EAGER_TF32 = "eager_tf32"
    """Products and convolutions may use TF32: faster, and of a lower class than an fp32 problem asks for."""
    EAGER_NO_TF32 = "eager_no_tf32"
    """Neither may, so that convolutions are exact too."""
    COMPILE = "compile"
    """`torch.compile` with its default mode."""
    COMPILE_TF32 = "compile_tf32"
    """The same where products and convolutions may use TF32."""
    COMPILE_MAX_AUTOTUNE = "compile_max_autotune"
    """`torch.compile(mode="max-autotune")`, which replays a CUDA graph and so copies the inputs into it."""
    COMPILE_MAX_AUTOTUNE_NO_CUDAGRAPHS = "compile_max_autotune_no_cudagraphs"
    """The same kernels without the graph, and so without those copies."""

    @property
    def mode(self) -> str | None:
        """The mode of `torch.compile`; None for eager."""
        if self.value.startswith("eager"):
            return None
        return self.value.removeprefix("compile").removesuffix("_tf32").strip("_").replace("_", "-") or "default"

    @property
    def tf32(self) -> bool | None:
        """Whether TF32 is allowed or forbidden for everything; None leaves torch's defaults."""
        return False if self.value.endswith("_no_tf32") else True if self.value.endswith("_tf32") else None


class Status(StrEnum):
    """How the evaluation of one solution ended."""

    passed = "passed"
    """Built, right on every input variant, and (where the device times) timed."""

    syntax_error = "syntax_error"
    """The file is not valid Python. The reason names the line; fix it there."""
    no_model_new = "no_model_new"
    """The file defines no class `ModelNew`. Name the module class exactly so, at the top level."""
    bad_constructor = "bad_constructor"
    """`ModelNew(*get_init_inputs())` raised. Take the same constructor arguments as the reference `Model`."""
    import_error = "import_error"
    """Importing the file raised, exited or hung. Nothing but definitions and builds belongs at module level."""
    compile_error = "compile_error"
    """The compiler or linker refused the sources. The reason holds the first error with its line."""
    compile_timeout = "compile_timeout"
    """The build did not finish in its time limit. Simplify templates, or raise `--compile-timeout`."""

    runtime_error = "runtime_error"
    """`forward` raised a Python or C++ exception. The log holds the traceback."""
    cuda_error = "cuda_error"
    """The GPU reported an error (illegal access, bad launch, device-side assert) during the solution's calls."""
    crashed = "crashed"
    """The process running the solution died: a signal, `abort`, `os._exit`."""
    timeout = "timeout"
    """A call, or all calls and checks together, did not finish in their time limit: an endless loop, a deadlock, or far
    too slow."""
    out_of_memory = "out_of_memory"
    """The solution asked for more GPU or host memory than it may have."""

    wrong_structure = "wrong_structure"
    """The output's tree (tensor, tuple, list, dict, and their sizes) is not the reference's."""
    wrong_shape = "wrong_shape"
    """An output tensor's shape differs from the reference's."""
    wrong_dtype = "wrong_dtype"
    """An output tensor's dtype differs from the reference's."""
    wrong_device = "wrong_device"
    """An output tensor is on another device than the reference's: return it where the inputs are."""
    wrong_value = "wrong_value"
    """An output is too far from the truth at any precision class. The reason says how many, how far, where."""
    non_finite = "non_finite"
    """NaN or infinity where the reference is finite, or the other way round."""
    low_precision = "low_precision"
    """Right, but only at a lower precision class than the problem states."""
    wrong_state = "wrong_state"
    """State that the reference updates (running statistics, caches), or its parameters, could not be matched."""
    mutated_input = "mutated_input"
    """The solution changed an input that the reference leaves alone."""

    data_race = "data_race"
    """Two threads touch the same memory without synchronisation, at least one writing: often a missing barrier."""
    memory_error = "memory_error"
    """An access outside an array, or misaligned, or to freed memory."""
    uninitialised_read = "uninitialised_read"
    """A kernel reads memory that nothing wrote."""
    barrier_error = "barrier_error"
    """A barrier or warp collective that not all of its threads reach."""

    disqualified = "disqualified"
    """The measurement or the answer was tampered with, as the evidence shows, or the run's policy refuses it."""
    not_emulated = "not_emulated"
    """Host device only: the sources use a construct that the CPU can't execute. Not a verdict; try on a GPU."""
    unsupported = "unsupported"
    """The solution needs something that this device or machine does not have. Not a verdict."""
    harness_error = "harness_error"
    """A fault of the harness, the problem or the machine, never of the solution. Run it again after the fix."""


VERDICT_FREE = frozenset({Status.harness_error, Status.not_emulated, Status.unsupported})
"""Statuses that say nothing about whether the solution is right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a solution did not pass, as a value.

    `reason` is one line that a person can act on; `evidence` holds JSON values for the record; `detail` is the
    whole text (traceback, compiler output) for the log.
    """

    status: Status
    reason: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    detail: str = ""

    def __post_init__(self) -> None:
        if self.status is Status.passed:
            raise ValueError("a failure can't have the status passed")
        if not self.reason.strip() or "\n" in self.reason:
            raise ValueError(f"a reason is one line of text, not {self.reason!r}")

    def to_json(self) -> dict[str, Any]:
        return {
            "status": self.status.value,
            "reason": self.reason,
            "evidence": dict(self.evidence),
            "detail": self.detail,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Failure:
        """The inverse of `to_json`. Raises `ValueError` where a field is missing or of another type."""
        status, reason, evidence, detail = (value.get(k) for k in ("status", "reason", "evidence", "detail"))
        if not (isinstance(status, str) and isinstance(reason, str) and isinstance(evidence, dict)):
            raise ValueError("a failure has a status, a reason and evidence")
        return cls(status=Status(status), reason=one_line(reason), evidence=evidence, detail=str(detail or ""))


def one_line(text: str, *, limit: int = 500) -> str:
    """`text` folded into one non-empty line of at most `limit` characters."""
    folded = " ".join(text.split()) or "no message"
    return folded if len(folded) <= limit else folded[: limit - 1] + "…"


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

    `harness.sizes.evaluate` gives the number, with `ReferenceModule.sizes` as names.
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


_ABSENT = type(None)
_FORMS: Mapping[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(("problem", "author", "solution", "workload", "reason"), ((str,), "text")),
    **dict.fromkeys(("solution_digest", "problem_digest", "finished_at"), ((str,), "text")),
    **dict.fromkeys(("evidence", "environment"), ((dict,), "an object")),
    **dict.fromkeys(("timing", "build"), ((dict, _ABSENT), "an object or null")),
    **dict.fromkeys(("speedup", "wall_s"), ((int, float, _ABSENT), "a number or null")),
    "sample": ((int, _ABSENT), "a whole number or null"),
    "labels": ((list, tuple), "a list of texts"),
}
"""Field of a record -> what JSON may hold there, and in words. A file may have been edited by anybody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One immutable line of results, as written to `records.jsonl`.

    `evidence` holds what the verdict rests on, `timing` what was measured (null where nothing was), `build` how the
    module was made, `environment` where. `speedup` is against eager (above 1 is faster) and exists only for a
    passed, timed solution. Top-level names are a promise; inner ones are versioned by `format`.
    """

    problem: str
    author: str
    solution: str
    device: DeviceKind
    workload: str
    status: Status
    reason: str
    sample: int | None = None
    labels: tuple[str, ...] = ()
    speedup: float | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    timing: Mapping[str, Any] | None = None
    build: Mapping[str, Any] | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)
    solution_digest: str = ""
    problem_digest: str = ""
    finished_at: str = ""
    wall_s: float | None = None
    format: int = RECORD_FORMAT

    def __post_init__(self) -> None:
        if self.speedup is not None:
            if self.status is not Status.passed:
                raise ValueError(f"a record with status {self.status} can't have a speedup")
            if not (math.isfinite(self.speedup) and self.speedup > 0.0):
                raise ValueError(f"a speedup is a positive number, not {self.speedup}")
            if self.timing is None:
                raise ValueError("a record with a speedup needs the timing it comes from")
        if not self.reason.strip() or "\n" in self.reason:
            raise ValueError(f"a reason is one line of text, not {self.reason!r}")
        if not (self.problem and self.author and self.solution):
            raise ValueError("a record names its problem, author and solution")

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What a run holds at most one record of: problem, solution, device, workload."""
        return (self.problem, self.solution, self.device.value, self.workload)

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `json.dumps(..., allow_nan=False)` accepts it."""
        value: dict[str, Any] = {"format": self.format}
        for item in fields(self):
            held = getattr(self, item.name)
            if isinstance(held, StrEnum):
                held = held.value
            elif isinstance(held, tuple):
                held = list(held)
            elif isinstance(held, Mapping):
                held = dict(held)
            value[item.name] = held
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Record:
        """Read a record written by this or an older harness; unknown keys of a newer one are an error.

        Raises `ValueError` with what is wrong.
        """
        version = value.get("format")
        if not isinstance(version, int) or version > RECORD_FORMAT or version < 1:
            raise ValueError(f"record format {version!r}; this harness reads 1 to {RECORD_FORMAT}")
        known = {item.name for item in fields(cls)}
        if unknown := sorted(set(value) - known):
            raise ValueError(f"unknown keys in a record: {', '.join(unknown)}")
        needed = {item.name for item in fields(cls) if item.default is MISSING and item.default_factory is MISSING}
        if lacking := sorted(needed - set(value)):
            raise ValueError(f"not a record: it has no {', '.join(f'`{name}`' for name in lacking)}")
        held = dict(value)
        for name, (kinds, wanted) in _FORMS.items():
            if name in held and not isinstance(held[name], kinds):
                raise ValueError(f"`{name}` must be {wanted}, not {held[name]!r:.60}")
        if not all(isinstance(label, str) for label in held.get("labels", ())):
            raise ValueError(f"`labels` must be a list of texts, not {held['labels']!r:.60}")
        try:
            held["device"] = DeviceKind(held["device"])
            held["status"] = Status(held["status"])
            held["labels"] = tuple(held.get("labels", ()))
            return cls(**held)
        except TypeError as error:
            raise ValueError(f"not a record: {error}") from error
