"""Numbers for people, and text that a submission chose."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.status import Status
from harness.report import format as show


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (6.9e-6, "6.90 µs"),
        (39.3e-6, "39.3 µs"),
        (2.687e-3, "2.69 ms"),
        (9.9996e-4, "1.00 ms"),
        (0.99996, "1.00 s"),
        (12.34, "12.3 s"),
        (123, "2 min 03 s"),
        (179.9, "3 min 00 s"),
        (3725, "1 h 02 min"),
        (1.2e-9, "1.20 ns"),
        (0, "0 s"),
        (None, "-"),
    ],
)
def test_durations(seconds: float | None, shown: str) -> None:
    assert show.duration(seconds) == shown


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [(0.075, "0.0750x"), (1.3149, "1.31x"), (9.996, "10.0x"), (129.4, "129x"), (1e6, "1.00e+06x"), (None, "-")],
)
def test_speedups(ratio: float | None, shown: str) -> None:
    assert show.speedup(ratio) == shown


def test_an_interval_stands_beside_its_speedup() -> None:
    assert show.speedup_with_interval(1.31, 1.294, 1.331) == "1.31x (1.29 to 1.33)"
    assert show.speedup_with_interval(1.31, None, None) == "1.31x"
    assert show.speedup_with_interval(None, 1.0, 2.0) == "-"
    assert show.speedup_with_interval(1.002, 0.999, 1.003, 0.004) == "same as the reference (within 0.40 %)"
    assert (
        show.speedup_with_interval(1.002, 0.999, 1.003, 0.004, baseline="compile") == "same as compile (within 0.40 %)"
    )


def test_shares() -> None:
    assert [show.share(part) for part in (None, 0.0, 0.004, 0.834, 1.0)] == ["-", "0 %", "0.4 %", "83 %", "100 %"]


def test_sizes_and_counts() -> None:
    assert [show.size(n) for n in (512, 1536, 8 * 2**30, None)] == ["512 B", "1.50 KiB", "8.00 GiB", "-"]
    assert show.count(68.7e9, "flop") == "68.7 Gflop"


@pytest.mark.parametrize(
    ("name", "held", "shown"),
    [
        ("median_s", 2.5e-3, "2.50 ms"),
        ("peak_memory_bytes", 2**20, "1.00 MiB"),
        ("work_flops", 2e12, "2.00 Tflop"),
        ("sm_clock_mhz", 1980, "1980 MHz"),
        ("sm_clock_hz", 1980000000, "1.98 GHz"),
        ("temperature_c", 44, "44 °C"),
        ("begin_unix_s", 1795261501.5, "2026-11-21 11:45:01 UTC"),
        ("begin_unix_s", 1e300, "1.00e+300"),
        ("bytes_per_s", 4.8e12, "4.37 TiB/s"),
        ("peak_bytes_per_s", 4.8e12, "4.37 TiB/s"),
        ("flops_per_s", 989.4e12, "989 Tflop/s"),
        ("samples", 32, "32"),
        ("rms_error", 4.3e-5, "4.300e-05"),
        ("ok", True, "yes"),
        ("reason", None, "-"),
        ("where", [1, 2], "1, 2"),
        ("times_s", [1e-3] * 10, ", ".join(["1.00 ms"] * 8) + ", … (10 in all)"),
        ("samples_s", [[1e-3] * 8] * 4, "32 values in 4 series, from 1.00 ms"),
        ("held", {"a_s": 1.5, "b": "x"}, "a_s: 1.50 s, b: x"),
        ("empty", [], "none"),
    ],
)
def test_values_are_scaled_by_the_unit_in_their_name(name: str, held: object, shown: str) -> None:
    assert show.value(name, held) == shown


HOSTILE = "\x1b[31mred\x07\r\n\x00\u202egnp.exe\u200b\ud800 [bold]x[/bold] \u2028end"


def test_a_line_shows_what_would_act() -> None:
    shown = show.line(HOSTILE)
    assert shown == r"\x1b[31mred\x07\r\n\x00\u202egnp.exe\u200b\ud800 [bold]x[/bold] \u2028end"


@given(st.text())
def test_no_text_survives_as_more_than_one_visible_line(text: str) -> None:
    shown = show.line(text, 200)
    assert len(shown) <= 200
    assert not any(unicodedata.category(char).startswith(("C", "Zl", "Zp")) for char in shown)
    shown.encode("utf-8")


@given(st.text())
def test_a_block_keeps_lines_and_nothing_else_that_acts(text: str) -> None:
    shown = show.block(text)
    hidden = {char for char in shown if unicodedata.category(char).startswith(("C", "Zl", "Zp"))}
    assert hidden <= {"\n", "\t"}


def test_a_long_block_loses_its_middle_and_says_so() -> None:
    shown = show.block("a" * 100 + "b" * 100, limit=50)
    assert shown.startswith("a" * 25)
    assert shown.endswith("b" * 25)
    assert "150 characters left out" in shown


def test_ordinary_words_in_other_scripts_stay() -> None:
    assert show.line("größe 矩阵 µ ✓ é") == "größe 矩阵 µ ✓ é"


@pytest.mark.parametrize("status", list(Status))
def test_every_status_is_explained(status: Status) -> None:
    text = show.explain(status)
    assert "\n" not in text
    assert text.endswith(".")
