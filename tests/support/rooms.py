"""The rooms of the package and the imports between them: `python -m tests.support.rooms` prints their number."""

from __future__ import annotations

import sys
from itertools import product

import grimp

from tests.support.paths import ROOT


def root_entries() -> tuple[list[str], list[str]]:
    """Folders and files directly in `harness/`."""
    entries = [
        entry for entry in (ROOT / "harness").iterdir() if entry.name != "__pycache__" and not entry.is_symlink()
    ]
    return sorted(e.name for e in entries if e.is_dir()), sorted(e.name for e in entries if e.is_file())


def arrows() -> set[tuple[str, str]]:
    """Pairs of rooms of which the first imports the second, inside functions too."""
    graph = grimp.build_graph("harness")
    rooms = sorted(child for child in graph.find_children("harness"))
    members = {room: {room, *graph.find_descendants(room)} for room in rooms}
    return {
        (one, other)
        for one, other in product(rooms, rooms)
        if one != other
        and any(
            target in members[other]
            for module in members[one]
            for target in graph.find_modules_directly_imported_by(module)
        )
    }


if __name__ == "__main__":
    rooms, files = root_entries()
    sys.stdout.write(
        f"{len(arrows())} arrows between rooms; root of harness/: {len(rooms)} rooms, {', '.join(files)}\n"
    )
