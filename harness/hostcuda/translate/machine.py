"""Facts for builds: this interpreter's torch, the compiler, the processor.

Trusted side; reads nothing of a solution. Child processes find the facts, and a file keeps those on torch.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.core.config import cache_root as default_cache

__all__ = ["BuildError", "TorchInstallation", "ask_torch", "compiler", "processor_flags"]


class BuildError(RuntimeError):
    """The machine can't prepare the host device.

    Possible reasons: no compiler, no torch headers, or a fault of the harness.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchInstallation:
    """Location of torch's headers and libraries, and how they were compiled."""

    version: str
    include: tuple[str, ...]
    lib: str
    python_include: str
    cxx_standard: str
    abi: int


_ASK_TORCH = """
import json, re, sysconfig, torch
from torch.utils import cpp_extension
text = open(cpp_extension.__file__).read()
standards = re.findall(r"-std=(c\\+\\+\\d+)", text)
print(json.dumps({"version": torch.__version__, "include": cpp_extension.include_paths(),
    "lib": cpp_extension.TORCH_LIB_PATH,
    "python_include": sysconfig.get_paths()["include"], "cxx_standard": max(standards, default="c++17"),
    "abi": int(torch._C._GLIBCXX_USE_CXX11_ABI)}))
"""


def _tuples(answer: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in answer.items()}


@cache
def ask_torch() -> TorchInstallation:
    """Find this interpreter's torch.

    That takes seconds, so the answer is kept next to the preparations.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise BuildError(f"torch is not installed for {sys.executable}; install it there")
    version_file = Path(spec.origin).with_name("version.py")
    identity = "\0".join(
        (
            sys.executable,
            sys.version,
            spec.origin,
            version_file.read_text() if version_file.exists() else "",
            _ASK_TORCH,
        )
    )
    kept = default_cache() / f"torch-{hashlib.sha256(identity.encode()).hexdigest()[:20]}.json"
    with contextlib.suppress(OSError, ValueError, TypeError):
        return TorchInstallation(**_tuples(json.loads(kept.read_text())))
    done = subprocess.run([sys.executable, "-P", "-c", _ASK_TORCH], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"importing torch with {sys.executable} failed: {done.stderr.strip()[-400:]}")
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    found = TorchInstallation(**_tuples(answer))
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        fresh = kept.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(asdict(found)))
        fresh.replace(kept)
    return found


@cache
def compiler() -> tuple[str, str]:
    """Path and version line of g++. Raises BuildError."""
    path = os.environ.get("CXX") or shutil.which("g++")
    if not path:
        raise BuildError(
            "g++ not found, but the host device needs it; install it (Debian: apt-get install g++) or set CXX"
        )
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    version = (done.stdout or done.stderr).splitlines()[0] if (done.stdout or done.stderr) else ""
    if "clang" in version.lower():
        raise BuildError(f"{path} is clang: the host device's checks need GCC's instrumentation; set CXX to g++")
    return path, version


def processor_flags() -> tuple[str, ...]:
    """Flags for instructions that x86-64 servers have had since about 2015.

    Empty if this processor lacks one of them.
    """
    if platform.machine() != "x86_64":
        return ()
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ()
    line = next((x for x in text.splitlines() if x.startswith("flags")), "")
    return ("-march=x86-64-v3",) if {"avx2", "fma", "bmi2", "f16c"} <= set(line.split()) else ()
