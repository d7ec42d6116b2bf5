"""Run the discovery of a solution's extensions in a sandbox and check its answers.

Trusted side. The discovery process imports the solution (`untrusted/builder/import_solution.py`). Its frames are
checked and bounded here; nothing of the solution is executed or unpickled. See guides/design/discovery.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.core.choices import SandboxMode
from harness.core.status import Failure, Status, one_line
from harness.protocol.channel import ChannelClosed, FrameTimeout, WireError
from harness.sandbox import ExitReport, SandboxPolicy
from harness.sandbox.child import ProcessorsShort
from harness.sandbox.zygote import Zygote
from harness.toolchain.packages import is_lacking
from harness.toolchain.spec import MAX_AHEAD_BYTES, MAX_EXTENSIONS, ExtensionSpec, SpecError

FORMAT = 4
"""Version of the discovery's result; part of the cache key of that result."""

TARGET = "harness.untrusted.builder.import_solution:main"
_FORWARD_S = 15.0
"""Time limit of the one trial call, which only has to reach the extensions that it asks for."""
_END_S = 5.0
_MEMORY_BYTES = 8 * 2**30
_MAX_FRAMES = 256
_MAX_BYTES = MAX_AHEAD_BYTES + 2**20
"""Limit of all frames together: the extensions, a few words, and the error text."""
_MAX_NOTES = 32
_MAX_DETAIL = 20_000
_EVIDENCE = ("phase", "exception", "line", "arguments", "package")
_PHASES = ("parse", "import", "construct", "forward")
_BLAMABLE = frozenset(
    {
        Status.syntax_error,
        Status.no_model_new,
        Status.bad_constructor,
        Status.import_error,
        Status.compile_error,
        Status.unsupported,
    }
)
"""Statuses that a discovery may report for its solution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """The extensions that a solution asks for.

    `complete` is true if the discovery process ended normally.
    """

    specs: tuple[ExtensionSpec, ...]
    failure: Failure | None
    notes: tuple[str, ...]
    complete: bool
    wall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Which solution to run.

    Attributes:
        source: Text of the solution.
        filename: Name of the solution's file.
        arguments: Constructor arguments and inputs, from `arguments.describe`; None if unknown.
        refused: Digests of extensions that failed to build, with their errors; the recorder raises these errors.
        seed: Seed for the constructor.
    """

    source: str
    filename: str
    arguments: Mapping[str, Any] | None
    refused: Mapping[str, str]
    seed: int


def harvest(
    request: Request,
    *,
    zygote: Zygote,
    sandbox: SandboxMode,
    log_path: Path,
    timeout_s: float,
    on_extension: Callable[[ExtensionSpec], None] = lambda spec: None,
) -> Discovery:
    """Run a solution in a sandbox and record the extensions that it asks for.

    The process imports the file, constructs `ModelNew` and calls it once.

    Args:
        request: The solution.
        zygote: Process with torch to fork from.
        sandbox: Sandbox mode.
        log_path: File for the process's output.
        timeout_s: Limit in seconds for import, construction and call together.
        on_extension: Called with each extension as soon as it arrives; the discovery may still fail afterwards.

    Returns:
        The extensions, and the failure if the solution is at fault.

    Raises:
        SandboxUnavailable: A strict sandbox can't be created.
        ZygoteError: The zygote died.
    """
    begin = time.monotonic()
    reader = _DiscoveryReader(request.source, timeout_s, on_extension)
    policy = SandboxPolicy(mode=sandbox, max_memory_bytes=_MEMORY_BYTES)
    with zygote.spawn(TARGET, policy, log_path) as child:
        child.channel.expect_at_most(_MAX_BYTES)
        deadline = time.monotonic() + timeout_s  # only now: the zygote may have had to import torch first
        try:
            child.channel.send(
                asdict(request),
                timeout_s=timeout_s,
            )
            for _ in range(_MAX_FRAMES):
                message = child.receive(max(0.0, deadline + child.starved_s - time.monotonic())).message
                if reader.take(message):
                    break
                if message.get("phase") == "forward":
                    deadline = min(deadline, time.monotonic() + _FORWARD_S)
        except FrameTimeout:
            reader.failure = reader.hung(child.kill())
        except ProcessorsShort as error:
            child.kill()
            reason = f"this machine is too busy to import the file: {error}; reduce its load, repeat with --resume"
            reader.failure = Failure(status=Status.harness_error, reason=reason, evidence={"phase": "build"})
        except ChannelClosed:
            reader.failure = reader.died(child.wait(_END_S) or child.kill())
        except (WireError, ValueError) as error:
            child.kill()
            reason = one_line(f"the process sent a message that the harness's own code never sends: {error}")
            evidence = {"rule": "protocol", "phase": "build"}
            reader.failure = Failure(status=Status.disqualified, reason=reason, evidence=evidence)
    return Discovery(
        specs=tuple(reader.specs.values()),
        failure=reader.failure,
        notes=tuple(reader.notes[:_MAX_NOTES]),
        complete=reader.complete,
        wall_s=time.monotonic() - begin,
    )


class _DiscoveryReader:
    """Frames received so far."""

    def __init__(self, source: str, timeout_s: float, on_extension: Callable[[ExtensionSpec], None]) -> None:
        self._source = source
        self.specs: dict[str, ExtensionSpec] = {}
        self.notes: list[str] = []
        self.failure: Failure | None = None
        self.complete = False
        self._phase = "parse"
        self._touched = False
        self._left_bytes = MAX_AHEAD_BYTES
        self._timeout_s = timeout_s
        self._on_extension = on_extension

    def take(self, message: Mapping[str, Any]) -> bool:
        """Process one frame; return True after the last.

        Raises `ValueError` for a frame that no discovery sends.
        """
        kind = message.get("type")
        if kind == "phase" and message.get("phase") in _PHASES:
            self._phase = message["phase"]
        elif kind == "touched":
            self._touched = True
        elif kind == "extension":
            if len(self.specs) >= MAX_EXTENSIONS:
                raise SpecError(f"more than {MAX_EXTENSIONS} extensions")
            spec = ExtensionSpec.from_json(message.get("spec"))
            self._left_bytes -= spec.size_bytes
            if self._left_bytes < 0:
                raise SpecError(f"more than {MAX_AHEAD_BYTES} bytes of extensions")
            self.specs[spec.digest] = spec
            self._on_extension(spec)
        elif kind == "done":
            notes = message.get("notes")
            if type(notes) is not list or any(type(note) is not str for note in notes):
                raise ValueError("notes must be a list of texts")
            self.notes += [one_line(note, limit=300) for note in notes]
            if message.get("failure") is not None:
                self.failure = _claimed(message["failure"], self._source)
            self.complete = True
            return True
        else:
            raise ValueError(f"unknown frame type from the discovery: {kind!r:.80}")
        return False

    @property
    def _blames(self) -> bool:
        """Whether only the solution can be at fault for an event in the current phase."""
        return not self._touched and self._phase != "forward"

    def hung(self, report: ExitReport) -> Failure | None:
        flood = " and prints endless output" if report.log_truncated else ""
        if not self._blames:
            self.notes.append(f"discovery stopped: {self._phase} did not end within {self._timeout_s:.0f} s")
            return None
        return self._fault(f"does not end{flood} (limit {self._timeout_s:.0f} s)", report)

    def died(self, report: ExitReport) -> Failure | None:
        if report.cause == "lost":
            return Failure(
                status=Status.harness_error, reason="the builder was lost: its zygote died", evidence={"phase": "build"}
            )
        if report.cause == "machine_memory":
            reason = "this machine ran out of memory while importing the file: use fewer --jobs or free memory"
            return Failure(status=Status.harness_error, reason=reason, evidence={"phase": "build"})
        if self._phase == "parse" and report.cause == "exited":
            # A parser returns, raises or crashes. An exit comes from the harness's own code; the file has not run.
            reason = f"the builder failed with exit code {report.exit_code} before running the file; see its log"
            return Failure(status=Status.harness_error, reason=reason, evidence={"phase": "build"})
        if not self._blames:
            self.notes.append(f"discovery ended in {self._phase}: {_ending(report)}")
            return None
        flood = " after endless output" if report.log_truncated else ""
        return self._fault(f"{_ending(report)}{flood}", report)

    def _fault(self, what: str, report: ExitReport) -> Failure:
        evidence = {
            "phase": self._phase,
            "exit_code": report.exit_code,
            "signal": report.signal,
            "cause": report.cause,
            "log_truncated": report.log_truncated,
        }
        match self._phase:
            case "parse":
                status, doing = Status.syntax_error, "Python's parser, reading this file,"
            case "import":
                status, doing = Status.import_error, "importing the file"
            case _:
                status, doing = Status.bad_constructor, "constructing ModelNew"
        if report.cause == "memory_limit":
            status = Status.out_of_memory
        return Failure(status=status, reason=f"{doing} {what}", evidence=evidence)


def _ending(report: ExitReport) -> str:
    match report.cause:
        case "memory_limit":
            return f"takes more than {_MEMORY_BYTES / 2**30:.0f} GiB of memory"
        case "disk_limit":
            return "fills the disk"
        case "signalled":
            return f"dies of signal {report.signal}"
        case _:
            return f"ends the process (exit code {report.exit_code})"


def _claimed(value: object, source: str) -> Failure:
    """Check a claimed failure; raise `ValueError` if no discovery would send it."""
    if type(value) is not dict:
        raise ValueError("a failure must be an object")
    failure = Failure.from_json(value)
    if failure.status not in _BLAMABLE:
        raise ValueError(f"a discovery can't report the status {failure.status.value}")
    evidence = {
        key: one_line(held, limit=200) if isinstance(held, str) else held
        for key, held in failure.evidence.items()
        if key in _EVIDENCE and type(held) in (str, int, type(None))
    }
    status = failure.status
    if status is Status.unsupported and not is_lacking(failure.evidence.get("package"), source):
        status = Status.import_error
    return Failure(status=status, reason=failure.reason, evidence=evidence, detail=failure.detail[-_MAX_DETAIL:])
