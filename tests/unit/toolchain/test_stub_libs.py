"""Stubs of libraries: what a linker takes down with them is what it does with the real ones."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.toolchain.headers import stub_libs

GXX = shutil.which("g++")
pytestmark = pytest.mark.skipif(GXX is None or shutil.which("readelf") is None, reason="needs g++ and readelf")


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(command), capture_output=True, text=True, check=False)


def library(folder: Path, name: str, text: str, *more: str) -> None:
    (folder / f"{name}.cpp").write_text(text)
    made = ["-o", str(folder / f"lib{name}.so"), str(folder / f"{name}.cpp")]
    assert run([str(GXX), "-shared", "-fPIC", *made, *more]).returncode == 0


def needed(path: Path) -> list[str]:
    return re.findall(r"\(NEEDED\).*\[(.+)\]", run(["readelf", "-d", str(path)]).stdout)


@pytest.fixture
def originals(tmp_path: Path) -> Path:
    folder = tmp_path / "originals"
    folder.mkdir()
    library(folder, "one", "int one() { return 1; }", "-Wl,-soname,libone.so.7")
    library(folder, "two", "int two() { return 2; }", "-Wl,-soname,libtwo.so")
    library(folder, "nameless", "int three() { return 3; }")
    return folder


def test_a_module_needs_the_same_libraries_by_the_names_that_they_have(originals: Path, tmp_path: Path) -> None:
    assert stub_libs.flags(tmp_path / "stubs", ["one", "two"]) is None
    assert stub_libs.make(run, str(GXX), originals, tmp_path / "stubs", ["one", "two"])
    flags = stub_libs.flags(tmp_path / "stubs", ["one", "two"])
    assert flags is not None
    program = 'extern int one(), two(); extern "C" int both() { return 10 * one() + two(); }'
    real = [f"-L{originals}", "-Wl,--no-as-needed", "-lone", "-ltwo", "-Wl,--as-needed"]
    library(tmp_path, "real", program, *real)
    # A distribution's linker may leave out what defines nothing that is asked for, and does so again behind them.
    library(tmp_path, "quick", program, "-Wl,--as-needed", *flags, f"-L{originals}", "-lnameless")
    assert needed(tmp_path / "libquick.so")[:2] == needed(tmp_path / "libreal.so")[:2] == ["libone.so.7", "libtwo.so"]
    assert "libnameless.so" not in needed(tmp_path / "libquick.so")
    look = "import ctypes, sys; [ctypes.CDLL(each, ctypes.RTLD_GLOBAL) for each in sys.argv[1:-1]]; "
    look += "print(ctypes.CDLL(sys.argv[-1]).both())"
    held = [str(originals / "libone.so"), str(originals / "libtwo.so")]
    done = run([sys.executable, "-c", look, *held, str(tmp_path / "libquick.so")])
    assert done.stdout == "12\n", done.stderr


def test_a_library_without_a_name_or_that_is_not_there_has_no_stub(originals: Path, tmp_path: Path) -> None:
    for names in (["one", "nameless"], ["one", "nowhere"]):
        assert not stub_libs.make(run, str(GXX), originals, tmp_path / "stubs", names)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["originals"]


def test_without_the_tools_there_are_no_stubs(originals: Path, tmp_path: Path) -> None:
    def nothing(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        raise FileNotFoundError(command[0])

    assert not stub_libs.make(nothing, str(GXX), originals, tmp_path / "stubs", ["one"])
    assert not stub_libs.make(run, "/bin/false", originals, tmp_path / "stubs", ["one"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["originals"]


def test_whoever_comes_second_takes_what_is_there(originals: Path, tmp_path: Path) -> None:
    assert stub_libs.make(run, str(GXX), originals, tmp_path / "stubs", ["one"])
    before = (tmp_path / "stubs" / "libone.so").stat().st_mtime_ns
    assert stub_libs.make(run, str(GXX), originals, tmp_path / "stubs", ["one"])
    assert (tmp_path / "stubs" / "libone.so").stat().st_mtime_ns == before
