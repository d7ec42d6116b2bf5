"""What `test_hostcuda_torch` evaluates in a process of its own: `python tests/hostcuda_torch.py '["expression", ...]'`.

Prints one JSON object: for each expression what it gave or raised, and what was noted as not emulated.
"""

from __future__ import annotations

import json
import pickle  # noqa: F401  (the expressions use it)
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from harness.hostcuda import shim

shim.activate()


def scripted(x: torch.Tensor) -> torch.Tensor:
    return x + torch.zeros(2, device=torch.device("cuda")) + torch.arange(2, device=x.device)


def on(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    return x.to(device)


def learnt_on_the_cpu() -> Any:
    x = torch.ones(2, requires_grad=True)
    (2 * x).sum().backward()
    return x.grad


def under(device: torch.device) -> torch.Tensor:
    with device:
        return torch.zeros(2)


def halves(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.float16, device="cuda")


def images() -> torch.Tensor:
    return torch.ones(1, 1, 3, 3, device="cuda")


def raises(call: Callable[[], object], text: str) -> bool:
    try:
        call()
    except RuntimeError as error:
        return text in str(error)
    return False


def tried(text: str) -> tuple[str | bool, list[str]]:
    shim.clear()
    said: str | bool
    try:
        value = eval(text)
        said = f"{value.device} {value.dtype}" if isinstance(value, torch.Tensor) else bool(value)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    return said, [report["message"] for report in shim.collect_reports()]


if __name__ == "__main__":
    sys.stdout.write(json.dumps({text: tried(text) for text in json.loads(sys.argv[1])}) + "\n")
