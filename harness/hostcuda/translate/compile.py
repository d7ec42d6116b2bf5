"""Compile one extension for the host device: `python compile.py FOLDER`.

Runs in the builder's sandbox, because it reads the solution's sources. `build.prepare` has written `job.json` into
FOLDER.

The first attempt is one lean unit without pybind11 (`toolchain.headers.lean`). If a source needs more of torch, or
binds by itself, it is compiled again as torch does it: two units, all of torch's headers, pybind11.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    sys.path = [p for p in sys.path if p != str(Path(__file__).resolve().parent)]

from harness.hostcuda.translate.bindings import Argument, Definition, module_definition, pointer_type
from harness.hostcuda.translate.dynamic import clashes
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
)
from harness.hostcuda.translate.macros import defines, is_switch, macros, undefines
from harness.hostcuda.translate.refusals import refusals
from harness.hostcuda.translate.rewrite import rewrite
from harness.hostcuda.translate.spaces import Spaces, spaces, survey
from harness.toolchain.cuda_source.tokens import code, words
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

_CALLED = re.compile(rb"\s*\(")
_OF_A_MACRO = re.compile(rb"\b[A-Z][A-Z0-9_]+\(\s*([A-Za-z_]\w*)")
_USED = re.compile(rb"\busing\s+[\w:]*::(\w+)\s*;")

_ARRAYS_ARE_SAID = '#pragma GCC diagnostic warning "-Wvla"\n'
"""In the text, because a precompiled header is valid only for its own flags."""

_ARRAY = re.compile(r"^cuda\.cu:(\d+):(\d+): warning: .*\[-Wvla\]$", re.M)

_MANGLED = "_Z"
"""Prefix of C++ symbols. Those of torch may exist when the module is imported."""

_OWN_LINE = re.compile(r"Traceback \(most recent call last\):|[\w.]+:\d+: note: not emulated:")


def main(folder: Path) -> int:
    job: dict[str, Any] = json.loads((folder / "job.json").read_text())
    cuda = "\n".join(job["cuda_sources"])
    cpp = "\n".join(job["cpp_sources"])
    texts = {"cuda.cu": cuda, "main.cpp": cpp}
    rewritten = rewrite(cuda)
    host = rewrite(cpp) if "<<<" in cpp or "__global__" in cpp else None
    cpp_text = host.text if host is not None else cpp
    available = Path(job["headers"]["folder"]) / "include"
    lacking = [MissingConstruct(file="cuda.cu", line=f.line, construct=f.construct) for f in rewritten.not_emulated]
    for file, text in texts.items():
        lacking += among_includes(file, text, available)
    (folder / "findings.json").write_text(
        json.dumps(
            {
                "not_emulated": [{"line": lack.line, "construct": lack.construct} for lack in lacking],
                "kernels": list(rewritten.kernels),
            }
        )
    )
    _say(lacking)
    read = survey(cuda)
    sides = spaces(read)
    code, log = 1, ""
    if not lacking and not job["own_headers"]:
        log = _wrong_calls(job, sides, available)
        log += "".join(f"cuda.cu:{r.line}:{r.column}: error: {r.message}\n" for r in refusals(read))
    log += "".join(f"cuda.cu:{c.line}:{c.column}: error: {c.message}\n" for c in clashes(cuda) if not lacking)
    if not log:
        code, log = _build(folder, job, texts | {"main.cpp": cpp_text}, rewritten.text, sides)
    if code != 0:
        _say(lack for lack in in_log(log) if lack not in lacking)
        sys.stdout.write(_quoted(log))
        return code
    undefined = _undefined(Path(job["module"]))
    _say(among_symbols(undefined, texts.items()))
    if any(among_symbols([symbol for symbol in undefined if not symbol.startswith(_MANGLED)], texts.items())):
        # Without such a C function the module can't be imported. If torch is built for CUDA, the module would call the
        # real function, which finds no GPU.
        sys.stdout.write("the module calls functions that are not emulated\n")
        return 1
    return 0


def _functions(headers: Path) -> set[bytes]:
    """Names that may be functions in the headers below a folder.

    A name counts if parentheses follow, if a macro defines it, or if a using declaration imports it.
    """
    found: set[bytes] = set()
    for path in headers.rglob("*"):
        if path.is_file() and path.suffix != ".md":
            text = code(path.read_bytes())
            found.update(word for word, _, end in words(text) if _CALLED.match(text, end))
            found.update(_OF_A_MACRO.findall(text))
            found.update(_USED.findall(text))
    return found


def _wrong_calls(job: dict[str, Any], sides: Spaces, available: Path) -> str:
    """The errors of nvcc for calls from host code to device functions and the reverse.

    A name that CUDA's headers also declare is skipped. In host code, so is a name of torch or the standard library,
    which argument-dependent lookup may find.
    """
    if not sides.wrong_calls:
        return ""
    theirs = _functions(available)
    operators = Path(job["headers"]["torch_include"]) / "ATen" / "ops"
    return "".join(
        f"cuda.cu:{call.line}:{call.column}: error: {call.message}\n"
        for call in sides.wrong_calls
        if call.callee.encode() not in theirs
        and not (
            call.by_host
            and (_OF_THE_STANDARD_LIBRARY.fullmatch(call.callee) or (operators / f"{call.callee}.h").exists())
        )
    )


def _arrays_on_the_device(sides: Spaces, code: int, log: str) -> tuple[int, str]:
    """Turn g++'s warning on a variable-length array in device code into an error.

    nvcc reports an error there.
    """
    found = [
        match
        for match in _ARRAY.finditer(log)
        if any(first <= int(match[1]) <= last for first, last in sides.device_lines)
    ]
    if code != 0 or not found:
        return code, log
    errors = "".join(f"cuda.cu:{m[1]}:{m[2]}: error: expression must have a constant value\n" for m in found)
    return 1, errors + log


def _build(folder: Path, job: dict[str, Any], texts: dict[str, str], cuda_text: str, sides: Spaces) -> tuple[int, str]:
    """Compile lean, then with all headers if that fails; code and log of the last try."""
    cpp, cuda = _opening(job["cpp_flags"]), _opening(job["cuda_flags"])
    opening = switches(job["cuda_flags"]) + '#include "hostcuda/unit.h"\n'
    bound, log = _bound(job, texts), ""
    lean = {} if bound is None else {name: without_names_of_pybind11(bound.without(texts[name])) for name in texts}
    header = None if bound is None else _lean_header(job, list(lean.values()))
    if bound is not None and header is not None:
        unit = folder / "unit.cpp"
        (folder / _OWN).mkdir(exist_ok=True)
        (folder / _OWN / UNIT).write_text(header)
        unit.write_text(
            f"#include <{UNIT}>\n"
            + opening
            + cpp[0]
            + '#line 1 "main.cpp"\n'
            + lean["main.cpp"]
            + "\n"
            + cpp[1]
            + cuda[0]
            + _ARRAYS_ARE_SAID
            + '#line 1 "cuda.cu"\n'
            + without_names_of_pybind11(bound.without(cuda_text))
            + "\n"
            + _bindings(job, bound, texts["main.cpp"])
        )
        compiled, log = _compile(job, unit, lean=True)
        code, log = _arrays_on_the_device(sides, compiled, log)
        if code != 0 and compiled == 0:
            return code, log
        if code == 0:
            code, log = _link(job, [unit.with_suffix(".o")])
            if code == 0:
                return 0, log
        elif (
            not _may_be_mended(log, job["headers"]["include_flags"])
            or any(in_log(log))
            or _is_own_fault(log, texts, job["headers"]["include_flags"])
        ):
            return code, log
    theirs = Path(job["headers"]["torch_include"])
    if any(launching_headers(text, Path(job["headers"]["folder"]) / "include", theirs) for text in texts.values()):
        return 1, log or "an included header of torch launches kernels\n"  # a full build takes minutes and fails too
    units = [folder / "cuda_unit.cpp", folder / "main_unit.cpp"]
    units[0].write_text(
        opening + cuda[0] + _ARRAYS_ARE_SAID + '#line 1 "cuda.cu"\n' + cuda_text + "\n" + _registration(job)
    )
    units[1].write_text(
        opening + cpp[0] + '#line 1 "main.cpp"\n' + texts["main.cpp"] + "\n" + _pybind(job, texts["main.cpp"])
    )
    begun: list[subprocess.Popen[str]] = []
    with ThreadPoolExecutor(max_workers=1) as pool:
        other = pool.submit(_compile, job, units[1], lean=False, begun=begun)
        code, log = _arrays_on_the_device(sides, *_compile(job, units[0], lean=False))
        if code == 0:
            code, log = other.result()
        else:
            _end(begun)  # the other unit may take a minute, and its result does not matter
    if code != 0:
        return code, log
    return _link(job, [unit.with_suffix(".o") for unit in units])


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
    source defines a module; the import then fails.
    """
    if job["functions"] is not None:
        return Definition(text="", functions={name: name for name in job["functions"]})
    if not any(binds(text) or _ENTRY in text for text in (*texts.values(), *job["own_headers"])):
        return Definition(text="", functions={})
    found = [held for text in texts.values() if (held := module_definition(text)) is not None]
    return found[0] if len(found) == 1 else None


def _opening(flags: list[str]) -> tuple[str, str]:
    """The author's macros as directives, and directives that undo them.

    CUDA's switches are handled separately.
    """
    given = {name: value for name, value in macros(flags).items() if not is_switch(name)}
    return defines(given), undefines(given)


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


def _chosen(job: dict[str, Any], functions: Iterable[str], cpp: str) -> tuple[str, dict[str, str]]:
    """Declare references to functions that CUDA overloads; also each bound name.

    torch binds a listed function without CUDA's headers, so `norm` means the author's function only. A name that C's
    library has too is ambiguous in torch as well, and is left out.
    """
    text, names = "", {function: function for function in functions}
    if job["functions"] is None:
        return text, names
    library = ctypes.CDLL(None)
    theirs = _functions(Path(job["headers"]["folder"]) / "include" / "hostcuda")
    for number, function in enumerate(functions):
        if function.encode() not in theirs or hasattr(library, function):
            continue
        kind = pointer_type(cpp, function)
        if kind is not None:
            names[function] = f"hostcuda_chosen{number}"
            text += f"static constexpr auto& {names[function]} = *static_cast<{kind}>(&{function});\n"
    return text, names


def _bindings(job: dict[str, Any], bound: Definition, cpp: str) -> str:
    if not bound.functions:
        return _registration(job)
    chosen, by = _chosen(job, bound.functions.values(), cpp)
    methods = "".join(
        f"    {_method(by[function], name, bound.arguments.get(name, ()))},\n"
        for name, function in bound.functions.items()
    )
    return (
        _registration(job)
        + chosen
        + f"static PyMethodDef hostcuda_methods[] = {{\n{methods}    {{nullptr, nullptr, 0, nullptr}}}};\n"
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


def _pybind(job: dict[str, Any], cpp: str) -> str:
    if job["functions"] is None:
        return ""
    chosen, by = _chosen(job, job["functions"], cpp)
    lines = "".join(
        f"    m.def({json.dumps(name)}, torch::wrap_pybind_function({by[name]}), {json.dumps(text)});\n"
        for name, text in job["functions"].items()
    )
    return f"{chosen}PYBIND11_MODULE({job['name']}, m) {{\n{lines}}}\n"


def _end(begun: Iterable[subprocess.Popen[str]]) -> None:
    """Kill compilers, and the child process of each that does the work."""
    for process in begun:
        with contextlib.suppress(OSError, ValueError):
            for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
        process.kill()


def _compile(
    job: dict[str, Any], unit: Path, *, lean: bool, begun: list[subprocess.Popen[str]] | None = None
) -> tuple[int, str]:
    """Compile one unit; exit code and log. The compiler's process is added to `begun`."""
    headers = job["headers"]
    kind = kind_of((), job["cuda_flags"]) if lean else Precompiled.FULL
    place = Path(headers["headers"]) / job["precompiled"][kind]
    text = ["-include", "hostcuda/prelude.h"] if lean else ["-DHOSTCUDA_FULL=1", "-include", "hostcuda/prelude.h"]
    ready = (place / "prelude.h.gch").exists()  # made last
    forced = ["-include", str(place / "prelude.h")] if ready else text
    stand_ins = [DEFINE, f"-I{unit.parent / _OWN}", f"-I{Path(headers['headers']) / 'lean'}"]
    command = [
        headers["compiler"],
        *headers["common_flags"],
        *job["mode_flags"],
        *(stand_ins if lean else []),
        *headers["include_flags"],
        *(f"-I{p}" for p in job["include_paths"]),
        *forced,
        *([] if lean else [f"-DTORCH_EXTENSION_NAME={job['name']}"]),
        "-c",
        "-o",
        str(unit.with_suffix(".o")),
        str(unit),
    ]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, "TMPDIR": str(unit.parent)},  # a killed compiler leaves its files behind
    )
    if begun is not None:
        begun.append(process)
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
