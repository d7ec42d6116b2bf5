"""Text from models, trees and messages from contestants: whatever they are, the end is a value or a declared error."""

from __future__ import annotations

import json
from typing import Any

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.catalog.extract import extract
from harness.catalog.screen import RULES, Screening, screen, screen_cuda
from harness.protocol.messages import MessageError, parse_reply
from harness.protocol.tensor_tree import TreeError, TreeSpec, flatten, unflatten
from harness.referee.contestants.findings import failure_of_reports
from harness.referee.problem.structure import same_structure

PIECES = [
    "```python\n",
    "```\n",
    "~~~~py\n",
    "````",
    "</think>",
    "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x\n",
    "ModelNew = 3\n",
    "import torch as t, sys\nfrom os import *\n",
    "t.cuda.Event = getattr(sys, 'modules')\n",
    'CODE = r"""#include <x>\n__global__ void k(float* x) { x[threadIdx.x] = 1; }\n"""\n',
    "f'''#include {a!r:>{b}} void f() {{'''\n",
    "load_inline(name='m', cuda_sources=[CODE, *a], functions={})\n",
    "k<<<1, 1>>>(x.data_ptr<float>());",
    "static std::unordered_map<void*, at::Tensor> m;",
    "#define A(x) x##y \\\n",
    'asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));',
    "try:\n    pass\nexcept: pass\n",
    "lambda *a, **k: (yield)\n",
    "match x:\n    case [1, *_]: pass\n",
    '"""',
    "'",
    "\\",
    "\x00",
    "\r\n",
    "\ud800",
    "(" * 150,
    "{" * 40,
    "  ",
    "#",
]
TEXT = st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=14).map("".join)
SETTINGS = settings(max_examples=150, deadline=None)


@SETTINGS
@given(TEXT)
@example("```python\nclass ModelNew:\n  x = '\ud800'\n```\n")
def test_extract_ends_with_a_source_or_a_reason(text: str) -> None:
    held = extract(text)
    assert held.reason
    assert "\n" not in held.reason
    if held.source is not None:
        assert "ModelNew" in held.source


@SETTINGS
@given(TEXT)
@example("x" + ".a" * 3000)
@example("-" * 9000 + "1")
@example("s = '#include <a>' + '{' * 10")
def test_screen_ends_with_findings_or_a_reason(text: str) -> None:
    for held in (screen(text), screen_cuda(text)):
        check(held, text)


def check(held: Screening, text: str) -> None:
    lines = len(text.split("\n"))
    assert all(item.rule in RULES and 1 <= item.line <= lines for item in held.findings)
    assert held.unreadable is None or (held.unreadable and "\n" not in held.unreadable and not held.findings)
    json.dumps(held.to_json(), allow_nan=False)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=16,
)
NODES = st.recursive(
    st.just({"slot": 0}) | st.dictionaries(st.sampled_from(["slot", "const", "opaque", "list", "tuple", "dict"]), JSON),
    lambda inner: st.dictionaries(
        st.sampled_from(["list", "tuple", "dict", "items"]), st.lists(inner, max_size=3) | JSON
    ),
    max_leaves=8,
)
TREES = JSON | st.fixed_dictionaries({"format": st.just(1) | JSON, "slots": st.integers(-1, 4), "root": NODES | JSON})


@SETTINGS
@given(TREES)
def test_a_tree_from_anywhere_is_a_tree_or_a_tree_error(value: object) -> None:
    try:
        tree = TreeSpec.from_json(value)
    except TreeError:
        return
    assert TreeSpec.from_json(json.loads(json.dumps(tree.to_json()))) == tree
    assert len(tree.paths()) == tree.slots
    assert same_structure(tree, tree) is None or tree.opaque()


def leaf_or_constant() -> st.SearchStrategy[Any]:
    tensors = st.integers(0, 3).map(lambda n: torch.zeros(n))
    return tensors | st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)


@SETTINGS
@given(
    st.recursive(
        leaf_or_constant(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(st.text(max_size=4) | st.integers(0, 3), inner, max_size=3)
        ),
        max_leaves=10,
    )
)
def test_what_a_solution_returns_comes_back_from_its_description(value: object) -> None:
    leaves, tree = flatten(value)
    read = TreeSpec.from_json(json.loads(json.dumps(tree.to_json(), allow_nan=False)))
    assert same_structure(read, tree) is None or tree.opaque()
    if not tree.opaque():
        assert len(flatten(unflatten(read, leaves))[0]) == len(leaves)


@SETTINGS
@given(st.dictionaries(st.sampled_from(["type", "claims", "reports", "stage", "kind", "unmatched", "notes"]), JSON))
def test_a_message_is_a_reply_or_a_message_error(message: dict[str, Any]) -> None:
    try:
        reply = parse_reply(message)
    except MessageError:
        return
    assert parse_reply(json.loads(json.dumps(reply.to_json()))) == reply


@SETTINGS
@given(st.lists(st.dictionaries(st.sampled_from(["kind", "line", "kernel", "message", "array"]), JSON), max_size=4))
def test_reports_give_a_failure_or_none(reports: list[dict[str, Any]]) -> None:
    failure = failure_of_reports(reports)
    assert failure is None or failure.reason
