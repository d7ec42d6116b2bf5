"""Read problem folders and their `workloads.yaml`, without executing code.

Trusted side. A folder of problems contains files `<number>_<name>.py`, directly or in folders one level below. The id
of a problem is the name of its folder and its number: `level1/16`. Unknown keys are errors. An error in one problem's
file or entry makes only that problem unreadable (`Catalog.unreadable`); one of a whole folder is a `CatalogError`. The
format is in guides/writing_a_problem.md.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.catalog.sizes import SizeError, check_size, constants, evaluate
from harness.core import python_ast
from harness.core.choices import PrecisionClass
from harness.core.config import here_or_shipped
from harness.core.problem import (
    Costs,
    InputRules,
    ListedShape,
    Problem,
    ShapeRules,
    SizeRange,
    Workload,
    digest_text,
)
from harness.core.status import Failure, Status, one_line
from harness.core.yaml_file import NotText, as_text, read_yaml, reason_of

WORKLOADS_FORMAT = 1
"""Version of `workloads.yaml`; a reader accepts this and all smaller versions."""

WORKLOADS_FILE = "workloads.yaml"
VARIANTS = InputRules().variants
"""All stress inputs besides a problem's own distribution."""

LOCAL_LEVEL = "local"
"""Level of a problem whose file has no number."""

MAX_SHOWN = 30
"""Most findings in the text of one `CatalogError`."""

PROBLEM_FILE = re.compile(r"(\d{1,6})_([^/]*)\.py")
_FOLDER = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_WORKLOAD = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_WANTED = re.compile(r"(?:.*/)?([A-Za-z0-9_-]+)/0*(\d+)(?:_[^/]*)?")
_KEYS = frozenset(
    {"precision", "precisions", "workloads", "inputs", "notes", "flops", "bytes", "rate", "backward", "shapes"}
)
_DIFFERENTIATED = ("inputs", "parameters")


class CatalogError(Exception):
    """The user's files or arguments are wrong.

    Attributes:
        findings: One line for each error.
    """

    def __init__(self, findings: list[str] | tuple[str, ...]) -> None:
        self.findings = tuple(findings)
        shown = list(self.findings[:MAX_SHOWN])
        if len(self.findings) > MAX_SHOWN:
            shown.append(f"and {len(self.findings) - MAX_SHOWN} more")
        super().__init__("\n".join(shown))


class UnreadableProblem(CatalogError):
    """The requested problem exists but can't be read."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Catalog(Mapping[str, Problem]):
    """The problems of one folder, by id. As a mapping it has the readable ones.

    Attributes:
        root: The folder.
        problems: Readable problems by id.
        unreadable: Problems that can't be read, by id, each with its `failure`.
    """

    root: Path
    problems: Mapping[str, Problem]
    unreadable: Mapping[str, Problem] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Problem:
        return self.problems[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.problems)

    def __len__(self) -> int:
        return len(self.problems)

    def including(self, named: str | None) -> Catalog:
        """Return the catalog with the files that `named` names.

        `locate` and `resolve` find them by their paths.

        Args:
            named: Problems as `locate` takes them, separated by commas; or None.

        Raises:
            CatalogError: As `problem_in_file`.
        """
        own = {held.path.resolve() for held in self.known.values()}
        files = [file for name in wanted_names(named) if (file := _file(name)) and file.resolve() not in own]
        if not files:
            return self
        return _catalog(self.root, {**self.known, **{held.id: held for held in map(problem_in_file, files)}})

    @property
    def levels(self) -> frozenset[str]:
        """Names of the folders that contain problems."""
        return frozenset(key.partition("/")[0] for key in (*self.problems, *self.unreadable))

    @property
    def known(self) -> Mapping[str, Problem]:
        """All problems, including the unreadable ones, ordered by level and number."""
        return _ordered({**self.problems, **self.unreadable})

    def locate(self, wanted: str) -> Problem:
        """Find a problem, readable or not.

        Args:
            wanted: `level1/16`, `1/16`, `level1/16_name`, `16` if only one level has this number, or the path of its
                file, which may lie in any folder if the catalog is `including` it.

        Returns:
            The problem.

        Raises:
            CatalogError: There is no such problem (the message names similar ids), or the path leads to another file
                than the problem with this id here.
        """
        if (file := _file(wanted)) is not None:
            for held in self.known.values():
                if held.path.exists() and held.path.samefile(file):
                    return held
        if wanted.strip().isdecimal():
            same = [key for key in self.known if key.endswith(f"/{int(wanted)}")]
            if len(same) == 1:
                return self.known[same[0]]
        match = _WANTED.fullmatch(wanted.strip().removesuffix(".py"))
        names = [f"{match[1]}/{match[2]}", f"level{match[1]}/{match[2]}"] if match else []
        for name in names:
            found = self.problems.get(name) or self.unreadable.get(name)
            if found is None:
                continue
            if self._leads_elsewhere(Path(wanted.strip()), found):
                here = f"is not a problem of {self.root} (its {found.id} is {found.path.name})"
                raise CatalogError([f"{wanted.strip()!r:.200} {here}: name its folder by --problems"])
            return found
        raise CatalogError([self.missing(names[0] if names else wanted)])

    def _leads_elsewhere(self, path: Path, found: Problem) -> bool:
        """Tell whether a path leads to another file than `found`'s.

        It is relative to the working directory or to the catalog.
        """
        if path.suffix == ".py":
            target, own = path, found.path
        elif len(path.parts) > 2:
            target, own = path.parent, found.path.parent
        else:
            return False
        places = (target, self.root / target, self.root.resolve().parent / target)
        return not any(place.exists() and place.samefile(own) for place in places)

    def resolve(self, wanted: str) -> Problem:
        """Find a readable problem, like `locate`.

        Args:
            wanted: As in `locate`.

        Returns:
            The problem.

        Raises:
            CatalogError: As in `locate`.
            UnreadableProblem: The problem can't be read.
        """
        found = self.locate(wanted)
        if found.failure is not None:
            raise UnreadableProblem([found.failure.reason])
        return found

    def missing(self, wanted: str) -> str:
        """Return the message for a problem that does not exist, with similar ids."""
        near = [key for key in self.known if key.endswith(f"/{wanted}")]
        near = near or difflib.get_close_matches(wanted, [*self.known], n=3, cutoff=0.7)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        return f"there is no problem {wanted!r:.100} in {self.root}{hint} (ids look like level1/16)"


def wanted_names(named: str | None) -> list[str]:
    """Split names of problems at commas."""
    return [name.strip() for name in (named or "").split(",") if name.strip()]


def _file(wanted: str) -> Path | None:
    """Return the Python file that a name of a problem leads to, or None."""
    path = Path(wanted.strip())
    # `os.path` accepts names that no file can have.
    return path if path.suffix == ".py" and os.path.isfile(path) else None


def problem_in_file(path: Path) -> Problem:
    """Read the problem in one file, in any folder and of any name.

    Returns:
        The problem, perhaps with a `failure`. The id of `level1/16_matmul.py` is `level1/16`, and the declarations
        beside it count. The id of `my_problem.py` is `local/my_problem`.

    Raises:
        CatalogError: The file has a number, and its folder can't be read.
    """
    if PROBLEM_FILE.fullmatch(path.name):
        folder = path.parent.resolve()
        return next(held for held in load_problems(folder).known.values() if held.path == folder / path.name)
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", path.stem)
    return replace(_problem(f"{LOCAL_LEVEL}/{name}", path, {}), name=name)


def load_problems(root: Path, named: str | None = None) -> Catalog:
    """Read all problems in `root` and in the folders one level below it.

    The default folder `problems` is the one that comes with the harness if the working directory has none.

    Args:
        root: The folder.
        named: Problems that the caller names, as for `Catalog.including`. If all are files, `root` need not exist.

    Returns:
        The catalog. A problem that can't be read is in `Catalog.unreadable`.

    Raises:
        CatalogError: The folder does not exist or has no problem, two files have one number, or a `workloads.yaml`
            can't be read or names a problem without a file. It lists all errors.
    """
    root = here_or_shipped(root)
    if not root.is_dir():
        if (names := wanted_names(named)) and all(map(_file, names)):
            return _catalog(root, {}).including(named)
        raise CatalogError([f"no problems found: the folder {root} does not exist; name another by --problems"])
    findings: list[str] = []
    problems: dict[str, Problem] = {}
    for folder in (root, *_folders_below(root)):
        _load_folder(folder, problems, findings)
    if not problems and not findings:
        inner = next((entry for entry in (root / "KernelBench", root / "problems") if entry.is_dir()), None)
        findings.append(
            f"no problem in {root}: it must have files like level1/16_matmul.py, directly or in folders one level below"
            + (f"; did you mean {inner}?" if inner is not None else "")
        )
    if findings:
        raise CatalogError(findings)
    return _catalog(root, problems).including(named)


def ids_in(root: Path) -> list[str]:
    """Return the ids of the problems in `root` by the names of files alone."""
    root = here_or_shipped(root)
    folders = [entry for entry in (root, *_folders_below(root)) if entry.is_dir()] if root.is_dir() else []
    found = {
        f"{folder.resolve().name}/{int(match[1])}": (folder.resolve().name, int(match[1]))
        for folder in folders
        for path in folder.iterdir()
        if (match := PROBLEM_FILE.fullmatch(path.name))
    }
    return sorted(found, key=lambda key: found[key])


def _folders_below(root: Path) -> list[Path]:
    return sorted(entry for entry in root.iterdir() if entry.is_dir() and _FOLDER.fullmatch(entry.name))


def _catalog(root: Path, problems: Mapping[str, Problem]) -> Catalog:
    return Catalog(
        root=root,
        problems=_ordered({key: held for key, held in problems.items() if held.failure is None}),
        unreadable=_ordered({key: held for key, held in problems.items() if held.failure is not None}),
    )


def _ordered(problems: Mapping[str, Problem]) -> dict[str, Problem]:
    def place(key: str) -> tuple[str, int, str]:
        level, _, number = key.partition("/")
        return level, int(number) if number.isdecimal() else 0, number

    return {key: problems[key] for key in sorted(problems, key=place)}


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
        key = f"{level}/{number}"
        if key in problems:
            findings.append(f"{path} and {problems[key].path} are both problem {key}")
        problems[key] = _problem(key, path, declared.get(number, {}))


def _problem(key: str, path: Path, entry: Any) -> Problem:
    """Read one problem's file and its declarations; errors give a `failure`."""
    level, _, number = key.partition("/")
    # Not the absolute path, because records may be published.
    file, declarations = f"{level}/{path.name}", f"{level}/{WORKLOADS_FILE}, problem {number}"
    found = Problem(id=key, name=path.stem.partition("_")[2], path=path, source="", digest="")
    try:
        data = path.read_bytes()
    except OSError as error:
        return _failed(found, f"{file}: {error.strerror or error}")
    digest = digest_text(data.decode("utf-8-sig", "surrogateescape"), json.dumps(entry, sort_keys=True, default=str))
    found = replace(found, digest=digest)
    try:
        source = as_text(data)
        known = constants(python_ast.parse(source))
    except (NotText, ValueError, SyntaxError, RecursionError, MemoryError) as error:
        return _failed(found, f"{file}, {_parsing(error)}")
    reader = _Entry(entry, known)
    read = replace(
        found,
        source=source,
        precision=reader.precision(),
        workloads=reader.workloads(),
        rules=reader.rules(),
        costs=Costs(flops=reader.cost("flops"), bytes=reader.cost("bytes"), rate=reader.rate()),
        shapes=reader.shapes(),
        notes=reader.text("notes") or "",
        backward=reader.backward(),
    )
    return _failed(found, f"{declarations}: {'; '.join(reader.findings)}") if reader.findings else read


def _failed(problem: Problem, why: str) -> Problem:
    reason = one_line(f"problem {problem.id} can't be read: {one_line(why, limit=400)}: fix the file")
    return replace(problem, failure=Failure(status=Status.harness_error, reason=reason, evidence={"phase": "read"}))


def _parsing(error: BaseException) -> str:
    """Return the parser's or decoder's message.

    A `MemoryError` of the parser has none.
    """
    if isinstance(error, SyntaxError) and error.lineno:
        return f"line {error.lineno}: {error.msg}"
    return str(error) or "nested too deep"


def _read_declarations(path: Path, files: Mapping[int, Path], findings: list[str]) -> dict[int, Any]:
    """Return the raw entries of a `workloads.yaml` by problem number.

    A missing file has none.
    """
    if not path.exists():
        return {}
    try:
        held = read_yaml(path)
    except (OSError, ValueError) as error:
        findings.append(f"{path}: {reason_of(error)}")
        return {}
    if not isinstance(held, dict) or set(held) != {"format", "problems"} or not isinstance(held["problems"], dict):
        findings.append(f"{path}: must have exactly the keys format and problems (a mapping by number)")
        return {}
    version = held["format"]
    if type(version) is not int or not 1 <= version <= WORKLOADS_FORMAT:
        findings.append(f"{path}: format {version!r}; this harness reads 1 to {WORKLOADS_FORMAT}: update the harness")
        return {}
    entries: dict[int, Any] = {}
    for number, entry in held["problems"].items():
        if type(number) is not int:
            findings.append(f"{path}: a key of problems must be a number without quotes (16:), not {number!r:.60}")
        elif number not in files:
            findings.append(f"{path}: there is no file for problem {number!r} in this folder")
        else:
            entries[number] = entry
    return entries


class _Entry:
    """One problem's entry in `workloads.yaml`.

    Each method notes errors in `findings` and returns a default instead.
    """

    def __init__(self, held: Any, known: Mapping[str, Any]) -> None:
        self.findings: list[str] = []
        self._held: Mapping[str, Any] = held if isinstance(held, dict) else {}
        self._known = known
        if not isinstance(held, dict):
            self.note(f"the entry must be a mapping, not {held!r:.60}")
        if unknown := sorted(str(key) for key in self._held if key not in _KEYS):
            self.note(f"unknown key {', '.join(unknown)}; known: {', '.join(sorted(_KEYS))}")

    def note(self, text: str) -> None:
        self.findings.append(text)

    def precision(self) -> PrecisionClass:
        return self._class("precision", self._held.get("precision", PrecisionClass.FP32.value))

    def rate(self) -> PrecisionClass | None:
        """Return the class at whose peak rate the products can run."""
        return self._class("rate", self._held["rate"]) if "rate" in self._held else None

    def _class(self, key: str, value: Any) -> PrecisionClass:
        try:
            return PrecisionClass(value)
        except ValueError:
            self.note(f"{key} must be one of {', '.join(PrecisionClass)}, not {value!r:.60}")
            return PrecisionClass.FP32

    def _precisions(self, workloads: Mapping[str, Workload]) -> dict[str, PrecisionClass]:
        """Return the precision classes of single workloads."""
        held = self._held.get("precisions", {})
        if not isinstance(held, dict) or not set(held) <= set(workloads):
            self.note(f"precisions must map workloads ({', '.join(workloads)}) to classes, not {held!r:.60}")
            return {}
        return {name: self._class(f"precisions, {name}:", value) for name, value in held.items()}

    def workloads(self) -> dict[str, Workload]:
        result = {"full": Workload(name="full")}
        held = self._held.get("workloads", {})
        if not isinstance(held, dict):
            self.note("workloads must map names to sizes")
            return result
        for name, sizes in held.items():
            if not isinstance(name, str) or not _WORKLOAD.fullmatch(name):
                self.note(f"{name!r:.60} is not a workload's name: use lower-case letters, digits, - and _")
            elif not isinstance(sizes, dict):
                self.note(f"workload {name} must map constants of the file to values")
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
            self.note("inputs must have the key variants and no other")
            return InputRules()
        variants = held.get("variants", list(VARIANTS))
        if not isinstance(variants, list) or any(name not in VARIANTS for name in variants):
            self.note(f"variants must be a list of some of {', '.join(VARIANTS)}, not {variants!r:.80}")
            return InputRules()
        return InputRules(variants=tuple(dict.fromkeys(variants)))

    def backward(self) -> tuple[str, ...]:
        held = self._held.get("backward", [])
        if not isinstance(held, list) or any(name not in _DIFFERENTIATED for name in held):
            self.note(f"backward must be a list of some of {', '.join(_DIFFERENTIATED)}, not {held!r:.80}")
            return ()
        return tuple(name for name in _DIFFERENTIATED if name in held)

    def shapes(self) -> ShapeRules:
        """Return the declared ranges or list of sizes for secret shapes."""
        held = self._held.get("shapes")
        if held is None:
            return ShapeRules()
        if not isinstance(held, dict) or len(held) != 1 or not set(held) <= {"ranges", "list"}:
            self.note(f"shapes must have the key ranges or the key list and no other, not {held!r:.60}")
            return ShapeRules()
        if "ranges" in held:
            return ShapeRules(ranges=self._ranges(held["ranges"]))
        return ShapeRules(listed=self._listed(held["list"]))

    def _ranges(self, held: Any) -> dict[str, SizeRange]:
        if not isinstance(held, dict) or not held:
            self.note("shapes: ranges must map constants of the file to [lowest, highest] or [lowest, highest, step]")
            return {}
        ranges: dict[str, SizeRange] = {}
        for name, limits in held.items():
            whole = isinstance(limits, list) and all(type(value) is int and value > 0 for value in limits)
            if not whole or len(limits) not in (2, 3) or limits[0] > limits[1]:
                self.note(
                    f"shapes: the range of {name!s:.60} must be [lowest, highest] or [lowest, highest, step] in whole "
                    f"numbers from 1, not {limits!r:.60}"
                )
                continue
            try:
                check_size(name, limits[0], self._known)
            except SizeError as error:
                self.note(f"shapes: {error}")
                continue
            ranges[name] = SizeRange(low=limits[0], high=limits[1], step=limits[2] if limits[2:] else 1)
        return ranges

    def _listed(self, held: Any) -> tuple[ListedShape, ...]:
        if not isinstance(held, list) or not held:
            self.note("shapes: list must be a list of entries like {sizes: {M: 128}, calls: 40}")
            return ()
        listed: list[ListedShape] = []
        for number, entry in enumerate(held, 1):
            read = entry if isinstance(entry, dict) and set(entry) <= {"sizes", "calls"} else {}
            sizes, calls = read.get("sizes"), read.get("calls", 1)
            if not isinstance(sizes, dict) or not sizes:
                self.note(
                    f"shapes: entry {number} of the list must be like {{sizes: {{M: 128}}, calls: 40}}, "
                    f"not {entry!r:.60}"
                )
                continue
            if isinstance(calls, bool) or not isinstance(calls, int | float) or not 0 < calls < math.inf:
                self.note(f"shapes: calls of entry {number} must be a number above 0, not {calls!r:.60}")
                continue
            for name, value in sizes.items():
                try:
                    check_size(name, value, self._known)
                except SizeError as error:
                    self.note(f"shapes: entry {number} of the list: {error}")
            listed.append(ListedShape(sizes=dict(sizes), calls=float(calls)))
        return tuple(listed)

    def text(self, key: str) -> str | None:
        value = self._held.get(key)
        if value is None or isinstance(value, str):
            return value
        self.note(f"{key} must be a text, not {value!r:.60}")
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
