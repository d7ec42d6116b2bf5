"""Run Triton kernels on the host device, in Triton's own interpreter.

Runs in a submission's process. The interpreter needs no GPU, but the code around it asks for a driver. When a solution
imports Triton (it is no dependency of the harness), it gets a driver that answers like `torch.cuda` here. Autotuning
chooses the first configuration, because the interpreter's times mean nothing.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from harness.untrusted.contestant.hostcuda.torch_lacking import refuse
from harness.untrusted.contestant.hostcuda.triton_checks import TritonChecks

__all__ = ["CHECKS", "interpret_triton", "triton_launches"]


CHECKS = TritonChecks()
"""Findings about the kernels of this process."""


def interpret_triton(begins: Callable[[str | None], None], not_emulated: Callable[[str], None]) -> None:
    """Make every later import of Triton interpret its kernels, with `CHECKS`.

    Args:
        begins: Called with the name of a kernel as it is launched, and with None as it ends.
        not_emulated: Called with the name of an unsupported construct that the solution used.
    """
    global _begins, _note
    _begins, _note = begins, not_emulated
    os.environ["TRITON_INTERPRET"] = "1"
    for name, change in _CHANGES.items():
        if name in sys.modules:
            change(sys.modules[name])
    if not any(isinstance(finder, _TritonFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _TritonFinder())


class _Driver:
    """Answers what Triton and solutions ask of `triton.runtime.driver.active`."""

    def __init__(self) -> None:
        properties: Any = torch.cuda.get_device_properties()
        self.utils = SimpleNamespace(
            get_device_properties=lambda device=0: {
                "max_shared_mem": properties.shared_memory_per_block_optin,
                "max_num_regs": properties.regs_per_multiprocessor,
                "multiprocessor_count": properties.multi_processor_count,
                "warpSize": properties.warp_size,
                "sm_clock_rate": 1980000,
                "mem_clock_rate": 3201000,
                "mem_bus_width": 6144,
            }
        )

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return (9, 0)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found, import-untyped, unused-ignore]

        return GPUTarget("cuda", 90, 32)

    def get_benchmarker(self) -> Callable[..., Any]:
        return _equal_times

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(0, dtype=torch.int32, device="cuda")

    def clear_cache(self, cache: torch.Tensor) -> None:
        pass


def triton_launches() -> list[tuple[str, int, tuple[int, int, int], tuple[int, int, int]]]:
    """Return each interpreted kernel: name, launches, last grid, zeros for the block."""
    return [(name, count, grid, (0, 0, 0)) for name, (count, grid) in _launched.items()]


_WARP_OPTIONS = {"num_buffers_warp_spec", "num_consumer_groups", "reg_dec_producer", "reg_inc_consumer"}
"""Launch options that Triton 3.2's autotuner passes on and its interpreter takes for kernel parameters."""

_begins: Callable[[str | None], None] | None = None
_note: Callable[[str], None] | None = None

_launched: dict[str, tuple[int, tuple[int, int, int]]] = {}


def _count_launches(module: ModuleType) -> None:
    executor = getattr(module, "GridExecutor", None)
    if executor is None:
        return
    original = executor.__call__

    def counted(self: Any, *arguments: Any, **named: Any) -> Any:
        foreign = _WARP_OPTIONS - set(self.arg_names)
        name = str(getattr(self.fn, "__name__", "kernel"))
        if _note is not None and torch.cuda.is_current_stream_capturing():
            refuse("a Triton kernel in a CUDA graph", _note)
        _tell(name)
        try:
            result = original(self, *arguments, **{key: value for key, value in named.items() if key not in foreign})
        finally:
            _tell(None)
            CHECKS.end()
        held = self.grid if isinstance(self.grid, tuple | list) and all(isinstance(n, int) for n in self.grid) else ()
        x, y, z = (*held, 1, 1, 1)[:3] if held else (0, 0, 0)
        _launched[name] = (_launched.get(name, (0, ()))[0] + 1, (x, y, z))
        return result

    executor.__call__ = counted
    to_host = executor._init_args_hst

    def checked(self: Any, arguments: Any, named: Any) -> Any:
        """Tell the checks which tensors the kernel gets, as the interpreter copied them."""
        held = to_host(self, arguments, named)
        positional, by_name = held
        given = [*zip(self.arg_names, positional, strict=False), *by_name.items()]
        CHECKS.begin(str(getattr(self.fn, "__name__", "kernel")), list(_tensors(given)))
        return held

    executor._init_args_hst = checked
    CHECKS.watch(module)


def _tensors(given: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the tensors in a kernel's arguments, with their parameters' names."""
    for name, value in given:
        if isinstance(value, tuple):
            yield from _tensors((name, item) for item in value)
        elif hasattr(value, "untyped_storage"):
            yield name, value
        elif hasattr(value, "base"):
            yield from _tensors([(name, value.base)])  # a tensor descriptor, or a tensor under another type


def _tell(kernel: str | None) -> None:
    if _begins is not None:
        _begins(kernel)


def _change_interpreter(module: ModuleType) -> None:
    _make_indices_scalars(module)
    _count_launches(module)


def _equal_times(kernel: Callable[[], Any], *_: Any, quantiles: Sequence[float] | None = None, **__: Any) -> Any:
    """Return equal times for all configurations, so that the first one is chosen."""
    return 1.0 if quantiles is None else [1.0] * len(quantiles)


def _set_driver(module: ModuleType) -> None:
    config: Any = module.driver
    driver = _Driver()
    config._default = driver
    config.set_active(driver)


def _make_indices_scalars(module: ModuleType) -> None:
    """Let Triton's tensors be used as `range(0, n)`'s arguments.

    NumPy 2.4 converts no one-element array to a number, which older releases of Triton rely on.
    """
    original = getattr(module, "_patch_lang_tensor", None)
    if original is None:
        return

    def patched(tensor: Any, *scope: Any) -> None:
        original(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.squeeze())

    module._patch_lang_tensor = patched  # type: ignore[attr-defined]


_CHANGES: dict[str, Callable[[ModuleType], None]] = {
    "triton.runtime.driver": _set_driver,
    "triton.runtime.interpreter": _change_interpreter,
}


class _TritonFinder(importlib.abc.MetaPathFinder):
    """Changes Triton's modules after they have run; other finders find them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        change = _CHANGES.get(fullname)
        if change is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        loader = spec.loader
        execute = loader.exec_module

        def executed(module: ModuleType) -> None:
            execute(module)
            change(module)

        loader.exec_module = executed  # type: ignore[method-assign]
        return spec
