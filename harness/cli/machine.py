"""`harness doctor` and `harness warmup`: what this machine can do, and getting it ready.

Outside layer; trusted side.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from harness import doctor, environment
from harness.build import open_toolchain
from harness.cli.output import UNABLE, Json, console, fail, option, print_json, put, say
from harness.config import resolve
from harness.report import format as show
from harness.report import terminal
from harness.sandbox import probe
from harness.store import new_run_id


def doctor_command(as_json: Json = False) -> None:
    """Say what this machine has, what that enables, and what to do where something is missing.

    Exit code 0 if at least one device (cuda or host) can be used, else 3.

    \b
    Example:
      harness doctor
    """
    found = environment.collect()
    diagnosis = doctor.diagnose(
        found,
        probe(),
        ninja=doctor.ninja_version(),
        sanitizer=doctor.sanitizer_version(),
    )
    if as_json:
        print_json({**diagnosis.to_json(), "environment": found.to_json()})
    else:
        put(terminal.doctor_page(diagnosis))
    if diagnosis.device is None:
        fail("no device can be used: see above", UNABLE)


def warmup_command(
    device: Annotated[str | None, option("--device", "auto, cuda or host.  [auto: a GPU where one is]")] = None,
    unchecked: Annotated[bool, typer.Option("--unchecked", help="For eval --unchecked.")] = False,
    config: Annotated[Path | None, option("--config", "YAML file with these settings; options win over it.")] = None,
    cache: Annotated[Path | None, option("--cache", "Folder of built modules.  [~/.cache/kernel-harness]")] = None,
    as_json: Json = False,
) -> None:
    """Prepare what the first evaluation would otherwise wait for (headers, precompiled). Done once, cached.

    \b
    Example:
      harness warmup --device host
    """
    options = {"device": device, "checked": False if unchecked else None, "cache_dir": cache}
    settled = resolve(
        machine=environment.machine(environment.collect()),
        run_id=new_run_id(),
        file=config,
        options={**options, "paths": [Path()]},  # nothing is evaluated, and no solution need be named
    )
    begin = time.perf_counter()
    screen = console(stderr=True)
    message = "precompiling headers, once for this torch and compiler"
    if not screen.is_terminal:
        say(message)
    with screen.status(message):
        done = open_toolchain(settled.device, settled.cache_dir, checked=settled.checked).warm_up()
    wall_s = time.perf_counter() - begin
    if as_json:
        print_json({"device": settled.device.value, "wall_s": wall_s, "done": dict(done)})
    else:
        put(f"ready for device {settled.device.value} after {show.duration(wall_s)}")
