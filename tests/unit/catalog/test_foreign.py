"""Problems and solutions of other projects: converted, loaded and run, written back, and refused if damaged."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from harness.catalog import CatalogError, find_solutions, load_problems
from harness.catalog.foreign import shared
from harness.catalog.foreign.flashinfer import import_flashinfer
from harness.catalog.foreign.gpumode import import_gpumode
from harness.catalog.foreign.parquet import export_parquet, import_parquet
from harness.catalog.foreign.shared import ADAPTER, NotConvertible
from harness.catalog.foreign.to_flashinfer import export_problem, export_solution, is_imported
from harness.catalog.foreign.to_gpumode import export_submission, export_task
from harness.core.problem import Problem
from harness.referee.problem.inputs import draw
from harness.referee.problem.loader import ReferenceModule, load_reference

CPU = torch.device("cpu")

ATTENTION: Mapping[str, Any] = {
    "name": "pick_rows_c8",
    "op_type": "gather",
    "description": 'Rows of a table, """scaled""" \\ and\nsummed over ranges.',
    "tags": ["status:draft"],
    "axes": {
        "batch": {"type": "var"},
        "len_indptr": {"type": "var"},
        "picked": {"type": "var"},
        "num_pages": {"type": "var"},
        "run": {"type": "const", "value": 8},
    },
    "constraints": ["len_indptr == batch + 1", "picked == offsets[-1].item()", "batch > 0"],
    "inputs": {
        "table": {"shape": ["num_pages", "run"], "dtype": "bfloat16"},
        "offsets": {"shape": ["len_indptr"], "dtype": "int32"},
        "indices": {"shape": ["picked"], "dtype": "int32"},
        "scale": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"sums": {"shape": ["batch", "run"], "dtype": "float32"}},
    "reference": (
        "from __future__ import annotations\nimport torch\n\n\ndef run(table, offsets, indices, scale):\n"
        "    rows = table[indices.long()].float() * scale\n"
        "    return torch.stack([rows[offsets[i]:offsets[i + 1].item()].sum(0) for i in range(len(offsets) - 1)])\n"
    ),
}
PLAIN: Mapping[str, Any] = {
    "name": "add_n4",
    "op_type": "add",
    "axes": {"M": {"type": "var"}, "N": {"type": "const", "value": 4}},
    "inputs": {"A": {"shape": ["M", "N"], "dtype": "float16"}, "B": {"shape": ["M", "N"], "dtype": "float16"}},
    "outputs": {"C": {"shape": ["M", "N"], "dtype": "float16"}},
    "reference": "import torch\n\ndef run(A, B):\n    return A + B",
}


def workload(definition: str, uuid: str, **axes: int) -> dict[str, Any]:
    scalars = {"scale": {"type": "scalar", "value": 0.5}} if definition == ATTENTION["name"] else {}
    return {
        "definition": definition,
        "workload": {"uuid": uuid, "axes": axes, "inputs": scalars},
        "solution": None,
        "evaluation": None,
    }


def solution(name: str, *, sources: Mapping[str, str], definition: str = "add_n4", **spec: Any) -> dict[str, Any]:
    return {
        "name": name,
        "definition": definition,
        "author": "some one",
        "spec": {"language": "python", "target_hardware": ["cuda"], "entry_point": "main.py::run", **spec},
        "sources": [{"path": path, "content": text} for path, text in sources.items()],
    }


def data_set(folder: Path, *objects: Mapping[str, Any], lines: tuple[Mapping[str, Any], ...] = ()) -> Path:
    folder.mkdir()
    for number, held in enumerate(objects):
        (folder / f"{number}.json").write_text(json.dumps(held))
    (folder / "all.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def loaded(problem: Problem, workload: str = "full") -> ReferenceModule:
    return load_reference(problem, problem.workloads[workload])


def test_definition_becomes_a_problem_that_runs(tmp_path: Path) -> None:
    lines = (
        workload("pick_rows_c8", "0000aaaa-1", batch=3, len_indptr=4, picked=9, num_pages=6),
        workload("pick_rows_c8", "1111BBBB-2", batch=5, len_indptr=6, picked=20, num_pages=7),
        workload("pick_rows_c8", "2222cccc-3", batch=5, len_indptr=6, picked=20, num_pages=7),
    )
    done = import_flashinfer(data_set(tmp_path / "in", ATTENTION, lines=lines), tmp_path / "out")
    assert (done.ids, done.skipped) == ({"pick_rows_c8": "gather/1"}, {})
    problem = load_problems(tmp_path / "out/problems")["gather/1"]
    assert f"\n\n{ATTENTION['reference']}\n\n{ADAPTER}\n" in problem.source
    # the axis `run` has the name of the reference's function; the largest workload is `full`, equal ones are one
    small = problem.workloads["small"].sizes
    assert {name: dict(held.sizes) for name, held in problem.workloads.items()} == {
        "full": {},
        "w0000aaaa1": {"batch": 3, "picked": 9, "num_pages": 6, "scale": 0.5},
        "small": dict(small),
    }
    for name, batch in (("full", 5), ("w0000aaaa1", 3), ("small", small["batch"])):
        reference = loaded(problem, name)
        table, offsets, indices, scale = draw(reference, seed=1, device=CPU).values
        assert table.dtype is torch.bfloat16
        assert offsets[0] == 0
        assert bool((offsets.diff() > 0).all())
        assert offsets[-1] == len(indices)
        assert int(indices.max()) < len(table)
        out = reference.model(0, None)(table, offsets, indices, scale)
        begin, end = offsets[1:3].tolist()
        assert out.shape == (batch, 8)
        torch.testing.assert_close(out[1], (table[indices[begin:end].long()].float() * scale).sum(0))


def test_definition_round_trip(tmp_path: Path) -> None:
    lines = (workload("add_n4", "aaaa", M=7), workload("add_n4", "bbbb", M=9))
    import_flashinfer(data_set(tmp_path / "in", PLAIN, ATTENTION, lines=lines), tmp_path / "out")
    problems = load_problems(tmp_path / "out/problems")
    again = {key: export_problem(held, {}, has_state=False) for key, held in problems.items()}
    assert again["add/1"].definition == PLAIN
    assert again["gather/1"].definition == ATTENTION
    assert [held["axes"] for held in again["add/1"].workloads.values()] == [{"M": 9}, {"M": 7}]
    assert again["gather/1"].workloads == {}, "integers with a meaning are not random"


def test_solutions_of_definitions(tmp_path: Path) -> None:
    binding = '#include "sum.h"\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }\n'
    cuda = {"main.cpp": binding, "sum.h": "#pragma once\nint total();\n", "sum.cu": '// """\nint total() { return 0; }'}
    given = [
        solution("plain", sources={"main.py": "def run(A, B):\n    return A + B\n"}, destination_passing_style=False),
        solution("filled", sources={"main.py": "def run(A, B, C):\n    C.copy_(A + B)\n"}),
        solution("inline", sources=cuda, language="cuda", binding="torch", entry_point="main.cpp::run"),
        solution("ffi", sources={"main.cu": "x"}, language="cuda", entry_point="main.cu::run"),
        solution("tiles", sources={"main.py": "x = 1"}, language="tilelang"),
        solution("two", sources={"main.py": "import b", "b.py": "x = 1"}),
        solution("out", sources={"../main.py": "x = 1"}, entry_point="../main.py::run"),
        solution("absolute", sources={"/main.py": "x = 1"}, entry_point="/main.py::run"),
        solution("elsewhere", sources={"main.py": "x = 1"}, definition="unknown"),
        solution("broken", sources={"main.py": "def run(:"}),
        {**solution("none", sources={}), "sources": []},
        {**solution("odd", sources={}), "spec": 3},
    ]
    done = import_flashinfer(data_set(tmp_path / "in", PLAIN, *given), tmp_path / "out")
    assert set(done.solutions) == {"solution plain", "solution filled", "solution inline"}
    reasons = {
        "ffi": "its binding tvm-ffi is not run here",
        "tiles": "its language tilelang is not run here",
        "two": "several Python files",
        "out": "out of its folder",
        "absolute": "out of its folder",
        "elsewhere": "its definition 'unknown' was not imported",
        "broken": "not valid Python",
        "none": "it has no sources",
        "odd": "must be texts and an object",
    }
    assert set(done.skipped) == {f"solution {name}" for name in reasons}
    for name, reason in reasons.items():
        assert reason in done.skipped[f"solution {name}"]
    catalog = load_problems(tmp_path / "out/problems")
    found = {held.path.stem: held for held in find_solutions([tmp_path / "out/solutions"], catalog)}
    assert {(held.author, held.problem_id) for held in found.values()} == {("some_one", "add/1")}
    a, b = draw(loaded(catalog["add/1"]), seed=1, device=CPU).values
    for name in ("1_plain", "1_filled"):
        scope: dict[str, Any] = {}
        exec(found[name].source, scope)
        torch.testing.assert_close(scope["ModelNew"]()(a, b), a + b)
    called: dict[str, Any] = {}
    text = found["1_inline"].source.replace("from torch.utils.cpp_extension import load_inline", "")
    exec(text, {"load_inline": lambda **arguments: called.update(arguments)})
    assert called["cpp_sources"] == ["\n" + binding.replace('#include "sum.h"', "\nint total();\n")]
    assert called["cuda_sources"] == [cuda["sum.cu"]]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"reference": None}, "it has no reference"),
        ({"reference": "def run(:"}, "not valid Python"),
        ({"reference": "x = 1"}, "no function run"),
        ({"reference": "def run(A, B, extra):\n    pass"}, "takes extra, which no input describes"),
        ({"outputs": {}}, "the field outputs is missing"),
        ({"axes": {"M; import os": {"type": "var"}}}, "the shape must be null or a list of axes"),
        ({"axes": {**PLAIN["axes"], "a b": {"type": "var"}}}, "is no name of a constant"),
        ({"axes": {**PLAIN["axes"], "N": {"type": "const", "value": "4"}}}, "axis N must have the type var"),
        ({"inputs": {**PLAIN["inputs"], "B": {"shape": ["M"], "dtype": "int32"}}}, "gives their range"),
        ({"inputs": {**PLAIN["inputs"], "B": {"shape": None, "dtype": "int32"}}}, "no workload gives its value"),
        ({"inputs": {**PLAIN["inputs"], "B": {"shape": ["M"], "dtype": "unknown"}}}, "has the type unknown"),
        ({"inputs": {**PLAIN["inputs"], "B": 3}}, "no dtype"),
    ],
)
def test_definition_that_cannot_be_converted(tmp_path: Path, change: Mapping[str, Any], reason: str) -> None:
    done = import_flashinfer(data_set(tmp_path / "in", ATTENTION, {**PLAIN, **change}), tmp_path / "out")
    assert list(done.ids) == ["pick_rows_c8"]
    assert reason in done.skipped["definition add_n4"]


def test_damaged_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = data_set(tmp_path / "in", PLAIN)
    (folder / "cut.json").write_text('{"name": "x", "axes":')
    (folder / "list.json").write_text("[1, 2]")
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "bytes.json").write_bytes(b"\xff\xfe{}")
    (folder / "large.json").write_text(json.dumps({"name": "y" * 9000}))
    (folder / "link.json").symlink_to(folder / "0.json")
    (folder / "w.jsonl").write_text(
        '{"definition": "add_n4"}\nnot json\n{"definition": "add_n4", "workload": {"uuid": 3}}\n'
    )
    monkeypatch.setattr(shared, "MAX_TEXT_BYTES", 4000)
    done = import_flashinfer(folder, tmp_path / "out")
    assert list(done.ids) == ["add_n4"]
    told = "\n".join(f"{name}: {reason}" for name, reason in done.skipped.items())
    for part in (
        "cut.json: ", "list.json: ", "deep.json: ", "bytes.json: ", "more than 4000", "it is a link",
        "w.jsonl, line 1: no definition or no workload", "w.jsonl, line 2: ", "w.jsonl, line 3: the workload has no",
    ):  # fmt: skip
        assert part in told
    with pytest.raises(CatalogError, match="is not an empty folder"):
        import_flashinfer(folder, tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CatalogError, match="no definition in it"):
        import_flashinfer(tmp_path / "empty", tmp_path / "other")


UTILS = """
import torch

def make_match_reference(reference, **tolerances):
    return lambda data, output: (torch.allclose(reference(data), output, **tolerances), "")
"""
REFERENCE = """from utils import make_match_reference
import torch
from task import input_t, output_t


def ref_kernel(data: input_t) -> output_t:
    x, result = data
    result[...] = x * 2
    return result


def generate_input(rows: int, torch_: int, seed: int) -> input_t:
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    x = torch.empty(rows, torch_, device="cuda", dtype=torch.float16)
    x.uniform_(0, 1, generator=gen)
    result = torch.empty(rows, torch_, device="cuda", dtype=torch.float16).contiguous()
    return x, result


check_implementation = make_match_reference(ref_kernel, rtol=1e-3)
"""
TASK: Mapping[str, Any] = {
    "files": [
        {"name": "submission.py", "source": "@SUBMISSION@"},
        {"name": "task.py", "source": "task.py"},
        {"name": "utils.py", "source": "../utils.py"},
        {"name": "reference.py", "source": "reference.py"},
    ],
    "lang": "py",
    "description": "Twice the input.",
    "tests": [{"rows": 3, "torch_": 5, "seed": 1}],
    "benchmarks": [{"rows": 64, "torch_": 8, "seed": 1}, {"rows": 128, "torch_": 8, "seed": 1}, {"other": 1}],
}


def task_folder(root: Path, **change: Any) -> Path:
    folder = root / "practice" / "double_py"
    folder.mkdir(parents=True)
    (root / "practice/utils.py").write_text(UTILS)
    (folder / "task.py").write_text("import torch\ninput_t = output_t = torch.Tensor\n")
    (folder / "reference.py").write_text(REFERENCE)
    (folder / "task.yml").write_text(yaml.safe_dump({**TASK, **change}))
    return folder


def test_task_becomes_a_problem_that_runs_without_a_gpu(tmp_path: Path) -> None:
    folder = task_folder(tmp_path / "in")
    (folder / "submission.py").write_text(
        "from task import input_t, output_t\n\ndef custom_kernel(data: input_t) -> output_t:\n"
        "    x, result = data\n    result[...] = x + x\n    return result\n"
    )
    (folder / "solutions").mkdir()
    (folder / "solutions/none.py").write_text("x = 1\n")
    (folder / "solutions/amd.py").write_text('custom_kernel = "#include <hip/hip_runtime.h>"\n')
    done = import_gpumode(tmp_path / "in", tmp_path / "out")
    assert done.ids == {"practice/double_py": "practice/1"}
    assert done.solutions == {"practice/double_py/submission.py": "gpumode/practice/1_submission.py"}
    assert "no custom_kernel" in done.skipped["practice/double_py/solutions/none.py"]
    assert "HIP" in done.skipped["practice/double_py/solutions/amd.py"]
    catalog = load_problems(tmp_path / "out/problems")
    problem = catalog["practice/1"]
    assert problem.precision.value == "fp16"
    assert {name: dict(held.sizes) for name, held in problem.workloads.items()} == {
        "full": {},
        "benchmark1": {"rows": 64, "torch_": 8},
        "test1": {"rows": 3, "torch_": 5},
    }
    reference = loaded(problem, "test1")
    data, results = draw(reference, seed=5, device=CPU).values
    assert [tuple(item.shape) for item in data] == [(3, 5)]
    again = draw(reference, seed=5, device=CPU).values[0][0]
    torch.testing.assert_close(data[0], again, rtol=0, atol=0)
    torch.testing.assert_close(reference.model(0, None)(data, results), data[0] * 2)
    assert torch.Generator is type(torch.default_generator), "the moves from CUDA are undone"
    found = find_solutions([tmp_path / "out/solutions"], catalog)
    scope: dict[str, Any] = {}
    exec(found[0].source, scope)
    torch.testing.assert_close(scope["ModelNew"]()(data, results), data[0] * 2)


@pytest.mark.parametrize(
    ("change", "reference", "reason"),
    [
        ({"lang": "cu"}, REFERENCE, "its language cu is not run here"),
        ({"files": 3}, REFERENCE, "its files name no reference.py"),
        (
            {"files": [{"name": "reference.py", "source": "../../../secret.py"}]},
            REFERENCE,
            "outside of the given folder",
        ),
        ({"files": [{"name": "reference.py", "source": "absent.py"}]}, REFERENCE, "can't be read"),
        ({"tests": [], "benchmarks": "x"}, REFERENCE, "no tests and no benchmarks"),
        ({"benchmarks": [{"rows": 1, "world_size": 8}]}, REFERENCE, "several GPUs"),
        ({}, "import utils\n" + REFERENCE, "imports utils as a module"),
        (
            {},
            REFERENCE.replace("import make_match_reference", "import make_match_reference as m"),
            "under another name",
        ),
        ({}, REFERENCE.replace("generate_input", "generate"), "has no function generate_input"),
        ({}, "def (", "not valid Python"),
    ],
)
def test_task_that_cannot_be_converted(tmp_path: Path, change: Any, reference: str, reason: str) -> None:
    folder = task_folder(tmp_path / "in", **change)
    (tmp_path / "secret.py").write_text(REFERENCE)
    (folder / "reference.py").write_text(reference)
    done = import_gpumode(tmp_path / "in", tmp_path / "out")
    assert not done.ids
    assert reason in done.skipped["practice/double_py"]
    (folder / "task.yml").write_text("tests: [")
    assert "not valid YAML" in import_gpumode(tmp_path / "in", tmp_path / "out").skipped["practice/double_py"]


def test_smallest_test_is_small_where_no_sizes_can_be_derived(tmp_path: Path) -> None:
    tests = [{"rows": 9, "torch_": [5, 7], "seed": 1}, {"rows": 3, "torch_": [5, 7], "seed": 99}]
    folder = task_folder(tmp_path / "in", tests=tests, benchmarks=[{"rows": 64, "torch_": [8, 8], "seed": 1}])
    (folder / "reference.py").write_text(REFERENCE.replace("x * 2", "x * x.max().item()"))
    import_gpumode(tmp_path / "in", tmp_path / "out")
    workloads = load_problems(tmp_path / "out/problems")["practice/1"].workloads
    assert workloads["small"].sizes == {"rows": 3, "torch_": [5, 7]} == workloads["test2"].sizes
    assert "&" not in (tmp_path / "out/problems/practice/workloads.yaml").read_text(), "it has no YAML aliases"


PROBLEM = '''"""Scaled rows."""
import torch

ROWS = 16
COLUMNS = 8


class Model(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(()) * scale)

    def forward(self, x, factors):
        return x * factors * self.scale


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS)]


def get_init_inputs():
    return [3.0]
'''
SOLUTION = PROBLEM.replace("class Model(", "class ModelNew(").partition("def get_inputs")[0]


def own_problem(root: Path, source: str = PROBLEM) -> Problem:
    (root / "level1").mkdir(parents=True)
    (root / "level1/7_rows.py").write_text(source)
    (root / "level1/workloads.yaml").write_text("format: 1\nproblems: {7: {workloads: {small: {ROWS: 5}}}}\n")
    return load_problems(root)["level1/7"]


def test_problem_to_task_and_back(tmp_path: Path) -> None:
    problem = own_problem(tmp_path / "problems")
    root = tmp_path / "tasks"
    folder = root / "rows"
    folder.mkdir(parents=True)
    for name, text in export_task(problem).items():
        (folder / name).write_text(text)
    (root / "utils.py").write_text(UTILS)
    (tmp_path / "me").mkdir()
    path = tmp_path / "me/7_x.py"
    path.write_text(SOLUTION)
    (folder / "submission.py").write_text(
        export_submission(find_solutions([path], load_problems(tmp_path / "problems"), "level1/7")[0])
    )
    task = yaml.safe_load((folder / "task.yml").read_text())
    assert (task["tests"], task["benchmarks"]) == ([{"ROWS": 5, "seed": 4242}], [{"ROWS": 16, "seed": 4242}])
    script = (
        "import torch\nfrom reference import *\nfrom submission import custom_kernel\n"
        "for rows in (5, 16):\n    data = generate_input(seed=3, ROWS=rows)\n    assert data[0].shape == (rows, 8)\n"
        "    assert check_implementation(data, custom_kernel(data))[0]\n"
        "    assert not check_implementation(data, custom_kernel(data) * 1.01)[0]\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=folder, env={"PYTHONPATH": str(root)}, check=True)
    done = import_gpumode(root, tmp_path / "again")
    assert done.skipped == {}
    again = load_problems(tmp_path / "again/problems")["gpumode/1"]
    data, first = draw(loaded(again), seed=2, device=CPU).values, loaded(again).model(0, None)
    assert first(*data).shape == (16, 8)
    with pytest.raises(NotConvertible, match="DOUBLE follow from sizes"):
        export_task(own_problem(tmp_path / "more", PROBLEM.replace("\n\n\nclass", "\nDOUBLE = 2 * ROWS\n\n\nclass")))
    with pytest.raises(NotConvertible, match="generate_input"):
        export_task(again)
    with pytest.raises(NotConvertible, match="it asks for a backward"):
        export_task(replace(problem, backward=("inputs",)))


def test_problem_to_definition(tmp_path: Path) -> None:
    problem = own_problem(tmp_path / "a")
    shapes = {
        name: (
            [("inputs[0]", "float32", (rows, 8)), ("inputs[1]", "float32", (8,))],
            [("output", "float32", (rows, 8))],
        )
        for name, rows in (("full", 16), ("small", 5))
    }
    assert not is_imported(problem)
    fixed = export_problem(problem, shapes, has_state=True)
    assert fixed.definition["axes"] == {
        "ROWS": {"type": "const", "value": 16},
        "COLUMNS": {"type": "const", "value": 8},
    }
    assert list(fixed.workloads) == ["full"], "the weights belong to the sizes of the file"
    free = export_problem(problem, shapes, has_state=False)
    assert free.definition["axes"]["ROWS"] == {"type": "var"}
    assert [held["axes"] for held in free.workloads.values()] == [{"ROWS": 16}, {"ROWS": 5}]
    folder = tmp_path / "data"
    data_set(folder, fixed.definition)
    done = import_flashinfer(folder, tmp_path / "back")
    assert (done.ids, done.skipped) == ({"level1_7_rows": "level1/1"}, {})
    path = tmp_path / "7_x.py"
    path.write_text(SOLUTION)
    given = find_solutions([path], load_problems(tmp_path / "a"), "level1/7")[0]
    exported = export_solution(given, problem, fixed)
    scope: dict[str, Any] = {}
    exec(exported["sources"][0]["content"], scope)
    reference: dict[str, Any] = {}
    exec(fixed.definition["reference"], reference)
    x, factors = torch.randn(16, 8), torch.randn(8)
    torch.testing.assert_close(scope["harness_run"](x, factors), reference["run"](x, factors), rtol=0, atol=0)
    with pytest.raises(NotConvertible, match="it asks for a backward"):
        export_problem(replace(problem, backward=("inputs",)), shapes, has_state=False)
    for wrong, reason in (
        ([("inputs[0][0]", "float32", (1,))], "not one tensor for each argument"),
        ([("inputs[0]", "int64", (1,)), ("inputs[1]", "float32", (1,))], "inputs of integers"),
        ([("inputs[0]", "uint8", (1,)), ("inputs[1]", "float32", (1,))], "no type uint8"),
    ):
        with pytest.raises(NotConvertible, match=reason):
            export_problem(problem, {"full": (wrong, shapes["full"][1])}, has_state=True)


def test_parquet_round_trip(tmp_path: Path) -> None:
    problem = own_problem(tmp_path / "a")
    written = export_parquet([problem], tmp_path / "table")
    assert [path.name for path in written] == ["level_1-00000-of-00001.parquet"]
    done = import_parquet(tmp_path / "table", tmp_path / "b")
    assert done.ids == {"level1/7": "level1/7"}
    assert (tmp_path / "b/problems/level1/7_rows.py").read_bytes() == problem.path.read_bytes()


def test_parquet_that_cannot_be_read(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    table = tmp_path / "table"
    table.mkdir()
    (table / "cut.parquet").write_bytes(b"PAR1 and no more")
    pyarrow.parquet.write_table(pyarrow.table({"code": ["x = 1"]}), table / "few.parquet")
    rows = {
        "code": ["x = 1", None, "def (", "y = 1", "y = 2"],
        "level": [1, 1, 1, -1, 1],
        "name": ["../../1_up", "2_b", "3_c", "4_d", "1_again"],
        "problem_id": [1, 2, 3, 4, 1],
    }
    pyarrow.parquet.write_table(pyarrow.table(rows), table / "odd.parquet")
    done = import_parquet(table, tmp_path / "out")
    assert done.ids == {"level1/1": "level1/1"}
    assert [path.name for path in (tmp_path / "out/problems/level1").iterdir()] == ["1_1_up.py"]
    told = "\n".join(f"{name}: {reason}" for name, reason in done.skipped.items())
    for part in (
        "cut.parquet: not a readable", "few.parquet: no column level", "row 2: code is not",
        "level1/3: not valid Python", "row 4: level -1",
    ):  # fmt: skip
        assert part in told
