"""Whole evaluations of top-k on the host device: ties resolved another way pass, repeated indices do not."""

from __future__ import annotations

from pathlib import Path

from harness.core.status import Status
from tests.support.judged_on_host import judged_files

PROBLEM = """
import torch
rows, columns, k = 16, 61, 7
class Model(torch.nn.Module):
    def forward(self, x):
        values, indices = torch.topk(x, k, dim=1)
        return values, indices
def get_inputs():
    return [torch.where(torch.rand(rows, columns) < 0.5, torch.randint(-4, 5, (rows, columns)) / 2,
                        torch.randn(rows, columns))]
def get_init_inputs():
    return []
"""

SOLUTION = r'''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

// One thread a row. Of equal values the last comes first, which is not what torch.topk does.
__global__ void top_k(const float* x, float* values, long long* places, int rows, int columns, int k) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float last = INFINITY;
    int last_place = columns;
    for (int j = 0; j < k; ++j) {
        float best = -INFINITY;
        int place = -1;
        for (int i = 0; i < columns; ++i) {
            float v = x[row * columns + i];
            bool left = v < last || (v == last && i < last_place);
            if (left && (place < 0 || v >= best)) { best = v; place = i; }
        }
        last = best;
        last_place = place;
        ANSWER
        values[row * k + j] = best;
        places[row * k + j] = place;
    }
}

std::vector<torch::Tensor> run(torch::Tensor x, int64_t k) {
    auto values = torch::empty({x.size(0), k}, x.options());
    auto places = torch::empty({x.size(0), k}, x.options().dtype(torch::kLong));
    int rows = x.size(0), columns = x.size(1);
    top_k<<<(rows + 31) / 32, 32>>>(
        x.data_ptr<float>(), values.data_ptr<float>(), (long long*)places.data_ptr<int64_t>(), rows, columns, k);
    return {values, places};
}
"""
module = load_inline("top_k", "std::vector<torch::Tensor> run(torch::Tensor x, int64_t k);", CUDA, functions=["run"])

class ModelNew(torch.nn.Module):
    def forward(self, x):
        values, places = module.run(x, 7)
        return values, places
'''

FIRST_OF_EQUALS = "place = 0; while (x[row * columns + place] != best) ++place;"
"""Every value is right, and equal ones have one place."""


def test_ties_may_be_resolved_another_way_but_no_index_repeats(tmp_path: Path) -> None:
    records = judged_files(
        tmp_path,
        {"1_top_k": PROBLEM},
        {"1_last": SOLUTION.replace("ANSWER", ""), "1_repeated": SOLUTION.replace("ANSWER", FIRST_OF_EQUALS)},
        budget_s=2.0,
    )
    right, wrong = records["1_last"], records["1_repeated"]
    assert right.status is Status.passed, right.reason
    assert right.evidence["variants"]["own"]["share_of_limit"] is not None
    assert right.evidence["kernelbench_would_pass"] is False
    assert wrong.status is Status.wrong_value
    assert "output[1]: " in (wrong.reason or "")
    assert "indices wrong" in (wrong.reason or "")
    assert "repeated" in (wrong.reason or "")
    outputs = {output["name"]: output for output in wrong.evidence["outputs"]}
    assert outputs["output[1]"]["index_of"] == "topk"
    assert outputs["output[0]"]["wrong"] == 0
