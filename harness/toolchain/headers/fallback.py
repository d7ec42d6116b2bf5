"""Whether torch's full headers might mend what did not compile with lean ones:

    python -I fallback.py LOG SOURCE FOLDER...

Charter: run by the script of `build.recipe` in the builder's sandbox, alone, and asked by `hostcuda.compile` there: so
it imports nothing of ours. Untrusted side: reads a source and what compilers said of it. To compile once more with the
full headers takes most of a minute of a processor, and most errors of model-written sources are not about torch. What
is not sure is compiled once more: exit code `OWN_FAULT` is for errors that would be there with the full headers, too.

Only the first error is looked at. What lean headers lack is a declaration: then the first thing that a compiler says is
that a name is not known, and what it says behind that may come of it (an object whose type is not known is not known
either). So an error of another kind that comes first is the author's: a semicolon that is missing, types that do not go
together. Kept apart are such that torch's types or macros have a part in, but for its class of tensors, which is whole.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

OWN_FAULT = 3
"""Exit code where the full headers would mend nothing."""

_QUOTES = str.maketrans("\u2018\u2019", "''")
"""Those of g++ where nobody has set its language."""

_ALSO = re.compile(r" \{aka '[^']*'\}")
"""What g++ says of a type that has another name, too."""

_DETAIL_LINES = 12
"""Of a message, behind its first line: types, candidates, the line of the source."""

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
"""Of torch's classes those that lean headers have all of."""

_SYNTAX = re.compile(
    r"expected |unrecognized token|missing closing quote|missing terminating |a variable length array "
    r"|\"[^\"]*\" has already been declared in the current scope"
)
"""Where a name is not known, that is said instead; macros in front of declarations are looked at (`_macros`)."""

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
"""Looked at with their line, since the message need not name what is called."""

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
"""Types that lean headers have all of: what tensors are made and asked with."""

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
"""Operators that have overloads elsewhere than in their own header, which lean units include."""

_MACRO = re.compile(r"\b[A-Z][A-Z0-9_]{2,}\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """An error of a compiler's: where, the first line of what it says, and the lines that follow."""

    file: str
    line: int
    message: str
    details: tuple[str, ...]


def first_error(log: str) -> Error | None:
    """The first error of nvcc's front end, or of g++."""
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
    """Whether the source `name` with this text would not compile with the full headers either.

    `stands` tells whether a word stands anywhere in the headers, or a file of this name among them; `macro` whether
    they define it as a macro.
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
    """Whether an error is of a kind that declarations have no part in, but for those of the types that it names."""
    if _SYNTAX.match(error.message) or _TWICE.match(error.message):
        return True
    if "redefinition of '" in error.message or "conflicting declaration '" in error.message:
        above = _ABOVE.search(log.translate(_QUOTES))
        return above is not None and above["file"] == error.file
    if _CALLS.match(error.message):
        return _TORCHS.search(error.message) is None
    return _COUNTS.match(error.message) is not None or _TYPED.match(error.message) is not None


def _leaves_torch_out(error: Error) -> bool:
    """Whether the types that an error is about are the language's, the author's, or such that lean headers have all
    of; of some kinds its line may not name others, either.
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
    """What may be macros, on the line of the error and those before and after it, and is none of the source's."""
    lines = text.splitlines()
    around = "\n".join(lines[max(0, error.line - 2) : error.line + 1])
    defined = set(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", text, re.M))
    return sorted(set(_MACRO.findall(around)) - defined)


def _out_of_reach(name: str, error: Error, text: str, macro: Callable[[str], bool]) -> bool:
    """Whether an unqualified name that stands somewhere in the headers would still not be known with all of them: it
    is a variable, where theirs are in namespaces. What is called is found by its arguments; what may be a type or a
    macro may be anywhere.
    """
    if re.search(r"\busing\s+namespace\b", text) or not re.fullmatch(r"[a-z]\w*", name):
        return False
    line = "\n".join(text.splitlines()[error.line - 1 : error.line])
    is_value = re.search(rf"\[\s*{name}\b\s*[-+/%\]]|(?<![<(:\w]){name}\s*[-+/%\]\[=;)](?!\s*>)", line) is not None
    is_called = re.search(rf"\b{name}\s*(?:\(|<|::)", text) is not None
    return is_value and not is_called and not macro(name)


def searched(folders: Sequence[str]) -> tuple[Callable[[str], bool], Callable[[str], bool]]:
    """`stands` and `macro` of `own_fault` for the headers in these folders."""

    def stands(name: str) -> bool:
        if not re.fullmatch(r"\w+", name):
            return any((Path(folder) / name).exists() for folder in folders)
        return _grep("-rqwF", name, folders)

    def macro(name: str) -> bool:
        return _grep("-rqE", rf"^[[:space:]]*#[[:space:]]*define[[:space:]]+{name}\b", folders)

    return stands, macro


def _grep(options: str, pattern: str, folders: Sequence[str]) -> bool:
    """Whether it is found. Where it can't be looked for, it may be there."""
    command = ["grep", options, "-e", pattern, *folders]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return done.returncode != 1


def main(log: str, source: str, folders: Sequence[str]) -> int:
    stands, macro = searched(folders)
    said, text = (Path(path).read_text(encoding="utf-8", errors="replace") for path in (log, source))
    return OWN_FAULT if own_fault(said, source, text, stands=stands, macro=macro) else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
