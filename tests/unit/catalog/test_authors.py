"""What authors say of themselves: bounded when read, kept in run.yaml, beside their names where results are shown."""

from __future__ import annotations

import csv as stdlib_csv
import io
import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console, RenderableType

from harness.catalog.authors import MAX_NAME_CHARS, MAX_NOTES_CHARS, Author, author_of, authors_in, authors_of_runs
from harness.cli import main
from harness.report import board, terminal
from harness.report import csv as report_csv
from harness.report.feedback import feedback
from harness.report.html import Item, render
from harness.results.leaderboard import By, leaderboard
from harness.results.merge import merge
from harness.results.reader import StoreError
from harness.results.writer import RunStore
from tests.unit.report.test_board import record
from tests.unit.report.test_page import read
from tests.unit.results.test_writer import create

ANN = Author(name="ann", display_name="Ann B.", model="m-1", notes="one sample")
EVIL = author_of(
    "eve", {"display_name": "<script>alert(1)</script>", "model": "=1+1 [red]x[/red]\x1b[31m\u202e", "notes": "@all"}
)
RECORDS = [record("ann", "level1/16", 2.0), record("bob", "level1/16", 1.5), record("eve", "level1/16", 1.2)]


def printed(what: RenderableType, width: int = 200) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, markup=False, highlight=False, emoji=False, color_system=None).print(what)
    return stream.getvalue()


def hidden(text: str) -> set[str]:
    return {char for char in text if unicodedata.category(char) in ("Cc", "Cf")} - {"\n"}


class TestTexts:
    def test_names_are_one_bounded_line_and_what_is_empty_was_not_said(self) -> None:
        held = author_of("a", {"display_name": " A\n  B\t", "model": "m" * 500, "notes": "", "more": "x"})
        assert held == Author(name="a", display_name="A B", model="m" * (MAX_NAME_CHARS - 1) + "…")
        assert len(author_of("a", {"notes": "n\n" * 5000}).notes or "") == MAX_NOTES_CHARS

    def test_any_text_comes_back_from_run_yaml(self, tmp_path: Path) -> None:
        texts = ["\x00\x1b\x85\u2028\ufeff\ufffe", "\ud83d half", "null", "1", "=", "a: b # c", "'\"\\", "😀\U000e0001"]
        said = {f"a{n}": author_of(f"a{n}", {"model": f"x{text}x", "notes": text}) for n, text in enumerate(texts)}
        RunStore.create(tmp_path / "r", config={}, environment={}, authors=said).close()
        assert authors_in(RunStore.open(tmp_path / "r").head) == said

    @pytest.mark.parametrize(
        "held", [None, "x", 3, ["ann"], {"ann": "Ann"}, {"ann": {"model": 3}}, {3: {"model": "m"}}]
    )
    def test_what_is_no_author_in_run_yaml_is_passed_over(self, held: object) -> None:
        assert authors_in({"authors": held}) == {}
        assert authors_in({}) == {}

    def test_an_entry_of_a_newer_harness_is_read_as_far_as_it_is_known(self) -> None:
        head = {"authors": {"ann": {"model": "m", "display_name": ["x"], "licence": "MIT"}, "bob": 1}}
        assert authors_in(head) == {"ann": Author(name="ann", model="m")}

    def test_of_runs_that_differ_the_later_written_counts(self) -> None:
        old = {"started_at": "2026-01-01", "authors": {"ann": {"model": "old"}, "bob": {"model": "b"}}}
        new = {"started_at": "2026-02-01", "authors": {"ann": {"model": "new"}}}
        for heads in ([old, new], [new, old]):
            assert {name: held.model for name, held in authors_of_runs(heads).items()} == {"ann": "new", "bob": "b"}
        assert authors_of_runs([{**old, "resumed_at": ["2026-03-01"]}, new, {"authors": 3}])["ann"].model == "old"


class TestRuns:
    def test_a_run_whose_authors_say_nothing_has_no_such_key(self, tmp_path: Path) -> None:
        create(tmp_path / "r").close()
        RunStore.resume(tmp_path / "r", config={}).close()
        assert "authors" not in RunStore.open(tmp_path / "r").head

    def test_a_resumption_adds_to_what_was_said(self, tmp_path: Path) -> None:
        bob = Author(name="bob", model="b")
        RunStore.create(tmp_path / "r", config={}, environment={}, authors={"ann": ANN, "bob": bob}).close()
        said = {"ann": Author(name="ann", model="m-2"), "eve": EVIL}
        with RunStore.resume(tmp_path / "r", config={}, authors=said) as store:
            assert authors_in(store.head) == {**said, "bob": bob}
            store.note_author(ANN)
            assert authors_in(store.head) == {**said, "bob": bob, "ann": ANN}
        RunStore.resume(tmp_path / "r", config={}).close()
        assert authors_in(RunStore.open(tmp_path / "r").head)["ann"] == ANN, "who says nothing now is kept"

    def test_a_run_with_something_else_under_the_key_resumes(self, tmp_path: Path) -> None:
        create(tmp_path / "r").close()
        with (tmp_path / "r" / "run.yaml").open("a") as stream:
            stream.write("authors: [ann]\n")
        with RunStore.resume(tmp_path / "r", config={}, authors={"ann": ANN}) as store:
            assert authors_in(store.head) == {"ann": ANN}

    def test_merged_runs_keep_what_the_later_one_says(self, tmp_path: Path) -> None:
        for name, began, model in (("late", "2026-02-01", "new"), ("early", "2026-01-01", "old")):
            head = {"format": 1, "started_at": began, "authors": {"ann": {"model": model}, name: {"model": "m"}}}
            (tmp_path / name).mkdir()
            (tmp_path / name / "run.yaml").write_text(yaml.safe_dump(head))
        merge([tmp_path / "late", tmp_path / "early"], tmp_path / "all")
        merged = RunStore.open(tmp_path / "all").head
        assert {name: held.model for name, held in authors_in(merged).items()} == {
            "ann": "new",
            "early": "m",
            "late": "m",
        }
        assert [set(source) & {"authors", "started_at"} for source in merged["merged_from"]] == [{"started_at"}] * 2


class TestBoards:
    @pytest.mark.parametrize("by", list(By))
    def test_what_they_say_stands_beside_and_changes_nothing_else(self, by: By) -> None:
        plain, rows = leaderboard(RECORDS, by=by), leaderboard(RECORDS, by=by, authors={"ann": ANN, "nobody": EVIL})
        own = ("display_name", "model")
        for before, after in zip(plain, rows, strict=True):
            assert {k: v for k, v in before.to_json().items() if k not in own} == {
                k: v for k, v in after.to_json().items() if k not in own
            }
            said = ("Ann B.", "m-1") if after.author == "ann" else (None, None)
            assert (after.display_name, after.model) == said
        read = list(stdlib_csv.DictReader(io.StringIO(report_csv.leaderboard(rows))))
        assert [(row["author"], row["display_name"], row["model"]) for row in read] == [
            (row.author, row.display_name or "", row.model or "") for row in rows
        ]
        assert "Ann B." in printed(board.table(rows, by))
        assert "| author's name | model |" in board.markdown(rows, by)

    @pytest.mark.parametrize("by", list(By))
    def test_pages_are_as_before_where_nobody_said_anything(self, by: By) -> None:
        rows = leaderboard(RECORDS, by=by)
        silent = leaderboard(RECORDS, by=by, authors={"ann": Author(name="ann", notes="only notes")})
        assert printed(board.table(silent, by)) == printed(board.table(rows, by))
        assert board.markdown(silent, by) == board.markdown(rows, by)
        assert "author's name" not in board.markdown(rows, by)

    def test_only_what_was_said_has_a_column(self) -> None:
        rows = leaderboard(RECORDS, authors={"ann": Author(name="ann", model="m-1")})
        assert list(board.columns(By.author, rows))[:3] == ["rank", "author", "model"]

    def test_the_terminal_has_no_column_more(self) -> None:
        rows = leaderboard(RECORDS, authors={"ann": ANN, "bob": Author(name="bob", display_name="Bob")})
        wide = printed(board.table(rows, By.author))
        assert "ann (Ann B.; m-1)" in wide
        assert "bob (" not in wide, "a name that only repeats the folder's"
        narrow = printed(board.table(rows, By.author), width=80)
        assert "mean speedup: " not in narrow, "still a table at the usual width"
        assert "1  ann (Ann B.; m-1)\n  mean speedup: " in printed(board.table(rows, By.author), width=60)
        by_problem = printed(board.table(leaderboard(RECORDS, by=By.solution, authors={"ann": ANN}), By.solution), 80)
        assert by_problem.splitlines()[-1].rstrip() == "ann: Ann B.; m-1"

    def test_many_authors_below_a_table_are_counted(self) -> None:
        names = [f"a{n}" for n in range(board.MAX_INTRODUCED + 3)]
        said = {name: Author(name=name, model=f"model of {name}") for name in names}
        rows = leaderboard([record(name, "level1/16", 2.0) for name in names], by=By.solution, authors=said)
        text = printed(board.table(rows, By.solution))
        assert text.count("model of ") == board.MAX_INTRODUCED
        assert "… 3 more: --by author shows all" in text

    @pytest.mark.parametrize("by", list(By))
    def test_hostile_words_act_in_no_form(self, by: By) -> None:
        rows = leaderboard(RECORDS[2:], by=by, authors={"eve": EVIL})
        shown = {width: printed(board.table(rows, by), width) for width in (200, 80, 30)}
        assert "[red]x[/red]\\x1b[31m\\u202e" in shown[200], "no markup, no escape sequence"
        text, marked = report_csv.leaderboard(rows), board.markdown(rows, by)
        for page in (*shown.values(), text, marked):
            assert not hidden(page)
        assert "<script>" not in marked
        (row,) = stdlib_csv.DictReader(io.StringIO(text))
        assert row["model"].startswith("'=1+1")


class TestPages:
    def test_the_report_tells_them_escaped(self) -> None:
        items = [Item(record=held, run="r", feedback=feedback(held)) for held in RECORDS]
        given: dict[str, Any] = {"title": "t", "made_at": "now", "with_figures": False}
        page = render(items, **given, authors={"ann": ANN, "eve": EVIL})
        reader = read(page)
        assert reader.texts.count("Ann B.") >= 3, "boards by author, problem and solution"
        sections = page.split('<section class="page solution"')[1:]
        told = ["<dt>author&#39;s name</dt><dd>Ann B.</dd>" in section for section in sections]
        assert told == [record.author == "ann" for record in RECORDS]
        assert "<script>alert(1)</script>" in reader.texts
        assert len(reader.all("script")) == 1
        assert not hidden(page)
        assert "author&#39;s name" not in render(items, **given)

    def test_a_run_and_a_record_tell_them(self) -> None:
        head = {"run_id": "r", "authors": {"my_model_s": ANN.to_json(), "eve": EVIL.to_json(), "x": 3}}
        text = printed(terminal.run_page(head, RECORDS, ()))
        (line,) = [line for line in text.splitlines() if "my_model_s" in line]
        assert line.split() == ["my_model_s", "Ann", "B.", "m-1", "one", "sample"]
        assert not hidden(text)
        assert "one sample" in printed(terminal.run_page(head, RECORDS, ()), width=40)
        assert "author's name" not in printed(terminal.run_page({"run_id": "r", "authors": [3]}, RECORDS, ()))
        page = printed(terminal.record_page(RECORDS[2], None, EVIL))
        assert "<script>alert(1)</script>" in page
        assert not hidden(page)
        assert "author's name" not in printed(terminal.record_page(RECORDS[2], None))


class TestCommands:
    @pytest.fixture
    def runs(self, tmp_path: Path) -> Path:
        for name, model in (("one", "old"), ("two", "m-2")):
            said = {"ann": Author(name="ann", display_name="Ann B.", model=model)}
            with RunStore.create(tmp_path / name, config={}, environment={}, authors=said) as store:
                store.append(RECORDS[0])
        return tmp_path

    def test_leaderboard_report_and_show(self, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["leaderboard", str(runs), "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert (row["author"], row["display_name"], row["model"]) == ("ann", "Ann B.", "m-2")
        assert main(["leaderboard", str(runs), "--csv", "-"]) == 0
        assert capsys.readouterr().out.splitlines()[1].endswith(",Ann B.,m-2,,,,,,0,")
        assert main(["report", str(runs), "--out", str(runs / "r.html"), "--no-figures"]) == 0
        assert "m-2" in (runs / "r.html").read_text()
        for arguments in ([], ["ann"]):
            capsys.readouterr()
            assert main(["show", str(runs / "two"), *arguments]) == 0
            assert "Ann B." in capsys.readouterr().out

    def test_a_run_yaml_that_can_not_be_read_ranks_all_the_same(
        self, runs: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (runs / "two" / "run.yaml").write_text("a: [")
        with pytest.raises(StoreError):
            _ = RunStore.open(runs / "two").head
        assert main(["leaderboard", str(runs)]) == 0
        told = capsys.readouterr()
        assert "ann (Ann B.; old)" in told.out
        assert told.err.count("descriptions of its authors are left out: ") == 1
        assert main(["show", str(runs / "two"), "ann"]) == 0
