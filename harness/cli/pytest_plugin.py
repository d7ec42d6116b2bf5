"""pytest plugin: kernels are checked in an ordinary test run (`pytest --harness`).

The fixture `assert_kernel_ok` evaluates a solution and fails the test with the feedback. The plugin is loaded in every
run of pytest in an environment that has the harness, so it imports the harness only when a test uses the fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["assert_kernel_ok", "kernel_harness", "pytest_addoption"]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("harness", "GPU kernels (kernel-harness)")
    group.addoption("--harness", action="store_true", help="Run tests that evaluate kernels; otherwise they skip.")
    group.addoption(
        "--harness-device",
        choices=("host", "cuda", "auto"),
        default="host",
        help="Where kernels run: host (correctness on the CPU), cuda, or auto.  [host]",
    )
    group.addoption(
        "--harness-problems", metavar="DIR", help="Folder of problems.  [./problems, else those of the harness]"
    )


@pytest.fixture(scope="session")
def kernel_harness(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The `harness.Harness` that evaluates for all tests of this process."""
    if not request.config.getoption("--harness"):
        pytest.skip("evaluates a kernel: run pytest with --harness")
    from harness import Harness

    problems = request.config.getoption("--harness-problems")
    given = {} if problems is None else {"problems": problems}
    with Harness(device=request.config.getoption("--harness-device"), **given) as harness:
        yield harness


@pytest.fixture
def assert_kernel_ok(kernel_harness: Any) -> Callable[..., Any]:
    """Function that evaluates a solution and fails the test if it is not right.

    `assert_kernel_ok(solution, problem, *, minimum_speedup=None, workload=None)` takes the solution's source or its
    path, and the problem's id, source or path. It returns the `harness.api.Result`. `minimum_speedup` is over eager
    PyTorch and counts on a GPU only; the lower end of the 95 % interval must reach it. A solution without a verdict
    (`not_emulated`, `unsupported`) skips the test with the reason.
    """

    def check(
        solution: str | Path,
        problem: str | Path,
        *,
        minimum_speedup: float | None = None,
        workload: str | None = None,
    ) -> Any:
        __tracebackhide__ = True
        if isinstance(solution, str) and "\n" not in solution:
            solution = Path(solution)
        result = kernel_harness.evaluate(problem, solution, **({} if workload is None else {"workload": workload}))
        status = result.status.value
        if status in ("not_emulated", "unsupported"):
            pytest.skip(f"{status}: {result.reason}")
        if not result.passed:
            pytest.fail(result.feedback(), pytrace=False)
        if minimum_speedup is not None and result.record.device.value == "cuda":
            low = result.interval[0] if result.interval is not None else None
            if low is None or low < minimum_speedup:
                measured = "no speedup was measured" if low is None else f"{result.speedup:.3g}, at least {low:.3g}"
                pytest.fail(f"too slow: a speedup of {minimum_speedup:g} is required; {measured}", pytrace=False)
        return result

    return check
