"""Convert between dataclasses and JSON values, validated by their annotations.

Both sides. `Path`, enums, tuples and nested dataclasses are converted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

T = TypeVar("T")

_FAULT = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<place>.*)`)?", re.DOTALL)
_TYPES = re.compile(r"Expected `(?P<wanted>.*?)`(?:, got `(?P<got>.*?)`)?", re.DOTALL)


class JsonObject:
    """Base of dataclasses that travel as JSON objects."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a JSON object."""
        value: dict[str, Any] = to_json(self)
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`.

        Raises:
            ValueError: A field is missing or has another type; the message names it.
        """
        return from_json(value, cls)


def to_json(value: object, *, path: Callable[[Path], str] = str) -> Any:
    """Return a dataclass as JSON values; `path` gives the text of a path."""
    return _lists(
        msgspec.to_builtins(value, enc_hook=lambda item: path(item) if isinstance(item, Path) else _plain(item))
    )


def _lists(value: Any) -> Any:
    """Replace tuples by lists."""
    if isinstance(value, dict):
        return {name: _lists(item) for name, item in value.items()}
    return [_lists(item) for item in value] if isinstance(value, list | tuple) else value


def from_json(value: object, kind: type[T]) -> T:
    """Read a JSON value as a `kind`.

    Raises:
        ValueError: A field is missing or has another type; the message names it.
    """
    try:
        return msgspec.convert(value, kind, dec_hook=_special)
    except msgspec.ValidationError as error:
        raise ValueError(fault_of(error)) from error


def fault_of(error: msgspec.ValidationError) -> str:
    """Return what is wrong with which field: "`labels` must be str, not int, at [0]"."""
    fault = _FAULT.fullmatch(str(error))
    assert fault is not None
    name, inside = re.fullmatch(r"(\w*)(.*)", fault["place"] or "", re.DOTALL).groups()  # type: ignore[union-attr]
    where = f", at {inside}" if inside else ""
    types = _TYPES.fullmatch(fault["what"])
    if types is None:
        return f"`{name}`: {fault['what']}{where}" if name else fault["what"]
    got = f", not {types['got']}" if types["got"] else ""
    return f"`{name or 'value'}` must be {types['wanted']}{got}{where}"


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    for base in (int, float, str):  # subclasses, such as the numbers of numpy
        if isinstance(value, base):
            return base(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


def _special(kind: type, value: Any) -> Any:
    return kind(value)
