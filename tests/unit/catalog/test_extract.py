"""Extraction: the right block out of tidy and untidy answers, with the reason, and no input that breaks it."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.catalog.extract import MAX_SOURCE_CHARS, extract
from tests.support.paths import ROOT

SEEDS = ROOT.parent / "shared" / "seeds"

GOOD = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    tag = {tag!r}\n"
BROKEN = "class ModelNew(torch.nn.Module:\n    tag = {tag!r}\n"


def block(body: str, fence: str = "```", language: str = "python") -> str:
    return f"{fence}{language}\n{body}{fence}\n"


def good(tag: str, fence: str = "```", language: str = "python") -> str:
    return block(GOOD.format(tag=tag), fence, language)


def tag_of(text: str) -> str | None:
    """The tag of the solution that was taken."""
    source = extract(text).source
    if source is None:
        return None
    for name in "abc":
        if f"tag = {name!r}" in source:
            return name
    raise AssertionError(source)


@pytest.mark.parametrize(
    ("start", "first_line", "last_line", "mark"),
    [
        ("000", 639, 745, "matrixMulKernel"),
        ("001", 457, 538, "A[k * M + i] * B[k * N + j]"),
        ("002", 882, 958, "return result.cpu()"),
        ("003", 972, 1085, "matmul_transposed_kernel"),
        ("004", 860, 937, "matvec_kernel"),
    ],
)
def test_the_five_transcripts(start: str, first_line: int, last_line: int, mark: str) -> None:
    if not SEEDS.is_dir():
        pytest.skip("the transcripts are not part of this repository, and no shared folder lies beside it")
    (path,) = SEEDS.glob(f"{start}_*.txt")
    text = path.read_text()
    found = extract(text)
    assert found.source is not None
    assert mark in found.source
    assert found.source == "\n".join(text.split("\n")[first_line : last_line - 1]) + "\n"
    assert f"lines {first_line} to {last_line}" in found.reason
    ast.parse(found.source)
    if "</think>" in text:
        assert "after the reasoning" in found.reason


def test_drafts_of_a_transcript_serve_only_without_an_answer() -> None:
    """Transcript 002 cut after its reasoning: three drafts define the class, one is never closed."""
    if not SEEDS.is_dir():
        pytest.skip("the transcripts are not part of this repository, and no shared folder lies beside it")
    (path,) = SEEDS.glob("002_*.txt")
    found = extract(path.read_text().partition("</think>")[0] + "</think>\nSee above.\n")
    assert found.source is not None
    assert "# Move back to CPU to match original functionality" in found.source
    assert "is part of the reasoning" in found.reason
    unfinished = [c for c in found.considered if c.last_line is None]
    assert [c.first_line for c in unfinished] == [689]
    assert all(c.in_reasoning for c in found.considered)


def test_the_last_block_wins_and_drafts_are_listed() -> None:
    text = f"First:\n{good('a')}\nBetter:\n{good('b')}\nUse it so:\n{block('model = ModelNew()' + chr(10))}"
    found = extract(text)
    assert tag_of(text) == "b"
    assert [c.chosen for c in found.considered] == [False, True]
    assert found.considered[0].verdict == "an earlier draft"
    assert "the last of 2" in found.reason


@pytest.mark.parametrize("language", ["", "py", "Python", "python3", " python", "{.python}", "python title=x"])
def test_python_by_any_name(language: str) -> None:
    assert tag_of(good("a", language=language)) == "a"


@pytest.mark.parametrize("fence", ["~~~", "````", "~~~~~"])
def test_other_fences(fence: str) -> None:
    assert tag_of(f"Draft {good('b')}\n{good('a', fence=fence)}") == "a"


def test_a_longer_fence_holds_shorter_ones() -> None:
    """Outside of strings, where only the length tells which fence ends the block."""
    body = GOOD.format(tag="a") + "\n# The output is\n```\n# 1 2 3\n```\n"
    found = extract(block(body, fence="````"))
    assert found.source == body
    assert (found.considered[0].first_line, found.considered[0].last_line) == (1, 12)
    assert found.considered[0].verdict.startswith("taken")


def test_a_fence_is_closed_by_its_own_character_only() -> None:
    body = GOOD.format(tag="a") + "# ~~~\n"
    found = extract(f"~~~python\n{body}```\n~~~\n")
    assert found.source == f"{body}```\n"


def test_a_fence_inside_a_string_does_not_end_the_block() -> None:
    body = '"""Call it so:\n```python\nModelNew()\n```\n"""\n' + GOOD.format(tag="a") + "# it's the end\n"
    found = extract(block(body))
    assert found.source == body


def test_a_draft_that_leaves_a_string_open_hides_nothing() -> None:
    draft = block('source = """\nclass ModelNew: never finished\n')
    assert tag_of(f"{draft}\nAgain:\n{good('b')}") == "b"
    assert tag_of(f"{good('a')}\nor\n{draft}") == "a"


def test_other_languages_are_passed_over() -> None:
    found = extract(block(GOOD.format(tag="a"), language="cpp"))
    assert found.source is None
    assert "tagged 'cpp'" in found.reason


def test_the_last_that_parses_is_preferred() -> None:
    text = f"{good('a')}\n{block(BROKEN.format(tag='b'))}"
    found = extract(text)
    assert tag_of(text) == "a"
    assert "does not parse" in found.considered[1].verdict
    assert "the last usable of 2" in found.reason


def test_a_broken_answer_is_still_the_answer() -> None:
    text = f"{good('a')}</think>\n{block(BROKEN.format(tag='b'))}"
    found = extract(text)
    assert tag_of(text) == "b"
    assert "although it is broken (does not parse" in found.reason


def test_reasoning_counts_only_without_an_answer() -> None:
    assert tag_of(f"<think>{good('a')}</think>\n{good('b')}") == "b"
    text = f"<think>\n{good('a')}</think>\nAs shown above.\n"
    assert tag_of(text) == "a"
    assert "is part of the reasoning" in extract(text).reason


def test_the_last_mark_ends_the_reasoning() -> None:
    assert tag_of(f"<think>{good('a').rstrip()}</think>\nAs shown above.\n") == "a", "the fence ends on the mark's line"
    assert tag_of(f"{good('a')}</think>\n{good('b')}</think>\n{good('c')}") == "c"
    assert tag_of(f"{good('a')}</think>\n{good('b')}</think> done") == "b"
    # The answer is broken, what stands between the marks is not: only the answer counts, and it counts as broken.
    broken = block(BROKEN.format(tag="c"))
    assert tag_of(f"{good('a')}</think>\n{good('b')}</think>\n{broken}") == "c"
    assert tag_of(f"{good('a')}</think> ~~~ </think>\n{good('b')}") == "b", "no fence opens between two marks"


def test_a_draft_that_was_never_closed_does_not_swallow_the_next() -> None:
    assert tag_of(f"```python\n{BROKEN.format(tag='a')}\nWait, again:\n{good('b')}") == "b"
    assert tag_of(f"```python\n{GOOD.format(tag='a')}</think>\n{good('b')}") == "b"


@pytest.mark.parametrize(
    "answer",
    [
        good("b").rstrip().removesuffix("```"),
        f"It is:\n\n{GOOD.format(tag='b')}",
        f"```text\n{GOOD.format(tag='b')}```\n",
    ],
    ids=["never closed", "no fence", "no Python"],
)
def test_a_rejected_draft_does_not_replace_an_answer_that_is_not_complete(answer: str) -> None:
    found = extract(f"<think>\n{good('a')}but this is wrong</think>\n{answer}")
    assert found.source is None
    assert "the reasoning that ends on line" in found.reason
    assert "was not searched" in found.reason


def test_cut_off_answers_have_no_solution() -> None:
    found = extract("```python\n" + GOOD.format(tag="a"))
    assert found.source is None
    assert "never closed" in found.reason


def test_crlf_indentation_and_prose_before_the_fence() -> None:
    assert extract(good("a").replace("\n", "\r\n")).source == GOOD.format(tag="a")
    indented = "1. So:\n" + "".join(f"   {line}\n" for line in good("a").splitlines())
    assert extract(indented).source == GOOD.format(tag="a")
    assert tag_of("Here you are: " + good("a")) == "a"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no fenced code block"),
        (GOOD, "no fenced code block"),
        (block("x = 1\n"), "the only fenced block does not define ModelNew"),
        (block("text = '''\nclass ModelNew:\n'''\n"), "only inside a string"),
        (block("def f():\n    class ModelNew: pass\n"), "inside a string or a function"),
        (block(f"{GOOD}#{'x' * MAX_SOURCE_CHARS}\n"), "larger than"),
        (f"<think>{block('x = 1' + chr(10))}</think>", "no fenced code block"),
    ],
)
def test_nothing_to_take(text: str, said: str) -> None:
    found = extract(text)
    assert found.source is None
    assert said in found.reason
    assert "\n" not in found.reason


def test_a_guarded_definition_and_an_alias_count() -> None:
    guarded = "try:\n    import x\nexcept ImportError:\n    class ModelNew: pass\n"
    assert extract(block(guarded)).source == guarded
    alias = "class Fast: pass\n\n\nModelNew = Fast\n"
    assert extract(block(alias)).source == alias


@pytest.mark.parametrize(
    "piece",
    ["`", "~", "```\n", "```python\n", "</think>", '"""', "```python\nclass ModelNew:\n", " ", "\n", "\\", "```py ```"],
)
def test_megabytes_of_one_thing_are_read_once(piece: str) -> None:
    """A quadratic scan of these would take hours; the test has no clock, it would not end."""
    found = extract(piece * (4 * 2**20 // len(piece)))
    assert found.source is None


@pytest.mark.parametrize("levels", [450, 900, 2000])
def test_a_chain_of_many_branches_ends_nobodys_extraction(levels: int) -> None:
    """Each `elif` is one level more; one such answer among many once ended the command for all of them."""
    chain = "if 0: pass\n" + "elif 0: pass\n" * levels
    assert extract(block(chain + "else:\n    class ModelNew: pass\n")).source is not None
    assert extract(block(chain + "else:\n    x = '''\nclass ModelNew: pass\n'''\n")).source is None


def test_many_large_blocks_that_define_nothing_are_not_all_parsed() -> None:
    """The parser takes seconds for each of these."""
    large = "x = '''\nclass ModelNew:\n'''\n" + "a();" * (MAX_SOURCE_CHARS // 5) + "\n"
    found = extract(block("class ModelNew: pass\n") + block(large) * 8)
    assert found.source is None
    assert [held.verdict.startswith("not read") for held in found.considered] == [True] * 7 + [False] * 2


FENCES = ["```python\n", "```\n", "~~~py\n", "~~~\n"]
PIECES = [*FENCES, "</think>", '"""', "'''", "#", "\\", "\r\n", "class ModelNew:\n", "    x = 1\n"]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=6), max_size=30).map("".join) | st.text())
def test_no_text_breaks_it(text: str) -> None:
    found = extract(text)
    assert found.reason
    assert sum(c.chosen for c in found.considered) == (found.source is not None)
    if found.source is not None:
        assert "ModelNew" in found.source
