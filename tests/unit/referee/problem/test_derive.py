"""Sizes of a file shrink together with what depends on them, and no further than its structure allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.problem import Problem
from harness.referee.problem.derive import SMALL_BYTES, SMALL_OPERATIONS, NoSizes, candidates, trace
from harness.referee.problem.flops import Counting
from harness.referee.problem.loader import ProblemError

HEAD = "import torch\nimport torch.nn as nn\n"


def problem(text: str) -> Problem:
    return Problem(id="level1/1", name="x", path=Path("1_x.py"), source=HEAD + text, digest="d")


def best(text: str) -> dict[str, object]:
    (found, *_) = candidates(problem(text))
    call = trace(problem(text), found)
    assert call.operations <= SMALL_OPERATIONS
    assert call.nbytes <= SMALL_BYTES
    return found


PRODUCT = """
M = 4096
K = 8192
N = 2048
class Model(nn.Module):
    def forward(self, a, b):
        return a @ b
def get_inputs():
    return [torch.rand(M, K), torch.rand(K, N)]
def get_init_inputs():
    return []
"""


def test_free_sizes_become_odd_and_differ_from_each_other() -> None:
    found = best(PRODUCT)
    assert set(found) == {"M", "K", "N"}
    assert len(set(found.values())) == 3, "equal sizes would hide a transposition"
    assert all(isinstance(size, int) and size % 2 == 1 for size in found.values())


def test_the_same_file_gets_the_same_sizes() -> None:
    assert candidates(problem(PRODUCT)) == candidates(problem(PRODUCT))


GROUPED = """
batch_size = 128
in_channels = 64
out_channels = 128
height = width = 256
kernel_size = 3
num_groups = 16
bias_shape = (out_channels, 1, 1)
scale_shape = (128, 1, 1)
class Model(nn.Module):
    def __init__(self, i, o, k, g, b, s):
        super().__init__()
        self.conv = nn.Conv2d(i, o, k, groups=4)
        self.norm = nn.GroupNorm(g, o)
        self.bias = nn.Parameter(torch.randn(b))
        self.scale = nn.Parameter(torch.randn(s))
    def forward(self, x):
        return self.norm(self.conv(x) + self.bias) * self.scale
def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]
def get_init_inputs():
    return [in_channels, out_channels, kernel_size, num_groups, bias_shape, scale_shape]
"""


def test_relations_of_channels_groups_and_shapes_are_kept() -> None:
    found = best(GROUPED)
    outs = found["out_channels"]
    groups = found.get("num_groups", 16)
    assert isinstance(outs, int)
    assert isinstance(groups, int)
    assert found["scale_shape"] == [outs, 1, 1]
    assert "bias_shape" not in found, "it follows out_channels"
    assert "kernel_size" not in found
    assert outs % groups == 0
    assert outs > groups, "a group of one channel is no group"
    assert isinstance(found["in_channels"], int)
    assert found["in_channels"] % 4 == 0


REPEATED = """
STEPS = {steps}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(6, 6)
        self.norm = nn.BatchNorm1d(6)
    def forward(self, x):
        for step in range(STEPS):
            x = torch.cat([self.norm(torch.tanh(self.cell(x)).mul_(0.5)), x[:1]])[:4]
            x = x + x.unsqueeze(0).unsqueeze_(0).sum((0, 1)).split(2, dim=0)[0].repeat(2, 1)
        return x
def get_inputs():
    return [torch.rand(4, 6)]
def get_init_inputs():
    return []
"""


def test_repeated_steps_count_like_the_first() -> None:
    one, two, many = (trace(problem(REPEATED.format(steps=steps)), {}) for steps in (1, 2, 40))
    assert many.kinds == one.kinds
    assert many.operations - one.operations == 39 * (two.operations - one.operations)


def test_repeated_steps_of_a_recurrent_layer_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[object] = []
    count = Counting.__torch_dispatch__

    def noted(self: Counting, func: object, *rest: object) -> object:
        computed.append(func)
        return count(self, func, *rest)

    monkeypatch.setattr(Counting, "__torch_dispatch__", noted)
    layer = "{head}class Model(nn.LSTM):\n    pass\ndef get_inputs():\n    return [torch.rand(STEPS, 2, 5)]\n"
    layer += "def get_init_inputs():\n    return [5, 7]\n"
    counts = []
    for steps in (10, 20):
        trace(problem(layer.format(head=f"STEPS = {steps}\n")), {})
        counts.append(len(computed))
        computed.clear()
    views = 4
    assert counts[1] - counts[0] < 10 * views, "only views are made again"


CONSTRUCTOR = """
batch_size = 512
dim = 4096
base = 10000
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.rates = [x.item() for x in torch.linspace(0, 1, 4)]
        layer = nn.TransformerEncoderLayer(d_model=16, nhead=2, dim_feedforward=32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
    def forward(self, x):
        return self.encoder(x.view(x.shape[0], -1, 16)) * self.rates[1] / base
def get_inputs():
    return [torch.rand(batch_size, dim)]
def get_init_inputs():
    return []
"""


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_tables_of_the_constructor_keep_their_values_and_constants_that_are_no_sizes_stay() -> None:
    found = best(CONSTRUCTOR)
    assert set(found) == {"batch_size", "dim"}
    assert isinstance(found["dim"], int)
    assert found["dim"] % 16 == 0


def test_a_problem_that_is_small_keeps_its_sizes() -> None:
    text = PRODUCT.replace("4096", "40").replace("8192", "50").replace("2048", "60")
    assert candidates(problem(text)) == [{}]


def test_sizes_inside_functions_give_the_reason_and_what_to_write() -> None:
    text = PRODUCT.replace("M, K", "4096, 8192").replace("K, N", "8192, 2048")
    with pytest.raises(NoSizes, match=r"write them as names at the top level \(batch_size = 16\)"):
        candidates(problem(text))


def test_a_file_that_fails_says_so() -> None:
    with pytest.raises(ProblemError, match="fails on import"):
        candidates(problem("import nothing_of_this_name\n"))
