"""Check whether a package for writing kernels is missing on this machine.

Both sides. Imports nothing to find out. A missing package is no verdict on a solution and counts nowhere. So the
solution's process is not believed: the package must really be missing, and the solution's text must import it
(`test_who_says_that_a_package_is_missing_is_not_believed`).
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
from pathlib import Path

from harness.protocol.kernel_packages import PACKAGES

FOR_KERNELS = frozenset({*PACKAGES, "bitsandbytes", "flash_attn", "tvm", "xformers"})
"""Packages whose absence is the machine's fault."""

_NAME = re.compile(r"[A-Za-z_]\w{0,99}(?:\.[A-Za-z_]\w{0,99}){0,9}", re.ASCII)


def is_lacking(module: object, source: str) -> bool:
    """Whether a claimed missing module is really missing.

    Args:
        module: The claim: a dotted name, or any other value.
        source: Text of the solution.

    Returns:
        True if the module belongs to a package for kernels, the text imports the package, and it is not installed here.
    """
    if not isinstance(module, str) or _NAME.fullmatch(module) is None:
        return False
    package = module.partition(".")[0]
    return package in FOR_KERNELS and _imports(package, source) and not _is_here(module)


def _imports(package: str, source: str) -> bool:
    listed = r"(?:[\w.]+(?:\s+as\s+\w+)?\s*,\s*)*"
    called = r"\b(?:import_module|__import__)\(\s*['\"]"
    return re.search(rf"(?:\bfrom\s+|\bimport\s+{listed}|{called}){package}\b", source) is not None


def _is_here(module: str) -> bool:
    """Whether Python would find a module of this name."""
    first, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(first)
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    folders = [Path(place) for place in spec.submodule_search_locations or ()]
    for name in rest:
        files = [folder / f"{name}{suffix}" for folder in folders for suffix in importlib.machinery.all_suffixes()]
        folders = [folder / name for folder in folders if (folder / name).is_dir()]
        if not folders:
            return name == rest[-1] and any(file.is_file() for file in files)
    return True
