"""Decide whether torch's full headers could fix an error with lean ones.

Untrusted side: `python -I fallback.py LOG SOURCE FOLDER...` runs in the builder's sandbox, from the script of
`ninja_file.py`; `hostcuda/translate/compile.py` calls it there too. It imports nothing of the harness. Exit code
`OWN_FAULT` means that the error would remain with the full headers; otherwise the source is compiled again. See
guides/design/split_builds.md.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

OWN_FAULT = 3
"""Exit code if the full headers would not fix the error."""

_QUOTES = str.maketrans("\u2018\u2019", "''")
"""Quotes that g++ prints if its language is not set."""

_ALSO = re.compile(r" \{aka '[^']*'\}")
"""g++'s note of a type's other name."""

_DETAIL_LINES = 12
"""Lines of a message after its first one: types, candidates, the source line."""

_PTXAS = re.compile(r"^ptxas .*(?:error|fatal)", re.M)
_EDG = re.compile(r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (?P<message>.*)$")
_GCC = re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<message>.*)$")
_ANY = re.compile(r"^[^\s(:][^(:\n]*(?:\(\d+\)|:\d+:(?:\d+:)?): ")

_NO_FILE = (
    re.compile(r"([^ :]+): No such file or directory"),
    re.compile(r'cannot open source file "([^"]+)"'),
)
_UNKNOWN = (
    re.compile(r'identifier "(\w+)" is undefined'),
    re.compile(r"'(\w+)' (?:was not declared in this scope|has not been declared|does not name a type)"),
)
_NO_MEMBER = (
    re.compile(r'(?P<owner>.*) has no (?:actual )?member "(?P<name>\w+)"'),
    re.compile(r"'(?P<name>\w+)' is not a member of '(?P<owner>[^']*)'"),
    re.compile(r"'(?P<owner>[^']*)' has no member named '(?P<name>\w+)'"),
)
_WHOLE = re.compile(r"(?:using Tensor = |class |const )*\"?at::Tensor(?:Base)?\"?")
"""torch's classes that lean headers contain completely."""

_SYNTAX = re.compile(
    r"expected |unrecognized token|missing closing quote|missing terminating |a variable length array "
    r"|\"[^\"]*\" has already been declared in the current scope"
)
"""Syntax errors. Unknown types and macros also cause them; words that may be macros are checked (`_macros`)."""

_TWICE = re.compile(r".*\((?:declared|previous definition) at line \d+\)$")
_ABOVE = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):\d+:(?:\d+:)? note: (?:.* previously (?:defined|declared) here"
    r"|previous declaration as )",
    re.M,
)
_CALLS = re.compile(r"calling a __(?:host|device)__ function")

_COUNTS = re.compile(
    r"too (?:many|few) arguments (?:in function call|to function )|expression must (?:have|be) "
    r"|expression preceding parentheses of apparent call must have |incomplete type \"nvcuda::"
)
"""Errors that are checked together with their line, because the message may not name the called function."""

_TYPED = re.compile(
    r"a value of type .* cannot be (?:assigned to|used to initialize) an entity of type "
    r"|argument of type .* is incompatible with parameter of type "
    r"|no operator \"[^\"]*\" matches th(?:ese|is) operand|no match for 'operator[^\w']+' \(operand types? "
    r"|no instance of (?:overloaded function|function template) \"\w+\" matches the argument list"
    r"|no suitable (?:user-defined conversion|conversion function|constructor) "
    r"|return value type does not match the function type"
    r"|invalid (?:type conversion|conversion from|operands of types )|(?:cannot|could not) convert '"
)
_TYPES = re.compile(r"\b(?:operand|argument|object) types? (?:are|is): ")

_TORCHS = re.compile(r"\b(?:at|torch|c10|caffe2|pybind11|py)::")
_THEIRS = re.compile(rf"{_TORCHS.pattern}|\b(?:std|thrust|cub|cuda)::|<error-type>")
_KNOWN = re.compile(
    r"\b(?:at|torch)::Tensor\b(?!::)"
    r"|\bc10::(?:ScalarType|Scalar|DeviceType|Device|TensorOptions|Layout|MemoryFormat)\b(?!::)"
    r"|\bc10::ArrayRef<(?:int64_t|long)>(?!::)|\bstd::nullptr_t\b"
    r"|\bstd::(?:vector|initializer_list)<(?:int64_t|long|int|float|double|bool)(?:, std::allocator<\w+>)?>"
)
"""Types that lean headers contain completely: the ones for creating and querying tensors."""

_NO_OVERLOAD = re.compile(
    r"no instance of overloaded function \"(?:at|torch)::(\w+)\" matches the argument list"
    r"|no matching function for call to '(\w+)\("
)
_NO_METHOD = re.compile(
    r"no instance of overloaded function \"at::Tensor(?:Base)?::\w+\" matches the argument list"
    r"|no matching function for call to 'at::Tensor(?:Base)?::\w+\("
)
_IN_MORE_HEADERS = re.compile(
    "conj|from_blob|is_(?:complex|conj|floating_point|inference|neg|signed)|numel|size|std|std_mean|stride|tensor|var"
    "|var_mean"
)
"""Operators with overloads outside their own header, which is the one that lean units include."""

_MACRO = re.compile(r"\b[A-Z][A-Z0-9_]{2,}\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """A compiler error: place, first line of the message, and the lines after it."""

    file: str
    line: int
    message: str
    details: tuple[str, ...]


def first_error(log: str) -> Error | None:
    """Return the first error of nvcc's front end or of g++, or None."""
    lines = log.translate(_QUOTES).splitlines()
    for number, line in enumerate(lines):
        found = _EDG.match(line) or _GCC.match(line)
        if found is None:
            continue
        details: list[str] = []
        for more in lines[number + 1 : number + 1 + _DETAIL_LINES]:
            if _ANY.match(more):
                break
            details.append(more)
        message = _ALSO.sub("", found["message"])
        return Error(file=found["file"], line=int(found["line"]), message=message, details=tuple(details))
    return None


def own_fault(log: str, name: str, text: str, *, stands: Callable[[str], bool], macro: Callable[[str], bool]) -> bool:
    """Whether a source would not compile with the full headers either.

    Args:
        log: The compiler's output with lean headers.
        name: The source's file name.
        text: Its text.
        stands: Says whether a word occurs in the full headers, or a file of this name is among them.
        macro: Says whether the full headers define a word as a macro.
    """
    if _PTXAS.search(log):
        return True
    error = first_error(log)
    if error is None:
        return False
    for pattern in _NO_FILE:
        if (found := pattern.search(error.message)) is not None:
            return not stands(found[1])
    if Path(error.file).name != Path(name).name:
        return False
    for pattern in _UNKNOWN:
        if (found := pattern.match(error.message)) is not None:
            return not stands(found[1]) or _out_of_reach(found[1], error, text, macro)
    for pattern in _NO_MEMBER:
        if (found := pattern.match(error.message)) is not None:
            return not stands(found["name"]) or _WHOLE.fullmatch(found["owner"]) is not None
    if (found := _NO_OVERLOAD.match(error.message)) is not None:
        called = found[1] or found[2]
        if _IN_MORE_HEADERS.fullmatch(called) or (stands(called) and not stands(f"ATen/ops/{called}.h")):
            return False
    elif not _NO_METHOD.match(error.message) and not _is_own(error, log):
        return False
    if not _leaves_torch_out(error):
        return False
    return not any(macro(word) for word in _macros(error, text))


def _is_own(error: Error, log: str) -> bool:
    """Whether an error is of a kind that missing declarations can't cause.

    Declarations of the types that it names may still matter.
    """
    if _SYNTAX.match(error.message) or _TWICE.match(error.message):
        return True
    if "redefinition of '" in error.message or "conflicting declaration '" in error.message:
        above = _ABOVE.search(log.translate(_QUOTES))
        return above is not None and above["file"] == error.file
    if _CALLS.match(error.message):
        return _TORCHS.search(error.message) is None
    return _COUNTS.match(error.message) is not None or _TYPED.match(error.message) is not None


def _leaves_torch_out(error: Error) -> bool:
    """Whether an error involves only types that lean headers contain completely.

    These are the language's types, the author's, and those of `_KNOWN`. For some kinds of errors, all details count.
    """
    named: list[str] = []
    if any(kind.match(error.message) for kind in (_NO_OVERLOAD, _NO_METHOD, _TYPED)):
        message = re.sub(r"(?<=function \")\w+::(?:Tensor(?:Base)?::)?|(?<=')at::Tensor(?:Base)?::", "", error.message)
        types = [line for line in error.details if _TYPES.search(line)]
        if message.startswith(("no instance of ", 'no operator "')) and not types:
            return False
        named = [message, *types]
    elif _COUNTS.match(error.message):
        named = [error.message, *error.details]
    return not any(_THEIRS.search(_KNOWN.sub("T", line)) for line in named)


def _macros(error: Error, text: str) -> list[str]:
    """Return words near the error's line that may be macros of a header."""
    lines = text.splitlines()
    around = "\n".join(lines[max(0, error.line - 2) : error.line + 1])
    defined = set(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", text, re.M))
    return sorted(set(_MACRO.findall(around)) - defined)


def _out_of_reach(name: str, error: Error, text: str, macro: Callable[[str], bool]) -> bool:
    """Whether a name stays unknown although it occurs in the full headers.

    True if an unqualified name is used as a variable: the headers' variables are in namespaces. A called name can be
    found through its arguments, and a type or a macro may be anywhere.
    """
    if re.search(r"\busing\s+namespace\b", text) or not re.fullmatch(r"[a-z]\w*", name):
        return False
    line = "\n".join(text.splitlines()[error.line - 1 : error.line])
    is_value = re.search(rf"\[\s*{name}\b\s*[-+/%\]]|(?<![<(:\w]){name}\s*[-+/%\]\[=;)](?!\s*>)", line) is not None
    is_called = re.search(rf"\b{name}\s*(?:\(|<|::)", text) is not None
    return is_value and not is_called and not macro(name)


def searched(folders: Sequence[str]) -> tuple[Callable[[str], bool], Callable[[str], bool]]:
    """Return `stands` and `macro` of `own_fault` for the headers in these folders."""

    def stands(name: str) -> bool:
        if not re.fullmatch(r"\w+", name):
            return any((Path(folder) / name).exists() for folder in folders)
        return _grep("-rqwF", name, folders)

    def macro(name: str) -> bool:
        return _grep("-rqE", rf"^[[:space:]]*#[[:space:]]*define[[:space:]]+{name}\b", folders)

    return stands, macro


def _grep(options: str, pattern: str, folders: Sequence[str]) -> bool:
    """Whether grep finds a pattern, or fails: the pattern may be there then."""
    command = ["grep", options, "-e", pattern, *folders]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return done.returncode != 1


def main(log: str, source: str, folders: Sequence[str]) -> int:
    stands, macro = searched(folders)
    said, text = (Path(path).read_text(encoding="utf-8", errors="replace") for path in (log, source))
    return OWN_FAULT if own_fault(said, source, text, stands=stands, macro=macro) else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
