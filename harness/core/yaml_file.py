"""Files of text and of YAML, read strictly: what is wrong is named by its line.

Edge; imports the vocabulary. Trusted side, reading untrusted files. Nothing is executed.
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
    """What an exception of reading says, without the number and the path that Python puts around an `OSError`'s."""
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


class NotText(ValueError):
    """A file is not UTF-8. `byte` (from 0) and `line` (from 1) are where the first wrong one is."""

    def __init__(self, data: bytes, byte: int) -> None:
        self.byte = byte
        self.line = data.count(b"\n", 0, byte) + 1
        looks = " (it looks like UTF-16)" if data.startswith(_UTF_16) else ""
        super().__init__(f"line {self.line}: byte {byte} (0x{data[byte]:02x}) is not UTF-8{looks}")


def as_text(data: bytes) -> str:
    """UTF-8 as text, a byte-order mark removed. Raises `NotText`."""
    mark = len(_BYTE_ORDER_MARK) if data.startswith(_BYTE_ORDER_MARK) else 0
    try:
        return data[mark:].decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotText(data, mark + error.start) from None


def read_source(path: Path) -> str:
    """The UTF-8 text of a file, a byte-order mark removed. Raises `OSError`, `NotText`."""
    return as_text(path.read_bytes())


def read_yaml(path: Path) -> Any:
    """A YAML file without tags and without a key twice. Raises `OSError`, or `ValueError` with one line."""
    text = read_source(path)
    try:
        return yaml.load(text, Loader=_StrictFast if _is_flat(text) else _Strict)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date like 2026-99-99; brackets without end
        raise ValueError(f"not valid YAML: {fault_of_yaml(error)}") from error


def fault_of_yaml(error: Exception) -> str:
    """What is wrong with a YAML text, and at which line and column of it, in one line."""
    return one_line(str(error).replace('in "<unicode string>", ', "at "))


def parse_yaml(text: str) -> Any:
    """Any YAML without tags; of a key given twice the last one counts. Raises `yaml.YAMLError`, `ValueError` and
    `RecursionError`. What it gives can be written out: it does not contain itself, and has at most `MOST_VALUES`.
    """
    value = yaml.load(text, Loader=_MergingFast if _is_flat(text) else _Merging)
    _expect_writable(value)
    return value


MOST_VALUES = 1_000_000
"""Of a file, each counted as often as an alias repeats it: nine lines can stand for more than any disk holds."""


def _expect_writable(value: Any) -> None:
    """Raises `ValueError` where writing `value` out would never end, or nearly so."""
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
        raise ValueError(f"more than {MOST_VALUES} values, as often as they are repeated")


_Fast: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser where PyYAML was built with it: a tenth of the time, and every command waits for it."""

_MOST_OPENED = 5000
_OPENS = re.compile(r"[\[{]|[-?][ \t]")


def _is_flat(text: str) -> bool:
    """Whether libyaml may see it: composing, it calls itself for each level until the stack is used up, which ends the
    process (at some ten thousand levels). Levels that lines' indents open take a file of megabytes to be so many.
    """
    return sum(1 for _ in _OPENS.finditer(text)) <= _MOST_OPENED


_MOST_PAIRS = 100_000
"""Keys at most in a file, as often as merging (`<<`) repeats them: a few lines can ask for more than memory holds."""


class _StrictKeys:
    """A key given twice is an error instead of the last one winning."""

    _pairs = 0

    def flatten_mapping(self, node: Any) -> None:
        super().flatten_mapping(node)  # type: ignore[misc]
        # What is merged comes by here once for every time that it is, before it is copied.
        self._pairs += len(node.value)
        if self._pairs > _MOST_PAIRS:
            raise yaml.constructor.ConstructorError(None, None, f"more than {_MOST_PAIRS} keys", node.start_mark)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a word", key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"`{key.value}` stands twice", key.start_mark)
            seen.add(key.value)
        held: dict[Any, Any] = super().construct_mapping(node, deep)  # type: ignore[misc]
        return held


class _FewMerged:
    """Merging that comes to too many keys is an error, before it takes all memory."""

    _merged = 0

    def flatten_mapping(self, node: Any) -> None:
        merges = any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value)
        super().flatten_mapping(node)  # type: ignore[misc]
        self._merged += len(node.value) if merges else 0
        if self._merged > _MOST_PAIRS:
            raise yaml.constructor.ConstructorError(None, None, f"more than {_MOST_PAIRS} keys", node.start_mark)


class _Merging(_FewMerged, yaml.SafeLoader):
    """PyYAML's safe loader, with such merging."""


class _MergingFast(_FewMerged, _Fast):  # type: ignore[misc]
    """libyaml's, with such merging."""


class _Strict(_StrictKeys, yaml.SafeLoader):
    """PyYAML's safe loader, with strict keys."""


class _StrictFast(_StrictKeys, _Fast):  # type: ignore[misc]
    """libyaml's, with strict keys."""
