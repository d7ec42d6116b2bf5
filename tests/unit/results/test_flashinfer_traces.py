"""flashinfer-bench's traces read and written; its own package accepts what is written, where it is installed."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.core.choices import DeviceKind
from harness.core.record import Record
from harness.core.status import Status
from harness.results.flashinfer_traces import LABEL, trace_of
from harness.results.writer import RunStore, whole_run

DEFINITION = {
    "name": "add_n4",
    "op_type": "add",
    "axes": {"M": {"type": "var"}, "N": {"type": "const", "value": 4}},
    "inputs": {"A": {"shape": ["M", "N"], "dtype": "float16"}, "B": {"shape": ["M", "N"], "dtype": "float16"}},
    "outputs": {"C": {"shape": ["M", "N"], "dtype": "float16"}},
    "reference": "import torch\n\ndef run(A, B):\n    return A + B\n",
}
SOLUTION = {
    "name": "add_one",
    "definition": "add_n4",
    "author": "me",
    "spec": {
        "language": "python",
        "target_hardware": ["cuda"],
        "entry_point": "main.py::run",
        "destination_passing_style": False,
    },
    "sources": [{"path": "main.py", "content": "def run(A, B):\n    return A + B\n"}],
}
WORKLOAD = {"uuid": "aaaa-bbbb", "axes": {"M": 7}, "inputs": {"A": {"type": "random"}, "B": {"type": "random"}}}


def trace(status: str, **evaluation: Any) -> dict[str, Any]:
    environment = {"hardware": "NVIDIA H100", "libs": {"torch": "2.9"}}
    known = {"status": status, "environment": environment, "timestamp": "2026-03-17T14:21:51", "log": "x\nlast line"}
    return {"definition": "add_n4", "workload": WORKLOAD, "solution": "add_one", "evaluation": {**known, **evaluation}}


def data_set(folder: Path, *lines: dict[str, Any]) -> Path:
    folder.mkdir()
    (folder / "definition.json").write_text(json.dumps(DEFINITION))
    (folder / "solution.json").write_text(json.dumps(SOLUTION))
    (folder / "traces.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_traces_become_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    passed = trace(
        "PASSED",
        correctness={"max_relative_error": 1e-3, "max_absolute_error": 1e-4},
        performance={"latency_ms": 2.0, "reference_latency_ms": 3.0, "speedup_factor": 1.5},
    )
    source = data_set(
        tmp_path / "in",
        passed,
        {**trace("RUNTIME_ERROR"), "workload": {**WORKLOAD, "uuid": "cccc"}},
        {**passed, "solution": "unknown"},
        trace("STRANGE"),
        {**trace("PASSED"), "evaluation": None},
    )
    assert main(["import", "flashinfer", str(source), "--out", str(tmp_path / "out"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["problems"], told["records"]) == ({"add_n4": "add/1"}, 2)
    assert told["skipped"] == {
        "traces of unknown for add_n4": "its definition or solution was not imported",
        "traces of add_one for add_n4": "its evaluation has no known status, or its workload no uuid",
    }
    store = RunStore.open(tmp_path / "out/results/flashinfer-bench")
    first, second = sorted(store.records(), key=lambda record: record.status.value)
    assert (first.status, first.speedup, first.workload) == (Status.passed, 1.5, "flashinfer_waaaabbbb")
    assert (first.solution, first.labels) == ("me/add/1_add_one.py", (LABEL,))
    assert (second.status, second.reason) == (Status.runtime_error, "RUNTIME_ERROR by flashinfer-bench: last line")
    assert main(["leaderboard", str(tmp_path / "out/results/flashinfer-bench")]) == 0
    assert "1.5" in capsys.readouterr().out
    line = trace_of(first, definition="add_n4", workload=WORKLOAD, solution="add_one")
    assert line is not None
    assert (line["evaluation"]["performance"], line["workload"]) == (passed["evaluation"]["performance"], WORKLOAD)
    assert line["evaluation"]["correctness"]["max_relative_error"] == 1e-3


def record(status: Status, **fields: Any) -> Record:
    return Record(
        problem="level1/19", author="me", solution="me/level1/19_x.py", device=DeviceKind.CUDA, workload="full",
        status=status, reason="a reason", environment={"gpu": "NVIDIA H200", "torch": "2.11"}, **fields,
    )  # fmt: skip


TIMED = {
    "speedup": 2.0,
    "timing": {"solution": {"device": {"median_s": 0.001}}, "reference": {"device": {"median_s": 0.002}}},
    "evidence": {"variants": {"own": {"max_error": 3e-6}, "zero_mean": {"max_error": 4e-6}}},
}


@pytest.mark.parametrize(
    ("status", "fields", "foreign"),
    [
        (Status.passed, TIMED, "PASSED"),
        (Status.passed, {}, None),
        (Status.harness_error, {}, None),
        (Status.low_precision, {}, "INCORRECT_NUMERICAL"),
        (Status.wrong_shape, {}, "INCORRECT_SHAPE"),
        (Status.wrong_structure, {}, "INCORRECT_SHAPE"),
        (Status.wrong_dtype, {}, "INCORRECT_DTYPE"),
        (Status.compile_error, {}, "COMPILE_ERROR"),
        (Status.data_race, {}, "RUNTIME_ERROR"),
        (Status.timeout, {}, "TIMEOUT"),
    ],
)
def test_record_becomes_a_trace(status: Status, fields: dict[str, Any], foreign: str | None) -> None:
    line = trace_of(record(status, **fields), definition="d", workload=WORKLOAD, solution="s")
    assert (line and line["evaluation"]["status"]) == foreign
    if line is None:
        return
    held = line["evaluation"]
    assert held["log"] == f"{status.value}: a reason"
    assert (held["performance"] is None) == (foreign != "PASSED")
    assert (held["correctness"] is None) == (foreign not in ("PASSED", "INCORRECT_NUMERICAL"))
    if foreign == "PASSED":
        assert held["performance"] == {"latency_ms": 1.0, "reference_latency_ms": 2.0, "speedup_factor": 2.0}
        assert held["correctness"]["max_relative_error"] == 4e-6
    json.dumps(line, allow_nan=False)


def exported(folder: Path) -> Path:
    """A data set of a shipped problem, one solution of it, and a run of that."""
    path = folder / "solutions/me/level1/19_x.py"
    path.parent.mkdir(parents=True)
    path.write_text(
        "import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
    )
    with whole_run(folder / "run", config={}, environment={}) as store:
        store.append(record(Status.passed, **TIMED))
        store.append(Record.from_json({**record(Status.low_precision).to_json(), "solution": "other/level1/19_y.py"}))
    command = ["export", "flashinfer", "level1/19", "level1/95", "--solutions", str(folder / "solutions")]
    assert main([*command, "--run", str(folder / "run"), "--out", str(folder / "out")]) == 0
    return folder / "out"


def test_export_writes_a_data_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = exported(tmp_path)
    done = capsys.readouterr()
    assert "1 definitions, 1 solutions, 1 traces, 2 skipped" in done.out
    assert "skipped level1/95: it has inputs of integers" in done.err
    assert "skipped other/level1/19_y.py at full: " in done.err
    (definition,) = out.glob("definitions/level1/*.json")
    scope: dict[str, Any] = {}
    exec(json.loads(definition.read_text())["reference"], scope)
    import torch

    assert scope["run"](torch.tensor([-1.0, 2.0])).tolist() == [0.0, 2.0]
    assert main(["export", "flashinfer", "level1/19", "--out", str(out)]) == 2, "it is not empty"
    assert main(["import", "flashinfer", str(out), "--out", str(tmp_path / "back"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (len(told["problems"]), len(told["solutions"]), told["records"], told["skipped"]) == (1, 1, 1, {})


def test_their_package_accepts_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.find_spec("flashinfer_bench")
    if (
        spec is None
        or importlib.util.find_spec("safetensors") is None
        or importlib.util.find_spec("docstring_parser") is None
    ):
        pytest.skip("flashinfer-bench is not installed")
    # Its root imports CUDA libraries; its models of data need none.
    bare = types.ModuleType("flashinfer_bench")
    bare.__path__ = list(spec.submodule_search_locations or ())
    monkeypatch.setitem(sys.modules, "flashinfer_bench", bare)
    data: Any = importlib.import_module("flashinfer_bench.data")
    out = exported(tmp_path)
    kinds = {"definitions/*/*.json": data.Definition, "solutions/*/*/*/*.json": data.Solution}
    for pattern, model in kinds.items():
        (path,) = out.glob(pattern)
        model.model_validate_json(path.read_text())
    lines = [line for path in out.glob("*/*/*.jsonl") for line in path.read_text().splitlines()]
    assert len([data.Trace.model_validate_json(line) for line in lines]) == 4, "three workloads and a trace"
    failed = trace_of(record(Status.wrong_value), definition="d", workload=WORKLOAD, solution="s")
    data.Trace.model_validate_json(json.dumps(failed))
