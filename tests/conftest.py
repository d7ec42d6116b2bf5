"""What every test shares: GPU tests run where a GPU is, and their absence is counted, never silent.

Several workers (`pytest -m gpu -n 4 --dist loadfile`) share the GPU, except with a test marked `exclusive_gpu`: one
that measures times, wants most of the memory or looks for neighbours. That one has the GPU to itself meanwhile. Where
there are several GPUs, each worker sees one of them, in turn.
"""

from __future__ import annotations

import functools
import gc
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from harness.core import environment
from harness.core.choices import DeviceKind
from harness.core.config import cache_root
from harness.core.visible_gpus import visible_gpus
from harness.referee.worker import PRELOADED, PRELOADED_CUDA, PRELOADED_HOST
from harness.sandbox.zygote import Zygote
from harness.toolchain.zygotes import BuilderZygotes
from tests.support import tiers
from tests.support.turns import Turns

_DURATIONS: Path | None = None

_NOT_RUN = pytest.StashKey[int]()
_LEFT_OUT = pytest.StashKey[int]()
_WHY = pytest.StashKey[str | None]()
_TURNS = pytest.StashKey[Turns | None]()


# The same examples every time, however busy the machine is: no change fails by what chance finds, or by the clock.
# What chance finds is looked for by `pytest -m hypothesis --hypothesis-profile default`, with other examples each time.
hypothesis.settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("repeatable")

ROOM_BYTES = 2**30
"""What the tests write at most at one time, less what is prepared once in the cache."""


def _refuse_full_disks() -> None:
    """On a full disk tests fail by the dozen for reasons that name no disk."""
    for folder in {Path(tempfile.gettempdir()), cache_root()}:
        existing = next(place for place in (folder, *folder.parents) if place.exists())
        if (free := shutil.disk_usage(existing).free) < ROOM_BYTES:
            raise pytest.UsageError(
                f"{free / 2**20:.0f} MiB are free on the disk of {folder}: tests need {ROOM_BYTES / 2**30:.0f} GiB, "
                "and 2 GiB more the first time; make room, or name other folders by TMPDIR and HARNESS_CACHE"
            )


def _refuse_unknown_revision(base: str | None) -> None:
    """Before workers start: an error in one of them would end the run with a traceback."""
    if base is None:
        return
    try:
        tiers.changed_test_files(base)
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines()[0] if error.stderr else "git failed"
        raise pytest.UsageError(f"--changed {base}: {said}; name a revision (make test-changed BASE=...)") from error


_CALLERS = """
CLICOLOR CLICOLOR_FORCE COLORTERM COLUMNS FORCE_COLOR LINES NO_COLOR TTY_COMPATIBLE TTY_INTERACTIVE
GITHUB_ACTIONS GITHUB_STEP_SUMMARY HARNESS_SERVER MAX_JOBS OMP_NUM_THREADS PYTHONOPTIMIZE PYTHONWARNINGS RAY_ADDRESS
TORCH_CUDA_ARCH_LIST
"""
"""Variables by which whoever calls is answered otherwise: narrower, in colours, as a step of a workflow."""


def _forget_the_caller() -> None:
    for name in _CALLERS.split():
        os.environ.pop(name, None)
    os.umask(0o022)  # what a test writes for a sandbox is read there by another user
    # As a referee's process has it: else threads that spin while idle take the processors from other tests.
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    # References that torch compiles in this process are kept with all else that is compiled: on a new machine whose
    # cache folder is restored, compiling them took two minutes.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_root().absolute() / "inductor"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-durations", type=Path, help="append a line a test to this file: seconds, tab, node id")
    parser.addoption("--tier", choices=("fast", "rest", "all"), default="all", help="tests/support/tiers.py says which")
    parser.addoption("--limit-s", type=float, help="of --tier rest: as many tests as take so many seconds")
    parser.addoption(
        "--changed", metavar="REVISION", help="only tests that a change since this git revision may affect"
    )
    parser.addoption("--shard", metavar="I/N", help="part I of N of the test files, of about the same duration")


def pytest_configure(config: pytest.Config) -> None:
    _forget_the_caller()
    if not hasattr(config, "workerinput"):
        _refuse_full_disks()
        _refuse_unknown_revision(config.getoption("--changed"))
        global _DURATIONS
        _DURATIONS = config.getoption("--write-durations")
    config.addinivalue_line("markers", "exclusive_gpu: no other GPU test runs beside it, in any worker")
    config.addinivalue_line("markers", "xdist_group: which worker of pytest-xdist runs it, where that is installed")
    # Whoever starts the tests in the background of a script has them ignore SIGINT, and all that they start would.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    machine = environment.collect()
    why = environment.cuda_unusable(machine)
    config.stash[_WHY] = why
    config.stash[_NOT_RUN] = config.stash[_LEFT_OUT] = 0
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    visible = visible_gpus(machine)
    if worker is not None and visible:
        visible = (visible[int(worker["workerid"].removeprefix("gw")) % len(visible)],)
    if visible and (len(visible) == 1 or machine.cuda_visible_devices is not None):
        # A number means another GPU, or none, in a sandbox that has the node of one GPU only.
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpu.uuid for gpu in visible)
    config.stash[_TURNS] = None
    if worker is not None and why is None:
        config.stash[_TURNS] = Turns(Path(tempfile.gettempdir(), f"gpu-{worker['testrunuid']}-{visible[0].uuid}"))
    asked = str(config.getoption("markexpr", ""))
    if why and re.search(r"\bgpu\b", asked) and not re.search(r"\bnot\s+gpu\b", asked):
        raise pytest.UsageError(f"-m {asked!r} asks for GPU tests, and they can't run here: {why}")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Only the controller of pytest-xdist has `_DURATIONS`: it gets every worker's reports."""
    if _DURATIONS is not None:
        with _DURATIONS.open("a", encoding="utf-8") as file:
            file.write(f"{report.duration:.3f}\t{report.nodeid.partition('@')[0]}\n")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays until the end. To look through it for garbage again and again took more than half of
    the time in which it is collected; no later look goes through it, either."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if config.stash[_WHY]:
        config.stash[_NOT_RUN] = len(on_gpu)
        config.hook.pytest_deselected(items=on_gpu)
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]
    _choose_tier(config, items)
    for item in items:
        # With `--dist loadgroup` one worker runs all of a file: they share processes that take seconds to start.
        together = item.get_closest_marker("gpu") is not None or _shares(item)
        if together and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def _choose_tier(config: pytest.Config, items: list[pytest.Item]) -> None:
    tier, base = config.getoption("--tier"), config.getoption("--changed")
    kept = list(items)
    if which := config.getoption("--shard"):
        try:
            part = tiers.shard({item.nodeid.partition("::")[0] for item in items}, which)
        except ValueError as error:
            raise pytest.UsageError(f"--shard: {error}") from None
        kept = [item for item in kept if item.nodeid.partition("::")[0] in part]
    if base:
        files = tiers.changed_test_files(base)
        if config.getoption("--tier") != "rest":
            kept = [item for item in kept if item.nodeid.partition("::")[0] in files]
    if tier != "all":
        slow = tiers.slow({tiers.function_of(item.nodeid): _shares(item) for item in items})
        wanted = {tiers.function_of(item.nodeid) for item in kept}
        if tier == "fast":
            wanted -= slow
        else:
            limit_s, workers = config.getoption("--limit-s"), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
            wanted = slow if limit_s is None else set(tiers.chosen_rest(slow, limit_s, workers, files if base else ()))
        kept = [item for item in kept if tiers.function_of(item.nodeid) in wanted]
    config.stash[_LEFT_OUT] = len(items) - len(kept)
    items[:] = kept


def _shares(item: pytest.Item) -> bool:
    """Whether a test has a fixture that is made once a file, which each worker that runs some of it would make anew."""
    info = getattr(item, "_fixtureinfo", None)
    return info is not None and any(made[-1].scope == "module" for made in info.name2fixturedefs.values())


@pytest.fixture(scope="session")
def zygotes() -> Iterator[BuilderZygotes]:
    """The zygotes of builds that all tests of a worker share; who counts or ends them makes its own."""
    with BuilderZygotes() as zygotes:
        yield zygotes


@pytest.fixture(scope="session")
def contestant_zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[DeviceKind], Zygote]]:
    """Gives the zygote of contestants on a device: one a worker, begun when a test first asks for it."""
    with ExitStack() as open_zygotes:

        @functools.cache
        def of(device: DeviceKind) -> Zygote:
            extra = PRELOADED_CUDA if device is DeviceKind.CUDA else PRELOADED_HOST
            log_path = tmp_path_factory.mktemp("zygote") / "zygote.log"
            return open_zygotes.enter_context(Zygote(preload=(*PRELOADED, *extra), log_path=log_path))

        yield of


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What a test draws without a seed of its own does not depend on the tests that ran before it in this process."""
    random.seed(0)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(0)
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.manual_seed(0)  # a GPU's may be out of reach: a test may have broken its context


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A GPU test waits for its turn before its fixtures are made, and leaves no memory to torch's cache."""
    if item.get_closest_marker("gpu") is None:
        return (yield)
    turns = item.config.stash[_TURNS]
    alone = item.get_closest_marker("exclusive_gpu") is not None
    with nullcontext() if turns is None else turns.turn(alone=alone):
        try:
            return (yield)
        finally:
            torch = sys.modules.get("torch")
            if torch is not None and torch.cuda.is_initialized():
                with suppress(RuntimeError):  # a test may have broken the context
                    torch.cuda.empty_cache()


def pytest_sessionfinish(session: pytest.Session) -> None:
    if (turns := session.config.stash.get(_TURNS, None)) is not None:
        turns.remove()
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["gpu_not_run"] = session.config.stash[_NOT_RUN]
        output["left_out"] = session.config.stash[_LEFT_OUT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Every worker of xdist collects the same tests, so any one's count is the count."""
    output = getattr(node, "workeroutput", None) or {}
    stash = node.config.stash
    stash[_NOT_RUN] = max(stash[_NOT_RUN], output.get("gpu_not_run", 0))
    stash[_LEFT_OUT] = max(stash[_LEFT_OUT], output.get("left_out", 0))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    passed = [report.nodeid for report in terminalreporter.stats.get("passed", ()) if report.when == "call"]
    tiers.note_runs(passed)
    if left := config.stash[_LEFT_OUT]:
        terminalreporter.write_line(f"{left} tests not run: outside of --tier or --changed", yellow=True)
    number, why = config.stash[_NOT_RUN], config.stash[_WHY]
    if number:
        plural = "test" if number == 1 else "tests"
        reason = str(why).removeprefix("no GPU: ")
        terminalreporter.write_line(f"{number} GPU {plural} not run: no GPU here ({reason})", yellow=True)
