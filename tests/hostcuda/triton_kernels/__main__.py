"""Run the Triton kernels on the host device: `python -m tests.hostcuda.triton_kernels [--json]`.

Needs the package triton. Each sound kernel must give torch's values without a finding; each broken one must be found on
the line that is broken. Exits with 1 otherwise.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from harness.hostcuda.translate import build
from harness.untrusted.contestant.hostcuda import shim

from .broken import BROKEN

KERNELS = Path(__file__).with_name("kernels.py").read_text()
TOLERANCE = 0.01


def loaded(text: str, name: str) -> ModuleType:
    """Import a text as a module; Triton reads the source of kernels from a file."""
    path = Path(tempfile.mkdtemp()) / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def call(module: ModuleType, name: str) -> tuple[float, list[dict[str, Any]]]:
    """Return the largest error of a call's result, and the findings."""
    shim.clear()
    torch.manual_seed(0)
    result, wanted = module.CALLS[name]()
    return (result.cpu().float() - wanted.cpu().float()).abs().max().item(), shim.collect_reports()


def run() -> list[dict[str, Any]]:
    """Run all kernels; return name, `ok` and findings of each."""
    shim.activate(build.prepare_headers())
    sound = loaded(KERNELS, "sound")
    rows = []
    for name in sound.CALLS:
        error, found = call(sound, name)
        rows.append({"name": name, "kind": "sound", "ok": error < TOLERANCE and not found, "findings": found})
    for number, change in enumerate(BROKEN):
        assert change.old in KERNELS, change
        text = KERNELS.replace(change.old, change.new, 1)
        line = text[: text.index(change.line)].count("\n") + 1
        _, found = call(loaded(text, f"broken_{number}"), change.call)
        ok = any((item["kind"], item["line"]) == (change.kind, line) for item in found)
        name = f"{change.call} {number}, line {line}"
        rows.append({"name": name, "kind": change.kind, "ok": ok, "findings": found})
    return rows


def main() -> int:
    rows = run()
    if "--json" in sys.argv[1:]:
        print(json.dumps(rows))
    else:
        for row in rows:
            found = "; ".join(f"{item['kind']} on line {item['line']}: {item['message']}" for item in row["findings"])
            print(f"{'ok' if row['ok'] else 'SURPRISE':8} {row['kind']:12} {row['name']:40} {found[:150]}")
        sound = [row["ok"] for row in rows if row["kind"] == "sound"]
        broken = [row["ok"] for row in rows if row["kind"] != "sound"]
        print(
            f"{sum(sound)} of {len(sound)} sound kernels without a finding, {sum(broken)} of {len(broken)} broken found"
        )
    return 0 if all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
