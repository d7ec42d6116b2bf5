"""`harness doctor` and `harness warmup`: what this machine can do, and getting it ready.

Outside layer; trusted side.
"""

from __future__ import annotations

import compileall
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import warmup
from harness.cli.output import UNABLE, Json, console, ended_by_signals, fail, option, print_json, put, say
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
from harness.runner.executors.toolchains import open_toolchain
from harness.sandbox import probe

if TYPE_CHECKING:
    from harness.devices.gpu_specs import Peaks

PACKAGE = Path(__file__).parent.parent
"""The harness itself."""


def doctor_command(
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure the peaks of the GPUs (idle ones) anew: about 2 s each.")
    ] = False,
    cache: Annotated[
        Path | None, option("--cache", "Folder of caches.  [$HARNESS_CACHE, or ~/.cache/kernel-harness]")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what this machine has, what that enables, and what to do where something is missing.

    Speed-of-light times are reckoned with peaks measured on the GPU, by the first timed evaluation or by --measure;
    those there are shown here. Exit code 0 if at least one device (cuda or host) can be used, else 3; neither can where
    the folder of caches can't be written.

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
        raise MachineError(f"{why}; --measure is for GPUs")
    known = _peaks(found, cache_dir, measure=measure)
    diagnosis = doctor.diagnose(
        found,
        probe(),
        ninja=doctor.ninja_version(),
        sanitizer=doctor.sanitizer_version(),
        ncu=doctor.ncu_version(),
        cache_dir=cache_dir,
        cache_fault=cache_fault(cache_dir),
        shares_cxx=doctor.cxx_runtime(find_gxx()),
    )
    if as_json:
        told = {name: peaks.to_json() for name, (peaks, _) in known.items()}
        print_json({**diagnosis.to_json(), "environment": found.to_json(), "peaks": told})
    else:
        put(terminal.doctor_page(diagnosis))
        for name, (peaks, sheet) in known.items():
            put(f"\npeaks measured on {show.line(name)}", details(peaks_facts(peaks, sheet)))
    if diagnosis.device is None:
        fail("no device can be used: see above", UNABLE)


def _peaks(found: Environment, cache_dir: Path, *, measure: bool) -> dict[str, tuple[Peaks, Peaks | None]]:
    """What is known of each GPU's peaks, and its datasheet's, by a title of the GPU; measured now where asked for."""
    if not (measure or (cache_dir / "peaks").is_dir()):
        return {}
    # Not at the top: these import torch, for which nobody should wait who asks for help.
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


def warmup_command(
    device: Annotated[str | None, option("--device", "auto, cuda or host.  [auto: a GPU where one is]")] = None,
    unchecked: Annotated[bool, typer.Option("--unchecked", help="For eval --unchecked.")] = False,
    config: Annotated[Path | None, option("--config", "YAML file with these settings; options win over it.")] = None,
    cache: Annotated[Path | None, option("--cache", "Folder of built modules.  [~/.cache/kernel-harness]")] = None,
    as_json: Json = False,
) -> None:
    """Prepare what the first evaluation would otherwise wait for: headers, precompiled once, cached; the harness's own
    modules, compiled where Python was told not to do so itself; and on a GPU, once for each start of the machine, a
    solution of the harness's own is evaluated, which shows that all of it works.

    \b
    Example:
      harness warmup --device host
    """
    options = {"device": device, "checked": False if unchecked else None, "cache_dir": cache}
    found = environment.collect()
    settled = resolve(
        machine=environment.machine(found),
        run_id=new_run_id(),
        file=config,
        options={**options, "paths": [Path()]},  # nothing is evaluated, and no solution need be named
    )
    ready_cache(settled.cache_dir)
    begin = time.perf_counter()
    screen = console(stderr=True)

    def tell(message: str) -> None:
        if screen.is_terminal:
            status.update(message)
        else:
            say(message)

    with ended_by_signals(), screen.status("") as status:
        if not compile_modules(PACKAGE):
            say(f"bytecode can't be written below {PACKAGE}: every process compiles anew what it imports")
        tell("precompiling headers where they lack, once for this torch and compiler")
        done = open_toolchain(settled.device, settled.cache_dir, checked=settled.checked).warm_up()
        made = None
        if settled.device is DeviceKind.CUDA:  # the host device has little more to read than torch
            made = warmup.once(settled, found, lambda: tell("evaluating a solution of the harness's own"))
    wall_s = time.perf_counter() - begin
    if as_json:
        told = None if made is None else made.to_json()
        print_json({"device": settled.device.value, "wall_s": wall_s, "done": dict(done), "rehearsal": told})
        return
    put(f"ready for device {settled.device.value} after {show.duration(wall_s)}")
    if made is not None:
        put(f"a solution of the harness's own: {_outcome(made)}")


def compile_modules(package: Path) -> bool:
    """Write the bytecode of all modules of a package, as Python does by itself unless it is told not to
    (PYTHONDONTWRITEBYTECODE, as in many images of containers). Without it every process of an evaluation compiles what
    it imports: 0.4 s before the referees start, 0.2 s in each of them. False where not all could be written.
    """
    return bool(compileall.compile_dir(package, quiet=2))


def _outcome(made: warmup.Warmup) -> str:
    """How a rehearsal came out, in words."""
    if made.status is None:
        return f"not evaluated: {show.line(made.reason)}"
    audit = "" if made.audited else ", without an audit (compute-sanitizer is not there, or not wanted)"
    reason = "" if made.status is Status.passed else f" ({show.line(made.reason)}; harness doctor may say more)"
    return f"{made.status.value}{reason} after {show.duration(made.wall_s)}{audit}"
