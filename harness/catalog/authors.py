"""Authors as they introduce themselves: a name to show, a model, notes; in `run.yaml` under `authors`, and beside rows.

Pure; imports nothing of the harness. An author is known by the folder's name, in records and everywhere; what is held
here decides nothing and joins nothing. It is the author's own text, unproven: bounded here, escaped where it is shown.

    authors:
      some-model: {display_name: Some Model, model: some-model-2, notes: null}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

AUTHOR_TEXTS = ("display_name", "model", "notes")
"""What an author may say."""

MAX_NAME_CHARS = 100
"""Longest display name and longest model that are kept; they stand in cells of tables."""

MAX_NOTES_CHARS = 2000
"""Longest notes that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """What one author says. `name` is the folder's, by which records know the author; None is what was not said."""

    name: str
    display_name: str | None = None
    model: str | None = None
    notes: str | None = None

    def to_json(self) -> dict[str, str | None]:
        """The entry below `name` in `run.yaml`."""
        return {"display_name": self.display_name, "model": self.model, "notes": self.notes}


def author_of(name: str, said: Mapping[Any, Any]) -> Author:
    """What `said` holds under `AUTHOR_TEXTS`, bounded: display name and model one line of `MAX_NAME_CHARS` each, notes
    `MAX_NOTES_CHARS`. What is empty or no text was not said; other keys are passed over.
    """
    return Author(
        name=name,
        display_name=_bounded(said.get("display_name"), MAX_NAME_CHARS, folded=True),
        model=_bounded(said.get("model"), MAX_NAME_CHARS, folded=True),
        notes=_bounded(said.get("notes"), MAX_NOTES_CHARS),
    )


def authors_in(head: Mapping[str, Any]) -> dict[str, Author]:
    """The authors that a `run.yaml` tells of, by name; none where it has no such key, as those of older harnesses. An
    entry that is none is passed over: nothing hangs on it.
    """
    held = head.get("authors")
    if not isinstance(held, Mapping):
        return {}
    return {name: author_of(name, said) for name, said in held.items() if isinstance(name, str) and _is_entry(said)}


def authors_of_runs(heads: Iterable[Mapping[str, Any]]) -> dict[str, Author]:
    """The authors that several `run.yaml` tell of. Of two that differ on one, that counts which was written later."""
    found: dict[str, Author] = {}
    for head in sorted(heads, key=_written_at):
        found |= authors_in(head)
    return found


def _is_entry(said: object) -> bool:
    return isinstance(said, Mapping) and any(isinstance(said.get(key), str) for key in AUTHOR_TEXTS)


def _written_at(head: Mapping[str, Any]) -> str:
    """When a run was begun or last resumed, as its ISO 8601 text; empty where that is not known."""
    resumed = head.get("resumed_at")
    times = [head.get("started_at", ""), *(resumed if isinstance(resumed, list) else [])]
    return max(str(time) for time in times)


def _bounded(text: object, limit: int, *, folded: bool = False) -> str | None:
    if not isinstance(text, str):
        return None
    # Halves of surrogates, which escapes in YAML can make, could not be written to a file.
    whole = text.encode("utf-8", "replace").decode("utf-8")
    whole = " ".join(whole.split()) if folded else whole.strip()
    return (whole if len(whole) <= limit else f"{whole[: limit - 1]}…") or None
