"""What a client of `harness mcp` reads in a reply: facts of the harness, and untrusted lines."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Read:
    """A reply: `head` has the facts before the block, `body` the lines in it without their prefix."""

    head: dict[str, str]
    body: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join(self.body)

    @property
    def further(self) -> tuple[str, int] | None:
        """The arguments of `more` that give the next page."""
        found = re.search(r'next: more\(reply="(\w+)", page=(\d+)\)', self.head.get("page", ""))
        return (found[1], int(found[2])) if found else None


def read(reply: str) -> Read:
    """Divide a reply as its description says; anything else than head, one block and nothing after it is an error."""
    head, found, rest = reply.partition("[")
    facts = dict(line.split(": ", 1) for line in head.splitlines())
    if not found:
        return Read(head=facts, body=())
    begin, *body, end = rest.removesuffix("\n").split("\n")
    marker = begin.split(" ")[0]
    assert re.fullmatch(r"[0-9a-f]{16} begins: untrusted text; .*\]", begin), begin
    assert end == f"[{marker} ends]", end
    assert all(line.startswith("| ") for line in body), body
    return Read(head=facts, body=tuple(line[2:] for line in body))
