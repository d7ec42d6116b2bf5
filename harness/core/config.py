"""Merge defaults, a YAML file and the command line into one `RunConfig`.

Trusted side. The command line overrides the file, the file overrides the defaults. An unknown key or a wrong value
raises `ConfigError`, which names the key and its file or option. Facts about the machine (GPU, cores, memory) arrive
as a `Machine`; only the cache folder is looked up here.
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
"""Host memory in bytes that one nvcc with torch's headers may take; limits the number of parallel builds."""
MEMORY_LIMIT_BYTES = 32 * GIB
"""Default limit of a contestant's host memory, in bytes; less on a smaller machine (see `resolve`)."""

CACHE_LIMIT_BYTES = 20 * GIB
"""Default size limit of the cache of built modules, in bytes. One module takes 0.5 to 3 MB, so about 10,000 fit."""

MOST_PROCESSES, MOST_SETS, MOST_CALLS = 1024, 1024, 1_000_000
"""Upper limits of parallel processes, of input sets (each is generated and checked), of timed calls of a solution."""

COMMAND_LINE = "command line"
"""Source named in messages about options."""


class ConfigError(Exception):
    """The configuration is wrong.

    The message names the key, its file or option, and valid values.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Facts about this machine that defaults depend on."""

    device: DeviceKind
    cpu_count: int
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingConfig:
    """How long to measure.

    Attributes:
        min_samples: Least number of timed calls; long calls need fewer (`Limits` in referee/timing).
        sets_per_burst: Distinct input sets of a burst.
        relative_half_width: Half width of the speedup's 95 % confidence interval at which timing stops,
            as a share of the speedup.
        budget_s: Seconds after which timing stops in any case.
    """

    min_samples: int
    sets_per_burst: int
    relative_half_width: float
    budget_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Complete configuration of one run.

    Attributes:
        paths: Solution files or folders of them.
        problem: Problem of all solutions; None takes each solution's from its path.
        author: Author of all solutions; None takes each solution's from its path.
        problems: Folder of the problems.
        out: Folder of the runs.
        run_id: Name of this run's folder below `out`.
        resume: Continue the run `run_id`: evaluate only solutions that have no record yet.
        device: Where solutions execute.
        workload: Name of the workload.
        precision: Precision class of all problems; None takes the class that each problem declares.
        device_policy: See `DevicePolicy`.
        sandbox: See `SandboxMode`.
        audit: See `AuditMode`.
        checked: Host device: check accesses, races and barriers.
        allow_degenerate: Evaluate solutions of problems that fail the soundness check, too.
        policy: Rules by which correct solutions are refused.
        baselines: Baselines to measure; the first one decides the speedup.
        seeds: Random input sets of the correctness check.
        jobs: Builds that run at once.
        compile_timeout_s: Time limit of one build.
        load_timeout_s: Time limit of one import and constructor.
        call_timeout_s: Time limit of one call of `forward`.
        solution_timeout_s: Time limit of one solution after its build: correctness and timing together.
        timing: How long to measure.
        memory_limit_bytes: Limit of a contestant's host memory.
        cache_dir: Folder of all caches.
        cache_limit_bytes: Limit of the cache of built modules.
        workers: Solutions that are evaluated at once; None is one for each visible GPU, or one on the host device.
        shard: `i/n`, the part of all solutions that this run evaluates; None is all.
        executor: Where builds and evaluations run.
        ray_address: Ray cluster to use; None starts a new one on this machine.
        accelerator_type: Ray's name of the GPUs to use; None is any GPU.
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
        """Folder of this run's records: `<out>/<run_id>`."""
        return self.out / self.run_id

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object for `run.yaml`.

        Paths below the working directory or the home directory are written relative to it, so that a published run
        does not contain the path of a home directory.
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
    if isinstance(value, Path):  # --policy FILE: the policy's keys, at the top level or under `policy`
        held, _ = _load(value)
        if not held:
            raise ConfigError(f"{value}: the policy file has no rule; add one of {', '.join(POLICY_KEYS)}")
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
"""Key -> (parser, default). The YAML file, `options` and `RunConfig` use the same names. The file may also have
`timing`, a mapping of `TIMING_KEYS`."""


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
"""Key -> its command-line option, if the names differ."""


def cache_root() -> Path:
    """Return the default cache folder.

    It is `HARNESS_CACHE`, or `kernel-harness` below `XDG_CACHE_HOME` or `~/.cache`.
    """
    if given := os.environ.get("HARNESS_CACHE"):
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    # The XDG specification ignores relative paths.
    return (Path(base) if base and os.path.isabs(base) else Path("~/.cache").expanduser()) / "kernel-harness"


def cache_folder(given: Path | None) -> Path:
    """Return the cache folder, `given` or `cache_root()`, as an absolute path.

    Absolute, because processes with other working directories use it.

    Raises:
        ConfigError: The path begins with `~`, but this user has no home directory.
    """
    try:
        return (given or cache_root()).expanduser().absolute()
    except RuntimeError as error:
        raise ConfigError(f"cache folder: {error}; name another one by --cache or HARNESS_CACHE") from error


_PATH_KEYS = ("problems", "out", "cache_dir")


def resolve(
    *,
    machine: Machine,
    run_id: str,
    file: Path | None = None,
    options: Mapping[str, object] | None = None,
    source: str = COMMAND_LINE,
) -> RunConfig:
    """Merge defaults, `file` and `options` into one run's configuration.

    Relative paths in `file` are relative to its folder. `file` may be the `run.yaml` of an earlier run: then they are
    relative to the working directory, and the run id and `resume` are not taken over.

    Args:
        machine: Facts that defaults depend on.
        run_id: Run id if neither `file` nor `options` names one.
        file: YAML file with `KEYS` and `timing`.
        options: Values of the command line by the names of `KEYS` and `TIMING_KEYS`; None means not given.
        source: Source of `options` that messages name.

    Raises:
        ConfigError: A key is unknown, or a value is wrong or contradicts another one.
    """
    given: dict[str, object] = {}
    timing: dict[str, object] = {name: default for name, (_, default) in TIMING_KEYS.items()}
    if file is not None:
        loaded, base = _load(file)
        section = loaded.pop("timing", {})
        if not isinstance(section, dict):
            raise ConfigError(f"{file}: `timing` must be a mapping of {', '.join(TIMING_KEYS)}, not {section!r}")
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
        raise ConfigError("no solutions named: pass files or folders, or set `paths:` in the configuration file")
    asked = values["device"]
    values["device"] = machine.device if asked == "auto" else DeviceKind(asked)
    values["workload"] = values["workload"] or ("full" if values["device"] is DeviceKind.CUDA else "small")
    values["run_id"] = values["run_id"] or parse_run_id(run_id)
    # A build for a GPU keeps two processors busy (nvcc and g++), and a timing at the same time needs one.
    at_once = machine.cpu_count // 2 if values["device"] is DeviceKind.CUDA else machine.cpu_count
    values["jobs"] = values["jobs"] or max(1, min(at_once, machine.memory_bytes // BYTES_PER_BUILD))
    # A quarter is left for the referee, whose truth and inputs may need as much as the contestant.
    values["memory_limit_bytes"] = values["memory_limit_bytes"] or min(
        MEMORY_LIMIT_BYTES, machine.memory_bytes * 3 // 4 // (values["workers"] or 1)
    )
    on_ray = values["ray_address"] is not None or values["accelerator_type"] is not None
    values["executor"] = values["executor"] or ("ray" if on_ray else "local")
    if on_ray and values["executor"] == "local":
        raise ConfigError("`ray_address` and `accelerator_type` need the executor ray, not local")
    if values["accelerator_type"] is not None and values["device"] is DeviceKind.HOST:
        why = "no usable GPU on this machine" if asked == "auto" else "as configured"
        raise ConfigError(
            f"`accelerator_type` (--accelerator-type) selects GPUs of a Ray cluster, but the device is host ({why}): "
            "pass --device cuda, or omit it"
        )
    values["cache_dir"] = cache_folder(values["cache_dir"])
    return RunConfig(**values, timing=TimingConfig(**cast(dict[str, Any], timing)))


def _load(file: Path) -> tuple[dict[str, object], Path]:
    """Return a configuration file's keys, and the folder of its relative paths."""
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
        raise ConfigError(f"{file}: must have `key: value` lines, not a {type(value).__name__}")
    # The `run.yaml` of an earlier run has its configuration under `config`, with paths relative to the working
    # directory of that run. Passing this file repeats the run under a new id.
    if isinstance(value.get("config"), dict) and "format" in value:
        if value["format"] not in range(1, RUN_FORMAT + 1):
            raise ConfigError(
                f"{file}: format {value['format']!r:.40}; this harness reads 1 to {RUN_FORMAT}: update the harness"
            )
        config = {name: held for name, held in value["config"].items() if name not in ("run_id", "resume")}
        return config, Path()
    return cast(dict[str, object], value), file.parent


def _told(value: object) -> str:
    """Return a wrong value's text for a message, at most 120 characters of it."""
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
