"""Which tests run: shards and tiers."""

from __future__ import annotations

import pytest

from tests.support import tiers


def test_shards_hold_every_file_once_and_take_about_the_same_time() -> None:
    files = {name.partition("::")[0] for name in tiers.durations()} | {"tests/unit/new/test_new.py"}
    parts = [tiers.shard(files, f"{index}/4") for index in (1, 2, 3, 4)]
    assert sorted(file for part in parts for file in part) == sorted(files)
    sums = [sum(s for name, s in tiers.durations().items() if name.partition("::")[0] in part) for part in parts]
    longest = max(sum(s for name, s in tiers.durations().items() if name.startswith(f"{file}::")) for file in files)
    assert max(sums) - min(sums) <= longest


@pytest.mark.parametrize("which", ["0/4", "5/4", "1", "1/", "/4", "a/b", "1/0", "-1/4"])
def test_a_wrong_shard_is_refused(which: str) -> None:
    with pytest.raises(ValueError, match="a shard is I/N"):
        tiers.shard({"tests/unit/core/test_stats.py"}, which)


def test_the_fast_tier_leaves_out_long_functions_and_long_files(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = {"tests/a.py::test_long": 9.0, "tests/b.py::test_one": 2.0, "tests/b.py::test_two": 2.0}
    monkeypatch.setattr(tiers, "durations", lambda: measured)
    alone = {"tests/a.py::test_long": False, "tests/a.py::test_new": False, "tests/b.py::test_one": False}
    assert tiers.slow(alone) == {"tests/a.py::test_long"}
    together = {"tests/b.py::test_one": True, "tests/b.py::test_two": True}
    assert tiers.slow(together) == set(together)


def test_of_the_rest_changed_files_come_first_and_then_the_least_recently_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "durations", lambda: dict.fromkeys(["a::x", "b::x", "c::x"], 10.0))
    monkeypatch.setattr(tiers, "last_runs", lambda: {"a::x": 5.0, "b::x": 3.0, "c::x": 9.0})
    assert tiers.chosen_rest(["a::x", "b::x", "c::x"], 20.0, 1, {"c"}) == ["c::x", "b::x"]
    assert tiers.chosen_rest(["a::x", "b::x", "c::x"], 15.0, 2, ()) == ["b::x", "a::x", "c::x"]


def test_the_page_keeps_earlier_measurements_and_lists_the_longest_files_first() -> None:
    total = {"tests/a/test_a.py::test_1": 3.0, "tests/a/test_a.py::test_2": 4.0, "tests/b/test_b.py::test_3": 9.0}
    once = tiers.suite_page(total, "")
    twice = tiers.suite_page({"tests/a/test_a.py::test_1": 5.0}, once)
    measured = [line for line in twice.splitlines() if line.startswith("| 20")]
    assert [line.split("|")[4:6] for line in measured] == [[" 3 ", " 16 "], [" 1 ", " 5 "]]
    assert once.index("| `tests/b/test_b.py` | 1 | 9 |") < once.index("| `tests/a/test_a.py` | 2 | 7 |")


def test_the_page_lists_files_whose_lines_only_other_tests_reach() -> None:
    def report(executed: int, missing: int) -> dict[str, object]:
        lines = list(range(executed + missing))
        return {"executed_lines": lines[:executed], "missing_lines": lines[executed:]}

    fast = {
        "files": {
            "harness/core/a.py": report(10, 30),
            "harness/core/b.py": report(5, 5),
            "harness/cli/c.py": report(0, 50),
        }
    }
    rest = {"files": {"harness/core/a.py": report(30, 10), "harness/core/b.py": report(6, 4)}}
    text = "\n".join(tiers.coverage_table(fast, rest))
    assert "Of 50 lines the fast tier executes 30.0%, all tests 72.0%" in text
    assert [line for line in text.splitlines() if line.startswith("| `")] == ["| `harness/core/a.py` | 40 | 10 | 30 |"]
