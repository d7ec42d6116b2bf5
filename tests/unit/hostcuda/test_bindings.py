"""Module definitions that can be bound without pybind11, and those that can't. Nothing is compiled here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.hostcuda.translate.bindings import Argument, module_definition

HEAD = "torch::Tensor f(torch::Tensor x);\n"


def module(body: str, head: str = "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)") -> str:
    return f"{HEAD}{head} {{\n{body}\n}}\nint after;\n"


def test_names_and_functions_are_read_and_the_definition_can_be_left_out() -> None:
    source = module('  m.def("forward", &f, "The forward " "pass");\n  // another\n  m.def("g", ns::g);')
    found = module_definition(source)
    assert found is not None
    assert found.functions == {"forward": "f", "g": "ns::g"}
    assert found.without(source) == HEAD + "\n\n\n\n\nint after;\n"
    assert found.without(source).count("\n") == source.count("\n")


@pytest.mark.parametrize(
    "source",
    [
        HEAD,
        module(""),
        module('m.doc() = "about";\nm.doc() = "again";\nm.def("f", &f);'),
        module('m.doc() = about;\nm.def("f", &f);'),
        module('m.def("f", &f, py::arg("x") = torch::Tensor());'),
        module('m.def("f", &f, py::arg("x") = std::string("a"));'),
        module('m.def("f", &f, py::arg("x").noconvert());'),
        module('m.def("f", &f, py::arg("x"), py::arg("x"));'),
        module('m.def("f", &f, py::call_guard<py::gil_scoped_release>());'),
        module('m.def("f", [](int a) { return a; });'),
        module('m.def("f", &g<float>);'),
        module('m.def("f", &f); m.def("f", &g);'),
        module('if (true) m.def("f", &f);'),
        module('py::class_<C>(m, "C");'),
        module('m.def("f", &f);', head="PYBIND11_MODULE(other, m)"),
        module('m.def("f", &f);') * 2,
        '#define BIND PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f); }\nBIND\n',
    ],
)
def test_what_says_more_than_names_is_left_to_pybind11(source: str) -> None:
    assert module_definition(source) is None


def test_arguments_names_and_defaults_are_read() -> None:
    found = module_definition(
        module(
            'm.doc() = "about " "it";\n'
            'm.def("f", &f, py::arg("x"), "text", pybind11::arg( "n" ) = -3, py::arg("e") = 1e-5f,'
            ' py::arg("m")=py::none());'
            '\nm.def("g", &g, "x"_a, "y"_a = true, py::arg("z") = std::nullopt);\nm.def("h", &h);'
        )
    )
    assert found is not None
    assert found.doc == '"about " "it"'
    assert found.functions == {"f": "f", "g": "g", "h": "h"}
    assert found.arguments == {
        "f": (Argument("x"), Argument("n", "-3"), Argument("e", "1e-5f"), Argument("m", "nullptr")),
        "g": (Argument("x"), Argument("y", "true"), Argument("z", "nullptr")),
    }


@given(st.text(alphabet='m.def("f",&){};PYBIND11_MODULE(TORCH_EXTENSION_NAME, \n', max_size=120))
def test_any_text_is_read_without_failing(body: str) -> None:
    found = module_definition(module(body))
    assert found is None or all(name.isidentifier() for name in found.functions)
