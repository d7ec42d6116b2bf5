"""`harness profile`: kernels of a solution and its reference, with times.

Trusted side.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.options import Settings, with_options
from harness.cli.output import NOT_FOUND, UNABLE, ConfigFile, Json, fail, print_json, put, say
from harness.core import environment
from harness.core.cache_dir import ready_cache
from harness.core.choices import DeviceKind
from harness.core.config import ConfigError, resolve
from harness.core.environment import MachineError
from harness.core.executables import find_nvcc
from harness.results.reader import new_run_id
from harness.runner.plan import plan


@with_options(
    *("solution", "problem", "workload", "problems", "ncu", "sandbox", "config"),
    problem="Problem of the solution, if its path does not name it: level1/16.",
    workload="Workload (set of sizes) to run.  [full]",
)
def profile_command(
    solution: Annotated[Path, typer.Argument(metavar="SOLUTION", help="File of the solution.")],
    settings: Settings,
    ncu: Annotated[
        bool, typer.Option("--ncu", help="Also read hardware counters, with Nsight Compute (about a minute).")
    ] = False,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Show which kernels a solution and its reference run, and how long each takes.

    For each kernel, the table has time, share, grid, block, registers, shared memory, spills and theoretical occupancy,
    and the speed of light of the problem to compare with. With --ncu it also has achieved bandwidth and occupancy,
    tensor core use and stall reasons of warps.

    The command does not check the output: it profiles a wrong solution too. The exit code is 1 if the solution fails,
    and 3 without a GPU or, with --ncu, without Nsight Compute.

    \b
    Examples:
      harness profile solutions/someone/level1/16_fast.py
      harness profile my_kernel.py --problem level1/16 --ncu
    """
    from harness.referee.problem.signature import Signatures
    from harness.report.profile import lines_of
    from harness.runner.executors import BuildRequest
    from harness.runner.executors.builders import LocalBuilders
    from harness.runner.executors.toolchains import open_toolchain
    from harness.runner.profile.ncu import find_ncu
    from harness.runner.profile.running import ProfileError, profile
    from harness.toolchain import BuildCache, CacheError

    if not solution.exists():
        raise ConfigError(f"{solution}: no such file")
    found = environment.collect()
    if why := environment.cuda_unusable(found):
        raise MachineError(f"{why}; profiling needs a GPU (harness eval --device host checks correctness without one)")
    tool = find_ncu(find_nvcc()) if ncu else None
    if ncu and tool is None:
        raise MachineError(
            "--ncu needs Nsight Compute (ncu), which is neither in the folder of nvcc nor on PATH: install the package "
            "nsight-compute, or leave out --ncu"
        )
    options = {**settings, "paths": [solution], "device": DeviceKind.CUDA.value, "audit": "never"}
    settled = resolve(machine=environment.machine(found), run_id=new_run_id(), file=config, options=options)
    jobs = plan(settled)
    if len(jobs) != 1:
        raise ConfigError(f"{solution} holds {len(jobs)} solutions: name the file of one")
    (job,) = jobs
    if job.problem.failure is not None:
        fail(job.problem.failure.reason, UNABLE)
    if job.failure is not None:
        fail(f"{solution}: {job.failure.status.value}: {job.failure.reason}", NOT_FOUND)
    log = settled.cache_dir / "profile.log"
    ready_cache(settled.cache_dir)
    log.unlink(missing_ok=True)
    try:
        cache = BuildCache(settled.cache_dir, settled.cache_limit_bytes)
        builders = LocalBuilders(
            open_toolchain(settled.device, settled.cache_dir, checked=settled.checked),
            cache,
            timeout_s=settled.compile_timeout_s,
            sandbox=settled.sandbox,
            log=settled.cache_dir / "profile-builder.log",
        )
    except CacheError as error:
        raise MachineError(str(error)) from error
    try:
        say(f"building {job.solution.label}")
        with Signatures(settled.cache_dir, settled.cache_limit_bytes) as signatures:
            arguments = signatures.of(job.problem)
        order = BuildRequest(
            source=job.solution.source, filename=job.solution.path.name, arguments=arguments, log_path=log
        )
        built = builders.build(order)
        if built.failure is not None:
            fail(f"{solution}: {built.failure.status.value}: {built.failure.reason}", NOT_FOUND)
        say("running the solution and the reference" + (", also under ncu: about a minute" if ncu else ""))
        try:
            done = profile(settled, job, built, tool=tool)
        except ProfileError as error:
            fail(str(error), UNABLE)
        finally:
            built.release()
    finally:
        builders.close()
    if as_json:
        print_json(done.to_json())
    else:
        put(*lines_of(done))
    if done.solution.failure is not None:
        fail(f"{solution}: {done.solution.failure}", NOT_FOUND)
