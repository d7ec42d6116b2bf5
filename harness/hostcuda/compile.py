"""Compiles one extension for the host device: `python compile.py FOLDER`, where `harness.hostcuda.build.prepare`
has put `job.json`.

Charter: run inside the builder's sandbox. Untrusted side: reads the solution's sources. Imports the rewriter;
starts g++.

First everything is compiled as one lean unit without pybind11. A source that needs more of torch than the lean
headers have, or that binds by itself, is compiled again as torch does it: two units, the full headers, pybind11.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    sys.path = [p for p in sys.path if p != str(Path(__file__).resolve().parent)]

from harness.hostcuda.rewrite import rewrite

_NEEDS_FULL = re.compile(
    r"\bpy::|\bpybind11\b|PYBIND11_MODULE|TORCH_LIBRARY|TORCH_EXTENSION_NAME|torch::nn\b|torch::jit\b|torch/script\.h|torch/library\.h"
)
_LEAN_IS_TO_BLAME = re.compile(
    r"error:.*(torch|pybind|\bpy\b|\bat::|c10|Converter|hostcuda::bind|No such file)|bind\.h", re.I
)
_NOT_EMULATED_HEADERS = {
    "cublas_v2.h": "cuBLAS",
    "cublasLt.h": "cuBLASLt",
    "cudnn.h": "cuDNN",
    "cusparse.h": "cuSPARSE",
    "cufft.h": "cuFFT",
    "curand.h": "cuRAND",
    "curand_kernel.h": "cuRAND",
    "cub/": "CUB",
    "thrust/": "Thrust",
    "cutlass/": "CUTLASS",
    "cute/": "CuTe",
    "cuda/": "libcu++",
    "cusolverDn.h": "cuSOLVER",
    "nvrtc.h": "NVRTC",
    "texture_fetch_functions.h": "textures",
    "cudaTypedefs.h": "the driver API",
}
_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
_CONSTANT_FLAG = re.compile(r"-D([A-Za-z_]\w*)(?:=(.*))?$", re.S)


def main(folder: Path) -> int:
    job: dict[str, Any] = json.loads((folder / "job.json").read_text())
    cuda = "\n".join(job["cuda_sources"])
    cpp = "\n".join(job["cpp_sources"])
    rewritten = rewrite(cuda)
    host = rewrite(cpp) if "<<<" in cpp or "__global__" in cpp else None
    cpp_text = host.text if host is not None else cpp
    lacking = [{"line": f.line, "construct": f.construct} for f in rewritten.not_emulated] + _unavailable(
        cuda, folder, job
    )
    (folder / "findings.json").write_text(
        json.dumps(
            {
                "not_emulated": lacking,
                "kernels": list(rewritten.kernels),
                "subscript_lines": list(rewritten.subscript_lines),
            }
        )
    )
    for item in lacking:
        sys.stdout.write(f"cuda.cu:{item['line']}: note: not emulated: {item['construct']}\n")
    definitions = "".join(
        f"#define {m[1]} {m[2] if m[2] is not None else '1'}\n" for m in map(_CONSTANT_FLAG.match, job["flags"]) if m
    )
    opening = definitions + '#include "hostcuda/after.h"\n'
    if job["functions"] is not None and not _NEEDS_FULL.search(cuda + cpp):
        unit = folder / "unit.cpp"
        unit.write_text(
            opening
            + '#line 1 "main.cpp"\n'
            + cpp_text
            + '\n#line 1 "cuda.cu"\n'
            + rewritten.text
            + "\n"
            + _bindings(job, rewritten.subscript_lines)
        )
        code, log = _compile(job, unit, lean=True)
        if code == 0:
            code, log = _link(job, [unit.with_suffix(".o")])
            if code == 0:
                return 0
        elif not _LEAN_IS_TO_BLAME.search(log):
            sys.stdout.write(log)
            return code
    units = [folder / "cuda_unit.cpp", folder / "main_unit.cpp"]
    units[0].write_text(
        opening + '#line 1 "cuda.cu"\n' + rewritten.text + "\n" + _registration(job, rewritten.subscript_lines)
    )
    units[1].write_text(opening + '#line 1 "main.cpp"\n' + cpp_text + "\n" + _pybind(job))
    with ThreadPoolExecutor(max_workers=2) as pool:
        results = list(pool.map(lambda unit: _compile(job, unit, lean=False), units))
    for code, log in results:
        if code != 0:
            sys.stdout.write(log)
            return code
    code, log = _link(job, [unit.with_suffix(".o") for unit in units])
    if code != 0:
        sys.stdout.write(log)
    return code


def _unavailable(cuda: str, folder: Path, job: dict[str, Any]) -> list[dict[str, Any]]:
    out = []
    for match in _INCLUDE.finditer(cuda):
        name = match[1]
        library = next(
            (v for k, v in _NOT_EMULATED_HEADERS.items() if name == k or (k.endswith("/") and name.startswith(k))), None
        )
        if library is not None and not (Path(job["headers"]["headers"]) / "include" / name).exists():
            out.append({"line": cuda.count("\n", 0, match.start(1)) + 1, "construct": f"{library} (#include <{name}>)"})
    return out


def _registration(job: dict[str, Any], lines: tuple[int, ...]) -> str:
    listed = ", ".join(str(n) for n in (*lines, 0))
    return (
        f"static const int hostcuda_lines[] = {{{listed}}};\n"
        f"static const ::hostcuda::ModuleRegistration hostcuda_module({int(job['checked'])}, hostcuda_lines);\n"
    )


def _bindings(job: dict[str, Any], lines: tuple[int, ...]) -> str:
    methods = "".join(f"    HOSTCUDA_METHOD({name}, {json.dumps(name)}),\n" for name in job["functions"])
    return (
        _registration(job, lines)
        + f"static PyMethodDef hostcuda_methods[] = {{\n{methods}    {{nullptr, nullptr, 0, nullptr}}}};\n"
        + f"static PyModuleDef hostcuda_definition = {{PyModuleDef_HEAD_INIT, {json.dumps(job['name'])}, "
        "nullptr, -1, hostcuda_methods, nullptr, nullptr, nullptr, nullptr};\n"
        + f"PyMODINIT_FUNC PyInit_{job['name']}() {{ return PyModule_Create(&hostcuda_definition); }}\n"
    )


def _pybind(job: dict[str, Any]) -> str:
    if job["functions"] is None:
        return ""
    lines = "".join(
        f"    m.def({json.dumps(name)}, torch::wrap_pybind_function({name}), {json.dumps(text)});\n"
        for name, text in job["functions"].items()
    )
    return f"PYBIND11_MODULE({job['name']}, m) {{\n{lines}}}\n"


def _compile(job: dict[str, Any], unit: Path, *, lean: bool) -> tuple[int, str]:
    headers = job["headers"]
    place = Path(headers["headers"]) / job["lean_header" if lean else "full_header"]
    forced = (
        ["-include", str(place / "prelude.h")]
        if place.exists()
        else ["-DHOSTCUDA_FULL=1", "-include", "hostcuda/prelude.h"]
    )
    command = [
        headers["compiler"],
        *headers["common_flags"],
        *job["mode_flags"],
        *([f"-I{Path(headers['headers']) / 'lean'}"] if lean else []),
        *headers["include_flags"],
        *(f"-I{p}" for p in job["include_paths"]),
        *forced,
        *([] if lean else [f"-DTORCH_EXTENSION_NAME={job['name']}"]),
        "-c",
        "-o",
        str(unit.with_suffix(".o")),
        str(unit),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
    return done.returncode, done.stderr


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


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
