"""Twenty small mistakes planted in shipped solutions, for the scripted agent of `bench_mcp_agent.py`."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.paths import ROOT


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A mistake: in the example `file`, the only place of `before` is replaced by `after`."""

    name: str
    file: str
    before: str
    after: str

    @property
    def problem(self) -> str:
        level, name = self.file.split("/")[-2:]
        return f"{level}/{name.split('_')[0]}"

    @property
    def source(self) -> str:
        text = (ROOT / "solutions" / "examples" / self.file).read_text(encoding="utf-8")
        assert text.count(self.before) == 1, f"{self.name}: {text.count(self.before)} places"
        return text.replace(self.before, self.after)


NAIVE, OPTIMISED = "naive/level1", "optimised/level1"
PLANTED = (
    Planted(
        name="guard off by one",
        file=f"{NAIVE}/1_thread_per_element.py",
        before="row >= n || col >= n",
        after="row > n || col > n",
    ),
    Planted(
        name="loop bound off by one",
        file=f"{OPTIMISED}/36_one_thread_a_pixel.py",
        before="f < features; ++f) {",
        after="f <= features; ++f) {",
    ),
    Planted(
        name="tail bound off by one",
        file=f"{OPTIMISED}/19_wide_loads.py",
        before="i < count;",
        after="i <= count;",
    ),
    Planted(
        name="no barrier before a reduction",
        file=f"{NAIVE}/23_three_passes.py",
        before="    scratch[t] = value;\n    __syncthreads();\n",
        after="    scratch[t] = value;\n",
    ),
    Planted(
        name="no barrier before tiles are overwritten",
        file=f"{OPTIMISED}/16_built_in_constructor.py",
        before="bs[i][tx];\n        __syncthreads();\n",
        after="bs[i][tx];\n",
    ),
    Planted(
        name="barrier in a branch",
        file=f"{OPTIMISED}/33_two_kernels.py",
        before="    }\n    __syncthreads();\n",
        after="        __syncthreads();\n    }\n",
    ),
    Planted(
        name="no semicolon",
        file=f"{NAIVE}/47_thread_per_column.py",
        before="float sum = 0.0f;",
        after="float sum = 0.0f",
    ),
    Planted(
        name="undeclared name",
        file=f"{NAIVE}/95_block_per_row.py",
        before="i < classes; i += THREADS) sum",
        after="i < clases; i += THREADS) sum",
    ),
    Planted(
        name="output of type double",
        file=f"{OPTIMISED}/6_split_k.py",
        before="auto c = torch::empty({m, n}, a.options());",
        after="auto c = torch::empty({m, n}, a.options().dtype(torch::kFloat64));",
    ),
    Planted(
        name="result converted to double",
        file=f"{OPTIMISED}/17_transpose_first.py",
        before="return module.matmul_bt(A.contiguous(), B.contiguous())",
        after="return module.matmul_bt(A.contiguous(), B.contiguous()).double()",
    ),
    Planted(
        name="shared tile too small",
        file=f"{OPTIMISED}/1_register_tiles.py",
        before="as[DEPTH][TILE + 1];",
        after="as[DEPTH - 1][TILE + 1];",
    ),
    Planted(
        name="shared totals too small",
        file=f"{OPTIMISED}/89_shuffle_scan.py",
        before="totals[WARPS];",
        after="totals[WARPS - 1];",
    ),
    Planted(
        name="allocation too small",
        file=f"{NAIVE}/95_block_per_row.py",
        before="torch::empty({rows}, scores",
        after="torch::empty({rows - 1}, scores",
    ),
    Planted(
        name="launch error unseen: too many threads",
        file=f"{OPTIMISED}/23_online_shuffle.py",
        before="THREADS = 512;",
        after="THREADS = 2048;",
    ),
    Planted(
        name="grid rounded down",
        file=f"{OPTIMISED}/6_split_k.py",
        before="(count + 255) / 256",
        after="count / 256",
    ),
    Planted(
        name="row and column swapped",
        file=f"{NAIVE}/1_thread_per_element.py",
        before="c[(int64_t)row * n + col]",
        after="c[(int64_t)col * n + row]",
    ),
    Planted(
        name="tile read untransposed",
        file=f"{OPTIMISED}/17_transpose_first.py",
        before="tile[threadIdx.x][threadIdx.y + i];",
        after="tile[threadIdx.y + i][threadIdx.x];",
    ),
    Planted(
        name="dimension dropped",
        file=f"{NAIVE}/47_thread_per_column.py",
        before="torch::empty({outer, 1, inner}",
        after="torch::empty({outer, inner}",
    ),
    Planted(
        name="sum of values instead of squares",
        file=f"{OPTIMISED}/40_chunked_samples.py",
        before="sum.y += v * v;",
        after="sum.y += v;",
    ),
    Planted(
        name="last term left out",
        file=f"{NAIVE}/1_thread_per_element.py",
        before="k < n; ++k",
        after="k < n - 1; ++k",
    ),
)
