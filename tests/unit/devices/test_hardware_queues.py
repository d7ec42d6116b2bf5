"""Who gets one hardware queue, and who the usual number: by what their text speaks of."""

from __future__ import annotations

import pytest

from harness.devices.hardware_queues import ONE_QUEUE, VARIABLE, queues_for
from tests.support.paths import ROOT

ONE_STREAM = [
    "cudaStream_t stream = at::cuda::getCurrentCUDAStream();\nrelu<<<grid, block, 0, stream>>>(x);",
    "kernel<<<blocks, threads, 0, c10::cuda::getCurrentCUDAStream().stream()>>>(a, b);",
    "cudaStreamSynchronize(stream); // in stream order",
    "C10_CUDA_KERNEL_LAUNCH_CHECK(); auto s = at::cuda::getCurrentCUDAStream(x.device().index());",
]
SEVERAL_STREAMS = [
    "cudaStreamCreate(&side);",
    "cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);",
    "auto side = at::cuda::getStreamFromPool();",
    "c10::cuda::CUDAStreamGuard guard(side);",
    "at::cuda::setCurrentCUDAStream(side);",
    "kernel<<<1, 1, 0, cudaStreamPerThread>>>();",
    "extra_cuda_cflags=['--default-stream', 'per-thread']",
    "self.side = torch.cuda.Stream()",
    "with torch.cuda.stream(self.side): pass",
    "from torch.cuda import stream, current_stream\nwith stream(side): pass",
    "CUDAStream side = CUDAStream(CUDAStream::UNCHECKED, raw);",
    "from torch.cuda import Stream\nside = Stream(priority=-1)",
    "g = torch.cuda.CUDAGraph()",
    "cudaGraphLaunch(exec, stream);",
    "self.rnn = torch.nn.LSTM(8, 8)",
    "torch.nn.GRU(8, 8)",
    'lib = ctypes.CDLL("libcudart.so")',
    "void *f = dlsym(RTLD_DEFAULT, name);",
    "cuStreamCreate(&side, 0);",
]


@pytest.mark.parametrize("source", ONE_STREAM)
def test_work_in_one_stream_gets_one_queue(source: str) -> None:
    assert queues_for(source) == ONE_QUEUE == {VARIABLE: "1"}


@pytest.mark.parametrize("source", SEVERAL_STREAMS)
def test_whoever_may_use_several_streams_gets_the_usual_number(source: str) -> None:
    assert queues_for(source) == {}


@pytest.mark.parametrize("word", ["import ", "setcurrent", "stream_", "cudastream"])
def test_a_text_that_is_made_to_be_long_in_reading_is_read(word: str) -> None:
    """Where each word's search went to the end of the line, a megabyte took hours, in the referee."""
    assert queues_for("#" + word * (2**20 // len(word))) == ONE_QUEUE


def test_most_solutions_use_one_stream() -> None:
    sources = [path.read_text() for path in (ROOT / "solutions").rglob("*.py")]
    assert sum(bool(queues_for(source)) for source in sources) > 0.9 * len(sources)


def test_honest_solutions_that_use_several_streams_keep_their_queues() -> None:
    several = sorted((ROOT / "tests" / "exploits" / "honest").rglob("*two_streams*.py"))
    assert len(several) >= 2
    assert not any(queues_for(path.read_text()) for path in several)
