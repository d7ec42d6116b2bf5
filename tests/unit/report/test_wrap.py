"""Text for a terminal: no word is cut, quoted source stays as it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.report.wrap import wrapped

TEXT = """data race on shared `part[1]` in kernel `fused`: written on line 18, read by another thread on line 20
  without a barrier between the two accesses of the block
    > 22 |         as[threadIdx.y][threadIdx.x] = row < n && ka < n ? a[(int64_t)row * n + ka] : 0.0f;
"""


def test_lines_break_at_words_and_go_on_below_their_beginning() -> None:
    assert wrapped(TEXT, 40).split("\n") == [
        "data race on shared `part[1]` in kernel",
        "`fused`: written on line 18, read by",
        "another thread on line 20",
        "  without a barrier between the two",
        "    accesses of the block",
        "    > 22 |         as[threadIdx.y][threadIdx.x] = row < n && ka < n ? a[(int64_t)row * n + ka] : 0.0f;",
        "",
    ]
    assert wrapped(TEXT, 200) == TEXT


@given(st.text(alphabet="ab /.-_\n", max_size=400), st.integers(1, 80))
def test_no_word_is_cut_or_lost(text: str, width: int) -> None:
    assert wrapped(text, width).split() == text.split()
