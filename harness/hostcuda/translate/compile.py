"""Compile one extension for the host device: `python compile.py FOLDER`.

Runs in the builder's sandbox, because it reads the solution's sources. `build.prepare` has written `job.json` into
FOLDER.

The first attempt has lean headers and no pybind11 (`toolchain.headers.lean`). If a source needs more of torch, it is
compiled again with all of torch's headers and pybind11. `cuda.cu` and `main.cpp` are separate units, as in torch; a
`main.cpp` that only declares functions is joined to `cuda.cu` without a difference (`translate.declared`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    sys.path = [p for p in sys.path if p != str(Path(__file__).resolve().parent)]

from harness.hostcuda.translate.bindings import Argument, Definition, module_definition
from harness.hostcuda.translate.declared import (
    has_torch,
    joined_declarations,
    torch_includes,
    undeclared,
    undefined,
    unexported,
)
from harness.hostcuda.translate.kinds import (
    Precompiled,
    binds,
    kind_of,
    needs_full,
    switches,
    without_names_of_pybind11,
)
from harness.hostcuda.translate.lacking import (
    MissingConstruct,
    among_includes,
    among_symbols,
    in_log,
    launching_headers,
    names_of_headers,
    out_of_sight,
)
from harness.hostcuda.translate.macros import defines, is_switch, macros
from harness.hostcuda.translate.preprocess import PreprocessedUnit, author_text, marked
from harness.hostcuda.translate.refusals import declarations as refused_declarations
from harness.hostcuda.translate.refusals import in_log as refused_in
from harness.hostcuda.translate.rewrite import rewrite
from harness.toolchain.cuda_source.main_declarations import declarations
from harness.toolchain.headers.fallback import first_error, own_fault, searched
from harness.toolchain.headers.lean import DEFINE, UNIT, LeanHeaders

_LEAN_IS_TO_BLAME = re.compile(
    r"/torch/include/[^\n]*error:|/"
    + re.escape(UNIT)
    + r":[^\n]*error:|error:.*(torch|pybind|\bpy\b|\bat::|c10|Converter|hostcuda::bind)|bind\.h"
    r"|error: (?:no matching function|no match for|call of overloaded).*\n[^\n|]*\|[^\n]*\b(?:torch|at|c10)::"
    r"|error: (?:redefinition of|conflicting declaration|default argument given)"
    r"|error: .\w+. is not a member of .std.|error: .std::\w+. has not been declared|incomplete type .[^\n]*\bstd::",
    re.I,
)

MOST_FRAMES = 50_000
"""Limit of Python's recursion during translation, which follows the syntax tree from node to node."""

_OWN = "lean"
"""Folder of the header that belongs to one lean unit."""

_ENTRY = "PyInit_"
"""Occurs in a source that defines a module without pybind11."""

_MISSING = re.compile(r"fatal error: (.+): No such file or directory")

_OF_THE_STANDARD_LIBRARY = re.compile(
    r"abs|accumulate|advance|apply|at|back|begin|clamp|copy\w*|count\w*|data|distance|empty|end|equal|exchange|fill\w*"
    r"|find\w*|front|gcd|generate|get\w*|hash|inner_product|invoke|iota|lcm|lerp|lower_bound|make_\w+|max\w*|merge"
    r"|midpoint|min\w*|move|next|partial_\w+|partition|prev|ref|remove\w*|replace\w*|reverse|rotate|round|search|size"
    r"|sort|swap|tie|transform\w*|unique|upper_bound|visit|\w+_(?:of|sort|sorted|scan|element|if|each)"
)

_ARRAYS_ARE_SAID = '#pragma GCC diagnostic warning "-Wvla"\n'
"""In the text, because a precompiled header is valid only for its own flags."""

_ARCHITECTURE = "__CUDA_ARCH__"
"""Defined while nvcc compiles for the device, undefined while it compiles the same text for the host."""

_BEGIN = '#line 1 "cuda.cu"\n'

_REFUSED = 2
"""Exit code of a unit that no other headers can help."""

_MANGLED = "_Z"
"""Prefix of C++ symbols. Those of torch may exist when the module is imported."""

_OWN_LINE = re.compile(r"Traceback \(most recent call last\):|[\w.]+:\d+: note: not emulated:")


def main(folder: Path) -> int:
    job: dict[str, Any] = json.loads((folder / "job.json").read_text())
    cuda = "\n".join(job["cuda_sources"])
    cpp = "\n".join(job["cpp_sources"])
    texts = {"cuda.cu": cuda, "main.cpp": cpp}
    available = Path(job["headers"]["folder"]) / "include"
    found = TranslationFindings(
        [lack for file, text in texts.items() for lack in among_includes(file, text, available)]
    )
    code, log = 1, ""
    if found.lacking or not (log := undeclared(texts, job)):
        code, log = _build(folder, job, texts, found)
    (folder / "findings.json").write_text(
        json.dumps(
            {
                "not_emulated": [{"line": lack.line, "construct": lack.construct} for lack in found.lacking],
                "kernels": found.kernels,
            }
        )
    )
    _say(found.lacking)
    if code != 0:
        sources = (*texts.values(), *job["own_headers"])
        _say(lack for lack in in_log(log, available, sources) if lack not in found.lacking)
        sys.stdout.write(_quoted(log))
        return code
    symbols = _undefined(Path(job["module"]))
    _say(among_symbols(symbols, texts.items()))
    if any(among_symbols([symbol for symbol in symbols if not symbol.startswith(_MANGLED)], texts.items())):
        # Without such a C function the module can't be imported. If torch is built for CUDA, the module would call the
        # real function, which finds no GPU.
        sys.stdout.write("the module calls functions that are not emulated\n")
        return 1
    return 0


@dataclass(slots=True)
class TranslationFindings:
    """What the translation finds in the sources."""

    lacking: list[MissingConstruct] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """One file for the compiler, and the kind of its precompiled headers.

    `headers` is None for a unit that includes parts of torch only, or nothing of it. `host` is the text of the host's
    side; it differs from the file's own, the device's, if the sources ask for the architecture. It is None for C++.
    """

    path: Path
    headers: Precompiled | None
    host: str | None = None


def _build(folder: Path, job: dict[str, Any], texts: dict[str, str], found: TranslationFindings) -> tuple[int, str]:
    """Compile lean, then with all headers if that fails; code and log of the last try."""
    bound = _bound(job, texts)
    lean = None if bound is None else _lean_units(folder, job, texts, bound)
    log = ""
    available = Path(job["headers"]["folder"]) / "include"
    if lean is not None:
        units, exported = lean
        code, log = _compile_all(job, units, found)
        if code == _REFUSED:
            return code, log
        if error := undefined(log, exported):
            return 1, error
        if code == 0:
            if error := unexported(units[0].path.with_suffix(".o"), exported):
                return 1, error
            code, log = _link(job, [unit.path.with_suffix(".o") for unit in units])
            if code == 0:
                return 0, log
        elif (
            not _may_be_mended(log, job["headers"]["include_flags"])
            or any(in_log(log, available, (*texts.values(), *job["own_headers"])))
            or out_of_sight(log, available)
            or _is_own_fault(log, texts, job["headers"]["include_flags"])
        ):
            return code, log
    theirs = Path(job["headers"]["torch_include"])
    if any(launching_headers(text, available, theirs) for text in texts.values()):
        return 1, log or "an included header of torch launches kernels\n"  # a full build takes minutes and fails too
    units = _full_units(folder, job, texts)
    code, log = _compile_all(job, units, found)
    if code != 0:
        return code, log
    return _link(job, [unit.path.with_suffix(".o") for unit in units])


def _lean_units(
    folder: Path,
    job: dict[str, Any],
    texts: dict[str, str],
    bound: Definition,
) -> tuple[list[_Unit], list[str]] | None:
    """The units without pybind11, the one with `cuda.cu` first.

    None if they may not suffice. Also the functions that this unit must define for others, if `main.cpp` is joined
    to it.
    """
    plain = {name: without_names_of_pybind11(bound.without(text)) for name, text in texts.items()}
    header = _lean_header(job, list(plain.values()))
    if header is None:
        return None
    (folder / _OWN).mkdir(exist_ok=True)
    (folder / _OWN / UNIT).write_text(header)
    torch = f"#include <{UNIT}>\n"
    in_cuda = bound.text != "" and bound.text in texts["cuda.cu"]
    kind = kind_of((), job["cuda_flags"])
    declared = declarations(plain["main.cpp"])
    names = list(bound.functions.values())
    if (
        declared is not None
        and (has_torch(texts["cuda.cu"], job) or not (declared.strip() or names))
        and (in_cuda or all(re.fullmatch(r"\w+", name) for name in names))
    ):
        before, after, chosen = joined_declarations(declared, () if in_cuda else names)
        text = _cuda_unit(job, texts["cuda.cu"], before, plain["cuda.cu"], torch) + after
        text += _bindings(job, bound, chosen)
        unit = _cuda(folder / "unit.cpp", text, kind if has_torch(texts["cuda.cu"], job) else None, job)
        return [unit], list(chosen)
    first = _cuda_unit(job, texts["cuda.cu"], "", plain["cuda.cu"], torch) + (
        _bindings(job, bound, {}) if in_cuda else ""
    )
    opening = torch + '#include "hostcuda/bind.h"\n' if has_torch(texts["main.cpp"], job) else ""
    second = (
        opening
        + _opening(job["cpp_flags"])
        + '#line 1 "main.cpp"\n'
        + plain["main.cpp"]
        + "\n"
        + ("" if in_cuda else _bindings(job, bound, {}))
    )
    return [
        _cuda(folder / "unit.cpp", first, kind if has_torch(texts["cuda.cu"], job) else None, job),
        _written(folder / "lean_main.cpp", second, Precompiled.SWITCHED if opening else None),
    ], []


def _full_units(folder: Path, job: dict[str, Any], texts: dict[str, str]) -> list[_Unit]:
    """The units as torch compiles them: all headers, pybind11."""
    cuda, main = (Precompiled.FULL if has_torch(texts[name], job) else None for name in ("cuda.cu", "main.cpp"))
    second = _opening(job["cpp_flags"]) + '#line 1 "main.cpp"\n' + texts["main.cpp"] + "\n" + _pybind(job)
    return [
        _cuda(folder / "cuda_unit.cpp", _cuda_unit(job, texts["cuda.cu"], "", texts["cuda.cu"], ""), cuda, job),
        _written(folder / "main_unit.cpp", second, main),
    ]


def _cuda_unit(job: dict[str, Any], source: str, before: str, cuda_text: str, torch: str) -> str:
    """The text of the unit with `cuda.cu`.

    `before` and `torch` come before CUDA's headers.
    """
    if has_torch(source, job):
        before = f"{torch}{before}#define HOSTCUDA_TORCH 1\n"
    else:
        before += torch_includes(source, Path(job["headers"]["torch_include"]))
    return (
        before
        + '#line 1 "hostcuda/opening.h"\n'
        + switches(job["cuda_flags"])
        + '#include "hostcuda/unit.h"\n'
        + _opening(job["cuda_flags"])
        + _ARRAYS_ARE_SAID
        + _BEGIN
        + marked(cuda_text)
        + "\n"
        + _registration(job)
    )


def _cuda(path: Path, text: str, headers: Precompiled | None, job: dict[str, Any]) -> _Unit:
    asks = any(_ARCHITECTURE in each for each in (text, *job["own_headers"]))
    host = text.replace(_BEGIN, f"#undef {_ARCHITECTURE}\n{_BEGIN}", 1) if asks else text
    path.write_text(text)
    return _Unit(path=path, headers=headers, host=host)


def _written(path: Path, text: str, headers: Precompiled | None) -> _Unit:
    path.write_text(text)
    return _Unit(path=path, headers=headers)


def _lean_header(job: dict[str, Any], texts: list[str]) -> str | None:
    """The header of torch's parts for a lean unit of these texts and own headers.

    None if a lean unit may not suffice.
    """
    if any(needs_full(text) or binds(text) for text in texts):
        return None
    include = Path(job["headers"]["torch_include"])
    return LeanHeaders(include).unit("\n".join([*texts, *job["own_headers"]]))


def _is_own_fault(log: str, texts: dict[str, str], include_flags: Iterable[str]) -> bool:
    """Whether the first error would occur with the full headers too."""
    folders = [flag.removeprefix("-isystem") for flag in include_flags if flag.startswith("-isystem")]
    stands, macro = searched(folders)
    error = first_error(log)
    return error is not None and (
        error.file in texts and own_fault(log, error.file, texts[error.file], stands=stands, macro=macro)
    )


def _may_be_mended(log: str, include_flags: Iterable[str]) -> bool:
    """Whether the full headers might compile what failed with the lean ones.

    They do not help if an included file exists nowhere.
    """
    missing = _MISSING.search(log)
    if missing is None:
        return _LEAN_IS_TO_BLAME.search(log) is not None
    folders = (flag.removeprefix("-isystem").removeprefix("-I") for flag in include_flags)
    return any(folder and (Path(folder) / missing[1]).exists() for folder in folders)


def _bound(job: dict[str, Any], texts: dict[str, str]) -> Definition | None:
    """The functions to bind without pybind11.

    These are the listed functions, or those of a module definition that only names functions. Nothing is bound if no
    source defines a module; the import then fails. None if only pybind11 can tell.
    """
    if job["functions"] is not None:
        return Definition(text="", functions={name: name for name in job["functions"]})
    if not any(binds(text) or _ENTRY in text for text in (*texts.values(), *job["own_headers"])):
        return Definition(text="", functions={})
    found = [held for text in texts.values() if (held := module_definition(text)) is not None]
    return found[0] if len(found) == 1 else None


def _opening(flags: list[str]) -> str:
    """The author's macros as directives, without CUDA's switches."""
    return defines({name: value for name, value in macros(flags).items() if not is_switch(name)})


def _say(lacking: Iterable[MissingConstruct]) -> None:
    for lack in dict.fromkeys(lacking):
        sys.stdout.write(lack.note())


def _quoted(log: str) -> str:
    """The compiler's output, with lines marked that look like the harness's own.

    A compiler's messages quote text of the sources, including line breaks.
    """
    return "".join(f"| {line}" if _OWN_LINE.match(line) else line for line in log.splitlines(keepends=True))


def _undefined(module: Path) -> list[str]:
    """Symbols that the module expects from other libraries."""
    tool = shutil.which("nm")
    if tool is None:
        return []
    done = subprocess.run([tool, "-D", "--undefined-only", str(module)], capture_output=True, text=True, check=False)
    return [line.split()[-1].split("@")[0] for line in done.stdout.splitlines() if line.split()]


def _registration(job: dict[str, Any]) -> str:
    return f"static const ::hostcuda::ModuleRegistration hostcuda_module({int(job['checked'])});\n"


def _bindings(job: dict[str, Any], bound: Definition, chosen: Mapping[str, str]) -> str:
    """The module without pybind11.

    `chosen` has the names of functions that differ in this unit.
    """
    if not bound.functions and bound.text == "" and job["functions"] is None:
        return ""
    methods = "".join(
        f"    {_method(chosen.get(function, function), name, bound.arguments.get(name, ()))},\n"
        for name, function in bound.functions.items()
    )
    return (
        f"static PyMethodDef hostcuda_methods[] = {{\n{methods}    {{nullptr, nullptr, 0, nullptr}}}};\n"
        + f"static PyModuleDef hostcuda_definition = {{PyModuleDef_HEAD_INIT, {json.dumps(job['name'])}, "
        f"{bound.doc or 'nullptr'}, -1, hostcuda_methods, nullptr, nullptr, nullptr, nullptr}};\n"
        + f"PyMODINIT_FUNC PyInit_{job['name']}() {{ return PyModule_Create(&hostcuda_definition); }}\n"
    )


def _method(function: str, name: str, arguments: Iterable[Argument]) -> str:
    named = [
        f"{{{json.dumps(each.name)}, {'nullptr' if each.default is None else _made(each.default)}}}"
        for each in arguments
    ]
    if not named:
        return f"HOSTCUDA_METHOD({function}, {json.dumps(name)})"
    return f"HOSTCUDA_NAMED_METHOD({function}, {json.dumps(name)}, {', '.join(named)})"


def _made(default: str) -> str:
    """The expression that makes the Python object that pybind11 makes of this literal."""
    return f"+[]() -> PyObject* {{ return hostcuda::bind::made({default}); }}"


def _pybind(job: dict[str, Any]) -> str:
    if job["functions"] is None:
        return ""
    lines = "".join(
        f"    m.def({json.dumps(name)}, torch::wrap_pybind_function({name}), {json.dumps(text)});\n"
        for name, text in job["functions"].items()
    )
    return f"PYBIND11_MODULE({job['name']}, m) {{\n{lines}}}\n"


def _end(processes: Iterable[subprocess.Popen[str]]) -> None:
    """Kill compilers, and the child process of each that does the work."""
    for process in processes:
        with contextlib.suppress(OSError, ValueError):
            for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
        process.kill()


def _compile_all(job: dict[str, Any], units: Sequence[_Unit], found: TranslationFindings) -> tuple[int, str]:
    """Compile units at the same time.

    Returns code and log of the first one that fails, in their order.
    """
    processes: list[subprocess.Popen[str]] = []
    with ThreadPoolExecutor(max_workers=max(1, len(units) - 1)) as pool:
        others = [pool.submit(_compile, job, unit, found, processes=processes) for unit in units[1:]]
        code, log = _compile(job, units[0], found)
        if code != 0:
            _end(processes)  # another unit may take a minute, and its result does not matter
            return code, log
        for other in others:
            code, more = other.result()
            log += more
            if code != 0:
                return code, more
    return 0, log


def _compile(
    job: dict[str, Any],
    unit: _Unit,
    found: TranslationFindings,
    *,
    processes: list[subprocess.Popen[str]] | None = None,
) -> tuple[int, str]:
    """Compile one unit; exit code and log. Adds the compiler's process to `processes`."""
    headers = job["headers"]
    forced: list[str] = []
    stand_ins: list[str] = []
    if unit.headers is not None:
        place = Path(headers["headers"]) / job["precompiled"][unit.headers]
        full = unit.headers is Precompiled.FULL
        text = ["-DHOSTCUDA_FULL=1", "-include", "hostcuda/prelude.h"] if full else ["-include", "hostcuda/prelude.h"]
        ready = (place / "prelude.h.gch").exists()  # made last
        forced = ["-include", str(place / "prelude.h")] if ready else text
        if not full:
            stand_ins = [DEFINE, f"-I{unit.path.parent / _OWN}", f"-I{Path(headers['headers']) / 'lean'}"]
    command = [
        headers["compiler"],
        *headers["common_flags"],
        *job["mode_flags"],
        *stand_ins,
        *headers["include_flags"],
        *(f"-I{p}" for p in job["include_paths"]),
        *forced,
        *([] if stand_ins else [f"-DTORCH_EXTENSION_NAME={job['name']}"]),
    ]
    made = str(unit.path.with_suffix(".o"))
    if unit.host is None:
        return _run([*command, "-c", "-o", made, str(unit.path)], unit.path.parent, processes)
    code, log, device = _preprocessed(command, unit.path, unit.path.parent)
    if code == 0 and unit.host != unit.path.read_text():
        path = unit.path.with_name("host_" + unit.path.name)
        path.write_text(unit.host)
        code, log, host = _preprocessed(command, path, unit.path.parent)
    else:
        host = device
    if code != 0:
        return code, log
    source = rewrite(device.text, host.text if host.text != device.text else None)
    found.kernels = list(source.kernels)
    lacking = [MissingConstruct(file="cuda.cu", line=n.line, construct=n.construct) for n in source.not_emulated]
    found.lacking = list(dict.fromkeys([*found.lacking, *lacking]))
    if source.errors and not found.lacking:
        return _REFUSED, source.errors
    whole = unit.path.with_suffix(".ii")
    whole.write_text(device.restored(source.text, refused_declarations(source.refused)))
    code, log = _run([*command, "-fpreprocessed", "-c", "-o", made, str(whole)], unit.path.parent, processes)
    whole.unlink()
    errors = refused_in(log, source.functions, source.refused, partial(_is_foreign, job))
    if errors and not found.lacking:
        return _REFUSED, errors + log
    return code, log


def _preprocessed(command: Sequence[str], path: Path, folder: Path) -> tuple[int, str, PreprocessedUnit]:
    """Exit code and log of the preprocessor, and the unit."""
    made = path.with_suffix(".e")
    code, log = _run([*command, "-E", "-fpch-preprocess", "-o", str(made), str(path)], folder, None)
    text = made.read_text(errors="replace") if code == 0 else ""
    made.unlink(missing_ok=True)  # with all of torch, these are tens of megabytes
    not_own = {str(unit) for unit in folder.glob("*.cpp")}

    def owns(file: str) -> bool:
        return file == "cuda.cu" or (
            file.startswith(f"{folder}/") and not file.startswith(f"{folder / _OWN}/") and file not in not_own
        )

    return code, log, author_text(text, owns)


def _is_foreign(job: dict[str, Any], name: str) -> bool:
    """Whether a header may declare a function of that name."""
    operators = Path(job["headers"]["torch_include"]) / "ATen" / "ops"
    return (
        name in names_of_headers(Path(job["headers"]["folder"]) / "include")
        or (operators / f"{name}.h").exists()
        or _OF_THE_STANDARD_LIBRARY.fullmatch(name) is not None
    )


def _run(command: Sequence[str], folder: Path, processes: list[subprocess.Popen[str]] | None) -> tuple[int, str]:
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, "TMPDIR": str(folder)},  # a killed compiler leaves its files behind
    )
    if processes is not None:
        processes.append(process)
    _, log = process.communicate()
    return process.returncode, log


def _link(job: dict[str, Any], objects: list[Path]) -> tuple[int, str]:
    headers = job["headers"]
    made = Path(job["module"] + ".new")
    command = [
        headers["compiler"],
        "-shared",
        "-o",
        str(made),
        *(str(o) for o in objects),
        *headers["link_flags"],
        "-lpthread",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
    if done.returncode == 0:
        made.rename(job["module"])
    return done.returncode, done.stderr


def _checked(folder: Path) -> int:
    """Run `main`; a source that nests too deeply is the author's error."""
    sys.setrecursionlimit(MOST_FRAMES)
    try:
        return main(folder)
    except RecursionError:
        sys.stdout.write("cuda.cu:1:1: error: the source nests too deeply to be translated for the CPU\n")
        return 1


if __name__ == "__main__":
    raise SystemExit(_checked(Path(sys.argv[1])))
