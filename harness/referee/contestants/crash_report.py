"""Turn a dead contestant's recording into findings with source lines.

Trusted side. All of it is claims. `harness.untrusted.contestant.symbolizer` examines compiled code in a process with
the same sandbox as the dead one; its answers are claims, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from harness.protocol.channel import WireError
from harness.protocol.fields import MessageError
from harness.protocol.messages import Locate, Located
from harness.protocol.reply_limits import BASE
from harness.referee.contestants.crash_recorder import CrashRecording, Site
from harness.referee.contestants.process import TIME_IS_OVER, ContestantProcess
from harness.sandbox import SandboxUnavailable
from harness.sandbox.zygote import ZygoteError

SYMBOLISER = "harness.untrusted.contestant.symbolizer:main"

Places = Mapping[Site, tuple[str, int] | None]

LOCATE_LIMIT_S = 20.0
"""Seconds for looking up lines; usually some tenths of a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashReport:
    """Findings, and where the process was when it ended (None if unknown), as reports."""

    reports: tuple[Mapping[str, Any], ...] = ()
    stood_in: Mapping[str, Any] | None = None


def examine(recording: CrashRecording, contestant: ContestantProcess) -> CrashReport:
    """Convert a recording to reports.

    Returns:
        Findings and last position, with source lines.
    """
    places = _located(recording.sites(), contestant)
    return CrashReport(
        reports=tuple(entry.located(places) for entry in recording.findings), stood_in=stood_in(recording, places)
    )


def stood_in(recording: CrashRecording, places: Places) -> Mapping[str, Any] | None:
    """Return where the process was: a signal's place, the running or the last launch.

    At a time limit the thread that got the signal may have been waiting for others; the position then is the running
    kernel.
    """
    end = recording.end
    begun = recording.launch.fields if recording.launch is not None else {}
    last = {"last_kernel": begun["kernel"]} if begun.get("kernel") else {}
    running = recording.running and bool(last)
    waited = running and end is not None and end.fields.get("signal") == TIME_IS_OVER and "kernel" not in end.fields
    if end is not None and not waited:
        return {**end.located(places), **last}
    if running:
        return {name: begun.get(name) for name in ("kernel", "line", "launch")}
    return last or None


def _located(sites: tuple[Site, ...], contestant: ContestantProcess) -> Places:
    """Look up source lines; empty if that fails."""
    if not sites:
        return {}
    with (
        suppress(WireError, OSError, MessageError, ZygoteError, SandboxUnavailable),
        contestant.beside(SYMBOLISER) as child,
    ):
        child.channel.send(Locate(sites=sites).to_json(), timeout_s=LOCATE_LIMIT_S)
        found = Located.from_json(child.channel.receive(LOCATE_LIMIT_S, BASE).message).places
        if len(found) == len(sites):
            return dict(zip(sites, found, strict=True))
    return {}
