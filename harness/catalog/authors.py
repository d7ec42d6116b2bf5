"""Optional texts of authors: display name, model, notes.

They come from `author.yaml`, and from `authors` in a `run.yaml`. Records identify an author by the folder's name only;
these texts decide nothing. They are untrusted: their length is limited here, and pages escape them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

AUTHOR_TEXTS = ("display_name", "model", "notes")
"""Keys of an author's texts."""

MAX_NAME_CHARS = 100
"""Longest display name and model in characters; tables show them in cells."""

MAX_NOTES_CHARS = 2000
"""Longest notes in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """Texts of one author.

    Attributes:
        name: The folder's name, which identifies the author in records.
        display_name: Name to show; None if not given.
        model: Model that wrote the solutions; None if not given.
        notes: Free text; None if not given.
    """

    name: str
    display_name: str | None = None
    model: str | None = None
    notes: str | None = None

    def to_json(self) -> dict[str, str | None]:
        """Return the author's entry in `run.yaml`."""
        return {"display_name": self.display_name, "model": self.model, "notes": self.notes}


def author_of(name: str, said: Mapping[Any, Any]) -> Author:
    """Make an author from a mapping of `AUTHOR_TEXTS`.

    Texts are shortened to their limits; display name and model become one line. Empty values, other types and other
    keys are ignored.
    """
    return Author(
        name=name,
        display_name=_bounded(said.get("display_name"), MAX_NAME_CHARS, folded=True),
        model=_bounded(said.get("model"), MAX_NAME_CHARS, folded=True),
        notes=_bounded(said.get("notes"), MAX_NOTES_CHARS),
    )


def authors_in(head: Mapping[str, Any]) -> dict[str, Author]:
    """Return the authors in a `run.yaml`, by name.

    Invalid entries are ignored; older harnesses wrote none.
    """
    held = head.get("authors")
    if not isinstance(held, Mapping):
        return {}
    return {name: author_of(name, said) for name, said in held.items() if isinstance(name, str) and _is_entry(said)}


def authors_of_runs(heads: Iterable[Mapping[str, Any]]) -> dict[str, Author]:
    """Return the authors in several `run.yaml`, by name.

    Of different entries for one author, the newest counts.
    """
    found: dict[str, Author] = {}
    for head in sorted(heads, key=_written_at):
        found |= authors_in(head)
    return found


def _is_entry(said: object) -> bool:
    return isinstance(said, Mapping) and any(isinstance(said.get(key), str) for key in AUTHOR_TEXTS)


def _written_at(head: Mapping[str, Any]) -> str:
    """Return the ISO 8601 time of a run's start or last resumption, or ""."""
    resumed = head.get("resumed_at")
    times = [head.get("started_at", ""), *(resumed if isinstance(resumed, list) else [])]
    return max(str(time) for time in times)


def _bounded(text: object, limit: int, *, folded: bool = False) -> str | None:
    if not isinstance(text, str):
        return None
    # YAML escapes can produce lone surrogates, which can't be written to a file.
    whole = text.encode("utf-8", "replace").decode("utf-8")
    whole = " ".join(whole.split()) if folded else whole.strip()
    return (whole if len(whole) <= limit else f"{whole[: limit - 1]}…") or None
