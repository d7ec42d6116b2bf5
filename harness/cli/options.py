"""Make the options of a command from the settings and from dataclasses.

Trusted side. `harness.core.config` declares the settings.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, get_args, get_type_hints

import typer

from harness.cli.completion import COMPLETIONS
from harness.cli.output import choice, option
from harness.core.config import KEYS, TIMING_KEYS, RunConfig, Setting, TimingConfig

_DECLARED: Mapping[str, Setting] = {**KEYS, **TIMING_KEYS}
_TYPES = {**get_type_hints(RunConfig), **get_type_hints(TimingConfig)}

MOST_SHOWN = 8
"""Most words of a choice that its help lists."""

Settings = Mapping[str, object]
"""Settings that options of the command line gave, by key, as `harness.core.config.resolve` takes them."""


def with_options(*order: str, **texts: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command one option for each setting and for each field of a dataclass.

    The command's parameter `settings` gets the given settings. A parameter whose type is a dataclass stands for its
    fields, each annotated with its option.

    Args:
        *order: Keys of settings and names of other parameters, in the order of the help. Parameters that are not
            named are last.
        **texts: Key of a setting -> help of its option for this command, if it differs.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        found = inspect.signature(command, eval_str=True).parameters.values()
        own = {item.name: item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for item in found}
        grouped: dict[str, Any] = {
            name: item.annotation for name, item in own.items() if dataclasses.is_dataclass(item.annotation)
        }
        for name, kind in grouped.items():
            del own[name]
            hints = get_type_hints(kind, include_extras=True)
            parts = {
                item.name: _keyword(item.name, hints[item.name], item.default) for item in dataclasses.fields(kind)
            }
            own = parts | own
        keys = [key for key in order if key in _DECLARED and key not in own]
        if own.pop("settings", None) is not None:
            own |= {key: _setting_option(key, texts.get(key)) for key in keys}
        parameters = [own.pop(name) for name in ("context", *order) if name in own]
        parameters += own.values()

        def run(**values: Any) -> None:
            if keys:
                values["settings"] = {key: _given(key, values.pop(key)) for key in keys}
            for name, kind in grouped.items():
                values[name] = kind(**{item.name: values.pop(item.name) for item in dataclasses.fields(kind)})
            command(**values)

        run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {item.name: item.annotation for item in parameters}
        return run

    return decorate


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    unset = inspect.Parameter.empty if default is dataclasses.MISSING else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=unset, annotation=annotation)


def _setting_option(key: str, text: str | None) -> inspect.Parameter:
    declared = _DECLARED[key]
    text, name = text or declared.help, declared.option or f"--{key.replace('_', '-')}"
    if declared.option is None:
        return _keyword(key, Annotated[list[Path] | None, typer.Argument(metavar=key.upper(), help=text)], None)
    kinds = get_args(_TYPES[key]) if isinstance(_TYPES[key], UnionType) else (_TYPES[key],)
    kind = declared.kind or next((item for item in (bool, int, float, Path) if item in kinds), str)
    if kind is bool:
        return _keyword(key, Annotated[bool, typer.Option(name, help=text)], False)
    if declared.choices:
        declaration = choice(name, declared.choices, text, shown=len(declared.choices) <= MOST_SHOWN)
    else:
        declaration = option(name, text, complete=COMPLETIONS.get(key))
    return _keyword(key, Annotated[kind | None, declaration], None)


def _given(key: str, value: object) -> object:
    """Return the setting that an option gave; None if it was not given."""
    default = _DECLARED[key].default
    if isinstance(default, bool):
        return (not default) if value else None
    return value or None if key == "paths" else value
