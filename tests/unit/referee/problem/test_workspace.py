"""Bench and oracle on the host device: truth, traits, fresh inputs, digests, with problems written for each case."""

from __future__ import annotations

import random
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from harness.core.choices import DeviceKind, PrecisionClass
from harness.core.problem import Costs, InputRules, Problem, Workload, digest_text
from harness.devices.cuda import KEPT_CACHE_SHARE
from harness.devices.device import open_device
from harness.devices.host import HostDevice
from harness.referee.problem.loader import ProblemError
from harness.referee.problem.workspace import HOST_GUARD_BYTES, HOST_SHARE, MORE_SETS_SHARE, POISON, NoRoom, Workspace
from harness.referee.soundness.degenerate import taken_for_right

MATMUL = """
    import torch
    N = 32
    class Model(torch.nn.Module):
        def forward(self, a, b):
            return a @ b
    def get_inputs():
        return [torch.rand(N, N), torch.rand(N, N)]
    def get_init_inputs():
        return []
"""


CONVOLUTION = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv3d(3, 5, 3, stride=2)
    def forward(self, x):
        return self.convolution(x)
def get_inputs():
    return [torch.randn(2, 3, 9, 8, 7)]
def get_init_inputs():
    return []
"""


def problem(source: str, **rules: object) -> Problem:
    text = textwrap.dedent(source)
    return Problem(
        id="level1/1",
        name="test",
        path=Path("1_test.py"),
        source=text,
        digest=digest_text(text),
        rules=InputRules(**rules),  # type: ignore[arg-type]
    )


def workspace(source: str, *, sets: int = 3, sizes: dict[str, int] | None = None) -> Workspace:
    return Workspace(
        problem(source),
        Workload(name="small", sizes=sizes or {}),
        open_device(DeviceKind.HOST),
        sets_wanted=sets,
        secret=random.Random(1),
    )


def test_truth_is_float64_of_the_inputs_as_drawn() -> None:
    held = workspace(MATMUL)
    held.draw(1)
    a, b = held.tensors(held.sets[1].inputs)
    truth = held.truth(1)
    assert truth.source == "float64 cpu"
    assert truth.answer.leaves[0].dtype is torch.float64
    assert torch.equal(truth.answer.leaves[0], a.double() @ b.double())


@pytest.mark.gpu
def test_on_a_gpu_the_source_names_convolutions_as_matrix_products() -> None:
    device = open_device(DeviceKind.CUDA)
    held = Workspace(problem(CONVOLUTION), Workload(name="small"), device, sets_wanted=2, secret=random.Random(1))
    held.draw(1)
    (x,) = held.tensors(held.sets[1].inputs)
    truth = held.truth(1)
    assert truth.source == "float64 cuda, convolutions as matrix products"
    own = held.oracle.model.convolution
    expected = torch.nn.functional.conv3d(x.double(), own.weight.double(), own.bias.double(), stride=2)
    torch.testing.assert_close(truth.answer.leaves[0], expected, rtol=1e-11, atol=1e-11)


def test_sizes_of_the_workload_hold() -> None:
    held = workspace(MATMUL, sizes={"N": 8})
    assert held.traits.shapes == ((8, 8),)


def test_every_draw_is_new_and_poisons_the_outputs() -> None:
    held = workspace(MATMUL)
    seen = set()
    for _ in range(4):
        held.draw(0)
        output = held.tensor(held.sets[0].outputs[0])
        assert bool((output.view(torch.uint8) == POISON).all())
        output.zero_()
        seen.add(float(held.tensor(held.sets[0].inputs[0])[0, 0]))
    assert len(seen) == 4


def test_a_changed_input_is_seen_and_truth_uses_the_drawn_one() -> None:
    held = workspace(MATMUL)
    held.draw(0)
    a, b = (t.clone() for t in held.tensors(held.sets[0].inputs))
    assert held.changed_inputs([0]) == [()]
    held.tensor(held.sets[0].inputs[1])[3, 5] += 1e-3
    assert held.changed_inputs([0]) == [(1,)]
    assert torch.equal(held.truth(0).answer.leaves[0], a.double() @ b.double())


def test_random_forward_has_the_float32_reference_for_truth() -> None:
    held = workspace(
        """
        import torch
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.drop = torch.nn.Dropout(0.5)
            def forward(self, x):
                return self.drop(x)
        def get_inputs():
            return [torch.rand(64)]
        def get_init_inputs():
            return []
        """
    )
    assert held.traits.draws_random
    held.draw(0)
    first, second = held.truth(0), held.truth(0)
    assert first.source == "float32 reference"
    assert torch.equal(first.answer.leaves[0], second.answer.leaves[0])


def test_updated_state_and_changed_inputs_are_traits() -> None:
    held = workspace(
        """
        import torch
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.norm = torch.nn.BatchNorm1d(4)
            def forward(self, x):
                x += 1
                return {"y": (self.norm(x), 3)}
        def get_inputs():
            return [torch.rand(16, 4)]
        def get_init_inputs():
            return []
        """
    )
    assert held.traits.mutates_inputs
    assert set(held.traits.updates_state) == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    held.draw(0)
    answers = [held.truth(0), held.truth(0)]
    assert torch.equal(answers[0].answer.state["norm.running_mean"], answers[1].answer.state["norm.running_mean"])
    assert held.changed_inputs([0]) == [()]


def test_integers_stay_integers() -> None:
    held = workspace(
        """
        import torch
        class Model(torch.nn.Module):
            def forward(self, x, n, scale):
                return x.argmax(dim=0), x[n] * scale
        def get_inputs():
            return [torch.randint(0, 100, (8, 5)), 3, 2.5]
        def get_init_inputs():
            return []
        """
    )
    held.draw(0)
    truth = held.truth(0).answer
    assert [leaf.dtype for leaf in truth.leaves] == [torch.int64, torch.float64]
    assert held.traits.dtypes == (torch.int64, torch.float32)


def test_float64_refused_falls_back_and_says_why() -> None:
    held = workspace(
        """
        import torch
        class Model(torch.nn.Module):
            def forward(self, x):
                return x @ torch.ones(4, 4, dtype=torch.float32)
        def get_inputs():
            return [torch.rand(4, 4)]
        def get_init_inputs():
            return []
        """
    )
    assert held.truth_source == "float32 reference"
    assert "float64" in (held.oracle.float32_because or "")


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        ("raise ValueError('broken reference')", "broken reference"),
        ("return x / 0", "no finite value"),
        ("return object()", "can't be compared"),
        ("return None", "no tensor"),
        ("return x.to_sparse()", "output is not dense .torch.sparse_coo."),
        pytest.param(
            "return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)",
            "output is quantised",
            marks=pytest.mark.filterwarnings("ignore::UserWarning"),
        ),
        ("with torch.autocast('cuda', dtype=torch.bfloat16): return x @ x", "which only a GPU has"),
        ("return list((x * torch.ones(5000, 1)).unbind())[:5000]", "forward has 5000 tensors; at most 4096"),
        ("self.register_buffer('late', x); return x + 1", "the reference's state late is created in a call"),
        ("return x, x[x > 0.5]", r"output\[1\] has shape \[\d+\] on one draw of its inputs and \[\d+\] on another"),
        ("return [row for row in x if row > 0.5]", "output depends on the draw: output: expected a list of"),
    ],
)
def test_a_problem_at_fault_says_so(forward: str, message: str) -> None:
    source = f"""
    import torch
    class Model(torch.nn.Module):
        def forward(self, x):
            {forward}
    def get_inputs():
        return [torch.rand(40)]
    def get_init_inputs():
        return []
    """
    with pytest.raises(ProblemError, match=message):
        workspace(source)


IN_A_LIST = """
    import torch
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = [torch.nn.Linear(8, 8)]
        def forward(self, x):
            return self.layers[0](x)
    def get_inputs():
        return [torch.rand(4, 8)]
    def get_init_inputs():
        return []
"""


def test_a_reference_that_would_fail_on_a_gpu_is_refused_where_there_is_none() -> None:
    with pytest.raises(ProblemError, match=r"fails on a GPU: .* layers\[0\].weight is not a param.* nn.ModuleList"):
        workspace(IN_A_LIST)
    workspace(IN_A_LIST.replace("self.layers[0](x)", "self.layers[0].to(x.device)(x)")).close()


CHANGING = """
    import torch
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.ones(1))
            self.factor = 1.0
        def forward(self, x):
            out = x * self.scale * self.factor
            if x[0] == 1:
                CHANGE
            return out
    def get_inputs():
        return [torch.zeros(8)]
    def get_init_inputs():
        return []
"""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("self.scale += 1", "changes its state scale on some draws of its inputs only"),
        ("self.scale = self.scale + 1", "changes its state scale on some draws of its inputs only"),
        ("self.factor += 1", "changes its attribute factor on some draws of its inputs only"),
    ],
)
def test_what_a_reference_changes_on_some_draws_only_is_its_own_fault(change: str, said: str) -> None:
    held = workspace(CHANGING.replace("CHANGE", change))
    assert not held.traits.updates_state
    held.draw(1)
    held.truth(1)
    held.tensor(held.sets[1].inputs[0])[0] = 1
    held.amend(1)
    with pytest.raises(ProblemError, match=said):
        held.truth(1)
    held.close()


def test_tables_kept_in_the_type_of_the_inputs_are_no_fault() -> None:
    source = CHANGING.replace("self.factor = 1.0", "self.factor = torch.ones(8)")
    source = source.replace("out = ", "self.factor = self.factor.to(x); out = ")
    held = workspace(source)
    held.draw(1)
    assert held.truth(1).source == "float64 cpu"
    held.close()


def test_who_writes_to_inputs_without_effect_in_the_trial_call_may_do_so() -> None:
    held = workspace(MATMUL.replace("return a @ b", "return a.clamp_(max=2) @ b"))
    assert held.traits.mutates_inputs
    held.close()


def test_too_large_a_problem_says_so_before_anything_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("inputs were drawn")

    with monkeypatch.context() as patched:
        patched.setattr("harness.referee.problem.workspace.draw", never)
        with pytest.raises(NoRoom, match=r"inputs and outputs of .* do not fit .* take a smaller --workload, or a GPU"):
            workspace(MATMUL.replace("N = 32", "N = 400000"))
        patched.setattr(HostDevice, "free_bytes", lambda self, enough=None: 2**16)
        with pytest.raises(NoRoom, match="do not fit the 0 MiB"):
            workspace(MATMUL.replace("N = 32", "N = 64"))
    # One whose inputs don't tell how large they are without data is drawn, and refused when it is laid out.
    monkeypatch.setattr(HostDevice, "free_bytes", lambda self, enough=None: 2**16)
    with pytest.raises(NoRoom, match="do not fit the 0 MiB"):
        workspace(MATMUL.replace("torch.rand(N, N), ", "torch.rand(N, N) * torch.rand(1).clamp(max=1).item(), "))


def test_memory_for_one_set_is_enough_and_more_of_it_makes_more_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for sets in (1.5, 2.5, 9.5):
        free = sets * 3 * (32 * 32 * 4 + HOST_GUARD_BYTES) / HOST_SHARE
        monkeypatch.setattr(HostDevice, "free_bytes", lambda self, enough=None, free=free: int(free))
        held = workspace(MATMUL)
        counts.append(len(held.sets))
        held.close()
    assert counts == [1, 2, 3]


def test_sets_of_a_gpu_leave_it_four_fifths_of_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostDevice, "free_bytes", lambda self, enough=None: 100 * 2**20)
    held = workspace(MATMUL, sets=2)
    monkeypatch.setattr(HostDevice, "torch_device", torch.device("cuda"))
    budget, more = held._budget_bytes()
    assert budget == 100 * 2**20
    assert more == int(MORE_SETS_SHARE * budget)
    assert MORE_SETS_SHARE + KEPT_CACHE_SHARE <= 0.2


def test_what_get_inputs_keeps_from_one_call_to_the_next_has_data() -> None:
    keeping = "KEPT = []\n    def get_inputs():\n        KEPT.append(torch.rand(N, N))"
    source = MATMUL.replace("def get_inputs():", keeping)
    held = workspace(source.replace("return [torch.rand(N, N), ", "return [KEPT[0] + 0, "))
    assert held.truth(0).source == "float64 cpu"


def test_what_a_problem_declares_takes_the_place_of_what_is_counted() -> None:
    plain = workspace(MATMUL)
    assert [plain.costs[0].total, plain.costs[1].total_bytes] == [2 * 32**3, 3 * 4 * 32 * 32]
    declares = replace(problem(MATMUL), costs=Costs(flops="7 * N", bytes="N * N"))
    held = Workspace(
        declares, Workload(name="small"), open_device(DeviceKind.HOST), sets_wanted=3, secret=random.Random(1)
    )
    assert [held.costs[0].total, held.costs[1].total_bytes] == [7 * 32, 32 * 32]
    plain.close()
    held.close()


def test_an_answer_that_is_a_buffer_stays_when_the_buffer_is_put_back() -> None:
    held = workspace("""
    import torch
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("cache", torch.zeros(4))
        def forward(self, x):
            self.cache += x
            return self.cache[:2]
    def get_inputs():
        return [torch.rand(4)]
    def get_init_inputs():
        return []
    """)
    (drawn,) = held.tensors(held.sets[0].inputs)
    assert torch.equal(held.truth(0).answer.leaves[0], drawn[:2].double())
    assert torch.equal(held.answer(0).leaves[0], drawn[:2])


def test_what_is_no_tensor_among_the_state_is_none_of_it() -> None:
    held = workspace("""
    import torch
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(4))
        def get_extra_state(self):
            return {"version": 1}
        def set_extra_state(self, state):
            pass
        def forward(self, x):
            return (x * self.weight).to(torch.float8_e4m3fn)
    def get_inputs():
        return [torch.rand(4)]
    def get_init_inputs():
        return []
    """)
    assert list(held.state_slots) == ["weight"]
    assert held.traits.dtypes == (torch.float8_e4m3fn,)


def test_a_parameter_without_a_shape_is_the_problems_fault() -> None:
    source = MATMUL.replace(
        "def forward",
        "def __init__(self):\n            super().__init__()\n"
        "            self.inner = torch.nn.LazyLinear(3)\n        def forward",
    )
    with pytest.raises(ProblemError, match=r"inner\.weight has no shape before the first call"):
        workspace(source)


@pytest.mark.parametrize(
    "forward", ["assert x.dtype == torch.float32\n            return x", "return x.view(torch.int32)"]
)
def test_a_reference_of_float32_alone_is_its_own_truth(forward: str) -> None:
    held = workspace(f"""
    import torch
    class Model(torch.nn.Module):
        def forward(self, x):
            {forward}
    def get_inputs():
        return [torch.rand(4)]
    def get_init_inputs():
        return []
    """)
    assert held.truth_source == "float32 reference"


@pytest.mark.parametrize("drawn", ["random.random()", "float(np.random.rand())", "torch.rand(())"])
def test_random_numbers_of_any_generator_are_known_as_such(drawn: str) -> None:
    held = workspace(f"""
    import random
    import numpy as np
    import torch
    class Model(torch.nn.Module):
        def forward(self, x):
            return x + {drawn}
    def get_inputs():
        return [torch.rand(4)]
    def get_init_inputs():
        return []
    """)
    assert held.traits.draws_random
    assert torch.equal(held.truth(0).answer.leaves[0], held.answer(0).leaves[0])


TRANSPOSED = """
    import torch
    class Model(torch.nn.Module):
        def forward(self, x, y):
            return x.t().view(-1) * 2, y + 1
    def get_inputs():
        return [torch.randn(40, 30).t(), torch.randn(30, 1).expand(30, 50)]
    def get_init_inputs():
        return []
"""


@pytest.mark.parametrize("variant", ["own", "large_values", "zero_mean", "structured"])
def test_a_reference_may_rely_on_the_strides_of_its_inputs(variant: str) -> None:
    """In the referee's memory, in copies for float64 and for rounded inputs, and where an input has to be redrawn."""
    held = workspace(TRANSPOSED)
    assert [slot.strides for slot in held.sets[0].inputs] == [(1, 30), (1, 0)]
    held.draw(1, variant)
    x, y = held.tensors(held.sets[1].inputs)
    assert (x.stride(), y.stride()) == ((1, 30), (1, 0))
    assert held.truth(1).source == "float64 cpu"
    assert torch.equal(held.answer(1).leaves[0], 2 * x.t().reshape(-1))
    drawn = x.clone()
    x[0, 0] += 1
    assert held.changed_inputs([1]) == [(0,)]
    assert torch.equal(held.pristine_inputs(1)[0], drawn)
    assert held.pristine_inputs(1)[0].stride() == (1, 30)
    held.amend(1)
    assert len(list(held.nearby(1, (), PrecisionClass.BF16))) == 4


def test_inputs_with_gaps_and_expanded_ones_take_the_memory_of_their_elements() -> None:
    source = MATMUL.replace(
        "torch.rand(N, N), torch.rand(N, N)", "torch.rand(N, 2 * N)[:, ::2], torch.rand(N).expand(N, N)"
    )
    held = workspace(source)
    a, b = held.tensors(held.sets[0].inputs)
    assert (a.untyped_storage().nbytes(), b.untyped_storage().nbytes()) == (4 * (32 * 64 - 1), 4 * 32)
    first = held.sets[0].inputs[0].offset
    assert held.sets[0].inputs[1].offset >= first + a.untyped_storage().nbytes()


def test_a_change_between_the_elements_of_an_input_is_a_change() -> None:
    held = workspace(MATMUL.replace("torch.rand(N, N), torch", "torch.rand(N, 2 * N)[:, ::2], torch"))
    held.draw(0)
    a = held.tensors(held.sets[0].inputs)[0]
    a.as_strided((1,), (1,), 1).fill_(3.0)
    assert held.changed_inputs([0]) == [(0,)]


DESTINATION = """
    import torch
    class Model(torch.nn.Module):
        def forward(self, x, out):
            out.copy_(x.exp())
    def get_inputs():
        return [torch.randn(20, 30), torch.empty(20, 30)]
    def get_init_inputs():
        return []
"""


def test_a_reference_may_write_its_result_into_an_argument_and_return_nothing() -> None:
    held = workspace(DESTINATION)
    assert held.traits.destinations == (1,)
    assert held.input_notes == ("inputs[1]: a call writes its results there",)
    held.draw(0)
    x, out = held.tensors(held.sets[0].inputs)
    assert bool(out.isnan().all())
    truth = held.truth(0).answer
    assert torch.equal(truth.inputs[1], x.double().exp())
    assert list(held.judged(0)) == ["inputs[0]", "inputs[1]"]
    assert not taken_for_right(held, PrecisionClass.FP32)


def test_a_destination_with_a_constant_result_is_degenerate() -> None:
    held = workspace(DESTINATION.replace("x.exp()", "x * 0"))
    assert "zeros" in taken_for_right(held, PrecisionClass.FP32)


def test_a_reference_that_changes_the_shape_of_an_input_is_named_as_that() -> None:
    held = workspace(DESTINATION.replace("out.copy_(x.exp())", "return x.unsqueeze_(1) * 2"))
    assert held.traits.reshaped == {0: (20, 1, 30)}
    assert held.input_notes == ("inputs[0]: a call changes its shape to [20, 1, 30]",)
    held.draw(0)
    x = held.tensors(held.sets[0].inputs)[0]
    truth = held.truth(0).answer
    assert truth.inputs[0].shape == x.shape
    assert truth.leaves[0].shape == (20, 1, 30)


def test_values_that_are_not_finite_by_design_are_no_fault() -> None:
    forward = "return torch.softmax(x.masked_fill(torch.arange(20)[:, None] < 3, float('-inf')), 1), out.log()"
    held = workspace(DESTINATION.replace("out.copy_(x.exp())", forward).replace("torch.empty", "torch.zeros"))
    held.draw(0)
    rows, logarithms = held.truth(0).answer.leaves
    assert rows.isnan().sum() == 3 * 30
    assert bool((logarithms == float("-inf")).all())
    assert not taken_for_right(held, PrecisionClass.FP32)
