"""Complete words of options and arguments in a shell.

A completion runs at each press of a key, so it reads names of files, no contents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import typer

from harness.catalog.problems import ids_in
from harness.core.choices import Baseline

Complete = Callable[..., list[str]]


def one_of_words(words: Sequence[str]) -> Complete:
    """Return a completion to one of these words."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


def problem_ids(context: typer.Context, incomplete: str) -> list[str]:
    """Complete a problem id, or the last one of several with commas."""
    earlier, comma, word = incomplete.rpartition(",")
    root = context.params.get("problems") or Path("problems")
    return [f"{earlier}{comma}{each}" for each in ids_in(Path(root)) if each.startswith(word)]


def baseline_names(incomplete: str) -> list[str]:
    """Complete the name of a baseline; also the last one of several with commas."""
    earlier, comma, word = incomplete.rpartition(",")
    return [f"{earlier}{comma}{each.value}" for each in Baseline if each.value.startswith(word)]


COMPLETIONS: Mapping[str, Complete] = {"problem": problem_ids, "baselines": baseline_names}
"""Key of a setting -> completion of its option, if it takes more than a fixed choice."""
