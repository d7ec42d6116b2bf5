"""What `test_hostcuda_torch` evaluates in a process of its own: `python tests/support/hostcuda_torch.py
'["expression", ...]'`.

Prints one JSON object: for each expression what it gave or raised, and what was noted as not emulated.
"""

from __future__ import annotations

import copy  # noqa: F401  (the expressions use it, and what follows it)
import io
import json
import pickle  # noqa: F401
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from harness.untrusted.contestant.hostcuda import shim

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


mine = torch.library.Library("mine", "DEF")
for name, keys in {"on_cpu": ["CPU"], "on_both": ["CPU", "CUDA"], "anywhere": ["CompositeExplicitAutograd"]}.items():
    mine.define(f"{name}(Tensor x) -> Tensor")
    for key in keys:
        mine.impl(name, lambda x: x + 1, key)
mine.define("nowhere(Tensor x) -> Tensor")


def loaded(value: Any, **options: Any) -> Any:
    """What is in a file that `value` was saved to."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **options)


def traced_alike(model: Callable[[torch.Tensor], torch.Tensor], *, grad: bool) -> bool:
    """Whether a trace with one input computes the same as the model with others."""
    with torch.set_grad_enabled(grad):
        first, second = torch.rand(2, 1, 2, 6, 6, device="cuda")
        trace = torch.jit.trace(model, first)
        return all(torch.equal(trace(second), model(second)) and trace(second).is_cuda for _ in range(3))


def convolved() -> Any:
    norm = torch.nn.BatchNorm2d(3)
    return torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), norm, torch.nn.ConvTranspose2d(3, 2, 2)).cuda().eval()


def timed(event: Any, other: Any) -> bool:
    stream = torch.cuda.Stream(priority=-1)
    with stream:
        event.record(stream)
    with torch.Stream("cuda") as plain:
        other.record(plain)
    stream.wait_event(other)
    stream.wait_stream(plain)
    return bool(event.elapsed_time(other) >= 0 and plain == stream == torch.cuda.current_stream())


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
