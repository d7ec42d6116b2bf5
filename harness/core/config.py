"""Merge defaults, a YAML file and the command line into one `RunConfig`.

Trusted side. The command line overrides the file, the file overrides the defaults. An unknown key or a wrong value
raises `ConfigError`, which names the key and its file or option. Facts about the machine (GPU, cores, memory) arrive
as a `Machine`; only the cache folder is looked up here.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast, get_args

from harness.core.choices import (
    AuditMode,
    Baseline,
    DeviceKind,
    DevicePolicy,
    ExecutorName,
    HalfType,
    InputChoice,
    PrecisionClass,
    Rules,
    SandboxMode,
    Syntax,
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
from harness.core.json_value import to_json
from harness.core.policy import KEYS as POLICY_KEYS
from harness.core.policy import Policy, parse_policy
from harness.core.problem import Problem, Workload, digest_text
from harness.core.record import RUN_FORMAT
from harness.core.status import STATUS_CHOICES
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

MOST_SHAPES = 32
"""Upper limit of secret shapes of one evaluation."""

TORCH_TYPES: Mapping[HalfType, str] = {"fp16": "float16", "bf16": "bfloat16"}
"""Setting `dtype` -> torch's name of the type; it is part of the digest of a problem that is judged so."""

COMMAND_LINE = "command line"
"""Source named in messages about options."""


_SHIPPED = Path(__file__).resolve().parent.parent / "catalog" / "shipped"
SHIPPED = {Path("problems"): _SHIPPED / "problems", Path("solutions/examples"): _SHIPPED / "examples"}
"""Folders that come with the harness, by their place in the repository. In a checkout they are links to there."""


def here_or_shipped(path: Path) -> Path:
    """Return `path`, or if it does not exist, what comes with the harness there.

    Without that, `path` is returned.
    """
    if os.path.lexists(path):
        return path
    for name, folder in SHIPPED.items():
        if path.is_relative_to(name) and (shipped := (folder / path.relative_to(name)).resolve()).exists():
            return shipped
    return path


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


@dataclass(frozen=True, slots=True)
class Setting:
    """Declaration of a setting, in the field whose name is its key in YAML files.

    Attributes:
        parse: Parser of a value from YAML, Python or the command line.
        default: Default value; None if it depends on the machine or other settings, or there is none.
        help: Meaning, and in brackets the default.
        option: Command-line option; None if there is none, empty if it has the name of the key.
        kind: Type of the option's value; None is that of the field.
        choices: The words that it takes; empty if it takes others, too.
    """

    parse: Callable[[object], object]
    default: object
    help: str
    option: str | None = ""
    kind: type | None = None
    choices: tuple[str, ...] = ()


def setting(parse: Callable[[object], object], default: object, help: str, **more: Any) -> Any:
    """Declare a field that is a setting; the arguments are those of `Setting`."""
    return field(metadata={"setting": Setting(parse, default, help, **more)})


def choice(words: Sequence[str], default: object, help: str, *, or_none: bool = False) -> Any:
    """Declare a setting that is one of `words`; with `or_none` also None."""
    parse: Callable[[object], object] = one_of(*words)
    return setting(optional(parse) if or_none else parse, default, help, choices=tuple(words))


def settings_of(kind: type) -> dict[str, Setting]:
    """Return the settings that are the fields of a dataclass, by key."""
    return {item.name: item.metadata["setting"] for item in fields(kind) if "setting" in item.metadata}


def _policy(value: object) -> Policy:
    if isinstance(value, Path):  # --policy FILE: the policy's keys, at the top level or under `policy`
        content, _ = _load(value)
        if not content:
            raise ConfigError(f"{value}: the policy file has no rule; add one of {', '.join(POLICY_KEYS)}")
        try:
            return parse_policy(content.get("policy", content))
        except ValueError as error:
            raise ConfigError(f"{value}: the policy must be {error}") from None
    return parse_policy(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingConfig:
    """How long to measure."""

    # Long calls need fewer samples (`Limits` in referee/timing).
    min_samples: int = setting(count_up_to(MOST_CALLS), 30, "Least number of timed calls of each solution.  [30]")
    sets_per_burst: int = setting(
        count_up_to(MOST_SETS), 8, "Distinct input sets that the calls of a burst use in turn.  [8]", option=None
    )
    relative_half_width: float = setting(
        parse_fraction,
        0.005,
        "Half width of the speedup's 95 % confidence interval at which timing stops, as a "
        "share of the speedup.  [0.005]",
        option=None,
    )
    budget_s: float = setting(parse_seconds, 3.0, "Seconds of timing for each solution.  [3]", option="--timing-budget")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Complete configuration of one run: one setting in each field."""

    paths: tuple[Path, ...] = setting(
        parse_paths, None, "Solution files, or folders that hold them; - is standard input.", option=None
    )
    problem: str | None = setting(
        optional(parse_text),
        None,
        "Problem of files whose path does not name it: level1/16, 16 if no other level has this number, or its file. "
        "Several, separated by commas: evaluate only solutions of these.",
    )
    author: str | None = setting(
        optional(parse_text), None, "Author of the solutions.  [the folder below solutions/ in their path]"
    )
    pattern: str | None = setting(
        optional(parse_text),
        None,
        "Only solutions with this text in their name or problem, in any case.  [all]",
        option="-k",
    )
    status: str | None = choice(
        STATUS_CHOICES,
        None,
        "Only solutions that had this status in the latest run of --out, for example data_race; failed: all but "
        "passed.  [all]",
        or_none=True,
    )
    stop_at_failure: bool = setting(
        parse_flag,
        False,
        "Stop at the first solution that does not pass; those under evaluation still get a result.",
        option="-x",
    )
    problems: Path = setting(
        parse_path, Path("problems"), "Folder that holds the problems.  [problems, or those of the harness]"
    )
    out: Path = setting(parse_path, Path("results"), "Folder for results; each run gets a folder below it.  [results]")
    run_id: str = setting(parse_run_id, None, "Name of the run and of its folder.  [the time and a random part]")
    resume: bool = setting(
        parse_flag, False, "Continue the run --run-id, or the latest one: skip solutions that have a result."
    )
    device: DeviceKind = choice(
        ("auto", *(item.value for item in DeviceKind)),
        "auto",
        "cuda (the GPU), host (CUDA executed on the CPU: correctness, no speedups) or auto.  "
        "[auto: a GPU if there is a usable one]",
    )
    workload: str = setting(
        parse_text, None, "Workload (set of sizes) of the problems: full, small, ….  [full on cuda, small on host]"
    )
    precision: PrecisionClass | None = setting(
        optional(parse_precision),
        None,
        "Precision class for all problems.  [each problem's own]",
        choices=tuple(item.value for item in PrecisionClass),
    )
    rules: Rules = choice(
        get_args(Rules),
        "strict",
        "What decides: strict (stress inputs and updated state, too) or kernelbench (outputs on the problem's own "
        "inputs).  [strict]",
    )
    inputs: InputChoice = choice(
        get_args(InputChoice),
        "all",
        "Inputs of the calls: all (the problem's own and stress inputs) or own.  [all; own with --rules kernelbench]",
    )
    dtype: HalfType | None = choice(
        get_args(HalfType),
        None,
        "Convert inputs and parameters of all problems to this type, and require that class.  [as written]",
        or_none=True,
    )
    device_policy: DevicePolicy = choice(
        get_args(DevicePolicy),
        "strict",
        "Outputs on the wrong device: strict rejects them, coerce copies them within the measured time.  [strict]",
    )
    sandbox: SandboxMode = choice(
        get_args(SandboxMode),
        "auto",
        "auto: as much isolation as this machine allows; strict: full isolation or an error; off: none.  [auto]",
    )
    cascade: bool = setting(
        parse_flag,
        False,
        "Judge each solution on the CPU first, at small sizes: what fails there for certain takes no time of the GPU, "
        "and what passes there is not audited again.",
    )
    audit: AuditMode = choice(
        get_args(AuditMode),
        "auto",
        "Also run each solution under compute-sanitizer on the small workload: always, never, or auto (if it is "
        "installed).  [auto]",
    )
    checked: bool = setting(
        parse_flag,
        True,
        "On the host device: no checks for data races and accesses out of bounds.",
        option="--unchecked",
    )
    syntax: Syntax = choice(
        get_args(Syntax),
        "host",
        "On the host device: nvcc asks an installed nvcc first whether it accepts CUDA sources, host does not.  [host]",
    )
    allow_degenerate: bool = setting(parse_flag, False, "Also evaluate problems that fail to reject wrong answers.")
    policy: Policy = setting(
        _policy, Policy(), "YAML file that says which correct solutions to refuse.  [none]", kind=Path
    )
    baselines: tuple[Baseline, ...] = setting(
        parse_baselines,
        (Baseline.EAGER,),
        "Baselines to time, separated by commas: eager, compile, max-autotune, …. The first gives the speedup.  "
        "[eager]",
        option="--baseline",
    )
    seeds: int = setting(
        count_up_to(MOST_SETS), 3, "Number of tests on the problem's own inputs, each with another secret seed.  [3]"
    )
    shapes: int = setting(
        count_up_to(MOST_SHAPES, least=0),
        0,
        "Also evaluate at this many secret sizes, drawn in each run from the ranges of a problem; the score is the "
        "geometric mean over them.  [0]",
    )
    jobs: int = setting(
        count_up_to(MOST_PROCESSES),
        None,
        "Builds that run in parallel.  [half the processors, on host all; fewer if memory is short]",
    )
    compile_timeout_s: float = setting(
        parse_seconds, 300.0, "Most seconds for the build of one solution.  [300]", option="--compile-timeout"
    )
    load_timeout_s: float = setting(
        parse_seconds,
        120.0,
        "Most seconds to import a solution and construct its model.  [120]",
        option="--load-timeout",
    )
    call_timeout_s: float = setting(
        parse_seconds, 60.0, "Most seconds for one call of forward.  [60]", option="--call-timeout"
    )
    solution_timeout_s: float = setting(
        parse_seconds, 300.0, "Most seconds for one solution, without its build.  [300]", option="--solution-timeout"
    )
    timing: TimingConfig
    memory_limit_bytes: int = setting(
        parse_memory,
        None,
        "Most host memory for a solution's process, for example 8GiB.  [32GiB, or less on a small machine]",
        kind=str,
        option="--memory-limit",
    )
    gpu_memory_bytes: int | None = setting(
        optional(parse_bytes),
        None,
        "Judge as on a GPU with this much memory, for example 24GiB.  [all that the GPU has]",
        kind=str,
        option="--gpu-memory",
    )
    cache_dir: Path = setting(
        parse_path,
        None,
        "Folder for compiled extensions and other cached files.  [$HARNESS_CACHE, or ~/.cache/kernel-harness]",
        option="--cache",
    )
    cache_limit_bytes: int = setting(
        parse_bytes,
        CACHE_LIMIT_BYTES,
        "Most disk space for compiled extensions.  [20GiB]",
        kind=str,
        option="--cache-limit",
    )
    workers: int | None = setting(
        optional(count_up_to(MOST_PROCESSES)),
        None,
        "Solutions evaluated in parallel.  [one for each visible GPU; 1 on host]",
    )
    shard: str | None = setting(
        optional(parse_shard),
        None,
        "Evaluate only part i of n of the solutions, for example 2/8; see harness merge.  [all]",
    )
    executor: ExecutorName = choice(
        get_args(ExecutorName), None, "Where to evaluate: local (this machine) or ray (a cluster).  [local]"
    )
    ray_address: str | None = setting(
        optional(parse_text), None, "Address of the Ray cluster: auto or ray://HOST:10001. Implies --executor ray."
    )
    accelerator_type: str | None = setting(
        optional(parse_text), None, "With Ray: use only GPUs of this model, in Ray's words (H200)."
    )

    @property
    def run_dir(self) -> Path:
        """Folder of this run's records: `<out>/<run_id>`."""
        return self.out / self.run_id

    def judged(self, problem: Problem, workload: Workload | None) -> Problem:
        """Return a problem as this run judges it at a workload."""
        dtype = None if self.dtype is None else TORCH_TYPES[self.dtype]
        half = None if self.dtype is None else PrecisionClass(self.dtype)
        declared = problem.precision if workload is None else workload.precision or problem.precision
        return replace(
            problem,
            precision=self.precision or half or declared,
            rules=replace(problem.rules, own_only=self.inputs == "own" or self.rules == "kernelbench"),
            compare_state=self.rules == "strict",
            dtype=dtype,
            # Caches know a problem by its digest.
            digest=problem.digest if dtype is None else digest_text(problem.digest, dtype),
        )

    @property
    def conditions(self) -> str | None:
        """What this run changes of all problems.

        Results of other conditions are not ranked with its own.
        """
        said = [
            None if self.precision is None else self.precision.value,
            None if self.dtype is None else f"dtype {self.dtype}",
            "kernelbench rules" if self.rules == "kernelbench" else "own inputs" if self.inputs == "own" else None,
            None if self.gpu_memory_bytes is None else f"{self.gpu_memory_bytes / GIB:.4g} GiB of GPU memory",
        ]
        return ", ".join(item for item in said if item) or None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object for `run.yaml`.

        Paths below the working directory or the home directory are written relative to it, so that a published run
        does not contain the path of a home directory.
        """
        value: dict[str, Any] = to_json(self, path=_short)
        return value


def _short(path: Path) -> str:
    for base, prefix in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_absolute() and path.is_relative_to(base):
            return prefix + path.relative_to(base).as_posix()
    return path.as_posix()


KEYS, TIMING_KEYS = settings_of(RunConfig), settings_of(TimingConfig)
"""Settings by key, at the top level and inside `timing`.

The YAML file, `options` and `RunConfig` use the same keys.
"""


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
    timing = {name: item.default for name, item in TIMING_KEYS.items()}
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

    values: dict[str, Any] = {name: item.default for name, item in KEYS.items()} | given
    if not values["paths"]:
        raise ConfigError("no solutions named: pass files or folders, or set `paths:` in the configuration file")
    values["paths"] = tuple(map(here_or_shipped, values["paths"]))
    values["problems"] = here_or_shipped(values["problems"])
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
    if values["gpu_memory_bytes"] is not None and values["device"] is DeviceKind.HOST:
        why = "no usable GPU on this machine" if asked == "auto" else "as configured"
        raise ConfigError(
            f"`gpu_memory_bytes` (--gpu-memory) limits a GPU's memory, but the device is host ({why}): omit it, or use "
            "`memory_limit_bytes` (--memory-limit) for a solution's host memory"
        )
    if values["cascade"] and values["device"] is DeviceKind.HOST:
        why = "no usable GPU on this machine" if asked == "auto" else "as configured"
        raise ConfigError(
            f"`cascade` (--cascade) judges on the CPU before the GPU, but the device is host ({why}): omit it"
        )
    if values["shapes"] and values["baselines"][0] is not Baseline.EAGER:
        raise ConfigError(
            f"`shapes` (--shapes) needs eager as the first baseline, not {values['baselines'][0].value}: only the "
            "reference itself is timed at secret sizes"
        )
    values["cache_dir"] = cache_folder(values["cache_dir"])
    return RunConfig(**values, timing=TimingConfig(**cast(dict[str, Any], timing)))


def is_device_chosen(file: Path | None, options: Mapping[str, object]) -> bool:
    """Return whether the caller names the device, by an option or in the file."""
    named = options.get("device")
    if named is None and file is not None:
        named = _load(file)[0].get("device")
    return named not in (None, "auto")


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
    keys: Mapping[str, Setting],
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
            parsed[name] = keys[name].parse(value)
        except ValueError as error:
            typed = f" ({keys[name].option})" if source == COMMAND_LINE and keys[name].option else ""
            raise ConfigError(f"{source}: `{prefix}{name}`{typed} must be {error}, not {_told(value)}") from None
    return parsed
