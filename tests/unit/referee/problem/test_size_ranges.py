"""Secret shapes: which sizes vary, how far, and that every draw runs like the shown shape."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from harness.catalog import load_problems
from harness.core.problem import ListedShape, Problem, ShapeRules, SizeRange, Workload
from harness.referee.problem.derive import trace
from harness.referee.problem.keyed_random import KeyedRandom
from harness.referee.problem.loader import ProblemError
from harness.referee.problem.size_ranges import NoShapes, ShapeDrawer
from tests.unit.referee.problem.test_derive import PRODUCT, problem

ROOT = Path(__file__).parents[4]
FULL = Workload(name="full")


def ranges(text: str, shown: Workload = FULL) -> dict[str, SizeRange]:
    """The derived ranges by the names that they set."""
    return {" ".join(name for name, _ in each.places): each.range for each in ShapeDrawer(problem(text), shown).ranges}


def drawn(held: Problem, count: int = 8, shown: Workload = FULL, seed: int = 0) -> list[dict[str, object]]:
    shapes = ShapeDrawer(held, shown).draw(count, random.Random(seed))
    return [dict(shape.workload.sizes) for shape in shapes]


def test_outer_sizes_are_free_and_inner_ones_keep_their_alignment() -> None:
    assert ranges(PRODUCT) == {
        "K": SizeRange(low=1024, high=16384, step=16),
        "M": SizeRange(low=512, high=8192),
        "N": SizeRange(low=256, high=4096, step=16),
    }


def test_the_smallest_workload_has_ranges_of_its_own() -> None:
    small = Workload(name="small", sizes={"M": 37, "K": 75, "N": 43})
    assert ranges(PRODUCT, small)["M"] == SizeRange(low=4, high=74)
    assert ranges(PRODUCT, small)["K"] == SizeRange(low=9, high=150)


def test_no_draw_costs_more_than_the_shown_shape() -> None:
    held = problem(PRODUCT)
    full = trace(held, {})
    shapes = drawn(held, 12)
    assert len(shapes) == 12
    assert len({str(shape) for shape in shapes}) == 12
    for sizes in shapes:
        tried = trace(held, sizes)
        assert tried.operations <= full.operations
        assert tried.nbytes <= full.nbytes
        assert tried.kinds == full.kinds


def test_draws_exceed_the_shown_sizes_too() -> None:
    shapes = drawn(problem(PRODUCT), 24)
    assert any(sizes["M"] > 4096 for sizes in shapes), "else code could trust a largest size"  # type: ignore[operator]


def test_a_key_decides_the_draws() -> None:
    drawer = ShapeDrawer(problem(PRODUCT), FULL)
    one, same, other = (drawer.draw(3, KeyedRandom(key * 64, "shapes")) for key in "aab")
    assert one == same
    assert one != other


def test_declared_workloads_are_no_secret() -> None:
    text = PRODUCT.replace("M = 4096", "M = 4").replace("a @ b", "a[:, :8] @ b[:8, :8]").replace("N = 2048", "N = 8")
    text = text.replace("K = 8192", "K = 8")
    held = replace(problem(text), workloads={"full": FULL, "odd": Workload(name="odd", sizes={"M": 3})})
    assert all(sizes["M"] not in (3, 4) for sizes in drawn(held, 4))


LAYER = """
batch_size = 64
in_features = 256
out_features = 48
kernel_size = 3
class Model(nn.Module):
    def __init__(self, wide, narrow, kernel):
        super().__init__()
        self.layer = nn.Conv1d(wide, narrow, kernel)
    def forward(self, x):
        return self.layer(x)
def get_inputs():
    return [torch.rand(batch_size, in_features, 100)]
def get_init_inputs():
    return [in_features, out_features, kernel_size]
"""


def test_features_change_in_steps_and_kernel_sizes_do_not() -> None:
    found = ranges(LAYER)
    assert set(found) == {"batch_size", "in_features", "out_features"}
    assert found["batch_size"].step == 1
    assert found["in_features"].step == found["out_features"].step == 16


def test_a_size_that_no_argument_tells_stays() -> None:
    text = LAYER.replace("self, wide, narrow, kernel", "self").replace("wide, narrow, kernel", "256, out_features, 3")
    text = text.replace("return [in_features, out_features, kernel_size]", "return []")
    assert "out_features" not in ranges(text), "the model has it, but no solution can know it"


def test_sizes_that_must_be_equal_change_together() -> None:
    text = PRODUCT.replace("return a @ b", "return a + b").replace("rand(K, N)", "rand(N, K)")
    text = text.replace("M = 4096", "M = 2048")
    assert set(ranges(text)) == {"K", "M N"}
    assert all(sizes["M"] == sizes["N"] for sizes in drawn(problem(text)))


def test_heads_divide_the_features() -> None:
    text = LAYER.replace("kernel_size = 3", "heads = 12").replace("out_features = 48", "out_features = 768")
    text = text.replace("nn.Conv1d(wide, narrow, kernel)", "nn.MultiheadAttention(narrow, kernel, batch_first=True)")
    text = text.replace("self.layer(x)", "self.layer(x, x, x)[0]").replace("in_features, 100", "in_features, 768")
    text = text.replace("768)]", "out_features)]").replace("kernel_size]", "heads]")
    shapes = drawn(problem(text), 4)
    assert shapes
    assert all(sizes.get("out_features", 768) % 12 == 0 for sizes in shapes)  # type: ignore[operator]


def test_a_file_without_named_sizes_has_none() -> None:
    text = PRODUCT.replace("(M, K)", "(64, 32)").replace("(K, N)", "(32, 16)")
    with pytest.raises(NoShapes, match="write its sizes as names at the top level"):
        ShapeDrawer(problem(text), FULL)


def test_declared_ranges_replace_derived_ones() -> None:
    rules = ShapeRules(ranges={"M": SizeRange(low=1, high=100_000, step=64)})
    held = replace(problem(PRODUCT), shapes=rules)
    assert [each.title for each in ShapeDrawer(held, FULL).ranges] == ["M: 513 to 8192, step 64"]
    assert all(set(sizes) == {"M"} and (sizes["M"] - 1) % 64 == 0 for sizes in drawn(held, 4))  # type: ignore[operator]


def test_a_range_far_from_the_workload_is_an_error() -> None:
    held = replace(problem(PRODUCT), shapes=ShapeRules(ranges={"M": SizeRange(low=4000, high=5000)}))
    with pytest.raises(NoShapes, match="4000 to 5000, has no value near the workload small, where it is 37"):
        ShapeDrawer(held, Workload(name="small", sizes={"M": 37, "K": 75, "N": 43}))


LISTED = ShapeRules(
    listed=(
        ListedShape(sizes={"M": 4096}, calls=1e9),
        ListedShape(sizes={"M": 128}, calls=900.0),
        ListedShape(sizes={"M": 7, "N": 32}, calls=90.0),
        ListedShape(sizes={"M": 9}, calls=10.0),
    )
)


def test_frequent_entries_of_a_list_are_drawn_more_often() -> None:
    held = replace(problem(PRODUCT), shapes=LISTED)
    firsts = Counter(str(drawn(held, 1, seed=seed)[0]) for seed in range(200))
    assert "{'M': 4096}" not in firsts, "it has the shown sizes"
    assert firsts["{'M': 128}"] > 150
    shapes = ShapeDrawer(held, FULL).draw(8, random.Random(0))
    assert sorted(shape.weight for shape in shapes) == [10.0, 90.0, 900.0]


def test_a_list_names_what_varies_at_other_workloads() -> None:
    held = replace(problem(PRODUCT), shapes=LISTED)
    small = Workload(name="small", sizes={"M": 37, "K": 75, "N": 43})
    assert all(set(sizes) == {"M", "K", "N"} and sizes["K"] == 75 for sizes in drawn(held, 4, small))


def test_at_least_120_problems_have_secret_shapes() -> None:
    problems = load_problems(ROOT / "problems")
    short = {}
    for key, held in problems.items():
        try:
            shapes = ShapeDrawer(held, held.workloads["full"]).draw(4, random.Random(1))
        except NoShapes as error:
            short[key] = str(error)
            continue
        if len(shapes) < 4:
            short[key] = f"only {len(shapes)}"
    assert len(problems) - len(short) >= 120, short


NEEDS_DATA = PRODUCT.replace("return a @ b", "return (a @ b)[a[:, 0].nonzero().flatten()]")


def test_declared_shapes_need_no_run_without_data() -> None:
    with pytest.raises(ProblemError, match="can't run without data"):
        ShapeDrawer(problem(NEEDS_DATA), FULL)
    held = replace(problem(NEEDS_DATA), shapes=ShapeRules(ranges={"M": SizeRange(low=1, high=100_000)}))
    assert [each.title for each in ShapeDrawer(held, FULL).ranges] == ["M: 512 to 4096"]
    assert len(drawn(held, 3)) == 3
    listed = ShapeDrawer(replace(held, shapes=LISTED), FULL).draw(3, random.Random(0))
    assert sorted(shape.weight for shape in listed) == [10.0, 90.0, 900.0]


def test_only_whole_numbers_have_ranges() -> None:
    held = replace(
        problem("EPSILON = 0.5\n" + PRODUCT), shapes=ShapeRules(ranges={"EPSILON": SizeRange(low=1, high=2)})
    )
    with pytest.raises(NoShapes, match=r"EPSILON is 0\.5, and only whole numbers have ranges"):
        ShapeDrawer(held, FULL)


def test_derived_ranges_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PRODUCT.replace("M = 4096", "SHAPE = [4096, 3]\nM = SHAPE[0]")
    first = ShapeDrawer(problem(text), FULL, tmp_path).ranges
    assert ("SHAPE", (0,)) in {place for each in first for place in each.places}

    def again(*_: object) -> None:
        pytest.fail("derived again")

    with monkeypatch.context() as patch:
        patch.setattr(ShapeDrawer, "_derived", again)
        assert ShapeDrawer(problem(text), FULL, tmp_path).ranges == first
    (path,) = (tmp_path / "size_ranges").iterdir()
    path.write_text('[{"places": 3}]')
    assert ShapeDrawer(problem(text), FULL, tmp_path).ranges == first, "a damaged file counts as none"
    assert ShapeDrawer(problem(text), FULL, Path("/proc/none")).ranges == first, "nor does an unwritable folder matter"
