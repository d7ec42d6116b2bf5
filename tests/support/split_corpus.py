"""The split build against the ordinary one over every CUDA source in the tree: the same machine code, the same answers.

    python tests/support/split_corpus.py                     # needs nvcc; no GPU
    python tests/support/split_corpus.py --run               # on a GPU: build entries of tests/hostcuda split, run them
    python tests/support/split_corpus.py --only matmul_tiled cg_reduce

One line a source: `same` (every kernel's code equal byte for byte), `refused` or `failed` (built the ordinary way, and
why), `DIFFERS`, `WRONG`. Exit code 1 if any differs or is wrong.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from harness.toolchain.headers.lean import UNIT  # noqa: E402
from harness.toolchain.headers.shared import SharedHeaders  # noqa: E402
from harness.toolchain.split.parts import split  # noqa: E402
from harness.toolchain.split.stubs import Unsplittable  # noqa: E402
from harness.toolchain.torchinfo import TorchBuild, find_torch, python_include  # noqa: E402
from harness.untrusted.builder.split_compile import Build, Failed  # noqa: E402

_STRING = re.compile(r'"""(.*?)"""', re.DOTALL)
_UNNAMED = re.compile(rb"\d+_GLOBAL__N_(?:_[0-9a-f]+_\d+_[\w]*?_[0-9a-f]{8})|15harness_unnamed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A CUDA source: its name, its text, and whether it includes torch's headers."""

    name: str
    text: str
    torch: bool


def sources() -> list[Source]:
    """Every CUDA source of the corpus, of its broken twins, and of the shipped solutions."""
    found = []
    for folder in ("corpus", "broken"):
        for path in sorted((ROOT / "tests" / "hostcuda" / folder).glob("*.cu")):
            name = path.stem if folder == "corpus" else f"broken/{path.stem}"
            found.append(Source(name=name, text=path.read_text(encoding="utf-8"), torch=False))
    for path in sorted((ROOT / "solutions").rglob("*.py")):
        texts = [text for text in _STRING.findall(path.read_text(encoding="utf-8")) if "__global__" in text]
        for number, text in enumerate(texts, 1):
            name = f"{path.relative_to(ROOT / 'solutions').with_suffix('')}#{number}"
            found.append(Source(name=name, text=text, torch=True))
    return found


def code_of(cubin: bytes) -> list[bytes]:
    """The machine code of every kernel and function in a cubin, sorted: its ELF sections `.text.*`."""
    section_at, _, _, _, _, size, count, names_index = struct.unpack_from("<QIHHHHHH", cubin, 40)

    def header(index: int) -> tuple[int, ...]:
        return struct.unpack_from("<IIQQQQIIQQ", cubin, section_at + index * size)

    names = header(names_index)[4]
    found = []
    for index in range(count):
        name, _, _, _, begin, length, *_ = header(index)
        start = names + name
        if cubin[start : cubin.index(b"\0", start)].startswith(b".text."):
            found.append(cubin[begin : begin + length])
    return sorted(found)


class Comparison:
    """Compiles sources both ways for one architecture, in folders below `root`."""

    def __init__(self, root: Path, arch: str) -> None:
        self._root = root
        self._flags = ["-std=c++20", "-lineinfo", "--expt-relaxed-constexpr", f"-arch={arch}", "-Xptxas", "-v"]

    def build(self, source: Source, folder: Path) -> Path:
        """The object that the split build makes. Raises `Unsplittable` and `Failed`."""
        settings = {"cxx": "g++", "host_flags": [], "torch": [], "include": ["/usr/local/cuda/include"]}
        flags = list(self._flags)
        if source.torch:
            lean, own = self._torch_flags(source, folder)
            settings |= {"host_flags": lean, "torch": [str(path) for path in self._torch.include_folders()]}
            flags += own
        made = folder / "unit.o"
        path = folder / "cuda.cu"
        path.write_text(source.text, encoding="utf-8")
        Build(path, made, settings, "nvcc", flags).run(split(source.text))
        return made

    def code(self, source: Source, folder: Path) -> tuple[list[bytes], list[bytes]]:
        """Machine code of the device part, and of the source as it stands (torch's headers lean)."""
        lean, own = self._torch_flags(source, folder) if source.torch else ([], [])
        codes = []
        for name, headers in (("unit.o.split/device.cu", []), ("cuda.cu", lean)):
            cubin = folder / f"{Path(name).stem}.cubin"
            command = ["nvcc", *headers, *self._flags, *own, "-cubin", str(folder / name), "-o", str(cubin)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise Failed(f"{name}: {done.stdout + done.stderr}"[:300])
            codes.append(code_of(cubin.read_bytes()))
        return codes[0], codes[1]

    @functools.cached_property
    def _torch(self) -> TorchBuild:
        return find_torch()

    @functools.cached_property
    def _headers(self) -> SharedHeaders:
        return SharedHeaders(self._root / "headers", self._torch, Path("g++"), "corpus")

    def _torch_flags(self, source: Source, folder: Path) -> tuple[list[str], list[str]]:
        """Flags that find lean headers, and those of an extension."""
        header = self._headers.unit(source.text, python=False)
        if header is None:
            raise Failed("needs torch's full headers")
        (folder / "lean").mkdir(exist_ok=True)
        (folder / "lean" / UNIT).write_text(header, encoding="utf-8")
        # A CPU build of torch lacks this one, which says how its CUDA half was built.
        macros = folder / "lean" / "c10" / "cuda" / "impl" / "cuda_cmake_macros.h"
        if not (self._torch.include / macros.relative_to(folder / "lean")).exists():
            macros.parent.mkdir(parents=True, exist_ok=True)
            macros.write_text("#define C10_CUDA_BUILD_SHARED_LIBS\n", encoding="utf-8")
        folders = [*self._torch.include_folders(), python_include()]
        own = [item for path in folders for item in ("-isystem", str(path))]
        own += self._torch.nvcc_flags
        own += [word for flag in self._torch.defines() for word in flag.replace("\\", "").split()]
        return list(self._headers.flags(str(folder / "lean"), kind="cuda")), [*own, "-DTORCH_EXTENSION_NAME=corpus"]

    def verdict(self, source: Source, *, run: bool) -> str:
        """One line on a source."""
        folder = self._root / source.name.replace("/", "_")
        folder.mkdir()
        try:
            made = self.build(source, folder)
        except Unsplittable as reason:
            return f"refused   {source.name}: {reason}"
        except Failed as reason:
            return f"failed    {source.name}: {reason}"
        if run:
            return self._answer(source, made, folder)
        split_code, whole_code = self.code(source, folder)
        same = split_code == whole_code
        return f"{'same     ' if same else 'DIFFERS  '} {source.name} ({len(split_code)} and {len(whole_code)} kernels)"

    def _answer(self, source: Source, made: Path, folder: Path) -> str:
        from tests.hostcuda import compare, corpus_entries

        name = source.name.rpartition("/")[2]
        known = {entry.name: entry for entry in (*corpus_entries.corpus(), *corpus_entries.broken())}
        program = folder / "program"
        driver = ROOT / "tests" / "hostcuda" / "driver.cpp"
        link = ["nvcc", "-std=c++17", "-cudart", "shared", str(made), str(driver), "-o", str(program)]
        done = subprocess.run(link, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"WRONG     {source.name}: does not link: {done.stderr[-300:]}"
        result = compare.run_cuda(known[name], program, folder / "files", ())
        fine = result.outcome == "passed" or (known[name].defect is not None and result.outcome != "crashed")
        return f"{'same     ' if fine else 'WRONG    '} {source.name}: {result.outcome} {result.detail[-200:]}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=(), help="names of sources, or their beginnings")
    parser.add_argument("--run", action="store_true", help="on a GPU: run what the split build makes")
    parser.add_argument("--arch", help="sm_90 and the like; that of the first GPU if absent, else sm_90")
    parser.add_argument("--jobs", type=int, default=min(16, os.cpu_count() or 1), help="default: at most 16 on a GPU")
    options = parser.parse_args(arguments)
    chosen = [item for item in sources() if not options.only or item.name.startswith(tuple(options.only))]
    if options.run:  # what includes torch has no driver to be run by
        chosen = [item for item in chosen if not item.torch]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(options.jobs) as pool:
        from tests.hostcuda import compare

        comparison = Comparison(Path(scratch), options.arch or compare._architecture())
        lines = []
        for line in pool.map(lambda source: comparison.verdict(source, run=options.run), chosen):
            lines.append(line)
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
    words = [line.split()[0] for line in lines]
    counts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    sys.stdout.write(f"{len(lines)} sources: {counts}\n")
    return int("DIFFERS" in words or "WRONG" in words)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
