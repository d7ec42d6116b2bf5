"""What a contestant that died without a word has left behind, made to findings and a place with lines of sources.

Trusted side. Imports `contestant`, `recorder` and `messages`. All of it is claims. Compiled code is looked into by a
process behind the walls of the one that is gone (`harness.untrusted.contestant.symbolizer`), whose answers are claims
as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from harness.protocol.channel import WireError
from harness.protocol.messages import Locate, Located, MessageError
from harness.referee.contestants.crash_recorder import CrashRecording, Site
from harness.referee.contestants.process import TIME_IS_OVER, ContestantProcess
from harness.sandbox import SandboxUnavailable
from harness.sandbox.zygote import ZygoteError

SYMBOLISER = "harness.untrusted.contestant.symbolizer:main"

Places = Mapping[Site, tuple[str, int] | None]

LOCATE_LIMIT_S = 20.0
"""How long looking up the lines may take; it is some tenths of a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashReport:
    """The findings, and where the process stood as it ended, both as reports; None where that is not known."""

    reports: tuple[Mapping[str, Any], ...] = ()
    stood_in: Mapping[str, Any] | None = None


def examine(recording: CrashRecording, contestant: ContestantProcess) -> CrashReport:
    """What the recording of this guest, which is gone, tells."""
    places = _located(recording.sites(), contestant)
    return CrashReport(
        reports=tuple(entry.located(places) for entry in recording.findings), stood_in=stood_in(recording, places)
    )


def stood_in(recording: CrashRecording, places: Places) -> Mapping[str, Any] | None:
    """Where it stood: where the signal came that ended it, or the launch that was under way, or what was launched last.

    Of a launch that was under way at the time limit, the thread that was told may have waited for others: what it stood
    in is the kernel all the same.
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
    """The lines of these places; none of any where they can't be had."""
    if not sites:
        return {}
    with (
        suppress(WireError, OSError, MessageError, ZygoteError, SandboxUnavailable),
        contestant.beside(SYMBOLISER) as child,
    ):
        child.channel.send(Locate(sites=sites).to_json(), timeout_s=LOCATE_LIMIT_S)
        found = Located.from_json(child.channel.receive(LOCATE_LIMIT_S).message).places
        if len(found) == len(sites):
            return dict(zip(sites, found, strict=True))
    return {}
