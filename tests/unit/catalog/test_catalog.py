"""The catalog: which files are problems and solutions, what their paths and declarations say, what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from harness.catalog import (
    Catalog,
    CatalogError,
    UnreadableProblem,
    find_authors,
    find_solutions,
    load_problems,
    solution_path,
)
from harness.catalog.authors import Author
from harness.catalog.solutions import MAX_AUTHOR_BYTES
from harness.core.choices import PrecisionClass
from harness.core.status import Status

PROBLEM = """\
import torch

N = 64
M = 2 * N


class Model(torch.nn.Module):
    def forward(self, x):
        return x


def get_inputs():
    return [torch.rand(N, M)]


def get_init_inputs():
    return []
"""
SOLUTION = "class ModelNew: pass\n"


def write(path: Path, text: str | bytes = SOLUTION) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / "problems/level1/16_Matmul_with_transposed_A.py", PROBLEM)
    write(tmp_path / "problems/level1/17_Matmul_with_transposed_B.py", PROBLEM)
    write(tmp_path / "problems/level2/16_fused.py", PROBLEM)
    return tmp_path / "problems"


@pytest.fixture
def catalog(root: Path) -> Catalog:
    return load_problems(root)


def declare(root: Path, text: str) -> Path:
    return write(root / "level1/workloads.yaml", "format: 1\nproblems:\n" + text)


def findings(call: object, *args: object, **kwargs: object) -> list[str]:
    assert callable(call)
    with pytest.raises(CatalogError) as caught:
        call(*args, **kwargs)
    return list(caught.value.findings)


class TestProblems:
    def test_folders_and_numbers_make_the_id(self, catalog: Catalog) -> None:
        assert list(catalog) == ["level1/16", "level1/17", "level2/16"]
        problem = catalog["level1/16"]
        assert problem.name == "Matmul_with_transposed_A"
        assert problem.source == PROBLEM
        assert problem.precision is PrecisionClass.FP32
        assert list(problem.workloads) == ["full"]
        assert problem.rules.variants == ("zero_mean", "large_values", "structured")

    def test_a_level_folder_itself_may_be_named(self, root: Path) -> None:
        assert list(load_problems(root / "level1")) == ["level1/16", "level1/17"]

    def test_numbers_sort_as_numbers(self, root: Path) -> None:
        write(root / "level1/9_x.py", PROBLEM)
        write(root / "level1/100_x.py", PROBLEM)
        assert list(load_problems(root / "level1")) == [f"level1/{n}" for n in (9, 16, 17, 100)]

    def test_other_files_are_left_alone(self, root: Path) -> None:
        write(root / "level1/README.md", b"\xff")
        write(root / "level1/helper.py", "not python")
        write(root / "setup.py", "not python")
        write(root / ".git/16_x.py", "not python")
        assert len(load_problems(root)) == 3

    def test_declarations_are_read(self, root: Path) -> None:
        declare(
            root,
            "  16:\n    precision: tf32\n    workloads: {small: {N: 7}, odd: {N: 33}}\n"
            "    inputs: {variants: [zero_mean]}\n    notes: a note\n    flops: 2 * N * M\n    bytes: 4e3\n",
        )
        catalog = load_problems(root)
        problem = catalog["level1/16"]
        assert problem.precision is PrecisionClass.TF32
        assert {name: dict(held.sizes) for name, held in problem.workloads.items()} == {
            "full": {},
            "small": {"N": 7},
            "odd": {"N": 33},
        }
        assert problem.rules.variants == ("zero_mean",)
        assert problem.notes == "a note"
        assert catalog["level1/16"].costs.flops == "2 * N * M"
        assert catalog["level1/17"].costs.flops is None

    def test_a_workload_may_have_a_class_of_its_own(self, root: Path) -> None:
        declare(root, "  16: {workloads: {half: {N: 7}}, precisions: {half: bf16}}\n")
        problem = load_problems(root)["level1/16"]
        assert problem.precision is PrecisionClass.FP32
        assert problem.workloads["half"].precision is PrecisionClass.BF16
        assert problem.workloads["full"].precision is None

    def test_the_digest_covers_file_and_declaration(self, root: Path, catalog: Catalog) -> None:
        plain = catalog["level1/16"].digest
        assert load_problems(root)["level1/16"].digest == plain
        declare(root, "  16: {workloads: {small: {N: 7}}}\n")
        declared = load_problems(root)["level1/16"].digest
        assert declared != plain
        write(root / "level1/16_Matmul_with_transposed_A.py", PROBLEM + "# changed\n")
        assert load_problems(root)["level1/16"].digest not in (plain, declared)

    @pytest.mark.parametrize(
        ("entry", "said"),
        [
            (
                "  16: {workloads: {small: {K: 7}}}\n",
                "the file has no top-level constant K; it has M, N",
            ),
            ("  16: {workloads: {small: {N: big}}}\n", "so the value must have type int, not 'big'"),
            ("  16: {workloads: {small: {N: 7.5}}}\n", "so the value must have type int, not 7.5"),
            ("  16: {workloads: {small: {N: [1, 2]}}}\n", "must have type int"),
            ("  16: {workloads: {small: {N: true}}}\n", "must have type int"),
            ("  16: {workloads: {small: {N: }}}\n", "not None"),
            ("  16: {workloads: {Small: {N: 1}}}\n", "not a workload's name"),
            ("  16: {workloads: {small: 7}}\n", "workload small must map"),
            ("  16: {workloads: 7}\n", "workloads must map names"),
            ("  16: {precision: fp31}\n", "precision must be one of fp32, tf32"),
            ("  16: {precisions: {half: bf16}}\n", "precisions must map workloads (full) to classes"),
            ("  16: {precisions: bf16}\n", "precisions must map workloads"),
            ("  16: {precisions: {full: half}}\n", "precisions, full: must be one of fp32"),
            ("  16: {inputs: {variants: [zero]}}\n", "variants must be a list of some of zero_mean"),
            ("  16: {inputs: {variant: []}}\n", "inputs must have the key variants"),
            ("  16: {size: 3}\n", "unknown key size"),
            ("  16: {rate: fast}\n", "rate must be one of fp32"),
            ("  16: {notes: 3}\n", "notes must be a text"),
            ("  16: {flops: 2 * Q}\n", "uses Q, which the file does not define"),
            ("  16: {flops: 2 *}\n", "not an arithmetic expression"),
            ("  16: {flops: N - N}\n", "not a positive number"),
            ("  16: {flops: 'print(1)'}\n", "which the file does not define"),
            ("  16: 3\n", "the entry must be a mapping"),
        ],
    )
    def test_wrong_declarations_are_their_problems_own(self, root: Path, entry: str, said: str) -> None:
        declare(root, entry)
        catalog = load_problems(root)
        assert list(catalog) == ["level1/17", "level2/16"]
        failure = catalog.unreadable["level1/16"].failure
        assert failure is not None
        assert failure.reason.startswith("problem level1/16 can't be read: level1/workloads.yaml, problem 16: ")
        assert said in failure.reason

    @pytest.mark.parametrize(
        ("entry", "said"),
        [
            ("  18: {}\n", "there is no file for problem 18"),
            ("  a: {}\n", "must be a number without quotes (16:), not 'a'"),
            ("  '16': {}\n", "without quotes (16:), not '16'"),
            ("  16: {}\n  16: {}\n", "duplicate key"),
            ("  16: {\n", "not valid YAML"),
            ("  16: !!python/object/apply:os.getcwd []\n", "not valid YAML"),
        ],
    )
    def test_declarations_that_fit_no_problem_are_named(self, root: Path, entry: str, said: str) -> None:
        path = declare(root, entry)
        (finding,) = findings(load_problems, root)
        assert said in finding
        assert str(path) in finding
        assert "\n" not in finding

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("format: 2\nproblems: {}\n", "format 2; this harness reads 1 to 1: update the harness"),
            ("problems: {}\n", "must have exactly the keys format and problems"),
            ("format: 1\nproblems: []\n", "must have exactly the keys format and problems"),
            ("", "must have exactly the keys format and problems"),
            ("text", "must have exactly the keys format and problems"),
        ],
    )
    def test_wrong_envelopes_are_named(self, root: Path, text: str, said: str) -> None:
        write(root / "level1/workloads.yaml", text)
        (finding,) = findings(load_problems, root)
        assert said in finding

    def test_everything_wrong_with_the_whole_is_listed_at_once(self, root: Path) -> None:
        write(root / "level1/18_a.py", "def (:\n")
        declare(root, "  1: {}\n  2: {}\n")
        write(root / "level2/16_other.py", PROBLEM)
        found = findings(load_problems, root)
        assert len(found) == 3
        assert "no file for problem 1" in found[0]
        assert "no file for problem 2" in found[1]
        assert "are both problem level2/16" in found[2]

    @pytest.mark.parametrize(
        ("source", "said"),
        [
            ("import torch\n\ndef (:\n", "level1/18_a.py, line 3: invalid syntax"),
            (b"x = 1\ny = '\xff'\n", "level1/18_a.py, line 2: byte 11 (0xff) is not UTF-8: fix the file"),
            ("x = 1\n".encode("utf-16"), "byte 0 (0xff) is not UTF-8 (it looks like UTF-16)"),
            (b"\xef\xbb\xbfx = '\xfe'\n", "line 1: byte 8 (0xfe) is not UTF-8"),
            ("x = '\0'\n", "null bytes"),
            ("x = " + "(" * 100_000, "level1/18_a.py, "),
        ],
    )
    def test_a_problem_that_can_not_be_read_leaves_the_others_alone(
        self, root: Path, source: str | bytes, said: str
    ) -> None:
        write(root / "level1/18_a.py", source)
        catalog = load_problems(root)
        assert list(catalog) == ["level1/16", "level1/17", "level2/16"]
        assert list(catalog.known) == ["level1/16", "level1/17", "level1/18", "level2/16"]
        failure = catalog.unreadable["level1/18"].failure
        assert failure is not None
        assert failure.status is Status.harness_error
        assert failure.reason.startswith("problem level1/18 can't be read: level1/18_a.py, ")
        assert said in failure.reason
        assert str(root) not in failure.reason
        assert catalog.locate("1/18").failure is failure
        with pytest.raises(UnreadableProblem, match="level1/18 can't be read"):
            catalog.resolve("level1/18")

    def test_the_only_problem_may_be_unreadable(self, tmp_path: Path) -> None:
        write(tmp_path / "level3/1_a.py", "(")
        catalog = load_problems(tmp_path)
        assert not catalog
        assert catalog.levels == {"level3"}

    def test_one_identity_twice_stops_all_even_where_neither_can_be_read(self, root: Path) -> None:
        write(root / "level1/18_a.py", "(")
        write(root / "level1/18_b.py", "(")
        (finding,) = findings(load_problems, root)
        assert "are both problem level1/18" in finding

    def test_a_mended_problem_has_another_digest(self, root: Path) -> None:
        digests = set()
        for source in (b"x = '\xff'", b"x = '\xfe'", "x = '\udcff'".encode("utf-8", "replace"), b"x = "):
            write(root / "level1/18_a.py", source)
            digests.add(load_problems(root).known["level1/18"].digest)
        assert len(digests) == 4

    def test_no_folder_and_no_problem(self, tmp_path: Path) -> None:
        assert "no problems found" in findings(load_problems, tmp_path / "none")[0]
        assert "no problem in" in findings(load_problems, tmp_path)[0]

    @pytest.mark.parametrize(
        "wanted",
        [
            *("level1/16", "1/16", "level1/016", "level1/16_x", " level1/16 ", "problems/level1/16"),
            *("problems/level1/16_Matmul_with_transposed_A.py", "level1/16_Matmul_with_transposed_A.py"),
        ],
    )
    @pytest.mark.parametrize("standing", ["", "problems", ".."])
    def test_a_problem_goes_by_several_names(
        self, catalog: Catalog, wanted: str, standing: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(catalog.root.parent / standing)
        assert catalog.resolve(wanted).id == "level1/16"

    def test_the_path_of_another_problem_with_the_same_number_is_refused(
        self, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(catalog.root.parent)
        write(Path("mine/level1/16_mine.py"), PROBLEM)
        assert load_problems(Path("mine")).resolve("mine/level1/16_mine.py").name == "mine"
        for wanted in ("mine/level1/16_mine.py", "mine/level1/16", "level1/16_mistyped.py", "nowhere/level1/16"):
            (told,) = findings(catalog.resolve, wanted)
            assert told.startswith(repr(wanted))
            assert "is 16_Matmul_with_transposed_A.py): name its folder by --problems" in told

    def test_a_number_that_only_one_level_has_is_enough(self, catalog: Catalog) -> None:
        assert catalog.resolve("17").id == "level1/17"

    def test_a_file_anywhere_is_a_problem_and_needs_no_number_and_no_folder_of_problems(self, tmp_path: Path) -> None:
        path = write(tmp_path / "any where" / "my problem.py", "N = 4\nclass Model: ...\n")
        found = load_problems(tmp_path / "none", str(path)).resolve(str(path))
        assert (found.id, found.name, found.path) == ("local/my_problem", "my_problem", path)

    def test_a_file_named_beside_the_folder_is_found_by_its_path_and_the_others_by_their_ids(
        self, tmp_path: Path, catalog: Catalog
    ) -> None:
        path = write(tmp_path / "other" / "level1" / "16_other.py", "class Model: ...\n")
        both = catalog.including(f"{path},level1/17")
        assert both.resolve(str(path)).path == path.resolve()
        assert both.resolve("level1/17") is catalog.resolve("level1/17")

    @pytest.mark.parametrize("wanted", ["level1/18", "level3/1", "16", "", "level1", "level1/16/x"])
    def test_unknown_problems_are_refused(self, catalog: Catalog, wanted: str) -> None:
        assert "there is no problem" in findings(catalog.resolve, wanted)[0]

    def test_near_misses_are_offered(self, catalog: Catalog) -> None:
        assert "did you mean level1/17, level1/16" in findings(catalog.resolve, "level1/61")[0]
        assert "did you mean level1/16, level2/16?" in findings(catalog.resolve, "16")[0]


class TestSolutions:
    def test_the_path_says_author_problem_and_sample(self, tmp_path: Path, catalog: Catalog) -> None:
        for name in ("16_naive", "16_sample3", "16_tiled_sample_4", "17_x"):
            write(tmp_path / f"s/ann/level1/{name}.py")
        write(tmp_path / "s/bob/level2/16_naive.py")
        found = find_solutions([tmp_path / "s"], catalog)
        assert [(s.label, s.problem_id, s.author, s.sample) for s in found] == [
            ("ann/level1/16_naive.py", "level1/16", "ann", None),
            ("ann/level1/16_sample3.py", "level1/16", "ann", 3),
            ("ann/level1/16_tiled_sample_4.py", "level1/16", "ann", 4),
            ("ann/level1/17_x.py", "level1/17", "ann", None),
            ("bob/level2/16_naive.py", "level2/16", "bob", None),
        ]
        assert found[0].source == SOLUTION

    @pytest.mark.parametrize("below", ["s", "s/ann", "s/ann/level1", "s/ann/level1/16_naive.py"])
    def test_the_label_does_not_depend_on_where_one_stands(
        self, tmp_path: Path, catalog: Catalog, below: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(tmp_path / "s/ann/level1/16_naive.py")
        assert [s.label for s in find_solutions([tmp_path / below], catalog)] == ["ann/level1/16_naive.py"]
        folder = tmp_path / below if (tmp_path / below).is_dir() else (tmp_path / below).parent
        monkeypatch.chdir(folder)
        assert [s.label for s in find_solutions([Path()], catalog)] == ["ann/level1/16_naive.py"]

    def test_kernelbench_names(self, tmp_path: Path, catalog: Catalog) -> None:
        write(tmp_path / "runs/my-run/level_1_problem_16_sample_0_kernel.py")
        write(tmp_path / "runs/my-run/level_1_problem_16_sample_1_kernel.py")
        found = find_solutions([tmp_path / "runs"], catalog)
        assert [(s.label, s.problem_id, s.author, s.sample) for s in found] == [
            ("my-run/level_1_problem_16_sample_0_kernel.py", "level1/16", "my-run", 0),
            ("my-run/level_1_problem_16_sample_1_kernel.py", "level1/16", "my-run", 1),
        ]

    def test_a_lone_file_needs_its_problem(self, tmp_path: Path, catalog: Catalog) -> None:
        path = write(tmp_path / "one_solution.py")
        assert "or name the problem by --problem" in findings(find_solutions, [path], catalog)[0]
        (solution,) = find_solutions([path], catalog, problem_id="1/16")
        assert (solution.problem_id, solution.author, solution.label) == ("level1/16", "local", "one_solution.py")
        (solution,) = find_solutions([path], catalog, problem_id="level1/16", author="me")
        assert solution.author == "me"

    def test_problem_narrows_a_folder_and_contradicts_a_file(self, tmp_path: Path, catalog: Catalog) -> None:
        write(tmp_path / "s/ann/level1/16_a.py")
        other = write(tmp_path / "s/ann/level1/17_b.py")
        found = find_solutions([tmp_path / "s"], catalog, problem_id="level1/16")
        assert [s.label for s in found] == ["ann/level1/16_a.py"]
        assert (
            "its path names problem level1/17, but --problem names level1/16"
            in findings(find_solutions, [other], catalog, problem_id="level1/16")[0]
        )
        assert (
            "none of its 2 solutions is for level2/16"
            in findings(find_solutions, [tmp_path / "s"], catalog, problem_id="level2/16")[0]
        )

    def test_several_arguments_that_overlap_count_once(self, tmp_path: Path, catalog: Catalog) -> None:
        path = write(tmp_path / "s/ann/level1/16_a.py")
        assert len(find_solutions([tmp_path / "s", path, tmp_path / "s/ann"], catalog)) == 1

    def test_what_overlapping_arguments_reject_is_told_once(self, tmp_path: Path, catalog: Catalog) -> None:
        write(tmp_path / "s/ann/level1/16_a.py")
        write(tmp_path / "s/ann/level1/utils.py")
        (tmp_path / "s/ann/level1/16_b.py").symlink_to("16_a.py")
        found = findings(find_solutions, [tmp_path / "s", tmp_path / "s/ann"], catalog)
        assert [line.partition(": ")[0].rpartition("/")[2] for line in found] == ["16_b.py", "utils.py"]

    def test_labels_must_differ(self, tmp_path: Path, catalog: Catalog) -> None:
        write(tmp_path / "s1/ann/level1/16_a.py")
        write(tmp_path / "s2/ann/level1/16_a.py")
        (finding,) = findings(find_solutions, [tmp_path / "s1", tmp_path / "s2"], catalog)
        assert "are both called ann/level1/16_a.py" in finding

    def test_sample_numbers_must_differ(self, tmp_path: Path, catalog: Catalog) -> None:
        write(tmp_path / "s/ann/level1/16_a_sample1.py")
        write(tmp_path / "s/ann/level1/16_b_sample1.py")
        (finding,) = findings(find_solutions, [tmp_path / "s"], catalog)
        assert "are both sample 1 of level1/16 by ann" in finding

    def test_everything_wrong_is_listed_at_once(self, tmp_path: Path, catalog: Catalog) -> None:
        folder = tmp_path / "s/ann/level1"
        write(folder / "16_fine.py")
        write(folder / "99_none.py")
        write(folder / "notes.py")
        write(tmp_path / "s/an n/level1/16_x.py")
        write(tmp_path / "s/ann/level9/1_x.py")
        os.mkfifo(folder / "16_pipe.py")
        text = write(tmp_path / "text.txt")
        (tmp_path / "empty").mkdir()
        paths = [tmp_path / "s", tmp_path / "gone.py", text, tmp_path / "empty"]
        found = "\n".join(findings(find_solutions, paths, catalog))
        for said in (
            "there is no problem 'level1/99'",
            "notes.py: its path names no problem",
            "'an n' can't be an author",
            "there is no problem 'level9/1'",
            "16_pipe.py: it is not a regular file",
            "gone.py: there is no such file or folder",
            "text.txt: a solution is a .py file",
            "empty: no solution in it",
        ):
            assert said in found
        assert found.count("\n") == 7
        assert "16_fine" not in found

    def test_no_argument(self, catalog: Catalog) -> None:
        assert "no solution given" in findings(find_solutions, [], catalog)[0]

    @pytest.mark.parametrize("target", ["secret.py", "s/ann/level1/16_real.py", "s/bob/level1/16_theirs.py"])
    def test_a_link_is_no_solution_wherever_it_leads(self, tmp_path: Path, catalog: Catalog, target: str) -> None:
        """Whose file it is would depend on the link; `harness ci` refuses links, too."""
        for path in ("secret.py", "s/ann/level1/16_real.py", "s/bob/level1/16_theirs.py"):
            write(tmp_path / path)
        (tmp_path / "s/ann/level1/16_stolen.py").symlink_to(tmp_path / target)
        (finding,) = findings(find_solutions, [tmp_path / "s"], catalog)
        assert "16_stolen.py: it is a link, not a plain file: pass its target" in finding

    def test_a_given_file_may_be_a_link(self, tmp_path: Path, catalog: Catalog) -> None:
        write(tmp_path / "mine.py")
        (tmp_path / "again.py").symlink_to("mine.py")
        found = find_solutions([tmp_path / "mine.py", tmp_path / "again.py"], catalog, problem_id="level1/16")
        assert [held.label for held in found] == ["again.py", "mine.py"]

    def test_a_folder_that_can_not_be_read_is_told_and_not_left_out(self, catalog: Catalog) -> None:
        with TemporaryDirectory() as made:
            folder = Path(made)
            folder.chmod(0o755)
            write(folder / "ann/level1/16_open.py")
            write(folder / "bob/level1/16_closed.py")
            (folder / "bob").chmod(0)
            before = os.geteuid()
            try:
                if before == 0:
                    os.seteuid(65534)  # root may read everything
                (finding,) = findings(find_solutions, [folder], catalog)
            finally:
                os.seteuid(before)
                (folder / "bob").chmod(0o755)
        assert finding == f"{folder}/bob: can't be read: Permission denied"

    def test_a_linked_folder_is_told_and_not_followed(self, tmp_path: Path, catalog: Catalog) -> None:
        write(tmp_path / "s/ann/level1/16_real.py")
        write(tmp_path / "elsewhere/level1/16_theirs.py")
        (tmp_path / "s/bob").symlink_to(tmp_path / "elsewhere")
        (tmp_path / "s/ann/round").symlink_to(tmp_path / "s")
        found = findings(find_solutions, [tmp_path / "s"], catalog)
        assert [line.partition(": ")[0] for line in found] == [f"{tmp_path}/s/bob", f"{tmp_path}/s/ann/round"]
        assert all(": it is a link" in line for line in found)
        (tmp_path / "s/ann/round").unlink()
        (tmp_path / "s/bob").rename(tmp_path / "s/_bob")
        assert len(find_solutions([tmp_path / "s"], catalog)) == 1

    def test_the_author_is_the_first_folder_below_the_given_one(self, tmp_path: Path, catalog: Catalog) -> None:
        """A folder in an author's folder can't put a record into another author's row."""
        write(tmp_path / "s/good/level1/16_mine.py")
        write(tmp_path / "s/bad/good/level1/16_evil.py")
        write(tmp_path / "s/bad/good/level_1_problem_17_sample_0_kernel.py")
        write(tmp_path / "s/bad/author.yaml", "model: m-1\n")
        write(tmp_path / "s/bad/good/author.yaml", "model: m-2\n")
        for given in ([tmp_path / "s"], [tmp_path / "s/bad", tmp_path / "s"]):
            found = find_solutions(given, catalog)
            assert [(held.author, held.label) for held in found] == [
                ("bad", "bad/good/level1/16_evil.py"),
                ("bad", "bad/good/level_1_problem_17_sample_0_kernel.py"),
                ("good", "good/level1/16_mine.py"),
            ]
        assert find_authors(found)[0] == {"bad": Author(name="bad", model="m-1")}

    def test_a_problem_is_no_solution_of_itself(self, root: Path, catalog: Catalog) -> None:
        found = findings(find_solutions, [root], catalog)
        assert len(found) == len(catalog)
        assert found[0].endswith(".py: it is problem level1/16 itself, not a solution of it")

    def test_names_that_can_not_be_printed_are_refused(self, tmp_path: Path, catalog: Catalog) -> None:
        write(tmp_path / "s/ann/level1/16_\x1b[2Jx.py")
        (finding,) = findings(find_solutions, [tmp_path / "s"], catalog)
        assert "can't be printed: rename it" in finding
        assert finding.isprintable()

    def test_hidden_and_private_files_are_skipped(self, tmp_path: Path, catalog: Catalog) -> None:
        folder = tmp_path / "s/ann/level1"
        write(folder / "16_a.py")
        for name in ("__init__.py", ".16_b.py", "__pycache__/16_c.py", "conftest.py", "kernel.cu"):
            write(folder / name)
        assert len(find_solutions([tmp_path / "s"], catalog)) == 1

    def test_byte_order_marks_go_and_line_ends_stay(self, tmp_path: Path, catalog: Catalog) -> None:
        path = write(tmp_path / "s/ann/level1/16_a.py", b"\xef\xbb\xbfx = 1\r\n")
        assert find_solutions([path], catalog)[0].source == "x = 1\r\n"

    def test_a_file_that_is_not_utf8_has_its_verdict_and_no_text(self, tmp_path: Path, catalog: Catalog) -> None:
        folder = tmp_path / "s/ann/level1"
        write(folder / "16_a.py", b"x = 1\n# \xff\n")
        write(folder / "16_b.py", "x = 1\n# \ufffd\n")
        write(folder / "16_c.py", b"x = 1\n# \xfe\n")
        a, b, c = find_solutions([tmp_path / "s"], catalog)
        assert a.failure is not None
        assert a.failure.status is Status.syntax_error
        assert a.failure.reason == "line 2: byte 8 (0xff) is not UTF-8: save the file as UTF-8"
        assert a.failure.evidence["line"] == 2
        assert b.failure is None
        # Whoever mends the file, by whatever means, gets a new verdict from a resumed run.
        assert len({a.digest, b.digest, c.digest}) == 3

    @pytest.mark.parametrize("name", ["utf-7", "latin-1", "unicode_escape", "nonsense"])
    def test_a_file_of_another_encoding_has_its_verdict(self, tmp_path: Path, catalog: Catalog, name: str) -> None:
        write(tmp_path / "s/ann/level1/16_a.py", f"#!/usr/bin/python\n# -*- coding: {name} -*-\n")
        write(tmp_path / "s/ann/level1/16_b.py", "# -*- coding: utf-8 -*-\nx = 'é'\n")
        a, b = find_solutions([tmp_path / "s"], catalog)
        assert a.failure is not None
        assert a.failure.status is Status.syntax_error
        assert a.failure.reason == (
            f"line 2: the file declares the encoding {name}: save it as UTF-8 and remove the declaration"
        )
        assert b.failure is None

    def test_solutions_of_a_problem_that_can_not_be_read_are_found(self, root: Path, tmp_path: Path) -> None:
        write(root / "level1/16_Matmul_with_transposed_A.py", "(")
        path = write(tmp_path / "s/ann/level1/16_a.py")
        (solution,) = find_solutions([path], load_problems(root), problem_id="level1/16")
        assert (solution.problem_id, solution.failure) == ("level1/16", None)

    def test_large_files_are_refused(self, tmp_path: Path, catalog: Catalog) -> None:
        path = write(tmp_path / "s/ann/level1/16_a.py", b"#" * (4 * 2**20 + 1))
        assert "more than 4194304" in findings(find_solutions, [path], catalog)[0]

    def test_solution_path_is_read_back(self, tmp_path: Path, catalog: Catalog) -> None:
        path = solution_path(tmp_path, "some-model", "level1/16", name="Matmul with A^T!", sample=2)
        (solution,) = find_solutions([write(path)], catalog)
        assert (solution.problem_id, solution.author, solution.sample) == ("level1/16", "some-model", 2)
        assert path == tmp_path / "some-model/level1/16_Matmul_with_A_T_sample2.py"
        with pytest.raises(CatalogError, match="can't be an author"):
            solution_path(tmp_path, "../x", "level1/16", name="x")


class TestAuthors:
    def test_what_a_file_says(self, tmp_path: Path, catalog: Catalog) -> None:
        write(tmp_path / "s/ann/level1/16_a.py")
        write(tmp_path / "s/bob/level1/16_a.py")
        write(tmp_path / "s/ann/author.yaml", "display_name: Ann B.\nmodel: m-1\n")
        authors, wrong = find_authors(find_solutions([tmp_path / "s"], catalog))
        assert authors == {"ann": Author(name="ann", display_name="Ann B.", model="m-1")}, "bob has no file"
        assert not wrong

    def test_the_folder_of_a_kernelbench_run_may_have_one(self, tmp_path: Path, catalog: Catalog) -> None:
        write(tmp_path / "runs/my_model/level_1_problem_16_sample_0_kernel.py")
        write(tmp_path / "runs/my_model/author.yaml", "model: m-1\nnotes:\n")
        authors, _ = find_authors(find_solutions([tmp_path / "runs"], catalog))
        assert authors == {"my_model": Author(name="my_model", model="m-1")}

    def test_whose_folder_it_is_says_it(self, tmp_path: Path, catalog: Catalog) -> None:
        write(tmp_path / "s/ann/level1/16_a.py")
        write(tmp_path / "s/ann/author.yaml", "model: m-1\n")
        assert find_authors(find_solutions([tmp_path / "s"], catalog, author="bob")) == ({}, [])

    def test_what_is_no_small_file_of_the_folder_is_not_read(self, tmp_path: Path, catalog: Catalog) -> None:
        for name in ("ann", "bob", "cid", "dan"):
            write(tmp_path / f"s/{name}/level1/16_a.py")
        (tmp_path / "s/ann/author.yaml").symlink_to(write(tmp_path / "secret.yaml", "model: m-1\n"))
        write(tmp_path / "s/bob/author.yaml", "notes: " + "x" * MAX_AUTHOR_BYTES)
        os.mkfifo(tmp_path / "s/cid/author.yaml")
        (tmp_path / "s/dan/author.yaml").symlink_to("author.yaml")
        authors, wrong = find_authors(find_solutions([tmp_path / "s"], catalog))
        assert not authors
        assert [line.split("/")[-2] for line in wrong] == ["ann", "bob", "cid", "dan"]
        assert "a link out of its folder" in wrong[0]
        assert f"more than {MAX_AUTHOR_BYTES} bytes" in wrong[1]

    @pytest.mark.parametrize("text", ["", "- a\n", "model: 3\n", "name: x\n", "{", "model: !!python/name:os\n"])
    def test_wrong_files_are_named(self, tmp_path: Path, catalog: Catalog, text: str) -> None:
        write(tmp_path / "s/ann/level1/16_a.py")
        write(tmp_path / "s/ann/author.yaml", text)
        write(tmp_path / "s/bob/level1/16_a.py")
        found = find_solutions([tmp_path / "s"], catalog)
        assert [item.author for item in found] == ["ann", "bob"], "it stops nobody's evaluation"
        authors, (told,) = find_authors(found)
        assert "author.yaml: " in told
        assert not authors


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_yaml_that_nests_without_end_ends_no_process(root: Path, tmp_path: Path, opening: str) -> None:
    """libyaml's parser would use up the stack."""
    write(tmp_path / "s/ann/level1/16_a.py")
    write(tmp_path / "s/ann/author.yaml", opening * 15_000)
    _, (told,) = find_authors(find_solutions([tmp_path / "s"], load_problems(root)))
    assert "author.yaml: not valid YAML: " in told


def test_yaml_whose_merges_multiply_is_refused(root: Path, tmp_path: Path) -> None:
    write(tmp_path / "s/ann/level1/16_x.py")
    lines = ["m0: &m0 {x: 1}"]
    lines += [f"m{level}: &m{level} {{<<: [{', '.join([f'*m{level - 1}'] * 10)}]}}" for level in range(1, 8)]
    write(tmp_path / "s/ann/author.yaml", "\n".join(lines))
    _, (finding,) = find_authors(find_solutions([tmp_path / "s"], load_problems(root)))
    assert "author.yaml: not valid YAML: more than 100000 keys" in finding


def test_long_lists_are_cut_in_the_text_only() -> None:
    error = CatalogError([f"finding {i}" for i in range(100)])
    assert len(error.findings) == 100
    assert str(error).endswith("and 70 more")
