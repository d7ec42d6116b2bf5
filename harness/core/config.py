"""A YAML file and the command line, resolved into one `RunConfig` in which every value is settled.

Imports the vocabulary, `parsing` and policies; trusted side. Reads one YAML file, and of the machine only which folder
is for caches (`cache_root`): what else depends on it (is there a GPU, how many cores) arrives as a `Machine`. Later
layers win: defaults, then the file, then the command line. Whatever is unknown or of the wrong kind is a `ConfigError`
that names the key and where it stands.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from harness.core.choices import (
    AuditMode,
    Baseline,
    DeviceKind,
    DevicePolicy,
    ExecutorName,
    PrecisionClass,
    SandboxMode,
)
from harness.core.config_values import (
    count_up_to,
    one_of,
    optional,
    parse_baselines,
    parse_bytes,
    parse_flag,
    parse_fraction,
    parse_memory,
    parse_path,
    parse_paths,
    parse_precision,
    parse_run_id,
    parse_seconds,
    parse_shard,
    parse_text,
)
from harness.core.policy import KEYS as POLICY_KEYS
from harness.core.policy import Policy, parse_policy
from harness.core.record import RUN_FORMAT
from harness.core.yaml_file import NotText, read_yaml, reason_of

GIB = 1024**3
BYTES_PER_BUILD = 3 * GIB
"""Host memory that one nvcc on a source with torch's headers may take; bounds how many builds run at once."""
MEMORY_LIMIT_BYTES = 32 * GIB
"""Host memory a contestant may use by default; less where the machine has less (see `resolve`)."""

CACHE_LIMIT_BYTES = 20 * GIB
"""What built modules may take by default. One takes 0.5 to 3 MB: room for some ten thousand."""

MOST_PROCESSES, MOST_SETS, MOST_CALLS = 1024, 1024, 1_000_000
"""At most so many processes at once, sets of inputs (each is drawn and judged), timed calls of one solution."""

COMMAND_LINE = "command line"
"""Where a value stands that no file gave."""


class ConfigError(Exception):
    """The user's configuration is wrong. The message names the key, the file or option, and what would be
    right.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The facts about this machine that defaults depend on."""

    device: DeviceKind
    cpu_count: int
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingConfig:
    """How long to measure.

    `min_samples` timed calls at least (fewer where they are long: `measure.Limits`), in bursts over `sets_per_burst`
    distinct input sets, until the half width of the speedup's 95 % interval is below `relative_half_width` of the
    speedup, or `budget_s` seconds are spent.
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
    GPU) are for the executor `ray`. `shard` is `i/n`, the part of all solutions that this run is about; None is all.
    """

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
        they lie below, so that a published run does not spell out somebody's home.
        """
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


def _policy(value: object) -> Policy:
    if isinstance(value, Path):  # of the command line: a file of a policy's keys, or one that has them under `policy`
        held, _ = _load(value)
        if not held:
            raise ConfigError(f"{value}: holds no rule; a policy is made of {', '.join(POLICY_KEYS)}")
        try:
            return parse_policy(held.get("policy", held))
        except ValueError as error:
            raise ConfigError(f"{value}: the policy must be {error}") from None
    return parse_policy(value)


TIMING_KEYS: Mapping[str, tuple[Callable[[object], object], object]] = {
    "min_samples": (count_up_to(MOST_CALLS), 30),
    "sets_per_burst": (count_up_to(MOST_SETS), 8),
    "relative_half_width": (parse_fraction, 0.005),
    "budget_s": (parse_seconds, 3.0),
}
"""Key -> (parser, default) inside `timing`."""

NOT_GIVEN = None
KEYS: Mapping[str, tuple[Callable[[object], object], object]] = {
    "paths": (parse_paths, NOT_GIVEN),
    "problem": (optional(parse_text), None),
    "author": (optional(parse_text), None),
    "problems": (parse_path, Path("problems")),
    "out": (parse_path, Path("results")),
    "run_id": (parse_run_id, NOT_GIVEN),
    "resume": (parse_flag, False),
    "device": (one_of("auto", *(item.value for item in DeviceKind)), "auto"),
    "workload": (parse_text, NOT_GIVEN),
    "precision": (optional(parse_precision), None),
    "device_policy": (one_of("strict", "coerce"), "strict"),
    "sandbox": (one_of("auto", "strict", "off"), "auto"),
    "audit": (one_of("auto", "always", "never"), "auto"),
    "checked": (parse_flag, True),
    "allow_degenerate": (parse_flag, False),
    "policy": (_policy, Policy()),
    "baselines": (parse_baselines, (Baseline.EAGER,)),
    "seeds": (count_up_to(MOST_SETS), 3),
    "jobs": (count_up_to(MOST_PROCESSES), NOT_GIVEN),
    "compile_timeout_s": (parse_seconds, 300.0),
    "load_timeout_s": (parse_seconds, 120.0),
    "call_timeout_s": (parse_seconds, 60.0),
    "solution_timeout_s": (parse_seconds, 300.0),
    "memory_limit_bytes": (parse_memory, NOT_GIVEN),
    "cache_dir": (parse_path, NOT_GIVEN),
    "cache_limit_bytes": (parse_bytes, CACHE_LIMIT_BYTES),
    "workers": (optional(count_up_to(MOST_PROCESSES)), None),
    "shard": (optional(parse_shard), None),
    "executor": (one_of("local", "ray"), NOT_GIVEN),
    "ray_address": (optional(parse_text), None),
    "accelerator_type": (optional(parse_text), None),
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
    `~/.cache`.
    """
    if given := os.environ.get("HARNESS_CACHE"):
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    # The XDG rules: what is not absolute does not count.
    return (Path(base) if base and os.path.isabs(base) else Path("~/.cache").expanduser()) / "kernel-harness"


def cache_folder(given: Path | None) -> Path:
    """The folder of caches: the one given, else `cache_root`. Absolute, since processes with other working folders
    use it. Raises `ConfigError`.
    """
    try:
        return (given or cache_root()).expanduser().absolute()
    except RuntimeError as error:
        raise ConfigError(f"the folder of caches: {error}; name another by --cache or HARNESS_CACHE") from error


_PATH_KEYS = ("problems", "out", "cache_dir")


def resolve(
    *,
    machine: Machine,
    run_id: str,
    file: Path | None = None,
    options: Mapping[str, object] | None = None,
    source: str = COMMAND_LINE,
) -> RunConfig:
    """Settle one run's configuration: defaults, then `file`, then `options` (the command line; None is "not
    given").

    `options` uses the names of `KEYS` and `TIMING_KEYS`; `source` is where messages say they are from.
    `run_id` is the id to use where nobody names one. Relative paths in the file are relative to the file's folder
    (in a `run.yaml` that an earlier run left behind: to the working directory, and its run id is not taken over).
    Raises `ConfigError`.
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
    timing |= _parse({name: value for name, value in named.items() if name in TIMING_KEYS}, TIMING_KEYS, source)
    given |= _parse({name: value for name, value in named.items() if name not in TIMING_KEYS}, KEYS, source)

    values: dict[str, Any] = {name: default for name, (_, default) in KEYS.items()} | given
    if not values["paths"]:
        raise ConfigError("no solutions named: give files or folders, or `paths:` in the configuration file")
    asked = values["device"]
    values["device"] = machine.device if asked == "auto" else DeviceKind(asked)
    values["workload"] = values["workload"] or ("full" if values["device"] is DeviceKind.CUDA else "small")
    values["run_id"] = values["run_id"] or parse_run_id(run_id)
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
    if values["accelerator_type"] is not None and values["device"] is DeviceKind.HOST:
        why = "no GPU can be used on this machine" if asked == "auto" else "that was asked for"
        raise ConfigError(
            f"`accelerator_type` (--accelerator-type) picks among a Ray cluster's GPUs; the device is host ({why}): "
            "give --device cuda, or leave it out"
        )
    values["cache_dir"] = cache_folder(values["cache_dir"])
    return RunConfig(**values, timing=TimingConfig(**cast(dict[str, Any], timing)))


def _load(file: Path) -> tuple[dict[str, object], Path]:
    """The keys of a configuration file, and the folder that relative paths in it start from."""
    try:
        value = read_yaml(file)
    except FileNotFoundError:
        raise ConfigError(f"{file}: no such configuration file") from None
    except (OSError, NotText) as error:
        raise ConfigError(f"{file}: can't be read: {reason_of(error)}") from error
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from error
    if value is None:
        return {}, file.parent
    if not isinstance(value, dict):
        raise ConfigError(f"{file}: must hold `key: value` lines, not {type(value).__name__}")
    # The run.yaml that a run leaves behind holds its configuration under `config`, with paths as seen from
    # where it was started: give that file, and the run repeats under a new name.
    if isinstance(value.get("config"), dict) and "format" in value:
        if value["format"] not in range(1, RUN_FORMAT + 1):
            raise ConfigError(
                f"{file}: format {value['format']!r:.40}; this harness reads 1 to {RUN_FORMAT}: update the harness"
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
