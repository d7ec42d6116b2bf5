"""Sources as trees, by one thread at a time."""

from __future__ import annotations

import ast
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from harness.core import python_ast


def test_it_gives_what_ast_gives() -> None:
    source = "N = 4\n\n\ndef forward(x):\n    return x @ x.T\n"
    assert ast.dump(python_ast.parse(source)) == ast.dump(ast.parse(source))
    assert ast.dump(python_ast.parse("N + 1", mode="eval")) == ast.dump(ast.parse("N + 1", mode="eval"))
    with pytest.raises(SyntaxError) as error:
        python_ast.parse("N =", "held.py")
    assert error.value.filename == "held.py"


def test_no_two_threads_make_a_tree_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, most, own = 0, 0, threading.Lock()

    def slowly(*_: Any) -> ast.Module:
        nonlocal inside, most
        with own:
            inside += 1
            most = max(most, inside)
        time.sleep(0.02)
        with own:
            inside -= 1
        return ast.Module(body=[], type_ignores=[])

    monkeypatch.setattr(ast, "parse", slowly)
    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(python_ast.parse, ["N = 1"] * 8))) == 8
    assert most == 1


def test_a_source_that_is_none_does_not_stop_the_next() -> None:
    for _ in range(2):
        with pytest.raises(SyntaxError):
            python_ast.parse("class")
    assert python_ast.parse("").body == []


@pytest.mark.parametrize("part", ["a.", "a . ", "a.\\\n", "\u00e4.", "b" * 90 + "."], ids=ascii)
@pytest.mark.parametrize("word", ["import ", "from ", "import os, ", "x = "])
def test_a_name_of_too_many_parts_is_refused_before_the_parser_keeps_each_beginning(word: str, part: str) -> None:
    text = f"def never():\n    {word}{part * 40_000}a"
    for source in (text, text.encode()):
        with pytest.raises(SyntaxError, match="a dotted name of more than 200 parts"):
            python_ast.parse(source)


@pytest.mark.parametrize(
    "text",
    [
        f"import {'a.' * 150}a",
        f"x = [{'1.5, ' * 10_000}]",
        f"x = {'f().' * 90}g()",
        "x = '" + "." * 1_000_000 + "'",
        "x = '" + ". " * 500_000 + "'",
        "x = 1" + " " * 1_000_000 + "\n" + "y.z\n" * 300,
        f"x = {'.'.join(['a' * 20_000] * 150)}",
    ],
    ids=lambda text: text[:12],
)
def test_what_only_looks_like_one_is_parsed(text: str) -> None:
    assert isinstance(python_ast.parse(text), ast.Module)


COMMENTS = [
    *(
        "# coding: utf-7",
        "# -*- coding: utf-7 -*-",
        "# vim: set fileencoding=utf-7 :",
        "#coding=utf-7",
        "\t\f# coding: \tutf-7",
    ),
    *(
        "# a\n# coding: utf-7",
        "\n# coding: utf-7",
        "\r# coding: utf-7",
        "# a\r\n# coding: utf-7",
        "# a\r# coding: utf-7",
    ),
    *("x = 1\n# coding: utf-7", "\n\n# coding: utf-7", "# utf-7", "# coding utf-7", "# coding: ", "'# coding: utf-7'"),
    *("# coding: utf-8", "# coding: UTF_8", "# coding: utf8", "# coding: utf-8-unix", "# coding coding: utf-7"),
    *("# coding: utf-8 coding: utf-7", "'''\n# coding: utf-7\n'''", "# a \\\n# coding: utf-7", ""),
]


@pytest.mark.parametrize("comment", COMMENTS, ids=ascii)
@pytest.mark.filterwarnings("ignore")
def test_an_encoding_is_declared_where_the_compiler_obeys_it(comment: str) -> None:
    """UTF-7 reads `+AGEAYg-` as `ab`, UTF-8 as it is written."""
    source = f"{comment}\nread = '+AGEAYg-'\n"
    held: dict[str, str] = {}
    exec(compile(source.encode(), "held.py", "exec"), held)
    declared = python_ast.declared_encoding(source)
    is_utf8 = declared is None or python_ast.is_utf8(declared.name)
    assert is_utf8 == (held["read"] == "+AGEAYg-")
    if declared is not None:
        assert "coding" in re.split("\r\n|\r|\n", source)[declared.line - 1]
