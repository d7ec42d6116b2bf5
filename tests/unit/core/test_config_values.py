"""Single settings: what is taken, and what is said of the rest."""

from __future__ import annotations

import select
from pathlib import Path

import pytest

from harness.core.choices import Baseline, PrecisionClass
from harness.core.config_values import (
    MOST_SECONDS,
    count_up_to,
    nearest,
    one_of,
    optional,
    parse_baselines,
    parse_bytes,
    parse_fraction,
    parse_path,
    parse_paths,
    parse_positive,
    parse_precision,
    parse_seconds,
    parse_shard,
)

GIB = 1024**3


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("8GiB", 8 * GIB),
        ("1.5 GB", 1_500_000_000),
        (4096, 4096),
        ("512", 512),
        ("2KiB", 2048),
        ("8388607TiB", 8388607 * 1024 * GIB),
    ],
)
def test_sizes_take_units(value: object, expected: int) -> None:
    assert parse_bytes(value) == expected


@pytest.mark.parametrize(
    "value", ["8 gigs", "", "-1", "0", 0, -1, True, 1.5, None, [8], "1 KB 2", "9" * 400, 2**63, 10**400, "8388608TiB"]
)
def test_what_is_no_size_is_told_what_one_looks_like(value: object) -> None:
    with pytest.raises(ValueError, match="a number of bytes, such as 8589934592 or 8GiB"):
        parse_bytes(value)


def test_a_parser_is_optional_where_it_is_said_to_be() -> None:
    assert optional(parse_shard)(None) is None
    assert optional(parse_shard)("2/8") == "2/8"
    with pytest.raises(ValueError, match="i/n"):
        parse_shard(None)


@pytest.mark.parametrize("value", [0, 9, True, "3", 2.0, None, 10**30])
def test_counts_are_whole_and_bounded(value: object) -> None:
    assert [count_up_to(8)(good) for good in (1, 8)] == [1, 8]
    with pytest.raises(ValueError, match="a whole number from 1 to 8"):
        count_up_to(8)(value)


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "x", None, 10**400])
def test_numbers_are_finite_and_above_zero(value: object) -> None:
    for parse in (parse_positive, parse_fraction):
        with pytest.raises(ValueError, match="a number above 0"):
            parse(value)
    assert parse_positive(3) == 3.0
    with pytest.raises(ValueError, match="between 0 and 1"):
        parse_fraction(1)


def test_nobody_waits_longer_than_the_system_can_count() -> None:
    assert parse_seconds(604800) == 604800.0
    with pytest.raises(ValueError, match=r"at most 604800 \(a week\)"):
        parse_seconds(604801)
    poll = select.poll()
    with Path("/dev/null").open() as ready:
        poll.register(ready)
        assert poll.poll(3 * MOST_SECONDS * 1e3)  # some waits add up several of them


def test_one_path_is_a_list_of_one() -> None:
    assert parse_paths("a") == (Path("a"),)
    assert parse_paths(["a", Path("b")]) == (Path("a"), Path("b"))
    assert parse_path("~") == Path.home()
    with pytest.raises(ValueError, match="a path"):
        parse_path("a\0b")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("compile_max", "compile_max_autotune"),
        ("max-auto", "compile_max_autotune"),
        ("autotune", "compile_max_autotune"),
        ("compil", "compile"),
        ("Eager", "eager"),
        ("tf32", "eager_tf32"),
        ("aeger", "eager"),
    ],
)
def test_the_nearest_baseline_is_the_one_that_was_begun(typed: str, meant: str) -> None:
    with pytest.raises(ValueError, match=rf"\(nearest: {meant}\)$"):
        parse_baselines(typed)


def test_the_nearest_choice_does_not_mind_capitals() -> None:
    with pytest.raises(ValueError, match=r"\(nearest: bf16\)"):
        parse_precision("BF16")
    assert parse_precision("bf16") is PrecisionClass.BF16
    assert nearest("zzz", ["auto", "cuda"]) == ""


def test_off_is_a_word_only_where_it_is_one_of_them() -> None:
    assert one_of("auto", "off")(False) == "off"
    with pytest.raises(ValueError, match="one of auto, cuda"):
        one_of("auto", "cuda")(False)


def test_baselines_take_hyphens_commas_and_a_short_name() -> None:
    assert parse_baselines("eager, compile,max-autotune") == (
        Baseline.EAGER,
        Baseline.COMPILE,
        Baseline.COMPILE_MAX_AUTOTUNE,
    )
    assert parse_baselines(["eager_tf32"]) == (Baseline.EAGER_TF32,)


@pytest.mark.parametrize("bad", ["", "compiled", "eager,eager", 3, [], None, [3]])
def test_what_is_no_baseline_is_refused_with_the_names_there_are(bad: object) -> None:
    with pytest.raises(ValueError, match="one or several of eager"):
        parse_baselines(bad)
