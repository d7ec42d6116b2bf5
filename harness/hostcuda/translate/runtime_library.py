"""The runtime library for Python: reports, schedule, modes.

Runs in a submission's process.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["RuntimeLibrary", "source_lines"]

_SYMBOLISER_TIMEOUT_S = 60.0


class RuntimeLibrary:
    """`libhostcuda.so`, loaded globally so that extensions find it."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path), mode=os.RTLD_GLOBAL | os.RTLD_NOW)
        self._library.hostcuda_reports_json.restype = ctypes.c_void_p
        self._library.hostcuda_free_text.argtypes = [ctypes.c_void_p]
        self._library.hostcuda_error_string.restype = ctypes.c_char_p
        self._library.hostcuda_leaks_json.restype = ctypes.c_void_p
        self._library.hostcuda_launches_json.restype = ctypes.c_void_p
        self._library.hostcuda_stream_new.restype = ctypes.c_void_p
        self._library.hostcuda_torch_stream.restype = ctypes.c_void_p
        self._library.hostcuda_event_new.restype = ctypes.c_void_p

    def set_schedule(self, number: int) -> None:
        """Set the order of blocks and threads, and the content of unwritten shared memory.

        0: rising order; 1: falling order; 2 and 4: rising order, with large and with large negative numbers in shared
        memory that was never written (otherwise NaN).
        """
        self._library.hostcuda_set_schedule(ctypes.c_int(number))

    def record_to(self, fd: int) -> None:
        """Record findings, the running kernel and a signal's place in shared memory.

        The memory's format is that of `referee.contestants.crash_recorder`. Takes ownership of the descriptor. Raises
        `OSError` if it can't be mapped.
        """
        if self._library.hostcuda_record_to(ctypes.c_int(fd)) != 0:
            raise OSError("the crash recorder's memory can't be mapped")

    def record_launch(self, kernel: str | None) -> None:
        """Note that a kernel outside this library starts; None: it has ended."""
        self._library.hostcuda_record_launch(None if kernel is None else ctypes.c_char_p(kernel.encode()))

    def set_checked(self, on: bool) -> None:
        self._library.hostcuda_set_checked(ctypes.c_int(on))

    def workers(self) -> int:
        return int(self._library.hostcuda_workers())

    def sticky_error(self) -> int:
        """The cudaError_t that a kernel left behind, 0 if none."""
        return int(self._library.hostcuda_sticky_error())

    def error_text(self, error: int) -> str:
        """CUDA's text for an error."""
        return str(self._library.hostcuda_error_string(ctypes.c_int(error)).decode())

    def clear(self) -> None:
        """Forget reports and errors."""
        self._library.hostcuda_clear_reports()
        self._library.hostcuda_clear_errors()

    def new_stream(self) -> int:
        """Create a non-blocking stream and return its handle."""
        return int(self._library.hostcuda_stream_new())

    def torch_stream(self) -> int:
        """Return the handle of torch's current stream in this thread."""
        return int(self._library.hostcuda_torch_stream() or 0)

    def set_torch_stream(self, stream: int) -> None:
        """Make a stream the current one of torch in this thread."""
        self._library.hostcuda_set_torch_stream(ctypes.c_void_p(stream))

    def is_capturing(self, stream: int) -> bool:
        return bool(self._library.hostcuda_stream_capturing(ctypes.c_void_p(stream)))

    def synchronize(self, stream: int | None = None) -> int:
        """Wait for a stream or the device: a cudaError_t, not 0 during a capture."""
        if stream is None:
            return int(self._library.hostcuda_device_synchronize())
        return int(self._library.hostcuda_stream_synchronize(ctypes.c_void_p(stream)))

    def new_event(self) -> int:
        """Create an event and return its handle."""
        return int(self._library.hostcuda_event_new())

    def delete_event(self, event: int) -> None:
        self._library.hostcuda_event_delete(ctypes.c_void_p(event))

    def record_event(self, event: int, stream: int) -> int:
        """Record an event in a stream, and return a cudaError_t."""
        return int(self._library.hostcuda_event_record(ctypes.c_void_p(event), ctypes.c_void_p(stream)))

    def wait_event(self, stream: int, event: int) -> int:
        """Let a stream wait for an event, and return a cudaError_t."""
        return int(self._library.hostcuda_event_wait(ctypes.c_void_p(stream), ctypes.c_void_p(event)))

    def mark_allocations(self) -> None:
        """Count all allocations so far as set-up; `leaks(since_mark=True)` omits them."""
        self._library.hostcuda_mark_allocations()

    def leaks(self, *, since_mark: bool) -> list[dict[str, Any]]:
        """Allocations of cudaMalloc and similar that were not freed.

        Each place has `line`, `count` and `bytes`.
        """
        return self._taken(self._library.hostcuda_leaks_json(ctypes.c_int(since_mark)))

    def launches(self) -> list[tuple[str, int, tuple[int, int, int], tuple[int, int, int]]]:
        """Each kernel that ran: name, number of launches, grid and block of the last one."""
        text = self._library.hostcuda_launches_json()
        try:
            held = json.loads(ctypes.string_at(text).decode(errors="replace"))
        finally:
            self._library.hostcuda_free_text(text)
        return [(str(name), int(count), tuple(grid), tuple(block)) for name, count, grid, block in held]

    def reports(self) -> list[dict[str, Any]]:
        """All findings so far, with source lines."""
        return self._taken(self._library.hostcuda_reports_json())

    def _taken(self, text: Any) -> list[dict[str, Any]]:
        """Parse and free a JSON text of the library; return addresses become lines."""
        try:
            raw: list[dict[str, Any]] = json.loads(ctypes.string_at(text).decode(errors="replace"))
        finally:
            self._library.hostcuda_free_text(text)
        lines = source_lines(
            (site[0], site[1]) for report in raw for key in ("site", "other_site") if (site := report.get(key))
        )
        for report in raw:
            launched = report.pop("launch_line", None)
            for prefix in ("", "other_"):
                site = report.pop(f"{prefix}site", None)
                if site is not None and f"{prefix}line" not in report:
                    found = lines.get((site[0], site[1]))
                    report[f"{prefix}line"] = found and found[1]
                    if found is not None:
                        report[f"{prefix}file"] = found[0]
            if (
                report.get("line") is None and launched is not None
            ):  # the finding is in a header that the source includes
                report["line"] = launched
        return raw


def source_lines(sites: Iterable[tuple[str, int]]) -> dict[tuple[str, int], tuple[str, int] | None]:
    """Map return addresses (module, offset) to lines of `cuda.cu` or `main.cpp`.

    None if the debug information has no line.
    """
    wanted: dict[str, set[int]] = defaultdict(set)
    for module, offset in sites:
        wanted[module].add(int(offset))
    tool = shutil.which("addr2line") or shutil.which("llvm-addr2line")
    out: dict[tuple[str, int], tuple[str, int] | None] = {}
    for module, offsets in wanted.items():
        ordered = sorted(offsets)
        out.update({(module, offset): None for offset in ordered})
        if tool is None:
            continue
        # A return address minus two is inside the call, even if its last two bits are unknown.
        command = [tool, "-a", "-i", "-e", module, *(hex(offset - 2) for offset in ordered)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SYMBOLISER_TIMEOUT_S)
        except (OSError, subprocess.SubprocessError):
            continue
        current: int | None = None
        for line in done.stdout.splitlines():
            if line.startswith("0x"):
                current = int(line, 16) + 2
                continue
            file, _, number = line.partition(":")
            number = number.split(" ")[0]
            name = file.rsplit("/", 1)[-1]
            if current is None or not number.isdigit():
                continue
            if name in ("cuda.cu", "main.cpp") and out.get((module, current)) is None:
                out[(module, current)] = (name, int(number))
    return out
