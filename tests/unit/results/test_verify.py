"""Evidence that travels: no edit of a run's files goes unnoticed, and statistics follow from the raw samples."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.cli import main
from harness.results.manifest import MANIFEST, SIGNATURE, SigningKey, public_key, write_manifest
from harness.results.merge import merge
from harness.results.reader import StoreError
from harness.results.verify import Verification, verify_run
from harness.results.writer import RunStore
from tests.support.judged_on_host import judged_on_host

EDITS, SEED = 1000, 39

RIGHT = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.clamp(min=0)
"""
WRONG = RIGHT.replace("min=0", "min=0.1")
TEXT = 'print("a line in the log")\n' + RIGHT


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a real run: a timed pass, a wrong answer, a pass with a log, and one that the policy refuses."""
    folder = tmp_path_factory.mktemp("verify")
    solutions = {"right": RIGHT, "wrong": WRONG, "text": TEXT}
    records = judged_on_host(folder, solutions, budget_s=0.2, policy={"refuse_labels": ["library_only"]})
    assert records["right"].speedup is not None, records["right"].reason
    return folder / "results" / "run"


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "run")


def checked(made: Path, run: Path, **more: Any) -> Verification:
    root = made.parents[1]
    return verify_run(run, solutions=[root / "solutions"], problems=root / "problems", **more)


def test_a_run_holds_as_it_was_written(made: Path) -> None:
    found = checked(made, made)
    assert (found.findings, found.notes) == ((), ())
    assert (found.records, found.statistics, found.signed_by) == (3, 2, None)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all values inside a JSON value that hold no others."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    empty = True
    for key, item in inner:
        empty = False
        yield from leaves(item, (*path, key))
    if empty:
        yield path


def changed(value: Any, path: tuple[Any, ...], chance: random.Random) -> Any:
    """The value with another one at the path."""
    if not path:
        if isinstance(value, bool) or value is None:
            return not value
        if isinstance(value, int | float):
            return chance.choice([value + 1, value * (1 + 2**-40) + 1e-12, -value - 1, str(value)])
        return f"{value}x" if isinstance(value, str) else [*value, 1] if isinstance(value, list) else {"x": 1}
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(copy[path[0]], path[1:], chance)
    return copy


def other_value(data: bytes, chance: random.Random) -> bytes:
    """One value of one JSON line, or of a YAML file, is another."""
    lines = data.splitlines(keepends=True)
    number = chance.randrange(len(lines))
    try:
        value = json.loads(lines[number])
    except ValueError:  # a line of YAML, of the manifest or of a log: one character is another
        place = chance.randrange(len(data))
        return data[:place] + bytes([data[place] ^ 1 << chance.randrange(7)]) + data[place + 1 :]
    path = chance.choice(list(leaves(value)))
    lines[number] = (json.dumps(changed(value, path, chance)) + "\n").encode()
    return b"".join(lines)


def without_line(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    del lines[chance.randrange(len(lines))]
    return b"".join(lines)


def swapped_lines(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    a, b = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return b"".join(lines)


def one_line_more(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    more = chance.choice([*lines, b"\n", b"{}\n", b"x: 1\n"])
    lines.insert(chance.randrange(len(lines) + 1), more)
    return b"".join(lines)


def without_a_piece(data: bytes, chance: random.Random) -> bytes:
    begin = chance.randrange(len(data))
    return data[:begin] + data[begin + chance.randrange(1, 20) :]


KINDS: list[Callable[[bytes, random.Random], bytes]] = [
    other_value,
    other_value,
    other_value,
    without_line,
    swapped_lines,
    one_line_more,
    without_a_piece,
]


def edited(run: Path, chance: random.Random) -> tuple[Path, bytes]:
    """One file of the run with one edit, chosen by chance: its path and its new content."""
    while True:
        path = chance.choice(sorted(item for item in run.rglob("*") if item.is_file() and item.stat().st_size))
        data = path.read_bytes()
        now = chance.choice(KINDS)(data, chance)
        if now != data:
            return path, now


def test_none_of_a_thousand_edits_is_accepted_and_each_is_told_with_its_place(made: Path, run: Path) -> None:
    chance, accepted = random.Random(SEED), []
    for number in range(EDITS):
        path, now = edited(run, chance)
        before = path.read_bytes()
        path.write_bytes(now)
        found = checked(made, run).findings
        path.write_bytes(before)
        name = path.relative_to(run).as_posix()
        told = [line for line in found if name in line and "\n" not in line]
        if not told or (name in ("records.jsonl", "run.yaml") and not any("line " in line for line in told)):
            accepted.append((number, name, found))
    assert accepted == []
    assert checked(made, run).findings == ()


@pytest.mark.parametrize("name", ["run.yaml", "records.jsonl", MANIFEST, "logs/_referee.log"])
def test_a_file_that_is_removed_is_told(made: Path, run: Path, name: str) -> None:
    (run / name).unlink()
    assert any(name in line for line in checked(made, run).findings)


def test_a_file_that_is_added_is_told(made: Path, run: Path) -> None:
    (run / "logs" / "more.log").write_text("x")
    assert checked(made, run).findings == (f"logs/more.log: is not in {MANIFEST}: it was added later",)


def rewritten(run: Path, number: int, change: Callable[[dict[str, Any]], None]) -> None:
    """Change one record and write the manifest again, as anybody can without a signature."""
    lines = (run / "records.jsonl").read_text().splitlines()
    at = next(place for place, line in enumerate(lines) if json.loads(line)["solution"].endswith(NAMES[number]))
    value = json.loads(lines[at])
    change(value)
    lines[at] = json.dumps(value)
    (run / "records.jsonl").write_text("\n".join(lines) + "\n")
    write_manifest(run)


NAMES = ("19_right.py", "19_wrong.py", "19_text.py")


def test_statistics_follow_from_the_samples_even_with_a_new_manifest(made: Path, run: Path) -> None:
    pristine = (run / "records.jsonl").read_bytes()
    record = json.loads(next(line for line in pristine.splitlines() if b"19_right" in line))
    derived = [("speedup",), *(("timing", "speedup", key) for key in record["timing"]["speedup"])]
    for side in ("solution", "reference"):
        derived += [("timing", side, "device", key) for key in record["timing"][side]["device"] if key != "outliers"]
    assert len(derived) == 25
    for path in derived:

        def change(value: dict[str, Any], path: tuple[Any, ...] = path) -> None:
            *outer, last = path
            for key in outer:
                value = value[key]
            value[last] = (
                f"{value[last]}x" if isinstance(value[last], str) else value[last] + max(1e-6, value[last] / 2)
            )

        rewritten(run, 0, change)
        found = checked(made, run).findings
        assert any(path[-1] in line and "19_right" in line for line in found), (path, found)
        (run / "records.jsonl").write_bytes(pristine)


def test_a_sample_that_is_changed_moves_the_statistics(made: Path, run: Path) -> None:
    def change(value: dict[str, Any]) -> None:
        value["timing"]["solution"]["samples_s"][0][0] *= 0.5

    rewritten(run, 0, change)
    assert any("timing.solution.device.mean_s" in line for line in checked(made, run).findings)


@pytest.mark.parametrize("hostile", [[], [[]], [["x"]], "x", [[1e400]], [[-1.0]], {"a": 1}, [[0.0]] * 4])
def test_samples_of_a_wrong_kind_are_a_finding_and_no_error(made: Path, run: Path, hostile: Any) -> None:
    def change(value: dict[str, Any]) -> None:
        value["timing"]["solution"]["samples_s"] = hostile

    rewritten(run, 0, change)
    assert any("records.jsonl" in line for line in checked(made, run).findings)


def test_another_source_or_problem_is_told(made: Path, run: Path, tmp_path: Path) -> None:
    root = shutil.copytree(made.parents[1], tmp_path / "root")
    with (root / "solutions/a/level1/19_right.py").open("a") as file:
        file.write("# changed\n")
    with (root / "problems/level1/19_relu.py").open("a") as file:
        file.write("# changed\n")
    found = verify_run(run, solutions=[root / "solutions"], problems=root / "problems").findings
    assert len(found) == 2
    assert "19_right.py is not the source that was judged" in found[0]
    assert "19_relu.py is not the problem that was judged" in found[1]


def test_sources_that_are_not_there_are_a_note(run: Path, tmp_path: Path) -> None:
    found = verify_run(run, solutions=[tmp_path / "none"], problems=tmp_path / "none")
    assert found.findings == ()
    assert len(found.notes) == 2
    assert "3 of 3 records" in found.notes[0]


def test_a_verdict_that_the_policy_contradicts_is_told(made: Path, run: Path) -> None:
    head = yaml.safe_load((run / "run.yaml").read_text())
    head["config"]["policy"] = {"refuse_labels": ["torch_only"]}
    (run / "run.yaml").write_text(yaml.safe_dump(head))
    write_manifest(run)
    assert any("by the run's policy it is disqualified" in line for line in checked(made, run).findings)


def test_a_refusal_by_policy_holds_and_its_numbers_are_checked(tmp_path: Path) -> None:
    judged_on_host(tmp_path, {"right": RIGHT}, budget_s=0.2, policy={"refuse_labels": ["torch_only"]})
    run = tmp_path / "results" / "run"
    assert checked(run, run).findings == ()

    def change(value: dict[str, Any]) -> None:
        value["evidence"]["policy"]["speedup_without"] *= 2

    rewritten(run, 0, change)
    assert any("speedup is" in line for line in checked(run, run).findings)


def test_resumed_and_merged_runs_have_manifests_of_their_own(made: Path, run: Path, tmp_path: Path) -> None:
    with RunStore.resume(run, config={}) as store:
        assert not (run / MANIFEST).exists()
        store.append(replace(store.records()[0], reason="again"))
    assert checked(made, run).findings == ()
    merge([run, made], tmp_path / "merged")
    assert checked(made, tmp_path / "merged").findings == ()


def test_an_older_run_without_a_manifest_is_told_and_its_other_formulas_are_not_compared(made: Path, run: Path) -> None:
    rewritten(run, 0, lambda value: value["timing"]["speedup"].update(speedup=9.0))
    (run / MANIFEST).unlink()
    (only,) = checked(made, run).findings
    assert "is of an older harness" in only


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two private keys, as openssl writes them."""
    pytest.importorskip("cryptography", reason="signatures need the extra `sign`")
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make keys")
    folder = tmp_path_factory.mktemp("keys")
    for name in ("own", "other"):
        command = ["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(folder / name)]
        subprocess.run(command, check=True, capture_output=True)
    return folder / "own", folder / "other"


def test_who_writes_the_manifest_again_is_told_by_the_signature(made: Path, run: Path, keys: tuple[Path, Path]) -> None:
    own, other = (SigningKey(path) for path in keys)
    write_manifest(run, own)
    found = checked(made, run, key=own.public)
    assert (found.findings, found.signed_by) == ((), own.public)
    pristine = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    chance = random.Random(SEED)
    for number in range(100):
        path, now = edited(run, chance)
        while path.name in (MANIFEST, SIGNATURE):
            path, now = edited(run, chance)
        path.write_bytes(now)
        if number % 3 == 0:  # nothing else
            assert checked(made, run, key=own.public).findings
        elif number % 3 == 1:  # signed again by somebody else, which only the key tells
            write_manifest(run, other)
            assert any(own.public in line for line in checked(made, run, key=own.public).findings)
        else:  # the manifest is written again, and names the old signer beside the old signature
            write_manifest(run)
            manifest = json.loads((run / MANIFEST).read_text()) | {"signed_by": own.public}
            (run / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
            (run / SIGNATURE).write_bytes(pristine[run / SIGNATURE])
            assert any("the signature does not fit" in line for line in checked(made, run, key=own.public).findings)
        for each, data in pristine.items():
            each.write_bytes(data)
    assert checked(made, run, key=own.public).findings == ()


@pytest.mark.parametrize("name", [MANIFEST, SIGNATURE])
def test_edits_of_manifest_and_signature_of_a_signed_run_are_told(
    made: Path, run: Path, keys: tuple[Path, Path], name: str
) -> None:
    write_manifest(run, SigningKey(keys[0]))
    data, chance = (run / name).read_bytes(), random.Random(SEED)
    for kind in KINDS * 5:
        now = kind(data, chance)
        (run / name).write_bytes(now)
        assert checked(made, run).findings or now == data, now
    (run / name).unlink()
    assert any(name in line and "missing" in line for line in checked(made, run).findings)


def test_a_key_that_is_none_is_refused_with_the_command_that_makes_one(tmp_path: Path, keys: tuple[Path, Path]) -> None:
    for content in (None, b"x", b"-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"):
        path = tmp_path / "key"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(StoreError, match="openssl genpkey -algorithm ed25519"):
            SigningKey(path)
    public = tmp_path / "public"
    command = ["openssl", "pkey", "-in", str(keys[0]), "-pubout", "-out", str(public)]
    subprocess.run(command, check=True, capture_output=True)
    assert public_key(public) == public_key(keys[0]) == SigningKey(keys[0]).public


def test_the_command_signs_and_verifies(
    made: Path, keys: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    root = made.parents[1]
    where = ["--problems", str(root / "problems"), "--out", str(tmp_path), "--run-id", "signed"]
    only = ["--workload", "full", "--device", "host", "--timing-budget", "0.2", "--sign", str(keys[0])]
    assert main(["eval", str(root / "solutions/a/level1/19_right.py"), *where, *only]) == 0
    capfd.readouterr()
    asked = ["verify", str(tmp_path / "signed"), "--problems", str(root / "problems")]
    assert main([*asked, "--key", str(keys[0])]) == 0
    assert f"signed by the ed25519 key {SigningKey(keys[0]).public}" in capfd.readouterr().out
    assert main([*asked, "--key", str(keys[1])]) == 1
    assert "not by the key" in capfd.readouterr().out
    (tmp_path / "signed" / "records.jsonl").write_text("")
    assert main([*asked, "--json"]) == 1
    assert json.loads(capfd.readouterr().out)["ok"] is False
    assert main(["verify", str(root)]) == 2
    (tmp_path / "signed" / "logs" / "\x1b[31mred.log").write_text("x")
    assert main(asked) == 1
    assert "\x1b" not in capfd.readouterr().out


def test_a_damaged_line_is_a_finding_even_with_a_new_manifest(made: Path, run: Path) -> None:
    path = run / "records.jsonl"
    path.write_bytes(path.read_bytes() + b"{}\n")
    write_manifest(run)
    assert any("records.jsonl:4: record format None" in finding for finding in checked(made, run).findings)
