"""Run the reference as one baseline: TF32 flags set, compiled in one mode.

Trusted side.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from harness.core.choices import Baseline, PrecisionClass
from harness.devices.measured_peaks import tf32_allowed
from harness.referee.problem.workspace import Workspace

WARM_CALLS = 3
"""Calls after compiling; inductor records its CUDA graphs by the second."""


class Turnstile:
    """Admit one process at a time to the GPU.

    Processes compile in parallel and do not disturb each other's timing.

    The turnstile is a file lock. Entering it again from inside does nothing; without a path it never locks.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._fd = None if path is None else os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._depth = 0
        self._on_gpu = torch.cuda.is_available()

    @property
    def shared(self) -> bool:
        return self._fd is not None

    def __enter__(self) -> Turnstile:
        if self._fd is not None and self._depth == 0:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        self._depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._fd is not None and self._depth == 0:
            try:
                if self._on_gpu:
                    torch.cuda.synchronize()
                    torch.cuda.empty_cache()  # other processes wait for memory
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)


class NothingCompiledError(Exception):
    """`torch.compile` compiled no part of a reference.

    torch then runs the reference eagerly and reports no error.
    """


class _Inductor:
    """Backend for `torch.compile(mode=...)` that runs kernels behind the turnstile.

    It compiles without the turnstile.
    """

    def __init__(self, mode: str, turnstile: Turnstile) -> None:
        from torch._inductor import list_mode_options

        self._options = list_mode_options(mode)
        self._turnstile = turnstile
        self.graphs = 0

    def __call__(self, graph: Any, inputs: Any) -> Callable[..., Any]:
        from torch._inductor.compile_fx import compile_fx

        self.graphs += 1
        compiled: Any = compile_fx(graph, inputs, config_patches=dict(self._options))

        def run(*arguments: Any) -> Any:
            with self._turnstile:
                return compiled(*arguments)

        return run


class CompiledReference:
    """The reference of `workspace`, run as `baseline` says.

    `forward` is the bare call that is timed.
    """

    def __init__(self, baseline: Baseline, workspace: Workspace, turnstile: Turnstile) -> None:
        self.baseline = baseline
        self.compile_s: float | None = None
        self.graphs: int | None = None
        """Number of pieces that torch compiled; None for eager."""
        self.workspace = workspace
        self._turnstile = turnstile
        self._model: Callable[..., object] = workspace.oracle.model
        self._graphs = baseline.mode == "max-autotune"

    @property
    def held_to(self) -> PrecisionClass:
        """The precision class that the outputs must reach."""
        order = list(PrecisionClass)
        own = self.workspace.problem.precision
        return max(own, PrecisionClass.TF32, key=order.index) if self.baseline.tf32 else own

    @contextmanager
    def flags(self) -> Iterator[None]:
        """Set torch's TF32 flags as this baseline needs them."""
        with tf32_allowed(self.baseline.tf32):
            yield

    def forward(self, arguments: Sequence[object]) -> object:
        if self._graphs and self.workspace.device.torch_device.type == "cuda":
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        return self._model(*arguments)

    def prepare(self) -> None:
        """Compile the reference and make warm-up calls. Raises any exception of torch."""
        begin = time.perf_counter()
        with self.flags(), torch.no_grad():
            if self.baseline.mode is not None:
                # If the compiler's benchmarks can't be guarded one by one, the whole compilation is.
                whole = self._turnstile.shared and "autotune" in self.baseline.mode and not _guarded(self._turnstile)
                backend = _Inductor(self.baseline.mode, self._turnstile)
                oracle = self.workspace.oracle
                self._model = oracle.with_backward(torch.compile(oracle.forward_model, backend=backend))
                if whole:
                    with self._turnstile:
                        self._call()
                else:
                    self._call()
                self.compile_s = time.perf_counter() - begin
                self.graphs = backend.graphs
                if not backend.graphs:
                    raise NothingCompiledError("torch.compile compiled no part of the reference and ran it eagerly")
            with self._turnstile:
                for _ in range(WARM_CALLS):
                    self._call()
                self.workspace.device.synchronize()

    def _call(self) -> None:
        self.forward(self.workspace.arguments(0))
        self.workspace.oracle.restore_state()


def forget_compiled() -> None:
    """Free the compiler's state of earlier baselines."""
    import torch._dynamo

    torch._dynamo.reset()
    if torch.cuda.is_available():
        from torch._inductor.cudagraph_trees import reset_cudagraph_trees

        reset_cudagraph_trees()


def _guarded(turnstile: Turnstile) -> bool:
    """Make inductor benchmark its candidates behind the turnstile.

    False if this torch has no such hook.
    """
    from torch._inductor import select_algorithm

    cache: Any = getattr(select_algorithm, "AlgorithmSelectorCache", None)
    name = "benchmark_in_current_process"
    if cache is None or not isinstance(found := cache.__dict__.get(name), classmethod):
        return False
    if getattr(found.__func__, "_behind", None) is turnstile:
        return True
    original = found.__func__

    def behind(cls: Any, *arguments: Any, **named: Any) -> Any:
        with turnstile:
            return original(cls, *arguments, **named)

    behind._behind = turnstile  # type: ignore[attr-defined]
    setattr(cache, name, classmethod(behind))
    return True
