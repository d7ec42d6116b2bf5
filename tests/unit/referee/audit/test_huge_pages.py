"""The memory that racecheck has pinned comes in pages that are there beforehand; other mappings are left alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness.core.executables import find_gxx
from harness.referee.audit import huge_pages
from harness.referee.audit.huge_pages import HugePages
from harness.referee.audit.sanitizer import SanitizerTool

PROGRAM = r"""
import ctypes, json, mmap, os, re, sys
libc = ctypes.CDLL(None, use_errno=True)
MIB, PLACE, FIXED = 2**20, 0x202800000, 0x10
NAMES = ("mmap", "mmap64")


def mapped(name, place, bytes_, flags):
    function = getattr(libc, name)
    function.restype = ctypes.c_void_p
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
    address = function(place, bytes_, mmap.PROT_READ | mmap.PROT_WRITE, flags | mmap.MAP_ANONYMOUS, -1, 0)
    for block in re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", open("/proc/self/smaps").read()):
        if block and int(block.split("-")[0], 16) <= address < int(block.split("-")[1].split()[0], 16):
            kib = int(re.search(r"Rss:\s+(\d+) kB", block)[1])
            flags = re.search(r"VmFlags:(.*)", block)[1].split()
            value = ctypes.string_at(address, 4096)
            libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(bytes_))
            return {"at": address, "kind": block.split()[1][3], "rss_kib": kib, "flags": flags, "zero": not any(value)}


print(json.dumps({
    "driver": {name: mapped(name, PLACE, 128 * MIB, mmap.MAP_SHARED | FIXED) for name in NAMES},
    "small": mapped("mmap", PLACE, 16 * MIB, mmap.MAP_SHARED | FIXED),
    "program": mapped("mmap", None, 128 * MIB, mmap.MAP_SHARED),
    "private": mapped("mmap", PLACE, 128 * MIB, mmap.MAP_PRIVATE | FIXED),
}))
"""


def mappings(environment: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture
def pages() -> Iterator[HugePages]:
    with closing(HugePages()) as held:
        yield held


@pytest.mark.skipif(find_gxx() is None, reason="no C++ compiler here")
class TestTheLibrary:
    def test_what_the_driver_maps_is_private_there_and_not_forked(self, pages: HugePages) -> None:
        said = mappings(dict(pages.variables(SanitizerTool.RACECHECK)))
        for held in said["driver"].values():
            assert (held["at"], held["kind"], held["zero"]) == (0x202800000, "p", True)
            assert held["rss_kib"] >= 128 * 1024
            assert "dc" in held["flags"]

    def test_all_else_is_as_without(self, pages: HugePages) -> None:
        said, usual = mappings(dict(pages.variables(SanitizerTool.RACECHECK))), mappings({})
        assert usual["driver"]["mmap"]["kind"] == "s"
        for name in ("small", "program", "private"):
            assert said[name]["kind"] == usual[name]["kind"]
            assert said[name]["rss_kib"] == usual[name]["rss_kib"]

    def test_no_library_comes_with_it_but_c_s(self, pages: HugePages) -> None:
        library = pages.variables(SanitizerTool.RACECHECK)["LD_PRELOAD"]
        said = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, timeout=60, check=True).stdout
        needed = {line.split("[")[1].split(".")[0] for line in said.splitlines() if "(NEEDED)" in line}
        assert needed <= {"libc", "libdl"}

    def test_it_is_built_once_and_removed_in_the_end(self, pages: HugePages) -> None:
        path = Path(pages.variables(SanitizerTool.RACECHECK)["LD_PRELOAD"])
        built = path.stat().st_mtime_ns
        assert pages.variables(SanitizerTool.RACECHECK) == {"LD_PRELOAD": str(path)}
        assert path.stat().st_mtime_ns == built
        pages.close()
        assert not path.parent.exists()

    def test_the_end_of_one_auditor_takes_nothing_from_another(self, pages: HugePages) -> None:
        """Those of several GPUs work side by side."""
        path = Path(pages.variables(SanitizerTool.RACECHECK)["LD_PRELOAD"])
        with closing(HugePages()) as others:
            assert others.variables(SanitizerTool.RACECHECK) != pages.variables(SanitizerTool.RACECHECK)
        assert path.is_file()


@pytest.mark.parametrize("tool", [tool for tool in SanitizerTool if tool is not SanitizerTool.RACECHECK])
def test_other_tools_have_no_use_for_it(tool: SanitizerTool, pages: HugePages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages, "_build", lambda library: pytest.fail("nobody asked for it"))
    assert pages.variables(tool) == {}


@pytest.mark.parametrize("compiler", [None, Path("/bin/false"), Path("/no/such/compiler")])
def test_without_a_compiler_that_works_racecheck_goes_without(
    compiler: Path | None, pages: HugePages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huge_pages, "find_gxx", lambda: compiler)
    assert pages.variables(SanitizerTool.RACECHECK) == {}
