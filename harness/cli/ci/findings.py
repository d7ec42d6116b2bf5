"""Findings at lines of solutions, as SARIF and as GitLab's code quality report.

Trusted side. Findings are claims of a contestant's process, so every field is read defensively.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from harness import __version__
from harness.cli.ci.verdict import CiVerdict, Scored
from harness.core.status import VERDICT_FREE, Status
from harness.report import format as show
from harness.results.evidence import rows, text, whole
from harness.results.gates import FAILED

__all__ = ["gitlab_code_quality", "sarif"]

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
MAX_FINDINGS = 1000
"""GitHub reads at most 25,000 results of a file and shows 5,000."""

_REJECTED, _GATE = "rejected", "gate"
_MEANING = {
    _REJECTED: "The file can't be evaluated.",
    _GATE: "The solution is right but does not meet a gate.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault at a line of a file; `line` is 1 if no line is known."""

    rule: str
    path: str
    line: int
    message: str
    kernel: str = ""
    also: tuple[tuple[int, str], ...] = ()
    judged: bool = True

    @property
    def fingerprint(self) -> str:
        """SHA-256 that stays the same while the finding moves to another line."""
        # Without the message: it has numbers that differ from run to run.
        return hashlib.sha256(os.fsencode("\0".join((self.rule, self.path, self.kernel)))).hexdigest()


def sarif(verdict: CiVerdict) -> str:
    """Render the findings as SARIF 2.1.0, which GitHub's code scanning reads."""
    findings = _findings(verdict)
    rules = sorted({item.rule for item in findings})
    run = {
        "tool": {
            "driver": {
                "name": "kernel-harness",
                "version": __version__,
                "rules": [{"id": rule, "shortDescription": {"text": _meaning(rule)}} for rule in rules],
            }
        },
        "columnKind": "unicodeCodePoints",
        "results": [
            {
                "ruleId": item.rule,
                "ruleIndex": rules.index(item.rule),
                "level": "error" if item.judged else "warning",
                "message": {"text": item.message},
                "locations": [_location(item.path, item.line)],
                "relatedLocations": [
                    _location(item.path, line) | {"id": number, "message": {"text": what}}
                    for number, (line, what) in enumerate(item.also, start=1)
                ],
                "partialFingerprints": {"kernelHarness/v1": f"{item.fingerprint}:{number}"},
            }
            for item, number in _numbered(findings)
        ],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def gitlab_code_quality(verdict: CiVerdict) -> str:
    """Render the findings as GitLab's report of type `codequality`."""
    found = [
        {
            "description": item.message,
            "check_name": item.rule,
            "fingerprint": hashlib.sha256(f"{item.fingerprint}:{number}".encode()).hexdigest(),
            "severity": "critical" if item.judged else "info",
            "location": {"path": item.path, "lines": {"begin": item.line}},
        }
        for item, number in _numbered(_findings(verdict))
    ]
    return json.dumps(found, indent=1) + "\n"


def _location(path: str, line: int) -> dict[str, Any]:
    artifact = {"uri": quote(os.fsencode(path)), "uriBaseId": "%SRCROOT%"}
    return {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": line}}}


def _numbered(findings: list[Finding]) -> Iterator[tuple[Finding, int]]:
    """Number findings that have the same fingerprint, in their order."""
    seen: dict[str, int] = {}
    for item in findings:
        seen[item.fingerprint] = number = seen.get(item.fingerprint, 0) + 1
        yield item, number


def _meaning(rule: str) -> str:
    if rule in _MEANING:
        return _MEANING[rule]
    known = {status.value: status for status in Status}
    return show.explain(known[rule]).partition(". ")[0].rstrip(".") + "." if rule in known else rule.replace("_", " ")


def _findings(verdict: CiVerdict) -> list[Finding]:
    found = [
        Finding(rule=_REJECTED, path=held.path, line=1, message=show.line(held.reason, 1000))
        for held in verdict.rejected
    ]
    for item in verdict.scored:
        found += _of(item)
    return found[:MAX_FINDINGS]


def _of(item: Scored) -> list[Finding]:
    record = item.record
    at_lines = {
        (found.rule, found.kernel, found.line, found.also): found for found in map(_reported(item), _placed(item))
    }
    if at_lines:
        return list(at_lines.values())
    if not (item.failed or record.status in VERDICT_FREE):
        return []
    broken = [show.line(result.detail, 300) for result in item.gates if result.outcome == FAILED]
    passed = record.status is Status.passed
    message = "; ".join(broken) if passed else show.line(record.reason, 1000)
    rule = _GATE if passed else record.status.value
    return [Finding(rule=rule, path=item.path, line=item.line or 1, message=message, judged=item.failed)]


def _placed(item: Scored) -> list[dict[str, Any]]:
    """Return the reports at lines of a failed solution's file."""
    if item.record.status is Status.passed:
        return []
    held = rows(item.record.evidence, "reports")
    return [dict(row) for row in held if text(row, "file").endswith(".py") and (whole(row, "line") or 0) > 0]


def _reported(item: Scored) -> Any:
    def finding(row: dict[str, Any]) -> Finding:
        kernel = show.line(text(row, "kernel"), 120)
        array = f"{text(row, 'space')} {text(row, 'array')}{text(row, 'subscript')}".strip()
        what = show.line(text(row, "message"), 300) or show.line(text(row, "kind").replace("_", " "), 40)
        message = f"{what}, in kernel {kernel}" if kernel else what
        if text(row, "array"):
            message += f", memory {show.line(array, 120)}"
        other = whole(row, "other_line") or 0
        also = ((other, "the other access"),) if other > 0 and text(row, "other_file").endswith(".py") else ()
        rule = show.line(text(row, "kind"), 40) or item.record.status.value
        return Finding(
            rule=rule, path=item.path, line=whole(row, "line") or 1, message=message, kernel=kernel, also=also
        )

    return finding
