"""Run a Python file on the host device, with `load_inline` building for it.

`python -m tests.support.hostcuda_runner FILE.py`

If the file defines `ModelNew` and `get_inputs`, one forward call runs too. Findings go to standard output as JSON
lines; the exit code is 1 if there are any.
"""

from __future__ import annotations

import argparse
import json
import runpy
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import cpp_extension

from harness.hostcuda.translate import build
from harness.untrusted.contestant.hostcuda import shim
from tests.support.hostcuda_loader import load


def install_load_inline(*, checked: bool) -> None:
    """Replace torch's `load_inline` in this process by a build for the host device."""

    def load_inline(
        name: str, cpp_sources: Any = (), cuda_sources: Any = (), functions: Any = (), *_: Any, **options: Any
    ) -> Any:
        names = [functions] if isinstance(functions, str) else list(functions or ())
        if isinstance(functions, Mapping):
            names = list(functions)
        flags = [*(options.get("extra_cflags") or ()), *(options.get("extra_cuda_cflags") or ())]
        return load(cuda_sources or "", cpp_sources or "", names, checked=checked, flags=flags)

    setattr(cpp_extension, "load_inline", load_inline)  # noqa: B010  (mypy compares signatures of plain assignments)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code.

    Args:
        arguments: Arguments of the command; None: `sys.argv`.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.support.hostcuda_runner", description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--unchecked", action="store_true", help="no shadow memory: faster, but finds no defects")
    parser.add_argument(
        "--schedule",
        type=int,
        default=0,
        help="order of blocks and threads: 0 rising, 1 falling, 2 and 4: see shim.set_schedule",
    )
    options = parser.parse_args(arguments)
    shim.activate(build.prepare_headers(), checked=not options.unchecked)
    shim.set_schedule(options.schedule)
    install_load_inline(checked=not options.unchecked)
    names = runpy.run_path(options.file)
    if "ModelNew" in names and "get_inputs" in names:
        model = names["ModelNew"](*names.get("get_init_inputs", list)()).cuda()
        with torch.no_grad():
            model(*(x.cuda() if isinstance(x, torch.Tensor) else x for x in names["get_inputs"]()))
    found = shim.collect_reports()
    for report in found:
        sys.stdout.write(json.dumps(report) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
