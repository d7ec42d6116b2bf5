"""`harness profile`: which kernels a solution and its reference run, and where their time goes.

Outside layer; trusted side.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.output import NOT_FOUND, UNABLE, Json, ProblemsRoot, fail, option, print_json, put, say
from harness.core import environment
from harness.core.cache_dir import ready_cache
from harness.core.choices import DeviceKind
from harness.core.config import ConfigError, resolve
from harness.core.environment import MachineError
from harness.core.executables import find_nvcc
from harness.results.reader import new_run_id
from harness.runner.plan import plan


def profile_command(
    solution: Annotated[Path, typer.Argument(metavar="SOLUTION", help="A solution's file.")],
    problem: Annotated[str | None, option("--problem", "Its problem, where its path names none: level1/16.")] = None,
    workload: Annotated[str | None, option("--workload", "Sizes.  [full]")] = None,
    problems: ProblemsRoot = None,
    ncu: Annotated[bool, typer.Option("--ncu", help="Count in the hardware as well, by Nsight Compute.")] = False,
    sandbox: Annotated[str | None, option("--sandbox", "auto, strict (full or nothing) or off.  [auto]")] = None,
    config: Annotated[Path | None, option("--config", "YAML file with these settings; options win over it.")] = None,
    as_json: Json = False,
) -> None:
    """Show where the time of one call goes, for a solution and its reference side by side.

    Each kernel with its time, share, grid, block, registers, shared memory, spills and theoretical occupancy; the speed
    of light beside them. With --ncu also the bandwidth and occupancy reached, the use of tensor cores and what warps
    wait for. Nothing is judged: a wrong solution is profiled like a right one. Exit code 1 where the solution fails, 3
    without a GPU or, with --ncu, without that tool.

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
        raise ConfigError(f"{solution}: there is no such file")
    found = environment.collect()
    if why := environment.cuda_unusable(found):
        raise MachineError(f"{why}; kernels are profiled on a GPU only (harness eval --device host checks values)")
    tool = find_ncu(find_nvcc()) if ncu else None
    if ncu and tool is None:
        raise MachineError(
            "--ncu needs Nsight Compute's command line (ncu), which is not beside nvcc and not on PATH: install it "
            "(package nsight-compute), or leave out --ncu"
        )
    options = {
        "paths": [solution],
        "problem": problem,
        "workload": workload,
        "problems": problems,
        "sandbox": sandbox,
        "device": DeviceKind.CUDA.value,
        "audit": "never",
    }
    settled = resolve(machine=environment.machine(found), run_id=new_run_id(), file=config, options=options)
    jobs = plan(settled)
    if len(jobs) != 1:
        raise ConfigError(f"{solution}: one solution is profiled at a time, not {len(jobs)}")
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
        say("running it and the reference" + (", each under ncu as well: a minute or so" if ncu else ""))
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
