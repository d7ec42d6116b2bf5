"""A YAML file and the command line, resolved into one `RunConfig` in which every value is settled.

Imports the vocabulary and policies; trusted side. Reads one YAML file, and of the machine only which folder is for
caches (`cache_root`): what else depends on it (is there a GPU, how many cores) arrives as a `Machine`. Later layers
win: defaults, then the file, then the command line. Whatever is unknown or of the wrong kind is a `ConfigError` that
names the key and where it stands.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, cast

import yaml

from harness.model import RUN_FORMAT, Baseline, DeviceKind, PrecisionClass
from harness.policies import Policy, parse_policy

DevicePolicy = Literal["strict", "coerce"]
"""What happens to an output on the wrong device: `strict` fails it, `coerce` copies it over inside the timed
call."""

SandboxMode = Literal["auto", "strict", "off"]
"""`auto`: the strongest there is; `strict`: refuse to run without the full one; `off`: none (own code
only)."""

AuditMode = Literal["auto", "always", "never"]
"""Whether solutions run under compute-sanitizer too, on a GPU: `auto` where it is installed, `always` or fail,
`never`."""

ExecutorName = Literal["local", "ray"]
"""Where building and judging happen: on this machine, or on a Ray cluster."""

GIB = 1024**3
BYTES_PER_BUILD = 3 * GIB
"""Host memory that one nvcc on a source with torch's headers may take; bounds how many builds run at once."""
MEMORY_LIMIT_BYTES = 32 * GIB
"""Host memory a contestant may use by default; less where the machine has less (see `resolve`)."""

CACHE_LIMIT_BYTES = 20 * GIB
"""What built modules may take by default. One takes 0.5 to 3 MB: room for some ten thousand."""

LEAST_MEMORY_BYTES = 256 * 1024**2
"""The least host memory that a contestant may be given."""

MOST_PROCESSES, MOST_SETS, MOST_CALLS = 1024, 1024, 1_000_000
"""At most so many processes at once, sets of inputs (each is drawn and judged), timed calls of one solution."""

COMMAND_LINE = "command line"
"""Where a value stands that no file gave."""

SHARD = re.compile(r"([1-9]\d*)/([1-9]\d*)")
"""`2/8`: the second of eight parts."""

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""A run id is one folder name, safe on every file system and in a shell."""


class ConfigError(Exception):
    """The user's configuration is wrong. The message names the key, the file or option, and what would be
    right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The facts about this machine that defaults depend on."""

    device: DeviceKind
    cpu_count: int
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingConfig:
    """How long to measure.

    `min_samples` timed calls at least, in bursts over `sets_per_burst` distinct input sets, until the half
    width of the speedup's 95 % interval is below `relative_half_width` of the speedup, or `budget_s` seconds
    are spent.
    """

    min_samples: int
    sets_per_burst: int
    relative_half_width: float
    budget_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """One run, settled: nothing here is left to be guessed later. `None` in `problem`, `author` and `precision`
    means "as each solution's path" and "as each problem declares". The first of `baselines` decides the speedup, the
    others stand beside it. Timeouts are per build, per load (import
    and constructor), per call of `forward`, and per solution after its build (verification and timing
    together). `workers` is how many solutions are judged at once: None is one for each visible GPU, or one on
    the host device. `ray_address` (None: a new cluster of this machine alone) and `accelerator_type` (None: any
    GPU) are for the executor `ray`. `shard` is `i/n`, the part of all solutions that this run is about; None is all."""

    paths: tuple[Path, ...]
    problem: str | None
    author: str | None
    problems: Path
    out: Path
    run_id: str
    resume: bool
    device: DeviceKind
    workload: str
    precision: PrecisionClass | None
    device_policy: DevicePolicy
    sandbox: SandboxMode
    audit: AuditMode
    checked: bool
    allow_degenerate: bool
    policy: Policy
    baselines: tuple[Baseline, ...]
    seeds: int
    jobs: int
    compile_timeout_s: float
    load_timeout_s: float
    call_timeout_s: float
    solution_timeout_s: float
    timing: TimingConfig
    memory_limit_bytes: int
    cache_dir: Path
    cache_limit_bytes: int
    workers: int | None
    shard: str | None
    executor: ExecutorName
    ray_address: str | None
    accelerator_type: str | None

    @property
    def run_dir(self) -> Path:
        """Where this run's records go: `<out>/<run_id>`."""
        return self.out / self.run_id

    def to_json(self) -> dict[str, Any]:
        """A JSON object for `run.yaml`. Paths are written relative to the working directory or to `~` where
        they lie below, so that a published run does not spell out somebody's home."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}


def _plain(value: Any) -> Any:
    if isinstance(value, Policy):
        return value.to_json()
    if isinstance(value, TimingConfig):
        return {item.name: getattr(value, item.name) for item in fields(value)}
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        for base, prefix in ((Path.cwd(), ""), (Path.home(), "~/")):
            if value.is_absolute() and value.is_relative_to(base):
                return prefix + value.relative_to(base).as_posix()
        return value.as_posix()
    return value


# What each key accepts. A parser returns the value or raises `ValueError` saying what would be right.


def _path(value: object) -> Path:
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError("a path")
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise ValueError("a path whose ~ names a user of this machine") from None


def _paths(value: object) -> tuple[Path, ...]:
    items = value if isinstance(value, (list, tuple)) else [value]
    return tuple(_path(item) for item in items)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text that is not empty")
    return value


def _optional_text(value: object) -> str | None:
    return None if value is None else _text(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _run_id(value: object) -> str:
    if not isinstance(value, str) or not RUN_ID.fullmatch(value):
        raise ValueError("a folder name of 1 to 100 letters, digits, '.', '_' and '-', the first a letter or digit")
    return value


def _count(most: int) -> Callable[[object], int]:
    """What is beyond `most` is a slip of the keyboard: nothing would end, or fit in memory."""

    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise ValueError(f"a whole number from 1 to {most}")
        return value

    return parse


def _positive(value: object) -> float:
    wanted = "a number above 0"
    if isinstance(value, str) and re.fullmatch(r"\d+(\.\d*)?[eE]-?\d+", value):
        raise ValueError(f"{wanted} (YAML takes {value} for text: write {float(value)!r})")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(wanted)
    if not math.isfinite(value) or value <= 0:
        raise ValueError(wanted)
    return float(value)


def _fraction(value: object) -> float:
    number = _positive(value)
    if number >= 1:
        raise ValueError("a number between 0 and 1")
    return number


def _bytes(value: object) -> int:
    wanted = "a number of bytes, such as 8589934592 or 8GiB"
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]i?B|B)?\s*", value)
        if match is None:
            raise ValueError(wanted)
        unit = match[2] or "B"
        scale = (1024 if "i" in unit else 1000) ** "BKMGT".index(unit[0])
        value = int(float(match[1]) * scale)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(wanted)
    return value


def _memory(value: object) -> int:
    held = _bytes(value)
    if held < LEAST_MEMORY_BYTES:
        raise ValueError(f"at least {LEAST_MEMORY_BYTES // 1024**2} MiB, below which torch does not load")
    return held


def _optional_count(value: object) -> int | None:
    return None if value is None else _count(MOST_PROCESSES)(value)


def _shard(value: object) -> str | None:
    if value is None:
        return None
    match = SHARD.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match[1]) > int(match[2]):
        raise ValueError("i/n with i from 1 to n, such as 2/8")
    return match[0]


def _nearest(wanted: str, names: Sequence[str]) -> str:
    """` (nearest: NAME)`: the shortest that begins with what was typed, else holds it, else is spelt like it."""
    typed = wanted.strip().lower()
    rules = (lambda name: name.startswith(typed), lambda name: typed in name) if len(typed) >= 3 else ()
    for rule in rules:
        if found := sorted(filter(rule, names), key=len):
            return f" (nearest: {found[0]})"
    near = difflib.get_close_matches(typed, names, n=1)
    return f" (nearest: {near[0]})" if near else ""


def _choice(*names: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        # YAML 1.1 reads a bare `off` as false, and `sandbox: off` means the word.
        held = "off" if value is False and "off" in names else value
        if not isinstance(held, str) or held not in names:
            raise ValueError("one of " + ", ".join(names) + _nearest(str(held), names))
        return held

    return parse


def parse_baselines(value: object) -> tuple[Baseline, ...]:
    """Baselines by name, in a list or in one text with commas; `max-autotune` is short for `compile_max_autotune`.

    Raises `ValueError` saying what would be right.
    """
    items = value.split(",") if isinstance(value, str) else value
    known = [item.value for item in Baseline]
    wanted = "one or several of " + ", ".join(known)
    if not isinstance(items, (list, tuple)) or not items:
        raise ValueError(wanted)
    found = []
    for item in items:
        name = item.strip().replace("-", "_") if isinstance(item, str) else ""
        name = f"compile_{name}" if name.startswith("max_autotune") else name
        if name not in known:
            raise ValueError(wanted + _nearest(name, known))
        found.append(Baseline(name))
    if len(set(found)) != len(found):
        raise ValueError(f"{wanted}, each once")
    return tuple(found)


def _policy(value: object) -> Policy:
    if isinstance(value, Path):  # of the command line: a file of a policy's keys, or one that has them under `policy`
        held, _ = _load(value)
        try:
            return parse_policy(held.get("policy", held))
        except ValueError as error:
            raise ConfigError(f"{value}: the policy must be {error}") from None
    return parse_policy(value)


def _precision(value: object) -> PrecisionClass | None:
    return None if value is None else PrecisionClass(_choice(*(item.value for item in PrecisionClass))(value))


TIMING_KEYS: Mapping[str, tuple[Callable[[object], object], object]] = {
    "min_samples": (_count(MOST_CALLS), 30),
    "sets_per_burst": (_count(MOST_SETS), 8),
    "relative_half_width": (_fraction, 0.005),
    "budget_s": (_positive, 10.0),
}
"""Key -> (parser, default) inside `timing`."""

NOT_GIVEN = None
KEYS: Mapping[str, tuple[Callable[[object], object], object]] = {
    "paths": (_paths, NOT_GIVEN),
    "problem": (_optional_text, None),
    "author": (_optional_text, None),
    "problems": (_path, Path("problems")),
    "out": (_path, Path("results")),
    "run_id": (_run_id, NOT_GIVEN),
    "resume": (_flag, False),
    "device": (_choice("auto", *(item.value for item in DeviceKind)), "auto"),
    "workload": (_text, NOT_GIVEN),
    "precision": (_precision, None),
    "device_policy": (_choice("strict", "coerce"), "strict"),
    "sandbox": (_choice("auto", "strict", "off"), "auto"),
    "audit": (_choice("auto", "always", "never"), "auto"),
    "checked": (_flag, True),
    "allow_degenerate": (_flag, False),
    "policy": (_policy, Policy()),
    "baselines": (parse_baselines, (Baseline.EAGER,)),
    "seeds": (_count(MOST_SETS), 3),
    "jobs": (_count(MOST_PROCESSES), NOT_GIVEN),
    "compile_timeout_s": (_positive, 300.0),
    "load_timeout_s": (_positive, 120.0),
    "call_timeout_s": (_positive, 60.0),
    "solution_timeout_s": (_positive, 300.0),
    "memory_limit_bytes": (_memory, NOT_GIVEN),
    "cache_dir": (_path, NOT_GIVEN),
    "cache_limit_bytes": (_bytes, CACHE_LIMIT_BYTES),
    "workers": (_optional_count, None),
    "shard": (_shard, None),
    "executor": (_choice("local", "ray"), NOT_GIVEN),
    "ray_address": (_optional_text, None),
    "accelerator_type": (_optional_text, None),
}
"""Key -> (parser, default). The same names in the YAML file, in `options` and in `RunConfig`. Besides these
the file may hold `timing`, a mapping of `TIMING_KEYS`."""


_OPTIONS: Mapping[str, str] = {
    "baselines": "--baseline",
    "budget_s": "--timing-budget",
    "cache_dir": "--cache",
    "cache_limit_bytes": "--cache-limit",
    "call_timeout_s": "--call-timeout",
    "compile_timeout_s": "--compile-timeout",
    "load_timeout_s": "--load-timeout",
    "memory_limit_bytes": "--memory-limit",
    "solution_timeout_s": "--solution-timeout",
}
"""Key -> the option of the command line, where its name is not the key's."""


def cache_root() -> Path:
    """Where caches go that nobody gave a place: `HARNESS_CACHE`, else `kernel-harness` below `XDG_CACHE_HOME` or
    `~/.cache`."""
    if given := os.environ.get("HARNESS_CACHE"):
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    # The XDG rules: what is not absolute does not count.
    return (Path(base) if base and os.path.isabs(base) else Path("~/.cache").expanduser()) / "kernel-harness"


def cache_folder(given: Path | None) -> Path:
    """The folder of caches: the one given, else `cache_root`. Absolute, since processes with other working folders
    use it. Raises `ConfigError`."""
    try:
        return (given or cache_root()).expanduser().absolute()
    except RuntimeError as error:
        raise ConfigError(f"the folder of caches: {error}; name another by --cache or HARNESS_CACHE") from error


_PATH_KEYS = ("problems", "out", "cache_dir")


def resolve(
    *, machine: Machine, run_id: str, file: Path | None = None, options: Mapping[str, object] | None = None
) -> RunConfig:
    """Settle one run's configuration: defaults, then `file`, then `options` (the command line; None is "not
    given").

    `options` uses the names of `KEYS` and `TIMING_KEYS`. `run_id` is the id to use where nobody names one.
    Relative paths in the file are relative to the file's folder (in a `run.yaml` that an earlier run left
    behind: to the working directory, and its run id is not taken over). Raises `ConfigError`.
    """
    given: dict[str, object] = {}
    timing: dict[str, object] = {name: default for name, (_, default) in TIMING_KEYS.items()}
    if file is not None:
        loaded, base = _load(file)
        section = loaded.pop("timing", {})
        if not isinstance(section, dict):
            raise ConfigError(f"{file}: `timing` must hold keys ({', '.join(TIMING_KEYS)}), not {section!r}")
        timing |= _parse(section, TIMING_KEYS, str(file), prefix="timing.")
        parsed = _parse(loaded, KEYS, str(file), also=("timing",))
        for name in _PATH_KEYS:
            if name in parsed:
                parsed[name] = base / cast(Path, parsed[name])
        if "paths" in parsed:
            parsed["paths"] = tuple(base / item for item in cast(tuple[Path, ...], parsed["paths"]))
        given |= parsed
    named = {name: value for name, value in (options or {}).items() if value is not None}
    timing |= _parse({name: value for name, value in named.items() if name in TIMING_KEYS}, TIMING_KEYS, COMMAND_LINE)
    given |= _parse({name: value for name, value in named.items() if name not in TIMING_KEYS}, KEYS, COMMAND_LINE)

    values: dict[str, Any] = {name: default for name, (_, default) in KEYS.items()} | given
    if not values["paths"]:
        raise ConfigError("no solutions named: give files or folders, or `paths:` in the configuration file")
    asked = values["device"]
    values["device"] = machine.device if asked == "auto" else DeviceKind(asked)
    values["workload"] = values["workload"] or ("full" if values["device"] is DeviceKind.CUDA else "small")
    values["run_id"] = values["run_id"] or _run_id(run_id)
    # A build for a GPU keeps two processors busy (nvcc and g++), and a timing beside it needs one to itself.
    at_once = machine.cpu_count // 2 if values["device"] is DeviceKind.CUDA else machine.cpu_count
    values["jobs"] = values["jobs"] or max(1, min(at_once, machine.memory_bytes // BYTES_PER_BUILD))
    # A quarter stays for the referee, whose truth and inputs may be as large as what the contestant holds.
    values["memory_limit_bytes"] = values["memory_limit_bytes"] or min(
        MEMORY_LIMIT_BYTES, machine.memory_bytes * 3 // 4 // (values["workers"] or 1)
    )
    on_ray = values["ray_address"] is not None or values["accelerator_type"] is not None
    values["executor"] = values["executor"] or ("ray" if on_ray else "local")
    if on_ray and values["executor"] == "local":
        raise ConfigError("`ray_address` and `accelerator_type` are for the executor ray, not for local")
    values["cache_dir"] = cache_folder(values["cache_dir"])
    return RunConfig(**values, timing=TimingConfig(**cast(dict[str, Any], timing)))


class _StrictLoader(yaml.SafeLoader):
    """YAML in which a key given twice is an error instead of a silent choice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a word", key.start_mark)
            if key.value in seen:
                problem = f"`{key.value}` stands twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _load(file: Path) -> tuple[dict[str, object], Path]:
    """The keys of a configuration file, and the folder that relative paths in it start from."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{file}: no such configuration file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: can't be read: {error}") from error
    try:
        value = yaml.load(text, Loader=_StrictLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date like 2026-99-99; brackets without end
        raise ConfigError(f"{file}: not valid YAML: {' '.join(str(error).split())}") from error
    if value is None:
        return {}, file.parent
    if not isinstance(value, dict):
        raise ConfigError(f"{file}: must hold `key: value` lines, not {type(value).__name__}")
    # The run.yaml that a run leaves behind holds its configuration under `config`, with paths as seen from
    # where it was started: give that file, and the run repeats under a new name.
    if isinstance(value.get("config"), dict) and "format" in value:
        if value["format"] not in range(1, RUN_FORMAT + 1):
            raise ConfigError(
                f"{file}: format {value['format']!r:.40}; this harness reads 1 to {RUN_FORMAT}; update it"
            )
        config = {name: held for name, held in value["config"].items() if name not in ("run_id", "resume")}
        return config, Path()
    return cast(dict[str, object], value), file.parent


def _told(value: object) -> str:
    """A wrong value in a message: what it is, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # a number of thousands of digits
        return "that"
    return text if len(text) <= 120 else f"{text[:120]} …"


def _parse(
    given: Mapping[str, object],
    keys: Mapping[str, tuple[Callable[[object], object], object]],
    source: str,
    *,
    prefix: str = "",
    also: Sequence[str] = (),
) -> dict[str, object]:
    parsed: dict[str, object] = {}
    for name, value in given.items():
        if name not in keys:
            near = difflib.get_close_matches(str(name), [*keys, *also], n=1)
            hint = f"; did you mean `{prefix}{near[0]}`?" if near else f"; known: {', '.join([*keys, *also])}"
            raise ConfigError(f"{source}: unknown key `{prefix}{name}`{hint}")
        try:
            parsed[name] = keys[name][0](value)
        except ValueError as error:
            option = f" ({_OPTIONS[name]})" if source == COMMAND_LINE and name in _OPTIONS else ""
            raise ConfigError(f"{source}: `{prefix}{name}`{option} must be {error}, not {_told(value)}") from None
    return parsed
