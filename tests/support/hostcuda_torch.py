"""What `test_hostcuda_torch` evaluates in a process of its own: `python tests/support/hostcuda_torch.py
'["expression", ...]'`.

Prints one JSON object: for each expression what it gave or raised, and what was noted as not emulated.
"""

from __future__ import annotations

import copy
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
    return bool(event.elapsed_time(other) >= 0 and plain != stream != torch.cuda.current_stream())


def captured(call: Callable[[], object], **options: Any) -> Any:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, **options):
        call()
    return graph


def graph_follows_its_inputs() -> bool:
    """Whether a layer, a change in place and an operator with two results are done again for other inputs."""
    layer = torch.nn.Linear(4, 3, device="cuda").requires_grad_(False)
    x, total = torch.zeros(2, 4, device="cuda"), torch.zeros(3, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = torch.relu(layer(x)).t().contiguous()
        y[1:] += 1
        total += y.sum(dim=1)
        top, places = y.topk(1, dim=0)
    right = bool((total == 0).all())
    want = torch.zeros(3, device="cuda")
    for _ in range(3):
        x.copy_(torch.rand(2, 4))
        graph.replay()
        again = torch.relu(layer(x)).t().contiguous()
        again[1:] += 1
        want += again.sum(dim=1)
        right &= torch.equal(y, again) and torch.equal(total, want) and torch.equal(again.gather(0, places), top)
    return right


def branch_that_is_not_joined() -> None:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.zeros(2, device="cuda")


def graph_of_two_streams() -> bool:
    x = torch.ones(2, device="cuda")
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x + 1
            done = side.record_event()
        torch.cuda.current_stream().wait_event(done)
        z = y * 2
    graph.replay()
    return torch.equal(z.cpu(), torch.full((2,), 4.0))


def graphs_share_a_pool() -> bool:
    x = torch.ones(2, device="cuda")
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        y = x + 1
    with torch.cuda.graph(second, pool=first.pool()):
        z = y * 3
    first.replay()
    second.replay()
    first.reset()
    return torch.equal(z.cpu(), torch.full((2,), 6.0))


def graph_answers_nothing_before_a_replay() -> bool:
    x = torch.ones(2, device="cuda")
    made = []
    captured(lambda: made.append(x + 1))
    return bool(made[0].isnan().all())


def graph_draws_again() -> bool:
    made = []
    graph = captured(lambda: made.append(torch.rand(8, device="cuda")))
    graph.replay()
    before = made[0].clone()
    graph.replay()
    return not torch.equal(before, made[0])


def graph_of_a_lost_input() -> None:
    inputs = [torch.ones(2, device="cuda")]
    graph = captured(lambda: inputs[0] + 1)
    inputs.clear()
    graph.replay()


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return torch.mul(2 * x, grad)


def learns_alike(model: torch.nn.Module, shape: tuple[int, ...], *, whole: int = 0) -> bool:
    """Whether gradients of a model and of its inputs are those of the CPU, within rounding."""
    model = model.double()
    x = torch.randint(whole, shape) if whole else torch.randn(shape, dtype=torch.float64)
    found = []
    for device in ("cpu", "cuda"):
        here = copy.deepcopy(model).to(device)
        given = x.to(device, copy=True).requires_grad_(not whole)
        out = here(given)
        out = out[0] if isinstance(out, tuple) else out
        out.square().sum().backward()
        asked = [*here.parameters(), *([] if whole else [given])]
        found.append([item.grad for item in asked])
        if not all(item.grad is not None and item.grad.device.type == device for item in asked):
            return False
    return len(found[0]) > 0 and all(torch.allclose(a, b.cpu()) for a, b in zip(*found, strict=True))


def graph_of_a_step() -> bool:
    """Whether a captured forward, backward and update follow other inputs, as a loop without a graph."""
    layer, other = torch.nn.Linear(3, 2, device="cuda"), torch.nn.Linear(3, 2, device="cuda")
    other.load_state_dict(layer.state_dict())
    x = torch.zeros(4, 3, device="cuda")

    def step(model: torch.nn.Linear, inputs: torch.Tensor) -> None:
        weights = list(model.parameters())
        grads = torch.autograd.grad(model(inputs).square().sum(), weights)
        with torch.no_grad():
            for weight, grad in zip(weights, grads, strict=True):
                weight -= 0.1 * grad

    graph = captured(lambda: step(layer, x))
    for _ in range(3):
        x.copy_(torch.rand(4, 3))
        graph.replay()
        step(other, x)
    return torch.allclose(layer.weight, other.weight) and torch.allclose(layer.bias, other.bias)


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
