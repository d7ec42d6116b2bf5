"""Shared memory in which a contestant on the host device leaves its last state.

Trusted side. It holds findings of the checks, the running kernel, and the place of a signal. The referee owns the
memory, which has a fixed size, and reads it after the process has ended. Its content is claims, since a submission
shares the process: it is parsed as defensively as a reply. See guides/design/contestants.md.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from harness.protocol.fields import MAX_REPORTS, MessageError, report

BYTES = 64 * 1024
"""Space for some 150 findings; `MAX_REPORTS` of them are kept."""

_TEXT_BYTES = 1024
_LAUNCHES_AT, _END_AT, _LOG_AT = _TEXT_BYTES, 3 * _TEXT_BYTES, 4 * _TEXT_BYTES
"""Layout as in hostcuda/runtime/recorder.cpp."""

_PREFIXES = ("", "other_")
_MAX_PATH = 4096

Site = tuple[str, int]
"""A place in compiled code: a module's path in its process, and an offset in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashEntry:
    """One recorded JSON object; its sites are separate.

    Key "" of `sites` is its own site, "other_" that of the other access.
    """

    fields: Mapping[str, Any]
    sites: Mapping[str, Site] = field(default_factory=dict)

    def located(self, places: Mapping[Site, tuple[str, int] | None]) -> dict[str, Any]:
        """Return the fields with the lines of known sites.

        Args:
            places: File and line by site; None if unknown.

        Returns:
            The fields with `file` and `line` (`other_file`, `other_line`). A place in a header gets the line of the
            launch.
        """
        found = dict(self.fields)
        launched = found.pop("launch_line", None)
        for prefix, site in self.sites.items():
            if f"{prefix}line" not in found and (place := places.get(site)) is not None:
                found[f"{prefix}file"], found[f"{prefix}line"] = place
        if launched is not None and found.get("line") is None:
            found["line"] = launched
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashRecording:
    """What a dead process left.

    Attributes:
        findings: In the order in which they were made.
        launch: The last launch that began; None without any.
        running: Whether that launch was running.
        end: Where a signal came; None if none was caught.
    """

    findings: tuple[CrashEntry, ...] = ()
    launch: CrashEntry | None = None
    running: bool = False
    end: CrashEntry | None = None

    def ended_by(self, number: int | None) -> CrashRecording:
        """Drop a signal's place unless it is that of signal `number`.

        Any other signal was survived or forged.
        """
        own = self.end is not None and number is not None and self.end.fields.get("signal") == number
        return self if own else replace(self, end=None)

    def sites(self) -> tuple[Site, ...]:
        """Return each place in compiled code once."""
        held = (*self.findings, *((self.end,) if self.end is not None else ()))
        return tuple(dict.fromkeys(site for entry in held for site in entry.sites.values()))


class CrashRecorder:
    """The memory; its owner closes it after the contestant has ended."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("harness-recorder", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        """For the contestant; this object closes it."""
        os.ftruncate(self.fd, BYTES)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)

    def read(self) -> CrashRecording:
        """Return the content. Call it only after every process that could write has ended."""
        return parsed(os.pread(self.fd, BYTES, 0))

    def close(self) -> None:
        """Close the memory. Idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def parsed(held: bytes) -> CrashRecording:
    """Parse `BYTES` bytes of memory; skip invalid entries."""
    used, launches, running = struct.unpack_from("<QQQ", held)
    log = held[_LOG_AT : _LOG_AT + min(used, BYTES)]
    launch_at = _LAUNCHES_AT + launches % 2 * _TEXT_BYTES
    return CrashRecording(
        findings=tuple(_entries(log)),
        launch=_entry(_text(held, launch_at)),
        running=running == 1,
        end=_entry(_text(held, _END_AT)),
    )


def _text(held: bytes, at: int) -> bytes:
    return held[at : at + _TEXT_BYTES].partition(b"\0")[0]


def _entries(log: bytes) -> Iterator[CrashEntry]:
    kept = 0
    for line in log.split(b"\n"):
        if kept < MAX_REPORTS and (entry := _entry(line)) is not None:
            kept += 1
            yield entry


def _entry(line: bytes) -> CrashEntry | None:
    try:
        value = json.loads(line.decode())
        if not isinstance(value, dict):
            return None
        given = {prefix: value.pop(f"{prefix}site") for prefix in _PREFIXES if f"{prefix}site" in value}
        return CrashEntry(fields=report(value), sites={prefix: _site(site) for prefix, site in given.items()})
    except (ValueError, RecursionError, MessageError):  # cut off or forged
        return None


def _site(value: Any) -> Site:
    match value:
        case [str(path), int(offset)] if not isinstance(offset, bool) and 0 <= offset < 2**63:
            if len(path) <= _MAX_PATH:
                return path, offset
    raise MessageError("a site must be a module's path and an offset")
