"""`harness doctor` and `harness warmup`: check this machine and prepare it.

Trusted side.
"""

from __future__ import annotations

import compileall
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import warmup
from harness.cli.options import Settings, with_options
from harness.cli.output import UNABLE, ConfigFile, Json, ended_by_signals, fail, option, print_json, put, say
from harness.cli.progress import ProgressView
from harness.core import environment
from harness.core.cache_dir import cache_fault, ready_cache
from harness.core.choices import DeviceKind
from harness.core.config import cache_folder, resolve
from harness.core.environment import Environment, MachineError
from harness.core.executables import find_gxx
from harness.core.status import Status
from harness.core.visible_gpus import visible_gpus
from harness.report import format as show
from harness.report import terminal
from harness.report.details import details
from harness.report.peaks import peaks_facts
from harness.results.reader import new_run_id
from harness.runner import doctor
from harness.runner.container import Surroundings
from harness.runner.executors.toolchains import open_toolchain
from harness.sandbox import probe

if TYPE_CHECKING:
    from harness.devices.gpu_specs import Peaks

PACKAGE = Path(__file__).parent.parent
"""Folder of the harness."""


def doctor_command(
    measure: Annotated[
        bool,
        typer.Option(
            "--measure", help="Measure the peak rates of the GPUs again, about 2 s each. The GPUs should be idle."
        ),
    ] = False,
    cache: Annotated[
        Path | None, option("--cache", "Folder for cached files.  [$HARNESS_CACHE, or ~/.cache/kernel-harness]")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check this machine: GPU, tools, sandbox, and how to add missing parts.

    The speed of light is computed from peak rates (flops and bandwidth) that are measured on the GPU, by the first
    timed evaluation or by --measure. The command shows the measured rates. The exit code is 0 if at least one device
    (cuda or host) can be used, else 3. No device can be used if the cache folder can't be written.

    \b
    Examples:
      harness doctor
      harness doctor --measure
    """
    found = environment.collect()
    cache_dir = cache_folder(cache)
    if measure:
        ready_cache(cache_dir)
    if measure and (why := environment.cuda_unusable(found)):
        raise MachineError(f"{why}; --measure needs a GPU: leave it out")
    known = _peaks(found, cache_dir, measure=measure)
    diagnosis = doctor.diagnose(
        found,
        probe(),
        ninja=doctor.ninja_version(),
        sanitizer=doctor.sanitizer_version(),
        ncu=doctor.ncu_version(),
        cache_dir=cache_dir,
        cache_fault=cache_fault(cache_dir),
        around=Surroundings.collect(),
        shares_cxx=doctor.cxx_runtime(find_gxx()),
    )
    if as_json:
        told = {name: peaks.to_json() for name, (peaks, _) in known.items()}
        print_json({**diagnosis.to_json(), "environment": found.to_json(), "peaks": told})
    else:
        put(terminal.doctor_page(diagnosis))
        for name, (peaks, sheet) in known.items():
            put(f"\npeak rates measured on {show.line(name)}", details(peaks_facts(peaks, sheet)))
    if diagnosis.device is None:
        fail("neither cuda nor host can be used: the list above says what is missing", UNABLE)


def _peaks(found: Environment, cache_dir: Path, *, measure: bool) -> dict[str, tuple[Peaks, Peaks | None]]:
    """Return GPU title -> (measured peaks, datasheet); with `measure`, measure now."""
    if not (measure or (cache_dir / "peaks").is_dir()):
        return {}
    # Imported here: these import torch, which would slow down --help.
    from harness.devices import measured_peaks as peaks
    from harness.devices.device import open_device
    from harness.devices.gpu_specs import datasheet

    if measure:
        for index in range(len(visible_gpus(found))):
            peaks.ensure(open_device(DeviceKind.CUDA, index), cache_dir, refresh=True)
    known = {}
    for gpu, key in zip(found.gpus, peaks.keys_of_machine(found), strict=True):
        if (held := peaks.held(key, cache_dir)) is not None:
            known[f"GPU {gpu.index} {gpu.name}"] = (held, datasheet(gpu.name))
    return known


@with_options(
    *("device", "checked", "syntax", "config", "cache_dir"),
    device="Device to prepare: auto, cuda or host.  [auto: a GPU if there is a usable one]",
    checked="Prepare the host device for eval --unchecked.",
    syntax="Prepare the host device for eval --syntax nvcc.  [host]",
    cache_dir="Folder for cached files.  [$HARNESS_CACHE, or ~/.cache/kernel-harness]",
)
def warmup_command(settings: Settings, config: ConfigFile = None, as_json: Json = False) -> None:
    """Prepare this machine, so that the first run starts faster.

    The command precompiles C++ headers and the harness's Python modules. On a GPU, once after each start of the
    machine, it also evaluates a small solution of its own, which shows that build, sandbox and timing work.

    \b
    Example:
      harness warmup --device host
    """
    found = environment.collect()
    settled = resolve(
        machine=environment.machine(found),
        run_id=new_run_id(),
        file=config,
        options={**settings, "paths": [Path()]},  # a placeholder: no solution is evaluated
    )
    ready_cache(settled.cache_dir)
    begin = time.perf_counter()

    with ended_by_signals(), ProgressView(quiet_stdout=as_json) as view:
        if not compile_modules(PACKAGE):
            say(f"can't write bytecode below {PACKAGE}: every process will compile the modules that it imports")
        say("precompiling headers that are not cached")
        done = open_toolchain(
            settled.device,
            settled.cache_dir,
            checked=settled.checked,
            syntax=settled.syntax,
            tell=view.preparing,
        ).warm_up()
        made = None
        if settled.device is DeviceKind.CUDA:  # the host device reads little more than torch from the disk
            made = warmup.once(settled, found, lambda: say("evaluating the harness's test solution"))
    wall_s = time.perf_counter() - begin
    if as_json:
        told = None if made is None else made.to_json()
        print_json({"device": settled.device.value, "wall_s": wall_s, "done": dict(done), "rehearsal": told})
        return
    put(f"ready for device {settled.device.value} after {show.duration(wall_s)}")
    if made is not None:
        put(f"test solution: {_outcome(made)}")


def compile_modules(package: Path) -> bool:
    """Write the bytecode of a package; return False if some could not be written.

    Python does this itself unless PYTHONDONTWRITEBYTECODE is set, as in many container images. Without bytecode every
    process compiles the modules that it imports: 0.4 s before the referees start, 0.2 s in each of them.
    """
    return bool(compileall.compile_dir(package, quiet=2))


def _outcome(made: warmup.Warmup) -> str:
    """Describe the result of a rehearsal."""
    if made.status is None:
        return f"not evaluated: {show.line(made.reason)}"
    audit = "" if made.audited else ", without an audit (compute-sanitizer is not installed or switched off)"
    reason = "" if made.status is Status.passed else f" ({show.line(made.reason)}; see harness doctor)"
    return f"{made.status.value}{reason} after {show.duration(made.wall_s)}{audit}"
