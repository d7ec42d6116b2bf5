"""Judging again with released seeds: luck decides nothing twice, and what can't be compared is said."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.core.record import Record
from harness.core.status import Status
from harness.referee.problem.keyed_random import KeyedRandom
from harness.results.writer import RunStore
from harness.runner.replay import Repeat, compared_again
from tests.support.judged_on_host import judged_on_host

COINS = 10

COIN = """
import torch
class ModelNew(torch.nn.Module):
    right = None
    def forward(self, x):
        if self.right is None:  # the first input of all decides
            self.right = int(x.flatten()[NUMBER].item() * 2**20) % 2 == 0
        return torch.relu(x) if self.right else torch.relu(x) + 1
"""
ROUNDED = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * (1 + 3e-7)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mapping[str, Record]]:
    """The folder of a run of solutions that a coin decides, and its records."""
    folder = tmp_path_factory.mktemp("replay")
    solutions = {f"coin{number}": COIN.replace("NUMBER", str(7 * number)) for number in range(COINS)}
    return folder, judged_on_host(folder, {**solutions, "rounded": ROUNDED}, budget_s=0.1, min_samples=1)


def replayed(folder: Path, run: Path, out: Path, capfd: pytest.CaptureFixture[str], *more: str) -> tuple[int, Any]:
    where = ["--solutions", str(folder / "solutions"), "--problems", str(folder / "problems"), "--out", str(out)]
    code = main(["replay", str(run), *more, *where, "--json"])
    return code, json.loads(capfd.readouterr().out)


def test_what_luck_decided_once_is_decided_the_same_again(
    made: tuple[Path, Mapping[str, Record]], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, records = made
    statuses = {record.status for name, record in records.items() if name.startswith("coin")}
    assert statuses == {Status.passed, Status.wrong_value}, "each has a chance of one half"
    code, found = replayed(folder, folder / "results" / "run", tmp_path, capfd)
    assert len(found["rows"]) == COINS + 1
    assert code != 1, found
    again = {record.solution: record for record in RunStore.open(Path(found["replay"])).records()}
    for record in records.values():
        other = again[record.solution]
        assert other.status is record.status
        assert other.evidence["variants"] == record.evidence["variants"]  # the very same errors
        assert other.evidence["seeds"] == record.evidence["seeds"]


def test_without_the_seeds_luck_decides_anew(
    made: tuple[Path, Mapping[str, Record]], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, records = made
    run = tmp_path / "without"
    head = RunStore.open(folder / "results" / "run").head
    with RunStore.create(run, config=head["config"], environment=head["environment"]) as store:
        for record in records.values():
            evidence = {key: value for key, value in record.evidence.items() if key != "seeds"}
            store.append(replace(record, evidence=evidence))
    code, found = replayed(folder, run, tmp_path, capfd)
    assert code == 1
    assert any(row["repeat"] == "differs" and "the inputs were new ones" in row["why"] for row in found["rows"])


def test_each_evaluation_has_seeds_of_its_own(made: tuple[Path, Mapping[str, Record]]) -> None:
    keys = [record.evidence["seeds"]["inputs"] for record in made[1].values()]
    assert len({*keys}) == len(keys) == COINS + 1


def test_what_can_not_be_judged_again_is_told_with_its_reason(
    made: tuple[Path, Mapping[str, Record]], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, _ = made
    (tmp_path / "none").mkdir()
    asked = ["replay", str(folder / "results" / "run"), "coin3", "--solutions", str(tmp_path / "none")]
    assert main([*asked, "--problems", str(folder / "problems"), "--json"]) == 3
    (row,) = json.loads(capfd.readouterr().out)["rows"]
    assert row["repeat"] == "can't tell"
    assert "no file has the digest of its source" in row["why"]
    problem = tmp_path / "problems" / "level1" / "19_relu.py"
    problem.parent.mkdir(parents=True)
    problem.write_text((folder / "problems/level1/19_relu.py").read_text() + "# changed\n")
    asked = [*asked[:3], "--solutions", str(folder / "solutions"), "--problems", str(tmp_path / "problems")]
    assert main([*asked, "--json"]) == 3
    assert "not the problem that was judged" in json.loads(capfd.readouterr().out)["rows"][0]["why"]


def times(record: Record, factor: float, spread: float = 0.0) -> Record:
    """The record as one of a GPU's with exact times, its solution slower by a factor."""
    reference = [[1e-3, 1e-3, 1e-3]] * 20
    solution = [[factor * 5e-4 * (1 + spread * (number % 2))] * 3 for number in range(20)]
    timing = {
        "baseline": "eager",
        "reference": {"samples_s": reference},
        "solution": {"samples_s": solution, "device": {"median_s": factor * 5e-4}},
        "speedup": {"speedup": 2 / factor, "low": 2 / factor / (1 + spread), "high": 2 / factor * (1 + spread)},
    }
    return replace(record, status=Status.passed, reason="right", speedup=2 / factor, timing=timing)


def test_times_are_compared_by_their_intervals(made: tuple[Path, Mapping[str, Record]]) -> None:
    record = made[1]["rounded"]
    before = times(record, 1.0)
    assert compared_again(before, times(record, 1.001)).repeat is Repeat.same
    assert compared_again(before, times(record, 1.5)).repeat is Repeat.differs
    assert compared_again(before, times(record, 0.5)).repeat is Repeat.differs
    assert compared_again(before, times(record, 1.0, spread=1.0)).repeat is Repeat.unknown


def test_another_machine_can_not_tell(made: tuple[Path, Mapping[str, Record]]) -> None:
    before = times(made[1]["rounded"], 1.0)
    for name in ("torch", "cpu"):
        after = replace(before, environment={**before.environment, name: "another"})
        found = compared_again(before, after)
        assert found.repeat is Repeat.unknown
        assert "under other conditions" in found.why


@pytest.mark.parametrize("status", [Status.harness_error, Status.not_emulated, Status.unsupported])
def test_no_verdict_can_not_tell(made: tuple[Path, Mapping[str, Record]], status: Status) -> None:
    before = times(made[1]["rounded"], 1.0)
    assert compared_again(before, replace(before, status=status, speedup=None)).repeat is Repeat.unknown
    assert compared_again(before, replace(before, status=Status.timeout, speedup=None)).repeat is Repeat.differs


def test_keyed_numbers_follow_from_key_and_purpose_alone() -> None:
    key = "5a" * 32
    a, b = KeyedRandom(key, "inputs"), KeyedRandom(key, "inputs")
    assert [a.getrandbits(62) for _ in range(50)] == [b.getrandbits(62) for _ in range(50)]
    assert a.sample(range(1000), 20) == b.sample(range(1000), 20)
    others = [KeyedRandom(key, "choices"), KeyedRandom("5b" + key[2:], "inputs")]
    first = KeyedRandom(key, "inputs").getrandbits(512)
    assert all(bin(first ^ other.getrandbits(512)).count("1") > 180 for other in others)
    draws = [a.randrange(10) for _ in range(20_000)]
    assert all(1800 < draws.count(digit) < 2200 for digit in range(10))
    assert abs(sum(a.random() for _ in range(20_000)) / 20_000 - 0.5) < 0.02
    a.seed(1)  # changes nothing
    b_next = [b.randrange(10) for _ in range(20_000)]
    assert b_next == draws
    with pytest.raises(ValueError, match="64 hex digits"):
        KeyedRandom("ab", "inputs")
    with pytest.raises(NotImplementedError):
        a.getstate()
