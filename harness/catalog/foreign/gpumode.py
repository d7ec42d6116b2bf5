"""Convert GPU MODE's tasks and submissions to problem and solution files.

Trusted side. Nothing is executed. The texts of a task stand one below the other in one file; only the imports of its
own files become comments. guides/formats.md has the rules.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from math import prod
from pathlib import Path
from typing import Any

import yaml

from harness.catalog.foreign.shared import (
    ADAPTER,
    DEPENDS_ON_VALUES,
    Conversion,
    ForeignProblem,
    ForeignSolution,
    NotConvertible,
    comment,
    files,
    folder_name,
    parsed,
    read_text,
    top_level_names,
    write_all,
)
from harness.catalog.problems import CatalogError
from harness.catalog.source_files import MAX_SOURCE_BYTES, printable
from harness.core.status import one_line
from harness.core.yaml_file import fault_of_yaml, parse_yaml

TASK_FILE = "task.yml"
REFERENCE, SUBMISSION = "reference.py", "submission.py"

_CLASSES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}
"""Types of inputs -> the precision class of a task that draws them, the coarsest first."""


def import_gpumode(path: Path, out: Path, author: str | None = None) -> Conversion:
    """Write the tasks and submissions of a checkout as problem and solution files.

    Args:
        path: A checkout of reference-kernels, or a folder with tasks. Tasks may name files anywhere below it.
        out: New folder, for `problems` and `solutions`.
        author: Author of the submissions.  [gpumode]

    Raises:
        CatalogError: There is no task, or `out` is not empty.
    """
    skipped: dict[str, str] = {}
    found = [file for file in files(path, ".yml", skipped) if file.name == TASK_FILE]
    if not found:
        raise CatalogError([f"{path}: no {TASK_FILE} in it: pass a checkout of reference-kernels"])
    problems: list[ForeignProblem] = []
    solutions: list[ForeignSolution] = []
    for file in found:
        folder = file.parent
        key = printable(folder.relative_to(path)) if folder != path else folder.resolve().name
        try:
            task = _TaskFolder(path, folder, key)
            problems.append(task.problem())
        except NotConvertible as error:
            skipped[key] = str(error)
            continue
        for source in files(folder, ".py", skipped):
            name = printable(source.relative_to(folder))
            if name != SUBMISSION and not name.startswith(("submissions/", "solutions/")):
                continue
            try:
                solutions.append(task.solution(source, name, author or "gpumode"))
            except NotConvertible as error:
                skipped[f"{key}/{name}"] = str(error)
    done = write_all(out, problems, solutions)
    done.skipped.update(skipped)
    return done


class _TaskFolder:
    """One task: its declarations, and the texts that its reference needs."""

    def __init__(self, root: Path, folder: Path, key: str) -> None:
        self.key = key
        self._root = root.resolve()
        self._folder = folder
        try:
            data = parse_yaml(read_text(folder / TASK_FILE, MAX_SOURCE_BYTES))
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise NotConvertible(f"{TASK_FILE} is not valid YAML: {fault_of_yaml(error)}") from error
        if not isinstance(data, dict):
            raise NotConvertible(f"{TASK_FILE} holds no fields")
        self._data = data
        if data.get("lang", "py") != "py":
            raise NotConvertible(f"its language {data['lang']!s:.40} is not run here")
        listed = data.get("files")
        pairs = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
        self._files = {str(item.get("name")): str(item.get("source")) for item in pairs}
        if REFERENCE not in self._files:
            raise NotConvertible(f"its files name no {REFERENCE}")
        self._reference = self._text(REFERENCE)
        tree = parsed(self._reference)
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        if missing := {"ref_kernel", "generate_input"} - functions.keys():
            raise NotConvertible(f"{REFERENCE} has no function {' and no '.join(sorted(missing))}")
        self._buffers = _buffers(functions["generate_input"])
        drawn = ast.get_source_segment(self._reference, functions["generate_input"]) or ""
        self._precision = next((name for word, name in _CLASSES.items() if re.search(rf"\b{word}\b", drawn)), None)

    def problem(self) -> ForeignProblem:
        """Return the problem, with tests and benchmarks as workloads."""
        text, future = self._joined(self._reference, REFERENCE)
        bound = top_level_names(parsed(text))
        specs = {
            f"{kind}{number}": spec
            for kind in ("benchmark", "test")
            for number, spec in enumerate(self._specs(f"{kind}s" if kind == "test" else "benchmarks"), 1)
        }
        if not specs:
            raise NotConvertible(f"{TASK_FILE} has no tests and no benchmarks")
        if any("world_size" in spec for spec in specs.values()):
            raise NotConvertible("it runs on several GPUs (world_size)")
        first = max(specs, key=lambda name: (name[0] == "b", _amount(specs[name])))
        full = specs.pop(first)
        constants = {name: f"{name}_value" if name in bound else name for name in full if name != "seed"}
        alike = {name: spec for name, spec in specs.items() if spec.keys() == full.keys()}
        kept = {name: {constants[k]: v for k, v in spec.items() if k != "seed"} for name, spec in alike.items()}
        tests = [name for name in kept if name.startswith("test")]
        if tests and DEPENDS_ON_VALUES.search(self._reference):
            kept["small"] = deepcopy(kept[min(tests, key=lambda name: _amount(kept[name]))])
        arguments = [f"{name}={constant}" for name, constant in constants.items()]
        if "seed" in full:
            arguments.append("seed=torch.initial_seed() % 2**31")
        head = comment(f"{self.key}: {self._data.get('description') or 'a task'}")
        source = (
            f"{head}# A task of GPU MODE. Its files follow as they stand, except for the imports of each other.\n"
            f"{future}\n{text}\n\n{ADAPTER}\n\nimport torch\n\n"
            + "".join(f"{constant} = {full[name]!r}\n" for name, constant in constants.items())
            + f"\n\nclass Model(torch.nn.Module):\n{self._forward('ref_kernel')}\n\n"
            f"def get_inputs():\n{self._drawn(', '.join(arguments))}\n\n"
            "def get_init_inputs():\n    return []\n"
        )
        parts = Path(self.key).parts
        entry: dict[str, Any] = {"inputs": {"variants": []}}
        if kept:
            entry = {"workloads": {"full": {}, **kept}, **entry}
        if self._precision:
            entry = {"precision": self._precision, **entry}
        return ForeignProblem(
            key=self.key, level=folder_name(parts[-2] if len(parts) > 1 else "gpumode"), name=parts[-1], source=source,
            entry=entry,
        )  # fmt: skip

    def solution(self, path: Path, name: str, author: str) -> ForeignSolution:
        """Return a submission as a solution."""
        source = read_text(path, MAX_SOURCE_BYTES)
        if "custom_kernel" not in top_level_names(parsed(source)):
            raise NotConvertible("it defines no custom_kernel")
        if re.search(r"\bhip/|\bhip_runtime", source):
            raise NotConvertible("its kernels are HIP, which is not run here")
        text, future = self._joined(source, name)
        return ForeignSolution(
            key=f"{self.key}/{name}",
            problem=self.key,
            author=author,
            name=name.removesuffix(".py"),
            source=f"# A submission to GPU MODE's task {one_line(self.key)}.\n{future}\n{text}\n\n{ADAPTER}\n\n"
            f"import torch\n\n\nclass ModelNew(torch.nn.Module):\n{self._forward('custom_kernel')}",
        )

    def _forward(self, function: str) -> str:
        if not self._buffers:
            return f"    def forward(self, data):\n        return {function}(data)\n"
        # The reference may return a finer type than the buffer's, which submissions fill.
        cast = ".to(results[0].dtype)" if function == "ref_kernel" and len(self._buffers) == 1 else ""
        return (
            "    def forward(self, data, results):\n        # The task passes buffers for the results, too.\n"
            f"        results = [torch.{self._buffers[0]}(shape, dtype=getattr(torch, dtype), device=data[0].device)\n"
            f"                   for shape, dtype in results]\n        return {function}((*data, *results)){cast}\n"
        )

    def _drawn(self, arguments: str) -> str:
        """Return the body of `get_inputs`, with shapes and types of result buffers."""
        if not (count := len(self._buffers)):
            return f"    return [generate_input({arguments})]\n"
        return (
            f"    data = generate_input({arguments})\n"
            f'    results = [[list(x.shape), str(x.dtype).removeprefix("torch.")] for x in data[-{count}:]]\n'
            f"    return [data[:-{count}], results]\n"
        )

    def _specs(self, kind: str) -> list[dict[str, Any]]:
        held = self._data.get(kind)
        return [
            spec
            for spec in (held if isinstance(held, list) else [])
            if isinstance(spec, dict) and spec and all(isinstance(k, str) and k.isidentifier() for k in spec)
            and all(isinstance(v, int | float | str | list) for v in spec.values())
        ]  # fmt: skip

    def _text(self, name: str) -> str:
        path = (self._folder / self._files[name]).resolve()
        if not path.is_relative_to(self._root):
            raise NotConvertible(f"its file {name:.60} lies outside of the given folder")
        return read_text(path, MAX_SOURCE_BYTES)

    def _joined(self, source: str, name: str) -> tuple[str, str]:
        """Return the text below the own files that it imports, and `__future__` imports."""
        local = {Path(file).stem: file for file in self._files if file.endswith(".py") and file != SUBMISSION}
        texts: dict[str, str] = {}
        future: set[str] = set()
        self._join(source, name, local, texts, future)
        parts = [f"# ---- {file} ----\n\n{text.strip()}\n" for file, text in texts.items()]
        return "\n\n".join(parts), "".join(f"from __future__ import {item}\n" for item in sorted(future))

    def _join(self, source: str, name: str, local: Mapping[str, str], texts: dict[str, str], future: set[str]) -> None:
        lines = source.split("\n")
        for node in ast.walk(parsed(source)):
            if isinstance(node, ast.Import):
                if any(item.name in local for item in node.names):
                    raise NotConvertible(f"{name} imports {node.names[0].name} as a module; only names can be imported")
                continue
            if not isinstance(node, ast.ImportFrom) or not (node.module in local or node.module == "__future__"):
                continue
            if node.module == "__future__":
                future |= {item.name for item in node.names}
            elif any(item.asname for item in node.names):
                raise NotConvertible(f"{name} imports a name of {node.module} under another name")
            elif (file := local[str(node.module)]) not in texts and file != name:
                texts[file] = ""  # files may import each other
                self._join(self._text(file), file, local, texts, future)
            first, last = node.lineno - 1, node.end_lineno or node.lineno
            lines[first:last] = [
                f"{line[: node.col_offset]}{'pass  ' if node.col_offset and not i else ''}# {line[node.col_offset :]}"
                for i, line in enumerate(lines[first:last])
            ]
        texts.pop(name, None)
        texts[name] = "\n".join(lines)


def _amount(sizes: Mapping[str, Any]) -> int:
    """Return the product of the whole numbers among sizes, without the seed."""
    return prod(value for name, value in sizes.items() if type(value) is int and name != "seed")


def _buffers(function: ast.FunctionDef) -> list[str]:
    """Return how the last values that a function returns are made, if by `empty`.

    Returns:
        `empty` or `zeros` for each of the last values; all are alike.
    """
    returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    values = {
        target.id: node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    made: list[str] = []
    uses = Counter(node.id for node in ast.walk(function) if isinstance(node, ast.Name))
    parts = returned[-1].elts if returned and isinstance(returned[-1], ast.Tuple) else []
    for item in reversed(parts[1:]):
        if isinstance(item, ast.Name) and uses[item.id] != 2:  # something fills it
            break
        value: ast.AST | None = values.get(item.id) if isinstance(item, ast.Name) else item
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "contiguous":
            value = value.func.value
        name = value.func.attr if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) else ""
        kind = name.removesuffix("_like")
        if kind not in ("empty", "zeros") or kind not in (made or [kind]):
            break
        made.append(kind)
    return made
