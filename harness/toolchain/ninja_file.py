"""Write the ninja file of a build: fast path, then lean, then full headers.

Trusted side. Flags are written unquoted, as torch does, so that the shell that ninja starts in the sandbox splits them
the same way: `["-O3 -march=native"]` is two flags, and a bad flag fails as it does in torch.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from harness.toolchain.diagnostics import NOTE
from harness.toolchain.headers import fallback
from harness.toolchain.headers.fallback import OWN_FAULT
from harness.toolchain.toolchain import LEAN_FAILED, QUICK_FAILED
from harness.toolchain.units import Unit

OWN = ".harness"
"""Folder of the harness's own files in a build folder; no source file's name begins with a dot."""

SCRIPT = f"{OWN}/try_lean.sh"
"""Arguments: source, object, the option that adds lean headers, and the command without it."""

_TRY_LEAN = f"""\
# Compile with lean headers. If that fails, compile with the full ones, whose messages count,
# unless the author's code is certainly at fault (fallback.py).
export LC_ALL=C
source=$1 object=$2 lean=$3 compiler=$4
log=$object.lean.log
shift 4
if "$compiler" "$lean" "$@" > "$log" 2>&1; then
  cat "$log"
  exit 0
fi
rm -f "$object"
{{python}} -I {{fallback}} "$log" "$source" {{folders}}
if [ $? -eq {OWN_FAULT} ]; then
  cat "$log"
  exit 1
fi
echo "{LEAN_FAILED} $source, which starts over with the full ones; the first error was:"
grep -m 1 -i error "$log" | sed "s/^/{NOTE}   /"
exec "$compiler" "$@"
"""


_QUICK = (
    "if $quick > $out.quick 2>&1; then cat $out.quick; else rm -f $out; "
    f'echo "{QUICK_FAILED} $in: $$({{{{ grep -m 1 error $out.quick || head -n 1 $out.quick; }}}} | cut -c 1-300)"; '
    "{patient}; fi"
)


def _escaped(path: str) -> str:
    """Escape a path for ninja's list of inputs."""
    return path.replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


def try_lean(headers: Sequence[Path]) -> str:
    """Return the text of `SCRIPT`; `headers` are all folders of full headers."""
    return _TRY_LEAN.format(
        python=shlex.quote(sys.executable),
        fallback=shlex.quote(fallback.__file__),
        folders=" ".join(shlex.quote(str(folder)) for folder in headers),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Compilers and their flags; `nvcc` is None if no unit needs it."""

    cxx: str
    cxx_flags: Sequence[str]
    nvcc: str | None
    nvcc_flags: Sequence[str]
    link_flags: Sequence[str]

    def build_file(
        self,
        units: Sequence[Unit],
        product: str,
        lean: Mapping[str, str],
        *,
        quick: Mapping[str, str] = MappingProxyType({}),
        after: Mapping[str, str] = MappingProxyType({}),
        libraries: Sequence[Path] = (),
        prefix: str = "",
    ) -> str:
        """Return the text of the ninja file.

        Args:
            units: Files to compile.
            product: File name of the module.
            lean: Maps files to the option that adds lean headers; all other files use the full headers.
            quick: Maps some files of `lean` to a command that is tried first. It may contain `$cxx $cflags` and
                `$nvcc $cuda_cflags`.
            after: Maps some files of `quick` to the object that must exist before.
            libraries: Static libraries of the harness that are linked if a unit uses them.
            prefix: Put before the names of the objects.
        """
        variables = {"cxx": self.cxx, "cflags": " ".join(self.cxx_flags)}
        if self.nvcc is not None:
            variables |= {"nvcc": self.nvcc, "cuda_cflags": " ".join(self.nvcc_flags)}
        variables["ldflags"] = " ".join(self.link_flags)
        lines = ["ninja_required_version = 1.3"]
        lines += (f"{name} = {' '.join(value.splitlines())}" for name, value in variables.items())
        for rule, flags in (("cxx", "$cflags"), ("nvcc", "$cuda_cflags")):
            command = f"${rule} {flags} -c $in -o $out"
            lines += [f"rule {rule}", f"  command = {command}"]
            patient = f"sh {SCRIPT} $in $out $lean {command}"
            lines += [f"rule {rule}_lean", f"  command = {patient}"]
            lines += [f"rule {rule}_quick", f"  command = {_QUICK.format(patient=patient)}"]
        lines += ["rule link", "  command = $cxx $in $ldflags -o $out"]
        objects = []
        for unit in units:
            objects.append(f"{prefix}{unit.object}")
            rule = "nvcc" if unit.cuda else "cxx"
            option, first = lean.get(unit.file), quick.get(unit.file)
            if option is not None and first is not None:
                first_made = f" | {after[unit.file]}" if unit.file in after else ""
                lines += [f"build {objects[-1]}: {rule}_quick {unit.file}{first_made}", f"  lean = {option}"]
                lines += [f"  quick = {first}"]
            elif option is not None:
                lines += [f"build {objects[-1]}: {rule}_lean {unit.file}", f"  lean = {option}"]
            else:
                lines.append(f"build {objects[-1]}: {rule} {unit.file}")
        inputs = " ".join([*objects, *(_escaped(str(path)) for path in libraries)])
        lines += [f"build {product}: link {inputs}", f"default {product}", ""]
        return "\n".join(lines)
