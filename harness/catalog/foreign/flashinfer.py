"""Convert flashinfer-bench's definitions and solutions to ordinary files.

Trusted side. Nothing is executed. A definition's axes become constants of the problem file, its workloads become
workloads, and the reference stands above the adapter as it is. guides/formats.md has the rules.
"""

from __future__ import annotations

import ast
import json
import keyword
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

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
    load_json,
    parsed,
    read_text,
    top_level_names,
    words,
    write_all,
)
from harness.catalog.problems import CatalogError
from harness.catalog.sizes import SizeError, evaluate
from harness.catalog.source_files import printable

FREE_AXIS, FREE_TOTALS = 128, (1024, 4096)
"""Values of the variable axes of a definition without workloads: ordinary ones, and totals of offsets."""

SMALL_AXES, SMALL_TOTALS = (5, 7, 11, 13), (37, 113, 127)
"""The same for the workload `small` of a reference that depends on values, so that no sizes can be derived from it."""

FREE_FLOAT = 0.1
"""Value of a floating-point scalar that neither a workload nor the reference's signature gives."""

DEFINITION = "# definition: "
"""Start of the line in the adapter that keeps the definition without its reference, for an export."""

REFERENCE_FOLLOWS = "# A definition of flashinfer-bench. Its reference follows as it stands."
"""Last line of the header, before the reference."""

_FLOATS = {"float64", "float32", "float16", "bfloat16"}
_SMALL_FLOATS = {"float8_e4m3fn", "float8_e5m2"}
_INTEGERS = {"int64", "int32", "int16", "int8", "uint8"}
_CLASSES = {"float8_e4m3fn": "fp8", "float8_e5m2": "fp8", "bfloat16": "bf16", "float16": "fp16"}
_LAST_OFFSET = re.compile(r"\s*(\w+)\s*==\s*(\w+)\[-1\]\.item\(\)\s*")
_EQUAL = re.compile(r"\s*(\w+)\s*==([^=].*)")

_OFFSETS = '''

def _offsets(count, total):
    """Return `count` rising offsets from 0 to the total, at random about equal distances."""
    inner = (torch.arange(1, count - 1) + torch.rand(count - 2) / 2) * (total / (count - 1))
    return torch.cat([torch.zeros(1), inner.floor(), torch.full((1,), float(total))])
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelDefinition:
    """One definition, checked.

    Attributes:
        data: The JSON object.
        name: Its name.
        tree: The reference's syntax tree.
        entry: Name of the reference's function.
        arguments: Inputs that the function takes, in its order.
        axes: Name of each axis in the definition -> name of its constant.
    """

    data: Mapping[str, Any]
    name: str
    tree: ast.Module
    entry: str
    arguments: tuple[str, ...]
    axes: Mapping[str, str]

    @property
    def inputs(self) -> Mapping[str, Mapping[str, Any]]:
        """Specification of each input by name."""
        held: Mapping[str, Mapping[str, Any]] = self.data["inputs"]
        return held


def import_flashinfer(path: Path, out: Path, author: str | None = None) -> Conversion:
    """Write the definitions and solutions of a data set as problem and solution files.

    Args:
        path: Folder with definitions (`*.json` with a `reference`), workloads (`*.jsonl`) and solutions (`*.json` with
            `sources`), at any depth.
        out: New folder, for `problems` and `solutions`.
        author: Author of all solutions instead of their own.

    Raises:
        CatalogError: There is no definition, or `out` is not empty.
    """
    skipped: dict[str, str] = {}
    definitions: list[dict[str, Any]] = []
    solutions: list[dict[str, Any]] = []
    for file in files(path, ".json", skipped):
        try:
            held = load_json(read_text(file), printable(file))
        except NotConvertible as error:
            skipped[printable(file.relative_to(path))] = str(error)
            continue
        if "axes" in held and "inputs" in held:
            definitions.append(held)
        elif "sources" in held and "spec" in held:
            solutions.append(held)
    if not definitions:
        raise CatalogError([f"{path}: no definition in it: a definition is a .json file with axes, inputs, reference"])
    workloads = _workloads(path, skipped)
    problems: list[ForeignProblem] = []
    checked: dict[str, KernelDefinition] = {}
    for held in sorted(definitions, key=lambda item: str(item.get("name"))):
        key = f"definition {held.get('name', '?')!s:.100}"
        try:
            definition = check_definition(held)
            problems.append(_problem(definition, workloads.get(definition.name, [])))
            checked[definition.name] = definition
        except (NotConvertible, SizeError) as error:
            skipped[key] = str(error)
    converted: list[ForeignSolution] = []
    for held in sorted(solutions, key=lambda item: str(item.get("name"))):
        try:
            converted.append(_solution(held, checked, author))
        except NotConvertible as error:
            skipped[f"solution {held.get('name', '?')!s:.100}"] = str(error)
    done = write_all(out, problems, converted)
    done.skipped.update(skipped)
    return done


def check_definition(held: Mapping[str, Any]) -> KernelDefinition:
    """Check a definition's fields.

    Raises:
        NotConvertible: A field is missing or wrong, or the reference can't be called with the inputs.
    """
    for name, kind in (("name", str), ("op_type", str), ("axes", dict), ("inputs", dict), ("outputs", dict)):
        if not isinstance(held.get(name), kind) or not held[name]:
            raise NotConvertible(f"the field {name} is missing or is no {kind.__name__}")
    reference = held.get("reference")
    if not isinstance(reference, str) or not reference.strip():
        raise NotConvertible("it has no reference")
    for group in ("inputs", "outputs"):
        for name, spec in held[group].items():
            if not isinstance(spec, dict) or not isinstance(spec.get("dtype"), str):
                raise NotConvertible(f"{group}, {name:.60}: no dtype")
            shape = spec.get("shape")
            if shape is not None and not (isinstance(shape, list) and all(axis in held["axes"] for axis in shape)):
                raise NotConvertible(f"{group}, {name:.60}: the shape must be null or a list of axes")
    tree = parsed(reference)
    bound = top_level_names(tree) | {"torch", "Model", "get_inputs", "get_init_inputs", "_offsets"}
    axes: dict[str, str] = {}
    for name, axis in held["axes"].items():
        if not name.isidentifier() or keyword.iskeyword(name):
            raise NotConvertible(f"axis {name!r:.60} is no name of a constant")
        if not isinstance(axis, dict) or (axis.get("type") == "const") != (type(axis.get("value")) is int):
            raise NotConvertible(f"axis {name:.60} must have the type var, or the type const and a whole value")
        axes[name] = f"{name}_axis" if name in bound else name
    entry, arguments = _entry(tree, held["inputs"])
    return KernelDefinition(data=held, name=held["name"], tree=tree, entry=entry, arguments=arguments, axes=axes)


def _entry(tree: ast.Module, inputs: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Return the reference's function (`run`, or the last one) and its inputs."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    run = next((node for node in functions if node.name == "run"), functions[-1] if functions else None)
    if run is None:
        raise NotConvertible("the reference has no function run")
    arguments = run.args
    plain = [*arguments.posonlyargs, *arguments.args]
    optional = {item.arg for item in plain[len(plain) - len(arguments.defaults) :]}
    unknown = [item.arg for item in plain if item.arg not in inputs and item.arg not in optional]
    unknown += [
        item.arg for item, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value is None
    ]
    if unknown:
        raise NotConvertible(f"the reference takes {', '.join(unknown)}, which no input describes")
    taken: list[str] = []
    for item in plain:
        if item.arg not in inputs or (item.arg in optional and inputs[item.arg].get("optional")):
            break  # the rest keeps its defaults
        taken.append(item.arg)
    rest = [item.arg for item in plain[len(taken) :] if item.arg not in optional]
    if rest:
        raise NotConvertible(f"the reference takes {rest[0]} after an optional input")
    return run.name, tuple(taken)


def _workloads(path: Path, skipped: dict[str, str]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the workloads of each definition, of workload files and of traces."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for file in files(path, ".jsonl", skipped):
        for number, line, error in trace_lines(file):
            where = f"{printable(file.relative_to(path))}, line {number}"
            workload = line.get("workload")
            if error is not None or not isinstance(workload, dict) or not isinstance(line.get("definition"), str):
                skipped[where] = error or "no definition or no workload"
                continue
            axes, uuid = workload.get("axes"), workload.get("uuid")
            if not isinstance(uuid, str) or not isinstance(axes, dict):
                skipped[where] = "the workload has no uuid or no axes"
            elif any(type(value) is not int or value < 0 for value in axes.values()):
                skipped[where] = "the workload's axes are not whole numbers"
            else:
                found.setdefault(line["definition"], {}).setdefault(uuid, workload)
    return {name: list(held.values()) for name, held in found.items()}


def trace_lines(file: Path) -> list[tuple[int, dict[str, Any], str | None]]:
    """Return the lines of a `.jsonl` file: number, object, and why it can't be read."""
    try:
        text = read_text(file)
    except NotConvertible as error:
        return [(0, {}, str(error))]
    lines: list[tuple[int, dict[str, Any], str | None]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                lines.append((number, load_json(line, f"line {number}"), None))
            except NotConvertible as error:
                lines.append((number, {}, str(error)))
    return lines


def workload_name(uuid: str) -> str:
    """Return the name of a workload with this uuid."""
    return f"w{re.sub('[^a-z0-9]', '', uuid.lower())[:12]}"


def _problem(definition: KernelDefinition, workloads: Sequence[Mapping[str, Any]]) -> ForeignProblem:
    data = definition.data
    values, derived = _constants(definition)
    named = {workload_name(item["uuid"]): _sizes(definition, item, values, derived) for item in workloads}
    kept = {name: sizes for name, sizes in named.items() if sizes}
    for name in reversed(list(kept)):  # the values of inputs are drawn, so workloads of equal sizes are the same
        if any(kept[other] == kept[name] for other in list(kept)[: list(kept).index(name)]):
            del kept[name]
    if kept:
        largest = max(kept, key=lambda name: math.prod(v for v in kept[name].values() if type(v) is int))
        values.update(kept.pop(largest))
    lines, arguments, needs_offsets = _inputs(definition, values)
    if DEPENDS_ON_VALUES.search(data["reference"]):
        small = _free(definition, SMALL_AXES, SMALL_TOTALS)
        kept["small"] = {name: value for name, value in small.items() if name not in derived}
    assigned = [f"{name} = {derived.get(name, repr(value))}" for name, value in _ordered(values, derived)]
    constraints = [str(item) for item in data.get("constraints") or []]
    kept_fields = {name: value for name, value in data.items() if name in _KEPT_FIELDS and value not in (None, [])}
    head = comment(f"{definition.name}: {data.get('description') or data['op_type']}")
    source = (
        f"{head}{REFERENCE_FOLLOWS}\n\n{data['reference']}\n\n"
        f"{ADAPTER}\n{DEFINITION}{json.dumps(kept_fields)}\n\nimport torch\n\n"
        + "".join(comment(f"constraint: {item}") for item in constraints)
        + "\n".join(assigned)
        + "\n"
        + (_OFFSETS if needs_offsets else "")
        + f"\n\nclass Model(torch.nn.Module):\n    def forward(self, {', '.join(arguments)}):\n"
        f"        return {definition.entry}({', '.join(arguments)})\n\n\ndef get_inputs():\n    return [\n"
        + "".join(f"        {line}\n" for line in lines)
        + "    ]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    classes = [_CLASSES[spec["dtype"]] for spec in data["outputs"].values() if spec["dtype"] in _CLASSES]
    entry: dict[str, Any] = {}
    if classes:
        entry["precision"] = min(classes, key=["fp8", "bf16", "fp16"].index)
    if kept:
        entry["workloads"] = {"full": {}, **kept}
    entry["inputs"] = {"variants": []}
    return ForeignProblem(
        key=definition.name, level=folder_name(data["op_type"]), name=definition.name, source=source, entry=entry
    )


_KEPT_FIELDS = ("name", "op_type", "description", "tags", "axes", "inputs", "outputs", "constraints")


def _constants(definition: KernelDefinition) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values of the axes' constants, and expressions of dependent ones."""
    axes = definition.data["axes"]
    free = _free(definition, (FREE_AXIS,), FREE_TOTALS)
    values: dict[str, Any] = {
        definition.axes[k]: axis.get("value", free.get(definition.axes[k])) for k, axis in axes.items()
    }
    derived: dict[str, str] = {}
    for text in definition.data.get("constraints") or []:
        match = _EQUAL.fullmatch(str(text))
        if match is None or axes.get(match[1], {}).get("type") != "var" or match[1] in derived:
            continue
        names = {name: values[constant] for name, constant in definition.axes.items() if constant not in derived}
        names.pop(match[1], None)
        try:
            value = evaluate(match[2], names)
        except SizeError:
            continue  # a condition on values
        used = {match[1], *re.findall(r"[A-Za-z_]\w*", match[2])}
        if value.is_integer() and all(name == definition.axes[name] for name in used):
            derived[match[1]], values[match[1]] = match[2].strip(), int(value)
    return values, derived


def _free(definition: KernelDefinition, axes: Sequence[int], totals: Sequence[int]) -> dict[str, int]:
    """Return values of the variable axes, in order: totals of offsets, and others."""
    sums = {*_totals(definition).values(), "num_pages"}
    free = [definition.axes[name] for name, axis in definition.data["axes"].items() if axis.get("type") == "var"]
    found: dict[str, int] = {}
    for name in free:
        own = totals if name in sums else axes
        found[name] = own[min(sum((other in sums) == (name in sums) for other in found), len(own) - 1)]
    return found


def _totals(definition: KernelDefinition) -> dict[str, str]:
    """Return the inputs that are offsets -> the constant of their total."""
    matches = (_LAST_OFFSET.fullmatch(str(text)) for text in definition.data.get("constraints") or [])
    return {match[2]: definition.axes[match[1]] for match in matches if match and match[1] in definition.axes}


def _ordered(values: Mapping[str, Any], derived: Mapping[str, str]) -> list[tuple[str, Any]]:
    return [item for item in values.items() if item[0] not in derived] + [
        item for item in values.items() if item[0] in derived
    ]


def _sizes(
    definition: KernelDefinition, workload: Mapping[str, Any], values: Mapping[str, Any], derived: Mapping[str, str]
) -> dict[str, Any]:
    """Return the sizes of a workload; empty if it does not fit the definition."""
    sizes: dict[str, Any] = {}
    axes = definition.data["axes"]
    for name, axis in axes.items():
        if axis.get("type") == "const":
            continue
        value = workload["axes"].get(name)
        if value is None:
            return {}
        if definition.axes[name] not in derived:
            sizes[definition.axes[name]] = value
    inputs = workload.get("inputs")
    for name, spec in (inputs if isinstance(inputs, dict) else {}).items():
        value = spec.get("value") if isinstance(spec, dict) and spec.get("type") == "scalar" else None
        if name in definition.arguments and type(value) in (int, float, bool):
            sizes[scalar_constant(name, definition)] = value
    return sizes


def scalar_constant(name: str, definition: KernelDefinition) -> str:
    """Return the name of the constant that holds a scalar input."""
    return f"{name}_value" if name in definition.axes.values() or name in top_level_names(definition.tree) else name


def _inputs(definition: KernelDefinition, values: dict[str, Any]) -> tuple[list[str], list[str], bool]:
    """Return lines of `get_inputs`, arguments of `forward`, and use of `_offsets`."""
    totals = _totals(definition)
    lines = []
    for name in definition.arguments:
        spec = definition.inputs[name]
        dtype, shape = spec["dtype"], spec.get("shape")
        if shape is None:
            constant = scalar_constant(name, definition)
            if constant not in values:
                if dtype not in _FLOATS:
                    raise NotConvertible(f"input {name} is a scalar ({dtype}), and no workload gives its value")
                values[constant] = FREE_FLOAT
            lines.append(f"{constant},  # {name}")
            continue
        sizes = "".join(f"{definition.axes[axis]}, " for axis in shape).removesuffix(" ") or ""
        axes = definition.axes
        if name == "probs" and dtype in _FLOATS:
            text = f"torch.softmax(torch.randn({sizes.removesuffix(',')}), -1).to(torch.{dtype})"
        elif dtype in _FLOATS:
            text = f"torch.randn({sizes.removesuffix(',')}, dtype=torch.{dtype})" if shape else "torch.randn(())"
        elif dtype in _SMALL_FLOATS:
            text = f"torch.randn({sizes.removesuffix(',')}).clamp(-2, 2).to(torch.{dtype})"
        elif dtype == "bool":
            text = f"torch.rand({sizes.removesuffix(',')}) < 0.5"
        elif dtype not in _INTEGERS:
            raise NotConvertible(f"input {name} has the type {dtype:.40}, which the import can't draw")
        elif name in totals and len(shape) == 1:
            text = f"_offsets({axes[shape[0]]}, {totals[name]}).to(torch.{dtype})"
        elif "indices" in name and "num_pages" in axes:
            text = f"torch.randint(0, {axes['num_pages']}, ({sizes})).to(torch.{dtype})"
        elif name.endswith("last_page_len") and "page_size" in axes:
            text = f"torch.randint(1, {axes['page_size']} + 1, ({sizes})).to(torch.{dtype})"
        else:
            raise NotConvertible(
                f"input {name} has integers ({dtype}), and nothing in the definition gives their range"
            )
        lines.append(f"{text},  # {name}")
    return lines, list(definition.arguments), any("_offsets(" in line for line in lines)


def _solution(
    held: Mapping[str, Any], definitions: Mapping[str, KernelDefinition], author: str | None
) -> ForeignSolution:
    name, spec, key = held.get("name"), held.get("spec"), held.get("definition")
    if not isinstance(name, str) or not isinstance(key, str) or not isinstance(spec, dict):
        raise NotConvertible("the fields name, definition and spec must be texts and an object")
    definition = definitions.get(key)
    if definition is None:
        raise NotConvertible(f"its definition {key!r:.80} was not imported")
    sources = _sources(held.get("sources"))
    language, binding = spec.get("language"), spec.get("binding") or "tvm-ffi"
    file, _, function = str(spec.get("entry_point")).partition("::")
    if file not in sources or not function.isidentifier():
        raise NotConvertible(f"its entry point {spec.get('entry_point')!r:.80} is not in its sources")
    head = comment(f"{name}: {held.get('description') or 'a solution of ' + key}")
    head += "# A solution of flashinfer-bench. Its sources follow as they stand.\n\n"
    if language in ("python", "triton"):
        others = [path for path in sources if path != file]
        if others:
            raise NotConvertible(f"it has several Python files ({', '.join(others)[:80]}), and a solution is one file")
        text, called = sources[file], function
    elif language in ("cuda", "cpp") and binding == "torch":
        text, called = _extension(sources, words(name)), f"_extension.{function}"
    elif language in ("cuda", "cpp"):
        raise NotConvertible(f"its binding {binding!s:.40} is not run here, only torch's is")
    else:
        raise NotConvertible(f"its language {language!s:.40} is not run here")
    arguments = list(definition.arguments)
    if spec.get("destination_passing_style", True) is True:
        body = _destinations(definition, called)
    else:
        body = f"        return {called}({', '.join(arguments)})\n"
    source = (
        f"{head}{text}\n\n{ADAPTER}\n\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n"
        f"    def forward(self, {', '.join(arguments)}):\n{body}"
    )
    who = re.sub(r"[^A-Za-z0-9._@+=-]+", "_", author or str(held.get("author") or "flashinfer"))[:100].lstrip("._@+=-")
    return ForeignSolution(key=f"solution {name}", problem=key, author=who or "flashinfer", name=name, source=source)


def _sources(held: Any) -> dict[str, str]:
    """Return the text of each source by its path."""
    found: dict[str, str] = {}
    for item in held if isinstance(held, list) else []:
        path, content = (item.get("path"), item.get("content")) if isinstance(item, dict) else (None, None)
        if not isinstance(path, str) or not isinstance(content, str) or path in found:
            raise NotConvertible("each source needs a path of its own and a text")
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts or "\\" in path:
            raise NotConvertible(f"the path of a source leads out of its folder: {path!r:.80}")
        found[path] = content
    if not found:
        raise NotConvertible("it has no sources")
    return found


def _extension(sources: Mapping[str, str], name: str) -> str:
    """Return the call of `load_inline` for sources that bind themselves to torch."""
    if not any("PYBIND11_MODULE" in text for text in sources.values()):
        raise NotConvertible("its sources have no PYBIND11_MODULE")
    parts, arguments = ["from torch.utils.cpp_extension import load_inline\n"], []
    headers = {
        PurePosixPath(path).name: text for path, text in sources.items() if path.endswith((".h", ".hpp", ".cuh"))
    }
    for kind, suffixes in (("cpp", (".cpp", ".cc", ".cxx")), ("cuda", (".cu",))):
        texts = [_included(text, headers) for path, text in sources.items() if path.endswith(suffixes)]
        constants = [f"{kind.upper()}_{number}" for number in range(1, len(texts) + 1)]
        parts += [f"{constant} = {_quoted(text)}\n" for constant, text in zip(constants, texts, strict=True)]
        arguments.append(f"    {kind}_sources=[{', '.join(constants)}],\n")
    return "\n".join(parts) + f'\n_extension = load_inline(\n    name="{name}",\n{"".join(arguments)})'


def _included(text: str, headers: Mapping[str, str], depth: int = 0) -> str:
    """Put the solution's own headers in the place of their includes."""

    def header(match: re.Match[str]) -> str:
        own = headers.get(PurePosixPath(match[1]).name)
        if own is None:
            return match[0]
        if depth > 8 or len(own) > 2**22:
            raise NotConvertible("its headers include each other")
        return _included(own.replace("#pragma once", ""), headers, depth + 1)

    return re.sub(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)".*$', header, text, flags=re.MULTILINE)


def _quoted(text: str) -> str:
    return f'r"""\n{text}"""' if '"""' not in text and not text.endswith(("\\", '"')) else repr(text)


def _destinations(definition: KernelDefinition, called: str) -> str:
    """Return the body of `forward` that allocates the outputs and passes them."""
    bound: dict[str, str] = {}
    device = None
    for name in definition.arguments:
        for number, axis in enumerate(definition.inputs[name].get("shape") or ()):
            bound.setdefault(axis, f"{name}.shape[{number}]")
            device = device or f"{name}.device"
    lines, outputs = [], list(definition.data["outputs"])
    for name, spec in definition.data["outputs"].items():
        sizes = []
        for axis in spec.get("shape") or ():
            value = definition.data["axes"][axis].get("value")
            if value is None and axis not in bound:
                raise NotConvertible(f"no input has the axis {axis} of its output {name}")
            sizes.append(str(value) if value is not None else bound[axis])
        if not name.isidentifier() or device is None:
            raise NotConvertible(f"its output {name!r:.60} can't be allocated")
        shape = f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
        lines.append(f"        {name} = torch.empty({shape}, dtype=torch.{spec['dtype']}, device={device})\n")
    lines.append(f"        {called}({', '.join([*definition.arguments, *outputs])})\n")
    return "".join(lines) + f"        return {', '.join(outputs)}\n"
