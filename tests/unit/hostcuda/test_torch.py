"""torch on the host device: the ways to name the device that work, and what is refused and noted as not emulated.

In a process of its own: activating the device changes torch for good.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from harness.referee.contestants.failures import REFUSAL
from tests.support.paths import ROOT, SUPPORT

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="the host device needs g++"),
    pytest.mark.xdist_group("test_hostcuda_torch"),
]
"""One worker runs all of it: every test asks for the same run."""

WORKS = {
    "torch.empty(3, device=0)": "cuda:0 torch.float32",
    "torch.tensor([1], device=0)": "cuda:0 torch.int64",
    "torch.full([2], 3.0, device=torch.device(0))": "cuda:0 torch.float32",
    "torch.zeros_like(torch.ones(2), device=0)": "cuda:0 torch.float32",
    "torch.ones(2).new_empty(3, device=0)": "cuda:0 torch.float32",
    "torch.nn.Linear(2, 2, device=0).weight": "cuda:0 torch.float32",
    "torch.ones(2).to(0)": "cuda:0 torch.float32",
    "torch.ones(2, device=torch.device('cpu'))": "cpu torch.float32",
    "torch.empty(3, pin_memory=True)": "cpu torch.float32",
    "torch.ones(2, device='cuda').to('cpu', non_blocking=True).pin_memory()": "cpu torch.float32",
    "torch.cuda.FloatTensor(2, 3)": "cuda:0 torch.float32",
    "torch.cuda.HalfTensor([1.0, 2.0])": "cuda:0 torch.float16",
    "torch.ones(2).type(torch.cuda.LongTensor)": "cuda:0 torch.int64",
    "torch.ones(2).type('torch.cuda.HalfTensor')": "cuda:0 torch.float16",
    "torch.ones(2).type(torch.float64)": "cpu torch.float64",
    "torch.from_dlpack(torch.ones(2, device='cuda')) + 1": "cuda:0 torch.float32",
    "torch.from_dlpack(torch.ones(2, device='cuda'), copy=True) + 1": "cuda:0 torch.float32",
    "torch.from_dlpack(torch.ones(2))": "cpu torch.float32",
    "torch.jit.script(scripted)(torch.ones(2, device='cuda'))": "cuda:0 torch.float32",
    "torch.utils.checkpoint.checkpoint(torch.relu, torch.ones(2, device='cuda'), use_reentrant=False)": (
        "cuda:0 torch.float32"
    ),
    "torch.mm(halves(2, 3), halves(3, 2), out_dtype=torch.float32)": "cuda:0 torch.float32",
    "torch.bmm(halves(2, 3, 4), halves(2, 4, 3), out_dtype=torch.float32)": "cuda:0 torch.float32",
    "torch.addmm(halves(2, 2), halves(2, 3), halves(3, 2), out_dtype=torch.float32)": "cuda:0 torch.float32",
    "torch.inference_mode()(torch.nn.Linear(2, 3, bias=False, device='cuda'))(torch.ones(2, 2, device='cuda'))": (
        "cuda:0 torch.float32"
    ),
    "learnt_on_the_cpu()": "cpu torch.float32",
    "under(torch.device(0))": "cuda:0 torch.float32",
    "loaded(torch.ones(2), map_location='cuda')": "cuda:0 torch.float32",
    "loaded({'w': torch.ones(2, 3)[:, 1:]}, map_location='cuda:0')['w'] + 1": "cuda:0 torch.float32",
    "loaded(torch.ones(2), map_location=torch.device('cuda'), weights_only=True)": "cuda:0 torch.float32",
    "loaded(torch.ones(2), map_location={'cpu': 'cuda:0'})": "cuda:0 torch.float32",
    "loaded(torch.ones(2), map_location=lambda storage, at: storage.cuda())": "cuda:0 torch.float32",
    "loaded(torch.ones(2))": "cpu torch.float32",
    "loaded(torch.nn.Linear(2, 2).cuda().state_dict())['weight']": "cuda:0 torch.float32",
    "loaded(torch.ones(2, device='cuda'), map_location='cpu')": "cpu torch.float32",
    "pickle.loads(pickle.dumps(torch.ones(2, device='cuda')))": "cuda:0 torch.float32",
    "copy.deepcopy(torch.nn.Linear(2, 2).cuda()).weight": "cuda:0 torch.float32",
    "torch.ops.mine.on_cpu(torch.ones(2))": "cpu torch.float32",
    "torch.ops.mine.on_both(torch.ones(2, device='cuda'))": "cuda:0 torch.float32",
    "torch.ops.mine.anywhere(torch.ones(2, device='cuda'))": "cuda:0 torch.float32",
}
"""Expressions, and what the tensors they make are."""

HOLDS = [
    "isinstance(torch.device(0), torch.device) and not isinstance('cuda', torch.device)",
    "torch.device(0) == torch.device('cuda', 0) == torch.device(index=0)",
    "pickle.loads(pickle.dumps(torch.device(0))) == torch.device('cuda:0')",
    "torch.empty(3, pin_memory=True).is_pinned() and not torch.empty(3).is_pinned()",
    "all(torch.tensor([[1, 2]], pin_memory=True)[:, 1:].is_pinned() for _ in range(3))",
    "not torch.ones(3).pin_memory().clone().is_pinned() and not torch.ones(3, device='cuda').is_pinned()",
    "torch.equal(torch.ones(2, 3).t().pin_memory(), torch.ones(3, 2))",
    "torch.zeros_like(torch.ones(2, 3).t(), pin_memory=True).is_pinned()",
    "raises(lambda: torch.ones(2, device='cuda').pin_memory(), 'cannot pin')",
    "raises(lambda: torch.empty(2, device='cuda', pin_memory=True), 'Only dense CPU tensors')",
    "isinstance(torch.ones(2, device='cuda'), torch.cuda.FloatTensor)",
    "not isinstance(torch.ones(2), torch.cuda.FloatTensor)",
    "torch.library.infer_schema(on, mutates_args=()) == '(Tensor x, Device device) -> Tensor'",
    "(torch.mm(halves(2, 4097), halves(4097, 2), out_dtype=torch.float32) == 4097).all().item()",
    "torch.cuda.memory_stats()['allocated_bytes.all.peak'] == 0 and torch.cuda.memory_snapshot() == []",
    "torch.cuda.Stream.priority_range()[1] < 0 and torch.cuda.Event().cuda_event == 0",
    "torch.cuda.get_device_properties(0).memory_bus_width > 0 and torch.cuda.get_allocator_backend() == 'native'",
    "torch.cuda.set_sync_debug_mode(0) is torch.cuda.set_per_process_memory_fraction(0.5) is None",
    "torch.Stream(device='cuda').device.type == 'cuda' and torch._C._cuda_getDevice() == 0",
    "not hasattr(torch._C, '_no_such_thing')",
    "isinstance(torch.cuda.current_stream(), torch.Stream) and isinstance(torch.cuda.Stream(), torch.Stream)",
    "isinstance(torch.accelerator.current_stream(), torch.cuda.Stream)",
    "isinstance(torch.cuda.Event(), torch.Event) and not isinstance(torch.Event('cuda'), torch.cuda.Event)",
    "timed(torch.cuda.Event(enable_timing=True), torch.Event('cuda', enable_timing=True))",
    "torch.ones(2, device='cuda').untyped_storage().device == torch.device('cuda:0')",
    "torch.ones(2).untyped_storage().device.type == torch.UntypedStorage(2).device.type == 'cpu'",
    "torch.UntypedStorage([1, 2], device='cuda').tolist() == [1, 2]",
    "(y := loaded([x := torch.ones(2, device='cuda'), x[:1]]))[0].data_ptr() == y[1].data_ptr()",
    "raises(lambda: loaded(torch.ones(2), map_location='cuda:1'), 'device_count() is 1')",
    "raises(lambda: torch.ops.mine.on_cpu(torch.ones(2, device='cuda')), \"arguments from the 'CUDA' backend\")",
    "raises(lambda: torch.ops.mine.nowhere(torch.ones(2, device='cuda')), \"arguments from the 'CUDA' backend\")",
    "traced_alike(convolved(), grad=True) and traced_alike(convolved(), grad=False)",
    "traced_alike(torch.nn.Conv2d(2, 3, 3, padding='same').cuda(), grad=True)",
    "traced_alike(lambda x: x[:, [1, 0]] * 2, grad=True)",
    "(torch.cuda.CUDAGraph | None) and (torch.device | None)",
    "graph_follows_its_inputs() and not torch.cuda.is_current_stream_capturing()",
    "graph_of_two_streams() and graphs_share_a_pool()",
    "graph_answers_nothing_before_a_replay()",
    "graph_draws_again()",
    "learns_alike(torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3)), (2, 2, 5, 5))",
    "learns_alike(torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.LayerNorm(6), torch.nn.Softmax(-1)), (3, 4))",
    "learns_alike(torch.nn.LSTM(3, 4, bidirectional=True), (5, 2, 3))",
    "learns_alike(torch.nn.LSTM(3, 4, bias=False), (5, 2, 3))",
    "learns_alike(torch.nn.GRU(3, 4, num_layers=2), (5, 2, 3))",
    "learns_alike(torch.nn.GRU(3, 4, bias=False), (5, 2, 3))",
    "learns_alike(torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (2, 4, 8))",
    "learns_alike(torch.nn.Sequential(torch.nn.Embedding(7, 3), torch.nn.MaxPool1d(2)), (2, 6), whole=7)",
    "torch.autograd.gradcheck(Squared.apply, torch.rand(3, dtype=torch.float64, device='cuda', requires_grad=True))",
    "torch.func.grad(lambda x: (x**3).sum())(torch.ones(2, device='cuda')).tolist() == [3, 3]",
    "torch.func.hessian(lambda x: (x**3).sum())(torch.ones(2, device='cuda')).tolist() == [[6, 0], [0, 6]]",
    "graph_of_a_step()",
    "not torch.cuda.make_graphed_callables(torch.relu, (torch.ones(2).cuda(),))(torch.zeros(2).cuda()).any().item()",
    "raises(lambda: captured(lambda: torch.ones(2, device='cuda').sum().item()), 'error during capture')",
    "raises(lambda: captured(lambda: torch.ones(2).cuda()), 'error during capture')",
    "raises(lambda: captured(torch.cuda.synchronize), 'error during capture')",
    "raises(lambda: captured(branch_that_is_not_joined), 'unjoined work')",
    "raises(torch.cuda.CUDAGraph().capture_begin, 'non-default stream')",
    "raises(torch.cuda.CUDAGraph().replay, 'without a preceding successful capture')",
]

STALE = "graph_of_a_lost_input()"

REFUSED = {
    "torch.from_dlpack(torch.ones(2, device='cuda').__dlpack__())": "DLPack",
    "torch.ones(2, 2, device='cuda').to_sparse()": "sparse",
    "torch.quantize_per_tensor(torch.ones(2, device='cuda'), 0.1, 0, torch.qint8)": "quantised",
    "torch.nn.DataParallel(torch.nn.Linear(2, 2).cuda(), device_ids=[0, 0])(torch.ones(4, 2).cuda())": "between GPUs",
    "torch.cuda.MemPool()": "memory pools",
    "torch.cudnn_convolution_relu(images(), images(), None, [1, 1], [0, 0], [1, 1], 1)": "cudnn_convolution_relu",
    "torch.ops.aten._scaled_dot_product_efficient_attention(images(), images(), images(), None, False)": "attention",
    "torch.cuda.tunable.enable(False)": "_cuda_tunableop_enable",
    "torch.cuda.cudart().cudaHostRegister(0, 0, 0)": "cudart",
    "torch.cuda.jiterator._create_jit_fn('template <typename T> T f(T x) { return x; }')": "jiterator",
}


@cache
def results() -> dict[str, Any]:
    texts = json.dumps([*WORKS, *HOLDS, *REFUSED, STALE])
    script = SUPPORT / "hostcuda_torch.py"
    done = subprocess.run(
        [sys.executable, str(script), texts], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    held: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return held


@pytest.mark.parametrize("text", WORKS)
def test_the_device_is_found_by_any_of_its_names(text: str) -> None:
    assert results()[text] == [WORKS[text], []]


@pytest.mark.parametrize("text", HOLDS)
def test_what_stands_for_torch_s_classes_is_known_as_them(text: str) -> None:
    assert results()[text] == [True, []]


def test_a_graph_on_a_tensor_that_is_gone_is_reported() -> None:
    said, reports = results()[STALE]
    assert said == "RuntimeError: CUDA error: an illegal memory access was encountered"
    assert reports == ["a graph runs it on a tensor whose memory was freed since the capture"]


@pytest.mark.parametrize("text", REFUSED)
def test_what_can_not_be_done_is_refused_and_noted(text: str) -> None:
    said, notes = results()[text]
    assert said.startswith("NotImplementedError: ")
    assert len(notes) == 1
    assert REFUSED[text] in notes[0]
    # By these words a failure is known to come of it.
    assert f"{REFUSAL}{notes[0]}" in said
