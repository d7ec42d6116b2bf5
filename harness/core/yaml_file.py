"""Read text and YAML files strictly; errors name the line.

Trusted side. The files are untrusted.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from harness.core.status import one_line

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def reason_of(error: Exception) -> str:
    """Return an exception's message, without Python's number and path of `OSError`."""
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


class NotText(ValueError):
    """A file is not UTF-8.

    `byte` (from 0) and `line` (from 1) locate the first wrong byte.
    """

    def __init__(self, data: bytes, byte: int) -> None:
        self.byte = byte
        self.line = data.count(b"\n", 0, byte) + 1
        looks = " (it looks like UTF-16)" if data.startswith(_UTF_16) else ""
        super().__init__(f"line {self.line}: byte {byte} (0x{data[byte]:02x}) is not UTF-8{looks}")


def as_text(data: bytes) -> str:
    """Decode UTF-8 and remove a byte-order mark.

    Raises:
        NotText: The data are not UTF-8.
    """
    mark = len(_BYTE_ORDER_MARK) if data.startswith(_BYTE_ORDER_MARK) else 0
    try:
        return data[mark:].decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotText(data, mark + error.start) from None


def read_source(path: Path) -> str:
    """Read a UTF-8 file and remove a byte-order mark.

    Raises:
        OSError: The file can't be read.
        NotText: The file is not UTF-8.
    """
    return as_text(path.read_bytes())


def read_yaml(path: Path) -> Any:
    """Read a YAML file; tags and duplicate keys are errors.

    Raises:
        OSError: The file can't be read.
        ValueError: The file is not valid YAML (one line of text), or not UTF-8 (`NotText`).
    """
    text = read_source(path)
    try:
        return yaml.load(text, Loader=_StrictFast if _is_flat(text) else _Strict)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date like 2026-99-99; brackets without end
        raise ValueError(f"not valid YAML: {fault_of_yaml(error)}") from error


def fault_of_yaml(error: Exception) -> str:
    """Return one line that says what is wrong with a YAML text, with line and column."""
    return one_line(str(error).replace('in "<unicode string>", ', "at "))


def parse_yaml(text: str) -> Any:
    """Parse YAML; tags are errors, and the last one of duplicate keys counts.

    The result can be written out: it does not contain itself and has at most `MOST_VALUES` values.

    Raises:
        yaml.YAMLError: The text is not valid YAML, or has too many merged keys.
        ValueError: A value is invalid, contains itself, or is too large.
        RecursionError: The text nests too deep.
    """
    value = yaml.load(text, Loader=_MergingFast if _is_flat(text) else _Merging)
    _expect_writable(value)
    return value


MOST_VALUES = 1_000_000
"""Largest number of values of a file, with aliases expanded: nine lines can expand to more than a disk holds."""


def _expect_writable(value: Any) -> None:
    """Raise `ValueError` if `value` contains itself or is too large.

    With aliases expanded, it may have `MOST_VALUES` values.
    """
    sizes: dict[int, int] = {}
    begun: set[int] = set()
    pending = [(value, False)]
    while pending:
        item, is_over = pending.pop()
        if not isinstance(item, dict | list):
            continue
        held = list(item.values()) if isinstance(item, dict) else item
        if is_over:
            sizes[id(item)] = 1 + sum(sizes.get(id(part), 1) for part in held)
        elif id(item) not in sizes:
            if id(item) in begun:
                raise ValueError("a value that contains itself")
            begun.add(id(item))
            pending.append((item, True))
            pending += [(part, False) for part in held]
    if sizes.get(id(value), 1) > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES} values when aliases are expanded")


_Fast: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser if PyYAML has it: it takes a tenth of the time, and every command waits for it."""

_MOST_OPENED = 5000
_OPENS = re.compile(r"[\[{]|[-?][ \t]")


def _is_flat(text: str) -> bool:
    """Tell whether libyaml can parse the text without exhausting the stack.

    libyaml recurses at each level, and at about 10,000 levels the process dies. So many levels by indentation alone
    would need a file of megabytes.
    """
    return sum(1 for _ in _OPENS.finditer(text)) <= _MOST_OPENED


_MOST_PAIRS = 100_000
"""Largest number of keys of a file, with merges (`<<`) expanded: a few lines can expand to more than memory holds."""


class _StrictKeys:
    """Mixin of loaders: a duplicate key is an error."""

    _pairs = 0

    def flatten_mapping(self, node: Any) -> None:
        super().flatten_mapping(node)  # type: ignore[misc]
        # PyYAML calls this once for each merge of a mapping, before it copies the mapping.
        self._pairs += len(node.value)
        if self._pairs > _MOST_PAIRS:
            raise yaml.constructor.ConstructorError(None, None, f"more than {_MOST_PAIRS} keys", node.start_mark)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a word", key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"duplicate key `{key.value}`", key.start_mark)
            seen.add(key.value)
        held: dict[Any, Any] = super().construct_mapping(node, deep)  # type: ignore[misc]
        return held


class _FewMerged:
    """Mixin of loaders: a merge that gives too many keys is an error.

    The check comes before the merge takes all memory.
    """

    _merged = 0

    def flatten_mapping(self, node: Any) -> None:
        merges = any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value)
        super().flatten_mapping(node)  # type: ignore[misc]
        self._merged += len(node.value) if merges else 0
        if self._merged > _MOST_PAIRS:
            raise yaml.constructor.ConstructorError(None, None, f"more than {_MOST_PAIRS} keys", node.start_mark)


class _Merging(_FewMerged, yaml.SafeLoader):
    """PyYAML's safe loader with limited merging."""


class _MergingFast(_FewMerged, _Fast):  # type: ignore[misc]
    """libyaml's safe loader with limited merging."""


class _Strict(_StrictKeys, yaml.SafeLoader):
    """PyYAML's safe loader with strict keys."""


class _StrictFast(_StrictKeys, _Fast):  # type: ignore[misc]
    """libyaml's safe loader with strict keys."""
