"""CUDA graphs of `torch.cuda` on the host device.

Runs in a submission's process; replaces attributes of torch for good. `torch.cuda.graph` and `make_graphed_callables`
are torch's own, over the class that is replaced here.
"""

from __future__ import annotations

import importlib
from typing import Any

from harness.hostcuda.translate.runtime_library import RuntimeLibrary

__all__ = ["patch_graphs"]

_MODES = ("global", "thread_local", "relaxed")
"""As cudaStreamCaptureMode numbers them."""


def patch_graphs(runtime: RuntimeLibrary, bridge: Any) -> None:
    """Replace `torch.cuda.CUDAGraph` and the questions about captures.

    Args:
        runtime: The runtime library, which has the streams.
        bridge: The bridge, which captures torch's operators.
    """

    class CUDAGraph:
        __module__, __qualname__ = "torch.cuda.graphs", "CUDAGraph"

        def __init__(self, keep_graph: bool = False) -> None:
            self._graph: int | None = None
            self._pool: int | None = None
            self._stream: int | None = None

        def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **_: Any) -> None:
            if self._graph is not None:
                raise RuntimeError("This CUDAGraph instance already owns a captured graph. Call reset() first.")
            if capture_error_mode not in _MODES:
                raise RuntimeError(f"Unknown capture error mode. Expected one of {', '.join(_MODES)}")
            stream = runtime.torch_stream()
            if stream == 0:
                raise RuntimeError("CUDA graphs must be captured on a non-default stream.")
            self._pool = pool[1] if pool is not None else bridge.graph_pool()
            bridge.graph_begin(stream, _MODES.index(capture_error_mode), self._pool)
            self._stream = stream

        def capture_end(self) -> None:
            if self._stream is None or runtime.torch_stream() != self._stream:
                raise RuntimeError("Capture must end on the same stream it began on.")
            self._stream = None
            self._graph = bridge.graph_end(runtime.torch_stream())

        def instantiate(self) -> None:
            pass

        def replay(self) -> None:
            if self._graph is None:
                raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
            bridge.graph_replay(self._graph, runtime.torch_stream())

        def reset(self) -> None:
            if self._graph is not None:
                bridge.graph_free(self._graph)
            self._graph = self._pool = None

        def pool(self) -> tuple[int, int]:
            if self._pool is None:
                raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
            return (0, self._pool)

        def enable_debug_mode(self) -> None:
            pass

        def __del__(self) -> None:
            self.reset()

    def graph_pool_handle() -> tuple[int, int]:
        return (0, bridge.graph_pool())

    def is_current_stream_capturing() -> bool:
        return runtime.is_capturing(runtime.torch_stream())

    for module in ("torch.cuda", "torch.cuda.graphs"):
        owner: Any = importlib.import_module(module)
        owner.CUDAGraph, owner.graph_pool_handle = CUDAGraph, graph_pool_handle
        owner.is_current_stream_capturing = is_current_stream_capturing
