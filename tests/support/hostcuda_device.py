"""What the tests of the host device run in a process of its own: activating the device changes torch for good.

`python tests/support/hostcuda_device.py CASE...` prints one JSON object: {"case": {"values": ..., "reports": [...]}}.
"""

from __future__ import annotations

import copy
import io
import json
import pickle
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from harness.hostcuda.translate import build
from harness.untrusted.contestant.hostcuda import shim
from tests.support.hostcuda_loader import load

SOURCE = Path(__file__).with_name("hostcuda_device.cu").read_text()
"""One extension for all cases, so that one compiler run serves them."""

FUNCTIONS = re.findall(r"^(?:void|torch::Tensor|std::\S+(?: torch::Tensor>)?) (\w+)\(", SOURCE, re.M)
"""Host functions of the source; each is bound."""

FAILING = {
    "past_the_end": 100,
    "past_shared": 64,
    "past_macro": 64,
    "wide_race": 64,
    "never_written": 32,
    "misaligned": 33,
    "divergent": 64,
    "stuck_warp": 32,
    "asserting": 4,
    "unknown_ptx": 4,
    "nested": 4,
}
"""Cases that are one call on so many zeros; their value is the error they end with."""

CASES: dict[str, Callable[[Any], Any]] = {}


def case(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    CASES[function.__name__] = function
    return function


def failure(call: Callable[[], Any]) -> str | None:
    try:
        call()
        torch.cuda.synchronize()
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return None


@case
def missing_barrier(m: Any) -> Any:
    return m.missing_barrier(torch.arange(64.0).cuda()).tolist()


@case
def past_local(m: Any) -> Any:
    return failure(lambda: m.past_local(torch.zeros(32).cuda(), 9))


for _name, _count in FAILING.items():
    CASES[_name] = lambda m, name=_name, count=_count: failure(lambda: getattr(m, name)(torch.zeros(count).cuda()))


@case
def exited_shuffle(m: Any) -> Any:
    return m.exited_shuffle(torch.ones(20).cuda()).tolist()


@case
def after_exit(m: Any) -> Any:
    return m.after_exit(torch.ones(20).cuda()).tolist()


@case
def accessors(m: Any) -> Any:
    return m.accessors(torch.arange(6.0).view(2, 3).cuda()).tolist()


@case
def groups(m: Any) -> Any:
    return m.groups(torch.zeros(5, dtype=torch.int32).cuda()).tolist()


@case
def launch_limits(m: Any) -> Any:
    x = torch.zeros(4).cuda()
    return [
        failure(lambda a=a: m.launch_of(x, *a, True))
        for a in ((1, 1024, 0), (1, 2048, 0), (0, 32, 0), (1, 32, 60000), (1, 300, 0))
    ]


@case
def launch_unnoticed(m: Any) -> Any:
    x = torch.zeros(4).cuda()
    m.launch_of(x, 1, 2048, 0, False)
    return x.tolist()


@case
def host_access(m: Any) -> Any:
    m.host_access(torch.zeros(4).cuda())


@case
def hosts_own(m: Any) -> Any:
    return m.hosts_own(torch.arange(2.0).cuda()).tolist()


@case
def heap_objects(m: Any) -> Any:
    return m.heap_objects(torch.zeros(3).cuda()).tolist()


@case
def leaking(m: Any) -> Any:
    m.leaking(256)
    return shim.collect_reports(leaks=True)[-1]


@case
def order(m: Any) -> Any:
    out = []
    for schedule in (0, 1):
        shim.set_schedule(schedule)
        out.append(m.order(torch.zeros(8, dtype=torch.int32).cuda()).tolist())
    shim.set_schedule(0)
    return out


@case
def atomics(m: Any) -> Any:
    return [t.tolist() for t in m.atomics(torch.arange(1000, dtype=torch.int32).cuda())]


@case
def overloads(m: Any) -> Any:
    x = torch.arange(8.0).cuda()
    return [
        [t.double().tolist() for t in m.overloads(x.to(dtype), 2.0)]
        for dtype in (torch.float32, torch.float64, torch.float16)
    ]


@case
def grid_sum(m: Any) -> Any:
    return m.grid_sum(torch.ones(4096).cuda()).tolist()


@case
def spinning(m: Any) -> Any:
    return m.spinning(torch.zeros(8, dtype=torch.int32).cuda()).tolist()


@case
def symbols(m: Any) -> Any:
    return m.symbols(torch.zeros(4).cuda()).tolist()


@case
def events(m: Any) -> Any:
    return m.events(torch.zeros(4).cuda()).tolist()


@case
def torch_warp(m: Any) -> Any:
    return [m.torch_warp(torch.arange(32).to(kind).cuda()).tolist() for kind in (torch.float32, torch.float64)]


@case
def compat(m: Any) -> Any:
    return m.compat(torch.tensor([-1.0, 0.25, 4.0]).cuda()).tolist()


@case
def streams(m: Any) -> Any:
    return m.streams(torch.tensor([-1.0, 0.25, 4.0]).cuda()).tolist()


@case
def wide(m: Any) -> Any:
    return m.wide(torch.zeros(5).cuda()).tolist()


@case
def copies(m: Any) -> Any:
    """What is copied or read from a file lies where kernels may use it."""
    x, file = torch.arange(3.0).cuda(), io.BytesIO()
    torch.save(x.cpu(), file)
    file.seek(0)
    found = [copy.deepcopy(x), torch.load(file, map_location="cuda"), pickle.loads(pickle.dumps(x))]
    return [m.doubled(held).tolist() for held in found]


@case
def pinned(m: Any) -> Any:
    return m.pinned(torch.arange(3.0).cuda()).tolist()


@case
def torch_device(m: Any) -> Any:
    return [str(value) for value in m.torch_device(torch.ones(36).cuda()).tolist()]


@case
def blobs(m: Any) -> Any:
    return m.blobs(torch.arange(3.0).cuda()).tolist()


@case
def launch_forms(m: Any) -> Any:
    return m.launch_forms(torch.ones(3).cuda()).tolist()


@case
def early_exit(m: Any) -> Any:
    return m.early_exit(torch.ones(70).cuda()).tolist()


@case
def cub_calls(m: Any) -> Any:
    return [t.tolist() for t in m.cub_calls(torch.arange(100.0).cuda())]


@case
def host_tensor(m: Any) -> Any:
    return failure(lambda: m.early_exit(torch.ones(70)))


@case
def wrong_arguments(m: Any) -> Any:
    out = []
    for arguments in ((), (1,), (torch.zeros(2).cuda(), torch.zeros(2).cuda())):
        try:
            m.early_exit(*arguments)
        except TypeError as error:
            out.append(str(error).splitlines()[0])
    return out


@case
def devices(m: Any) -> Any:
    host = torch.randn(4, 4)
    x = host.cuda()
    x.add_(1)
    layer = torch.nn.Linear(4, 4).to("cuda")
    lstm = torch.nn.LSTM(4, 3).cuda()
    results = {
        "host_unchanged": not torch.equal(host, x.cpu()),
        "devices": [
            str(t.device)
            for t in (x, x @ x, x[0], x.T, x.half(), torch.cat([x, x]), x.cpu(), torch.empty(2, device="cuda"))
        ],
        "made": [
            str(t.device) for t in (torch.zeros_like(x), torch.randn_like(x, device="cpu"), torch.ones(2).to("cuda:0"))
        ],
        "layers": [str(t.device) for t in (layer(x), layer.weight, lstm(x.view(4, 1, 4))[0], torch.softmax(x, -1))],
        "is_cuda": [x.is_cuda, x.cpu().is_cuda],
        "mixed": failure(lambda: x + host),
        "numpy": type(_raised(x.numpy)).__name__,
        "product": torch.allclose((x @ x).cpu(), (host + 1) @ (host + 1)),
        "available": [
            torch.cuda.is_available(),
            torch.cuda.device_count(),
            torch.cuda.get_device_properties(0).warp_size,
        ],
        "lstm": torch.allclose(lstm(x.view(4, 1, 4))[0].cpu(), lstm.cpu()(x.cpu().view(4, 1, 4))[0], atol=1e-6),
        "resized": list(torch.empty(0, device="cuda").resize_(3, 2).shape),
        "marked": [shim.mark_cuda(host).device.type, shim.as_host(x).device.type],
    }
    marked = shim.mark_cuda(host)
    marked.zero_()
    results["shares"] = host.abs().sum().item() == 0.0
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    end.record()
    with torch.cuda.stream(torch.cuda.Stream()):
        results["elapsed"] = start.elapsed_time(end) >= 0
    with torch.autocast("cuda", dtype=torch.float16):
        results["autocast"] = str((x @ x).dtype)
    return results


def _raised(call: Callable[[], Any]) -> BaseException | None:
    try:
        call()
    except Exception as error:
        return error
    return None


def main(names: list[str]) -> int:
    checked = "--unchecked" not in names
    headers = build.prepare_headers()
    shim.activate(headers, checked=checked)
    module = load(SOURCE, functions=FUNCTIONS, checked=checked, name="hostcuda_cases")
    out: dict[str, Any] = {}
    for name in names:
        if name.startswith("--"):
            continue
        shim.clear()
        values = CASES[name](module)
        out[name] = {"values": values, "reports": shim.collect_reports()}
    sys.stdout.write("\n" + json.dumps(out) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
