"""The line of a solution's comment that says what it reached, written after the run that says so.

A record holds the digest of the file that was run, and the line changes the file. So a file counts as the one that was
run where its text, with this one line of its docstring put back as it stood then, has the record's digest: nothing
else may differ. How lines stood then is kept beside the records in `comments.json`, by solution, for those that had
one. The line is one of plain text at the end of the module's docstring, and so can't hold code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.core.problem import digest_text
from harness.core.record import Record

BEGINNING = "Reached on an H200: "
LINE = re.compile(rf"^{BEGINNING}[^\"\\\n]+$", re.M)
QUOTES = '"""'
COMMENTS_FILE = "comments.json"


class ReachedError(Exception):
    """A solution is not the one that was run, or its comment has no place for the line."""


def line_in(source: str) -> str | None:
    """The line in the docstring of `source`; None where there is none."""
    found = LINE.search(source, 0, _end_of_docstring(source))
    return None if found is None else found[0]


def with_line(source: str, line: str | None) -> str:
    """`source` with `line` as the last of its docstring, in the place of the one that is there; None takes that out."""
    if line is not None and not LINE.fullmatch(line):
        raise ReachedError(f"not one line of plain text that begins with {BEGINNING!r}: {line!r:.200}")
    end = _end_of_docstring(source)
    lines = [held for held in source[:end].split("\n") if not LINE.fullmatch(held)]
    if lines[-1]:
        raise ReachedError(f"the docstring's closing quotes stand on a line of their own, not behind {lines[-1]!r:.80}")
    return "\n".join([*lines[:-1], *([] if line is None else [line]), ""]) + source[end:]


def _end_of_docstring(source: str) -> int:
    end = source.find(QUOTES, len(QUOTES))
    if not source.startswith(QUOTES) or end < 0:
        raise ReachedError(f"a solution begins with a docstring in {QUOTES}")
    return end


def line_of(record: Record) -> str | None:
    """What the run says of a solution; None where it was not timed, or no speed of light is known."""
    timing = record.timing or {}
    light, device = timing.get("speed_of_light") or {}, (timing.get("solution") or {}).get("device") or {}
    fraction, time_s = light.get("fraction"), device.get("median_s")
    if record.speedup is None or not fraction or not time_s:
        return None
    time = f"{time_s * 1e6:.3g} us" if time_s < 1e-3 else f"{time_s * 1e3:.3g} ms"
    return f"{BEGINNING}{share(fraction)} of the speed of light of the reference's work ({light['bound']}), {time}."


def share(fraction: float) -> str:
    """A fraction as percent: whole ones, two digits of less than one."""
    percent = fraction * 100
    return f"{percent:.0f} %" if percent >= 1 else f"{percent:.2g} %"


def lines_as_run(run: Path) -> dict[str, str]:
    """By solution: its line when it was run. Those without had none."""
    path = run / COMMENTS_FILE
    held = json.loads(path.read_text()) if path.is_file() else {}
    return {str(name): str(line) for name, line in held.items()}


def was_run(source: str, record: Record, stood: Mapping[str, str]) -> bool:
    """Whether `source` is what the record is of, but for the line. `stood` are the lines as they were then."""
    return digest_text(with_line(source, stood.get(record.solution))) == record.solution_digest


def written(solutions: Path, run: Path, records: Sequence[Record]) -> tuple[dict[Path, str], dict[str, str]]:
    """What files have to say by the records: texts by path, and the lines as they stood (for `comments.json`).

    Raises `ReachedError` naming every solution that was changed after it was run.
    """
    kept, texts, stood, changed = lines_as_run(run), {}, {}, []
    for record in records:
        path = solutions / record.solution
        source = path.read_text() if path.is_file() else ""
        try:
            ways = [kept, {record.solution: present} if (present := line_in(source)) else {}, {}]
            way = next((way for way in ways if was_run(source, record, way)), None)
        except ReachedError as error:
            raise ReachedError(f"{record.solution}: {error}") from error
        if way is None:
            changed.append(record.solution)
            continue
        if record.solution in way:
            stood[record.solution] = way[record.solution]
        texts[path] = with_line(source, line_of(record))
    if changed:
        raise ReachedError(f"changed after they were run, run them again: {', '.join(changed)}")
    return texts, stood
