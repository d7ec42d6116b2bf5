"""Compile one CUDA source in two parts.

`python split_compile.py SOURCE OBJECT SETTINGS NVCC ARGUMENT...`

Untrusted side: runs in the builder's sandbox and reads the solution's source. On success the exit code is 0, `OBJECT`
exists, and nvcc's report is on stdout. Otherwise the reason is one line on stdout, and the caller compiles the source
whole. See guides/design/split_builds.md.

`SETTINGS` is a JSON file: `cxx`, the host compiler; `host_flags`, the flags for lean headers; `torch`, header folders
that the device part does not get; `include`, folders that nvcc searches by default; `bindings`, what binds the
functions of a `main.cpp` that is compiled with the host part (`fast_paths.joined_bindings`), or null. Then the marker
named there stands for its object.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:] = [str(Path(__file__).resolve().parents[3]), *sys.path[1:]]

from harness.toolchain.split import flags, symbols
from harness.toolchain.split.parts import Parts, split
from harness.toolchain.split.stubs import Unsplittable

_INCLUDE = Path(flags.__file__).resolve().parent / "include"
_PRELUDE = "#include <cstdint>\n#include <cmath>\n#include <algorithm>\n#include <limits>\n#include <type_traits>\n"
"""The standard headers that torch's headers include and device code uses."""

_EMPTY_ARCHIVE = b"!<arch>\n"
"""Stands for the object of a `main.cpp` that was joined: a linker takes nothing from it."""


class Failed(Exception):
    """A command failed; the message is its first error."""


def main(arguments: Sequence[str]) -> int:
    """Compile as the module's docstring says; return the exit code."""
    source, target, settings_path, nvcc, *given = arguments
    settings: dict[str, Any] = json.loads(Path(settings_path).read_text(encoding="utf-8"))
    try:
        parts = split(Path(source).read_text(encoding="utf-8", errors="surrogatepass"))
        report = Build(Path(source), Path(target), settings, nvcc, given).run(parts)
    except (Unsplittable, flags.UnknownFlag, LookupError, Failed) as reason:
        sys.stdout.write(f"{reason}\n")
        return 1
    sys.stdout.write(report)
    return 0


class Build:
    """The build of one source in two parts."""

    def __init__(
        self, source: Path, target: Path, settings: dict[str, Any], nvcc: str, arguments: Sequence[str]
    ) -> None:
        self._source = source
        self._target = target
        self._settings = settings
        self._nvcc = nvcc
        self._arguments = arguments
        self._folder = Path(f"{target}.split")

    def run(self, parts: Parts) -> str:
        """Create the object and return nvcc's output.

        Raises `Failed`, `UnknownFlag` and `LookupError`.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        host_flags = flags.for_host(self._arguments, self._settings["cxx"])
        if parts.templates:
            listing = self._host(parts, host_flags)
            report = self._device(parts, symbols.instances(self._demangled(symbols.kernels_in(listing))))
        else:
            with ThreadPoolExecutor(1) as pool:
                device = pool.submit(self._device, parts, "")
                listing = self._host(parts, host_flags)
                report = device.result()
        used = symbols.kernels_in(listing)
        if missing := set(used) - symbols.entries_in(report):
            raise Failed(f"the device part has no kernel {min(missing)}")
        table = [*(symbols.Symbol(name=name) for name in used), *symbols.variables_in(listing, parts.variables)]
        self._join(table)
        if (bindings := self._settings.get("bindings")) is not None:
            Path(bindings["marker"]).write_bytes(_EMPTY_ARCHIVE)
        return report

    def _host(self, parts: Parts, given: Sequence[str]) -> str:
        """Compile the host part; return `nm`'s listing of it."""
        path, made = self._folder / "host.cpp", self._folder / "host.o"
        before, after, names = "", "", []
        if (bindings := self._settings.get("bindings")) is not None:
            before, after, names = bindings["before"], bindings["after"], bindings["names"]
        opening = f'#include "{_INCLUDE}/harness_split.h"\n{before}#line 1 "{self._source}"\n'
        path.write_text(opening + parts.host + after, encoding="utf-8", errors="surrogatepass")
        folders = (item for folder in self._settings["include"] for item in ("-isystem", folder))
        command = [self._settings["cxx"], *self._settings["host_flags"], *given, *folders]
        _run([*command, "-c", str(path), "-o", str(made)])
        listing = _run(["nm", "-S", str(made)])
        for name in names:
            if symbols.linkage(listing, name) != ["T"]:
                raise Failed(f"{name} is not one function that other units see")
        return listing

    def _device(self, parts: Parts, more: str) -> str:
        """Compile the device part; return nvcc's output."""
        path, made = self._folder / "device.cu", self._folder / "device.fatbin"
        text = f'{_PRELUDE}#line 1 "{self._source}"\n{parts.device}\n{more}'
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        given = flags.for_device(self._arguments, self._settings["torch"])
        return _run([self._nvcc, *given, "-fatbin", str(path), "-o", str(made)])

    def _demangled(self, names: Sequence[str]) -> list[str]:
        return _run(["c++filt", *names]).splitlines() if names else []

    def _join(self, table: Sequence[symbols.Symbol]) -> None:
        path = self._folder / "fatbin.s"
        path.write_text(symbols.assembler(self._folder / "device.fatbin", table), encoding="utf-8")
        host = str(self._folder / "host.o")
        _run([self._settings["cxx"], "-r", "-nostdlib", host, str(path), "-o", str(self._target)])


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        first = next((line for line in done.stdout.splitlines() if "error" in line), done.stdout[:200])
        raise Failed(first.strip())
    return done.stdout


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
