"""What a solution's text says it will ask for: the same as the harvest finds, or nothing."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch.utils.cpp_extension as extension

from harness.catalog.extract import extract
from harness.toolchain import BuilderZygotes, ExtensionSpec
from harness.toolchain.discovery import Request, harvest
from harness.toolchain.static_discovery import foresee
from harness.toolchain.torchinfo import find_torch, inline_parameters_of
from harness.untrusted.builder.load_inline_calls import bind, read_inline
from harness.untrusted.builder.static_scan import foreseen
from tests.support.paths import ROOT

SEEDS = ROOT.parent / "shared" / "seeds"
PARAMETERS = find_torch().inline_parameters


def asked_for(text: str) -> list[str]:
    """Digests of what a text asks for when it is executed; its own, harmless ones only."""
    found: list[str] = []

    held = extension.load_inline

    def collect(*args: Any, **kwargs: Any) -> None:
        found.append(read_inline(bind(held, args, kwargs)).digest)

    extension.load_inline = collect
    try:
        exec(compile(text, "solution.py", "exec"), {"__name__": "solution"})
    finally:
        extension.load_inline = held
    return found


def read(text: str) -> list[ExtensionSpec]:
    return list(foreseen(textwrap.dedent(text), PARAMETERS))


def test_the_parameters_are_those_of_this_torch() -> None:
    real = inspect.signature(extension.load_inline).parameters.values()
    assert [name for name, _, _ in PARAMETERS] == [item.name for item in real]
    assert [needed for _, needed, _ in PARAMETERS] == [item.default is item.empty for item in real]
    assert [held for _, needed, held in PARAMETERS if not needed] == [
        item.default for item in real if item.default is not item.empty
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "def load_inline(name, *sources):\n    pass\n",
        "def load_inline(name, **options):\n    pass\n",
        "def load_inline(name, sources=compute()):\n    pass\n",
        "def load_inline(name, sources=[):\n    pass\n",
    ],
)
def test_a_torch_with_other_parameters_is_not_guessed_for(text: str) -> None:
    assert inline_parameters_of(text) == ()
    assert list(foreseen("from torch.utils.cpp_extension import load_inline\nload_inline('e', 'a')", ())) == []


PLAIN = {
    "literals": "load_inline('e', 'int f();', functions=['f'])",
    "names": "cpp = 'int f();'\nNAME = 'e'\nload_inline(name=NAME, cpp_sources=[cpp], functions=['f'], verbose=True)",
    "concatenated": "head = '#include <x>'\nload_inline('e', head + '\\nint f();' + '\\n' * 2)",
    "formatted": "N, T = 8, 'float'\nload_inline(f'e_{N}', f'{T} f() {{ return {N * 2 - 1}; }}')",
    "percent": "load_inline('e_%d' % 8, 'int %s();%%' % ('f',))",
    "methods": "load_inline('E'.lower(), '  int TYPE; '.strip().replace('TYPE', 'x'), ['-'.join(['a', 'b'])])",
    "dedent": "import textwrap\nfrom textwrap import dedent\n"
    "load_inline('e', textwrap.dedent('\\n  a\\n') + dedent(' b'))",
    "in_a_function": "src = 'a'\ndef f():\n    flags = ['-O3']\n    load_inline('e', src, extra_cflags=flags)\nf()",
    "in_a_class": "class M:\n    src = 'a'\n    ext = load_inline('e', src)",
    "unpacked": "a, (b, c) = 'x', ('y', 'z')\nload_inline('e', [a, b, c])",
    "mapping": "load_inline('e', 'a', functions={'f': 'what f does'}, extra_cuda_cflags=('-O3', '--use_fast_math'))",
    "double_star": "options = dict\nkw = {'cpp_sources': 'a', 'with_cuda': None}\nload_inline('e', **kw)",
    "late": "def f():\n    load_inline('e', src)\nsrc: str = 'a'\nf()",
    "global": "def g():\n    global src\n    src = 'a'\ng()\nload_inline('e', src)",
    "verbose": "import os\nload_inline('e', 'a', verbose=bool(os.getpid()), build_directory=os.path.join('a', 'b'))",
    "another_name": "from torch.utils.cpp_extension import load_inline as build\nbuild('e', 'a')",
    "another_module": "import torch.utils.cpp_extension as cpp\ncpp.load_inline('e', 'a')",
    "whole_path": "import torch\ntorch.utils.cpp_extension.load_inline('e', 'a')",
    "by_position": "load_inline('e', 'a', 'b', None, ['f'], ['-O3'])",
    "of_another_torch": "load_inline('e', 'a', no_implicit_headers=True, use_pch=True, extra_sycl_cflags=None)",
    "two": "load_inline('e', 'a')\nload_inline('f', 'b', extra_include_paths=['/usr/include'])",
    "negative": "load_inline('e', f'{-1}{str(2)}{True}')",
}


@pytest.mark.parametrize("name", PLAIN)
def test_what_is_plain_is_what_is_asked_for(name: str) -> None:
    text = f"from torch.utils.cpp_extension import load_inline\n{PLAIN[name]}"
    found = [spec.digest for spec in read(text)]
    assert found
    assert found == asked_for(text)


NOT_PLAIN = {
    "computed_name": "import hashlib\nload_inline(hashlib.md5(b'a').hexdigest(), 'a')",
    "parameter": "def build(src):\n    return load_inline('e', src)\nbuild('a')",
    "bound_twice": "src = 'a'\nif src:\n    src = 'b'\nload_inline('e', src)",
    "added_to": "src = 'a'\nsrc += 'b'\nload_inline('e', src)",
    "appended_to": "flags = ['-O3']\nflags.append('-g')\nload_inline('e', 'a', extra_cflags=flags)",
    "item_set": "kw = {'name': 'e'}\nkw['cpp_sources'] = 'a'\nload_inline(**kw)",
    "loop": "for src in ('a', 'b'):\n    load_inline('e', src)",
    "comprehension": "[load_inline('e', src) for src in ('a', 'b')]",
    "walrus": "load_inline('e', (src := 'a'))\nload_inline('f', src)",
    "itself": "src = src\nload_inline('e', src)",
    "each_other": "a = b\nb = a\nload_inline('e', a)",
    "never_bound": "load_inline('e', src)",
    "in_two_scopes": "src = 'a'\nclass M:\n    src = 'b'\n    def f(self):\n        load_inline('e', src)\nM().f()",
    "read_from_a_file": "load_inline('e', open('kernel.cu').read())",
    "environment": "import os\nload_inline('e', os.environ['SOURCE'])",
    "padding": "load_inline('e', '%999999999d' % 1)\nload_inline('f', f'{1:>999999999}')",
    "keyword_of_no_torch": "load_inline('e', 'a', extra_cuda_flags=['-O3'])",
    "no_sources": "load_inline('e')",
    "wrong_types": "load_inline('e', 3)\nload_inline('f', 'a', functions=('f',))",
    "own_headers": "load_inline('e', 'a', extra_include_paths=['.'])",
    "shadowed_argument": "src = 'a'\ndef f(src=3):\n    load_inline('e', src)",
    "except": "try:\n    pass\nexcept ValueError as src:\n    load_inline('e', src)",
    "match": "match 1:\n    case src:\n        load_inline('e', src)",
    "deleted": "src = 'a'\ndel src\nload_inline('e', src)",
    "nonlocal": "def f():\n    s = 'a'\n    def g():\n        nonlocal s\n        s = 'b'\n    load_inline('e', s)",
    "starred": "both = ['e', 'a']\nload_inline(*both)",
}


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_what_is_not_plain_is_left_out(name: str) -> None:
    assert read(f"from torch.utils.cpp_extension import load_inline\n{NOT_PLAIN[name]}") == []


def test_one_that_is_not_plain_leaves_the_others(zygotes: BuilderZygotes) -> None:
    plain = "load_inline('b', 'int b;')"
    text = f"load_inline('a', open('x').read())\n{plain}\nload_inline('c' + 1, 'x')\n{plain}"
    assert [spec.name for spec in read(text)] == ["b"]
    assert [spec.name for spec in sandboxed(zygotes, text)] == ["b"]


ARCHES = {
    "os.environ['TORCH_CUDA_ARCH_LIST'] = '9.0a'": ["9.0a"],
    "os.environ.setdefault('TORCH_CUDA_ARCH_LIST', '9.0a')": ["9.0a"],
    "if 'TORCH_CUDA_ARCH_LIST' not in os.environ:\n    os.environ['TORCH_CUDA_ARCH_LIST'] = '9.0a'": [],
    "os.environ['TORCH_CUDA_ARCH_LIST'] = compute()": [],
    "os.environ.update({'TORCH_CUDA_ARCH_LIST': '9.0a'})": [],
    "other['TORCH_CUDA_ARCH_LIST'] = '9.0a'": [],
    "os.environ['TORCH_CUDA_ARCH_LIST'] = 9": [],
    "'TORCH_CUDA_ARCH_LIST is not set here'": [None],
}


@pytest.mark.parametrize("line", ARCHES)
def test_an_architecture_that_the_text_sets(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    assert [spec.cuda_arch_list for spec in read(f"import os\n{line}\nload_inline('e', 'a')")] == ARCHES[line]


def test_an_architecture_that_was_given_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a")
    text = "import os\nos.environ.{}\nload_inline('e', 'a')"
    assert [spec.cuda_arch_list for spec in read(text.format("setdefault('TORCH_CUDA_ARCH_LIST', '8.0')"))] == [None]


def sandboxed(zygotes: BuilderZygotes, text: str) -> list[ExtensionSpec]:
    return list(foresee(text, zygote=zygotes.light, sandbox="auto", limit=8))


def sources() -> list[Path]:
    """Solutions of every kind that is here."""
    places = ("solutions", "tests/exploits/honest", "tests/exploits/mistakes")
    found = [path for place in places for path in sorted((ROOT / place).rglob("*.py"))]
    return [path for path in found if "class ModelNew" in (text := path.read_text()) and "load_inline" in text]


def test_solutions_ask_for_what_their_texts_say(zygotes: BuilderZygotes, tmp_path: Path) -> None:
    texts = {path.name: path.read_text() for path in sources()}
    if SEEDS.is_dir():
        texts |= {f"{path.stem}.py": extract(path.read_text()).source for path in SEEDS.glob("*.txt")}
    assert len(texts) > 80
    for name, text in texts.items():
        harvested = harvest(
            Request(source=text, filename=name, arguments=None, refused={}, seed=0),
            zygote=zygotes.torch,
            sandbox="auto",
            log_path=tmp_path / "log",
            timeout_s=60.0,
        )
        assert [spec.digest for spec in sandboxed(zygotes, text)] == [spec.digest for spec in harvested.specs], name


HOSTILE = {
    "nested": "x = " + "(" * 150_000,
    "negated": "x = " + "-" * 150_000 + "1",
    "nested_calls": f"load_inline('e', {'str(' * 3000}'a'{')' * 3000})",
    "chained": "x = 'a'" + " + 'a'" * 50_000,
    "chained_attributes": "x" + ".a" * 50_000,
    "enormous": "load_inline('e', 'a' * 10**9)",
    "enormous_by_replacing": "a = 'a' * 4000000\nload_inline('e', a.replace('a', a))",
    "enormous_by_joining": "a = 'a' * 4000000\nload_inline('e', a.join([a] + [a]))",
    "doubling": "x0 = 'aaaaaaaa'\n"
    + "\n".join(f"x{i + 1} = x{i} + x{i}" for i in range(200))
    + "\nload_inline('e', x200)",
    "doubling_lists": "x0 = ['a']\n"
    + "\n".join(f"x{i + 1} = x{i} + x{i}" for i in range(200))
    + "\nload_inline('e', x200)",
    "power": "load_inline('e', 'a' * (9 ** 9 ** 9))",
    "digits": f"load_inline('e', '{{}}' * {'9' * 5000})",
    "surrogates": "x = '\ud800'\nload_inline('e', 'int x;')",
    "null": "x = '\0'\nload_inline('e', 'a')",
    "not_python": "load_inline('e', 'a'",
    "no_text": "",
    "executed": "import os\nos._exit(1)\nload_inline('e', 1 / 0)",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_costs_the_guess(zygotes: BuilderZygotes, name: str) -> None:
    assert sandboxed(zygotes, HOSTILE[name]) == []
    assert [spec.name for spec in sandboxed(zygotes, "load_inline('next', 'a')")] == ["next"]


def test_no_more_is_read_than_asked_for(zygotes: BuilderZygotes) -> None:
    text = "\n".join(f"load_inline('e{number}', 'a')" for number in range(100))
    assert [spec.name for spec in foresee(text, zygote=zygotes.light, sandbox="auto", limit=3)] == ["e0", "e1", "e2"]


def test_a_text_without_extensions_starts_nothing() -> None:
    with BuilderZygotes() as fresh:
        assert sandboxed(fresh, "import torch\nclass ModelNew(torch.nn.Module):\n    pass\n") == []
        assert not fresh.light.started


def test_where_nothing_can_be_started_nothing_is_foreseen() -> None:
    with BuilderZygotes() as closed:
        pass
    assert sandboxed(closed, "load_inline('e', 'a')") == []
