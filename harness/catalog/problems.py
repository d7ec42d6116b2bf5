"""Problem folders and their `workloads.yaml`, read into `Problem` values.

Imports the vocabulary and `sizes`; trusted side. Reads files, executes nothing.

A folder of problems holds files `<number>_<name>.py` itself or in folders one below, such as `level1`. The id of a
problem is the name of its folder and its number: `level1/16`. Other files are left alone. KernelBench's folders
work unchanged. Beside the files of a folder there may be a `workloads.yaml`, of which every part is optional:

    format: 1
    problems:
      16:
        precision: fp32              # class that answers must reach: fp32 (default), tf32, fp16, bf16, fp8
        workloads:                   # name -> values for the file's module-level constants
          full: {}                   # always exists; empty means the file as it is
          small: {M: 45, K: 150, N: 77}      # for audits and the host device; lists stand for tuples
          half: {dtype: bfloat16}    # where the file has a constant dtype = "float32"
        precisions: {half: bf16}     # class of a workload that needs another one than the problem's
        inputs:
          variants: [zero_mean, large_values, structured]   # stress inputs within the domain; default: all; [] for none
        notes: free text
        flops: 2 * M * N * K         # work of one call, where counting can't know: arithmetic over the constants
        bytes: 4 * (M * K + K * N + M * N)   # least traffic of one call, likewise

Unknown keys are errors, and so are sizes and names that the file doesn't have.
"""

from __future__ import annotations

import ast
import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from harness.model import Costs, InputRules, PrecisionClass, Problem, Workload, digest_text, one_line
from harness.sizes import SizeError, check_size, constants, evaluate

WORKLOADS_FORMAT = 1
"""Version of `workloads.yaml`; a reader accepts this and every smaller one."""

WORKLOADS_FILE = "workloads.yaml"
VARIANTS = InputRules().variants
"""The stress variants there are beside a problem's own distribution."""

MAX_SHOWN = 30
"""Most findings that the text of one `CatalogError` lists."""

PROBLEM_FILE = re.compile(r"(\d{1,6})_([^/]*)\.py")
_FOLDER = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_WORKLOAD = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_WANTED = re.compile(r"(?:.*/)?([A-Za-z0-9_-]+)/0*(\d+)(?:_[^/]*)?")
_KEYS = frozenset({"precision", "precisions", "workloads", "inputs", "notes", "flops", "bytes"})


class CatalogError(Exception):
    """The user's files or arguments are wrong. `findings` has one line for each thing that is."""

    def __init__(self, findings: list[str] | tuple[str, ...]) -> None:
        self.findings = tuple(findings)
        shown = list(self.findings[:MAX_SHOWN])
        if len(self.findings) > MAX_SHOWN:
            shown.append(f"and {len(self.findings) - MAX_SHOWN} more")
        super().__init__("\n".join(shown))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Catalog(Mapping[str, Problem]):
    """The problems below one folder, by id."""

    root: Path
    problems: Mapping[str, Problem]

    def __getitem__(self, key: str) -> Problem:
        return self.problems[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.problems)

    def __len__(self) -> int:
        return len(self.problems)

    @property
    def levels(self) -> frozenset[str]:
        """Names of the folders that hold problems."""
        return frozenset(key.partition("/")[0] for key in self.problems)

    def resolve(self, wanted: str) -> Problem:
        """The problem called `level1/16`, `1/16`, `level1/16_name` or by the path of its file.

        Raises `CatalogError` where there is none, with the nearest that exist.
        """
        match = _WANTED.fullmatch(wanted.strip().removesuffix(".py"))
        names = [f"{match[1]}/{match[2]}", f"level{match[1]}/{match[2]}"] if match else []
        for name in names:
            if name in self.problems:
                return self.problems[name]
        raise CatalogError([self.missing(names[0] if names else wanted)])

    def missing(self, wanted: str) -> str:
        """The sentence that says that there is no such problem."""
        near = difflib.get_close_matches(wanted, self.problems, n=3, cutoff=0.7)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        return f"there is no problem {wanted!r:.100} in {self.root}{hint} (an id looks like level1/16)"


def load_problems(root: Path) -> Catalog:
    """Every problem in `root` and in the folders one below it.

    Raises `CatalogError` that lists all that is wrong: no such folder, no problem in it, an unreadable file, two
    files with one number, a `workloads.yaml` that doesn't fit.
    """
    if not root.is_dir():
        raise CatalogError([f"no folder of problems at {root}: name one by --problems"])
    findings: list[str] = []
    problems: dict[str, Problem] = {}
    below = sorted(entry for entry in root.iterdir() if entry.is_dir() and _FOLDER.fullmatch(entry.name))
    for folder in (root, *below):
        _load_folder(folder, problems, findings)
    if not problems and not findings:
        inner = next((entry for entry in (root / "KernelBench", root / "problems") if entry.is_dir()), None)
        findings.append(
            f"no problem in {root}: problems are files like level1/16_matmul.py, in it or in a folder one below"
            + (f"; is it {inner}?" if inner is not None else "")
        )
    if findings:
        raise CatalogError(findings)
    ordered = sorted(problems, key=lambda key: (key.partition("/")[0], int(key.partition("/")[2])))
    return Catalog(root=root, problems={key: problems[key] for key in ordered})


def _load_folder(folder: Path, problems: dict[str, Problem], findings: list[str]) -> None:
    level = folder.resolve().name
    files: dict[int, Path] = {}
    for path in sorted(folder.iterdir()):
        match = PROBLEM_FILE.fullmatch(path.name)
        if match is None or not path.is_file():
            continue
        number = int(match[1])
        if number in files:
            findings.append(f"{path} and {files[number].name} are both problem {level}/{number}")
        files[number] = path
    declared = _read_declarations(folder / WORKLOADS_FILE, files, findings)
    for number, path in files.items():
        try:
            source = read_source(path)
            tree = ast.parse(source)
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError) as error:
            findings.append(f"{path}: can't be read as Python: {one_line(str(error) or 'it nests too deeply')}")
            continue
        key = f"{level}/{number}"
        if key in problems:
            findings.append(f"{path} and {problems[key].path} are both problem {key}")
        known = constants(tree)
        entry = declared.get(number, {})
        reader = _Entry(f"{folder / WORKLOADS_FILE}, problem {number}", entry, known, findings)
        problems[key] = Problem(
            id=key,
            name=path.stem.partition("_")[2],
            path=path,
            source=source,
            digest=digest_text(source, json.dumps(entry, sort_keys=True, default=str)),
            precision=reader.precision(),
            workloads=reader.workloads(),
            rules=reader.rules(),
            costs=Costs(flops=reader.cost("flops"), bytes=reader.cost("bytes")),
            notes=reader.text("notes") or "",
        )


def read_source(path: Path) -> str:
    """The UTF-8 text of a file, a byte-order mark removed. Raises `OSError`, or `ValueError` in words."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from error


def read_yaml(path: Path) -> Any:
    """A YAML file without tags and without a key twice. Raises `OSError`, or `ValueError` with one line."""
    try:
        return yaml.load(read_source(path), Loader=_StrictLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"not valid YAML: {one_line(str(error))}") from error


_Fast: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser where PyYAML was built with it: a tenth of the time, and every command waits for it."""


class _StrictLoader(_Fast):  # type: ignore[misc]
    """YAML's safe loader, except that a key given twice is an error instead of the last one winning."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = key_node.value
            if isinstance(key, str):
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key!r} is there twice", key_node.start_mark
                    )
                seen.add(key)
        held: dict[Any, Any] = super().construct_mapping(node, deep)
        return held


def _read_declarations(path: Path, files: Mapping[int, Path], findings: list[str]) -> dict[int, dict[str, Any]]:
    """The entries of a `workloads.yaml` by problem number; none where there is no such file."""
    if not path.exists():
        return {}
    try:
        held = read_yaml(path)
    except (OSError, ValueError) as error:
        findings.append(f"{path}: {error}")
        return {}
    if not isinstance(held, dict) or set(held) != {"format", "problems"} or not isinstance(held["problems"], dict):
        findings.append(f"{path}: it has exactly the keys format and problems, the latter by number")
        return {}
    version = held["format"]
    if type(version) is not int or not 1 <= version <= WORKLOADS_FORMAT:
        findings.append(f"{path}: format {version!r}; this harness reads 1 to {WORKLOADS_FORMAT}")
        return {}
    entries: dict[int, dict[str, Any]] = {}
    for number, entry in held["problems"].items():
        if type(number) is not int or number not in files:
            findings.append(f"{path}: there is no file for problem {number!r} beside it")
        elif not isinstance(entry, dict):
            findings.append(f"{path}, problem {number}: an entry is a mapping, not {entry!r:.60}")
        else:
            if unknown := sorted(str(key) for key in entry if key not in _KEYS):
                findings.append(
                    f"{path}, problem {number}: unknown key {', '.join(unknown)}; known are {', '.join(sorted(_KEYS))}"
                )
            entries[number] = entry
    return entries


class _Entry:
    """One problem's entry; every reader notes what is wrong in `findings` and goes on with a default."""

    def __init__(self, where: str, held: Mapping[str, Any], known: Mapping[str, Any], findings: list[str]) -> None:
        self._where = where
        self._held = held
        self._known = known
        self._findings = findings

    def note(self, text: str) -> None:
        self._findings.append(f"{self._where}: {text}")

    def precision(self) -> PrecisionClass:
        return self._class("precision", self._held.get("precision", PrecisionClass.FP32.value))

    def _class(self, key: str, value: Any) -> PrecisionClass:
        try:
            return PrecisionClass(value)
        except ValueError:
            self.note(f"{key} {value!r:.60}; it is one of {', '.join(PrecisionClass)}")
            return PrecisionClass.FP32

    def _precisions(self, workloads: Mapping[str, Workload]) -> dict[str, PrecisionClass]:
        """Classes of single workloads."""
        held = self._held.get("precisions", {})
        if not isinstance(held, dict) or not set(held) <= set(workloads):
            self.note(f"precisions is a mapping of workloads ({', '.join(workloads)}) to classes, not {held!r:.60}")
            return {}
        return {name: self._class(f"precisions, {name}:", value) for name, value in held.items()}

    def workloads(self) -> dict[str, Workload]:
        result = {"full": Workload(name="full")}
        held = self._held.get("workloads", {})
        if not isinstance(held, dict):
            self.note("workloads is a mapping of names to sizes")
            return result
        for name, sizes in held.items():
            if not isinstance(name, str) or not _WORKLOAD.fullmatch(name):
                self.note(f"{name!r:.60} is no name for a workload: lower-case letters, digits, - and _")
            elif not isinstance(sizes, dict):
                self.note(f"workload {name} is a mapping of the file's constants to values")
            else:
                for size, value in sizes.items():
                    try:
                        check_size(size, value, self._known)
                    except SizeError as error:
                        self.note(f"workload {name}: {error}")
                result[name] = Workload(name=name, sizes=dict(sizes))
        for name, precision in self._precisions(result).items():
            result[name] = replace(result[name], precision=precision)
        return result

    def rules(self) -> InputRules:
        held = self._held.get("inputs", {})
        if not isinstance(held, dict) or set(held) - {"variants"}:
            self.note("inputs has the key variants and no other")
            return InputRules()
        variants = held.get("variants", list(VARIANTS))
        if not isinstance(variants, list) or any(name not in VARIANTS for name in variants):
            self.note(f"variants is a list of some of {', '.join(VARIANTS)}, not {variants!r:.80}")
            return InputRules()
        return InputRules(variants=tuple(dict.fromkeys(variants)))

    def text(self, key: str) -> str | None:
        value = self._held.get(key)
        if value is None or isinstance(value, str):
            return value
        self.note(f"{key} is text, not {value!r:.60}")
        return None

    def cost(self, key: str) -> str | None:
        value = self._held.get(key)
        expression = str(value) if type(value) in (int, float) else self.text(key)
        if expression is not None:
            try:
                evaluate(expression, self._known)
            except SizeError as error:
                self.note(f"{key}: {error}")
        return expression
