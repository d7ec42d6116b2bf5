"""What every test shares: GPU tests run where a GPU is, and their absence is counted, never silent."""

from __future__ import annotations

import re
import signal
from typing import Any

import pytest

from harness import environment

_NOT_RUN = pytest.StashKey[int]()
_WHY = pytest.StashKey[str | None]()


def pytest_configure(config: pytest.Config) -> None:
    # Whoever starts the tests in the background of a script has them ignore SIGINT, and all that they start would.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    why = environment.cuda_unusable(environment.collect())
    config.stash[_WHY] = why
    config.stash[_NOT_RUN] = 0
    asked = str(config.getoption("markexpr", ""))
    if why and re.search(r"\bgpu\b", asked) and not re.search(r"\bnot\s+gpu\b", asked):
        raise pytest.UsageError(f"-m {asked!r} asks for GPU tests, and they can't run here: {why}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if config.stash[_WHY]:
        config.stash[_NOT_RUN] = len(on_gpu)
        config.hook.pytest_deselected(items=on_gpu)
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]
        return
    for item in on_gpu:
        # With `--dist loadgroup` one worker runs them all: two at once would disturb each other's measurements.
        item.add_marker(pytest.mark.xdist_group("gpu"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["gpu_not_run"] = session.config.stash[_NOT_RUN]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Every worker of xdist collects the same tests, so any one's count is the count."""
    output = getattr(node, "workeroutput", None) or {}
    stash = node.config.stash
    stash[_NOT_RUN] = max(stash[_NOT_RUN], output.get("gpu_not_run", 0))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    number, why = config.stash[_NOT_RUN], config.stash[_WHY]
    if number:
        plural = "test" if number == 1 else "tests"
        reason = str(why).removeprefix("no GPU: ")
        terminalreporter.write_line(f"{number} GPU {plural} not run: no GPU here ({reason})", yellow=True)
