"""The common format of `corpus/*.cu`, `broken/*.cu`, `litmus/*.cu`: what an entry holds, its inputs, how it is judged.

An entry is one CUDA source that both devices run as it stands. Its first comment is YAML:

    summary    what it shows
    inputs     name: torch expression; drawn from a generator seeded by the entry's name
    outputs    name: torch expression for the initial content; new(...) is memory that nobody has written
    sizes      integers handed to the launcher
    expected   name: torch expression over the inputs; an output without one is scratch
    tolerance  largest error over the root mean square of the expected values; absent: equal bit for bit
    sorted     outputs whose order is open
    helpers    Python that the expressions may use
    arch       least compute capability, times ten
    known_gap  (broken) why the host device does not find it
    twin       (broken) the corpus entry it was made from
    defect     (broken) status, kernel, tool of compute-sanitizer that can see it (null: none); the lines
               it may be reported at carry the comment `// defect`
    kernel     (litmus) the kernel that reports name
    macros     (litmus) NAME=TEXT ..., without spaces in a text: definitions for all pairs
    pairs      (litmus) name: {sound: macros, broken: macros, status: the broken form's, a data race if absent}

A pair of `litmus` is two entries: FILE_PAIR must run without a report, FILE_PAIR_broken must be reported. The sound
form replaces some of the file's macros, and the broken form some of the sound form's: its one mistake.

Each source defines `extern "C" void run(const void* const* in, void* const* out, const long long* size)`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tests.hostcuda.results import Finding

HERE = Path(__file__).resolve().parent

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The fast one where PyYAML has it: every process that collects tests reads two hundred headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """What must be reported of a broken entry."""

    status: str
    kernel: str | None
    tool: str | None
    lines: tuple[int, ...]

    def is_among(self, findings: Iterable[Finding]) -> bool:
        """Whether a finding has the status and, if a kernel is named, the kernel and a line of the defect."""
        return any(
            finding.status == self.status
            and (self.kernel is None or finding.kernel == self.kernel)
            and (self.kernel is None or bool(set(finding.lines) & set(self.lines)))
            for finding in findings
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One `.cu` file with what its header says."""

    name: str
    path: Path
    source: str
    header: Mapping[str, Any]
    defect: Defect | None

    @property
    def arch(self) -> int:
        return int(self.header.get("arch", 60))


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    """Tensors of one run, on the CPU. `fresh` names the outputs whose memory nobody has written."""

    inputs: dict[str, torch.Tensor]
    outputs: dict[str, torch.Tensor]
    fresh: frozenset[str]
    sizes: tuple[int, ...]


class _Fresh:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def load(path: Path) -> Entry:
    """Reads one entry. Raises ValueError where its header is missing or incomplete."""
    source = path.read_text()
    match = re.match(r"/\*\n(.*?)\n\*/", source, re.S)
    if match is None:
        raise ValueError(f"{path}: begin the file with /*, its header in YAML, and */")
    header = yaml.load(match[1], Loader=_LOADER)
    missing = {"summary", "inputs", "outputs", "sizes"} - set(header)
    if missing:
        raise ValueError(f"{path}: the header lacks {', '.join(sorted(missing))}")
    defect = None
    if "defect" in header:
        defect = Defect(**header["defect"], lines=_defect_lines(source))
    return Entry(name=path.stem, path=path, source=source, header=header, defect=defect)


def _defect_lines(source: str) -> tuple[int, ...]:
    return tuple(i for i, text in enumerate(source.split("\n"), 1) if "// defect" in text)


def corpus() -> list[Entry]:
    """Entries that must run without a report."""
    return [load(path) for path in sorted((HERE / "corpus").glob("*.cu"))]


def broken() -> list[Entry]:
    """Entries that must be reported."""
    return [load(path) for path in sorted((HERE / "broken").glob("*.cu"))]


def litmus() -> list[Entry]:
    """Both forms of each pair of `litmus/*.cu`."""
    return [form for path in sorted((HERE / "litmus").glob("*.cu")) for form in _forms(load(path))]


def with_known_gaps(among: Mapping[str, Entry], names: Iterable[str]) -> list[Any]:
    """Parameters of a test that expects findings of these entries, but of those with a `known_gap`."""
    gaps = {name: among[name].header.get("known_gap") for name in names}
    marks = {name: pytest.mark.xfail(strict=True, reason=gap) for name, gap in gaps.items() if gap}
    return [pytest.param(name, marks=marks.get(name, ())) for name in gaps]


_TOOLS = {"data_race": "racecheck", "barrier_error": "synccheck", "memory_error": "memcheck"}


def _forms(family: Entry) -> Iterator[Entry]:
    lines = _defect_lines(family.source)
    for name, pair in family.header["pairs"].items():
        status = pair.get("status", "data_race")
        defect = Defect(status=status, kernel=family.header["kernel"], tool=_TOOLS[status], lines=lines)
        sound = f"{family.header.get('macros', '')} {pair.get('sound', '')}"
        for suffix, macros, expected in (("", sound, None), ("_broken", f"{sound} {pair['broken']}", defect)):
            yield replace(
                family,
                name=f"{family.name}_{name}{suffix}",
                source=_with_macros(family.source, macros),
                header={key: value for key, value in {**family.header, **pair}.items() if key != "pairs"},
                defect=expected,
            )


def _with_macros(source: str, macros: str) -> str:
    """Puts definitions in place of the header; every line of the code keeps its number."""
    header, body = source.split("\n*/\n", 1)
    texts = {name: text for name, _, text in (macro.partition("=") for macro in macros.split())}
    defined = [f"#define {name} {text}".rstrip() for name, text in texts.items()]
    blank = header.count("\n") + 2 - len(defined)
    return "\n".join(defined + [""] * blank) + "\n" + body


def _vocabulary(name: str) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))

    def tf32(x: torch.Tensor) -> torch.Tensor:
        return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)

    return {
        "torch": torch,
        "F": torch.nn.functional,
        "normal": lambda *shape: torch.randn(*shape, generator=generator),
        "uniform": lambda *shape: torch.rand(*shape, generator=generator),
        "integers": lambda low, high, *shape: torch.randint(low, high, shape, generator=generator, dtype=torch.int32),
        "zeros": torch.zeros,
        "full": torch.full,
        "new": lambda *shape, dtype=torch.float32: _Fresh(torch.zeros(*shape, dtype=dtype)),
        "tf32": tf32,
    }


def buffers(entry: Entry) -> Buffers:
    """Draws the inputs of an entry and its outputs' initial content; the same every time."""
    names = _vocabulary(entry.name)
    inputs = {key: eval(str(text), names).contiguous() for key, text in entry.header["inputs"].items()}
    made = {key: eval(str(text), names) for key, text in entry.header["outputs"].items()}
    return Buffers(
        inputs=inputs,
        outputs={key: value.tensor if isinstance(value, _Fresh) else value for key, value in made.items()},
        fresh=frozenset(key for key, value in made.items() if isinstance(value, _Fresh)),
        sizes=tuple(int(size) for size in entry.header["sizes"]),
    )


def errors(entry: Entry, given: Buffers, outputs: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """Largest error of each output over the root mean square of what was expected (at least 1e-30).

    Outputs without tolerance that are equal have error 0; infinite where values that must be equal differ, or where one
    side is not finite and the other is.
    """
    names = _vocabulary(entry.name) | dict(given.inputs)
    if "helpers" in entry.header:
        exec(entry.header["helpers"], names)
    found: dict[str, float] = {}
    for key, text in entry.header["expected"].items():
        want = eval(str(text), names)
        got = outputs[key]
        want = want.reshape(got.shape)
        if key in entry.header.get("sorted", ()):
            got, want = got.sort().values, want.sort().values
        exact = not got.is_floating_point() or "tolerance" not in entry.header
        if exact:
            found[key] = 0.0 if torch.equal(got, want.to(got.dtype)) else float("inf")
            continue
        difference = got.double() - want.double()
        if not torch.isfinite(difference).all():
            found[key] = float("inf")
            continue
        scale = max(float(want.double().pow(2).mean().sqrt()), 1e-30)
        found[key] = float(difference.abs().max()) / scale
    return found


def agrees(entry: Entry, found: Mapping[str, float]) -> bool:
    """Whether every error lies within the entry's tolerance."""
    return all(error <= float(entry.header.get("tolerance", 0.0)) for error in found.values())
