"""Where extracted solutions go: names, numbering, nothing lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.catalog import Catalog, CatalogError, find_solutions, load_problems
from harness.catalog.transcripts import Placed, place

PROBLEM = "class Model: ...\ndef get_inputs(): return []\ndef get_init_inputs(): return []\n"


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    folder = tmp_path / "problems" / "level1"
    folder.mkdir(parents=True)
    (folder / "16_matmul.py").write_text(PROBLEM)
    (folder / "19_relu.py").write_text(PROBLEM)
    return load_problems(tmp_path / "problems")


def response(folder: Path, name: str, mark: str | None = "1") -> Path:
    path = folder / name
    block = f"```python\nclass ModelNew:\n    mark = {mark}\n```\n" if mark is not None else "no code\n"
    path.write_text(f"Here it is.\n{block}")
    return path


def run(
    catalog: Catalog, tmp_path: Path, *responses: Path, problem: str | None = "level1/16", force: bool = False
) -> list[Placed]:
    return place(responses, catalog, problem=problem, author="m", out=tmp_path / "out", force=force)


def test_one_response_gets_the_problems_name(catalog: Catalog, tmp_path: Path) -> None:
    (placed,) = run(catalog, tmp_path, response(tmp_path, "r.txt"))
    assert placed.path == tmp_path / "out/m/level1/16_matmul.py"
    assert placed.written
    assert placed.path.read_text() == "class ModelNew:\n    mark = 1\n"


def test_the_same_again_changes_nothing_and_another_is_numbered(catalog: Catalog, tmp_path: Path) -> None:
    first = response(tmp_path, "r.txt")
    run(catalog, tmp_path, first)
    (again,) = run(catalog, tmp_path, first)
    assert (again.path, again.written) == (tmp_path / "out/m/level1/16_matmul.py", False)
    (other,) = run(catalog, tmp_path, response(tmp_path, "s.txt", "2"))
    assert other.path == tmp_path / "out/m/level1/16_matmul_sample0.py"
    (third,) = run(catalog, tmp_path, response(tmp_path, "t.txt", "3"))
    assert third.path == tmp_path / "out/m/level1/16_matmul_sample1.py"
    assert (tmp_path / "out/m/level1/16_matmul.py").read_text().endswith("mark = 1\n")


def test_force_overwrites(catalog: Catalog, tmp_path: Path) -> None:
    run(catalog, tmp_path, response(tmp_path, "r.txt"))
    (placed,) = run(catalog, tmp_path, response(tmp_path, "s.txt", "2"), force=True)
    assert placed.path == tmp_path / "out/m/level1/16_matmul.py"
    assert placed.path.read_text().endswith("mark = 2\n")


def test_several_responses_are_samples_even_if_alike(catalog: Catalog, tmp_path: Path) -> None:
    placed = run(
        catalog, tmp_path, response(tmp_path, "a.txt"), response(tmp_path, "b.txt"), response(tmp_path, "c.txt")
    )
    names = [item.path.name for item in placed]
    assert names == ["16_matmul_sample0.py", "16_matmul_sample1.py", "16_matmul_sample2.py"]
    solutions = find_solutions([tmp_path / "out"], catalog)
    assert [item.sample for item in solutions] == [0, 1, 2]
    assert {item.author for item in solutions} == {"m"}


def test_kernelbench_names_say_problem_and_sample(catalog: Catalog, tmp_path: Path) -> None:
    one = response(tmp_path, "level_1_problem_16_sample_3.txt")
    two = response(tmp_path, "level_1_problem_19_sample_0_response.txt")
    placed = run(catalog, tmp_path, one, two, problem=None)
    assert [item.path.name for item in placed] == ["16_matmul_sample3.py", "19_relu_sample0.py"]


def test_a_response_without_a_solution_leaves_the_others_alone(catalog: Catalog, tmp_path: Path) -> None:
    placed = run(catalog, tmp_path, response(tmp_path, "a.txt", None), response(tmp_path, "b.txt"))
    assert placed[0].path is None
    assert placed[0].extraction.reason
    assert placed[1].path is not None
    assert placed[1].path.is_file()


def test_a_response_that_is_not_utf_8_is_told_as_such_where_nothing_is_found_in_it(
    catalog: Catalog, tmp_path: Path
) -> None:
    good = response(tmp_path, "good.txt")
    other, both = tmp_path / "utf16.txt", tmp_path / "both.txt"
    other.write_bytes(good.read_text().encode("utf-16"))
    both.write_bytes(b"caf\xe9\n" + good.read_bytes())
    placed = run(catalog, tmp_path, other, both)
    assert placed[0].path is None
    assert "is not UTF-8 (it looks like UTF-16); no fenced code block" in placed[0].extraction.reason
    assert placed[1].path is not None, "a solution may stand beside such bytes"


def test_all_that_is_wrong_is_said_before_anything_is_written(catalog: Catalog, tmp_path: Path) -> None:
    good = response(tmp_path, "level_1_problem_16_sample_0.txt")
    bad = [
        response(tmp_path, "x.txt"),
        response(tmp_path, "level_1_problem_77_sample_0.txt"),
        tmp_path / "gone_level.txt",
    ]
    with pytest.raises(CatalogError) as caught:
        run(catalog, tmp_path, good, *bad, problem=None)
    text = str(caught.value)
    assert "x.txt: its name contains no problem: name one by --problem" in text
    assert "'level1/77'" in text
    assert "gone_level.txt" in text
    assert not (tmp_path / "out").exists()


def test_an_unreadable_response_and_an_impossible_author(catalog: Catalog, tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="can't be read"):
        run(catalog, tmp_path, tmp_path / "gone.txt")
    with pytest.raises(CatalogError, match="can't be an author"):
        place([response(tmp_path, "r.txt")], catalog, problem="1/16", author="../up", out=tmp_path / "out", force=False)


def test_bytes_that_are_no_text_do_not_matter_beside_a_solution(catalog: Catalog, tmp_path: Path) -> None:
    path = response(tmp_path, "r.txt")
    path.write_bytes(b"\xff\xfe junk\n" + path.read_bytes())
    (placed,) = run(catalog, tmp_path, path)
    assert placed.path is not None
