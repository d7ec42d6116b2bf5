"""Sources as trees, by one thread at a time."""

from __future__ import annotations

import ast
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from harness import python_syntax


def test_it_gives_what_ast_gives() -> None:
    source = "N = 4\n\n\ndef forward(x):\n    return x @ x.T\n"
    assert ast.dump(python_syntax.parse(source)) == ast.dump(ast.parse(source))
    assert ast.dump(python_syntax.parse("N + 1", mode="eval")) == ast.dump(ast.parse("N + 1", mode="eval"))
    with pytest.raises(SyntaxError) as error:
        python_syntax.parse("N =", "held.py")
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
        assert len(list(pool.map(python_syntax.parse, ["N = 1"] * 8))) == 8
    assert most == 1


def test_a_source_that_is_none_does_not_stop_the_next() -> None:
    for _ in range(2):
        with pytest.raises(SyntaxError):
            python_syntax.parse("class")
    assert python_syntax.parse("").body == []
