"""Limits of the reply to each request, in bytes and values.

Both sides. A contestant shortens a reply to the limit, and the referee parses none beyond it. Parsing holds the
interpreter's lock, for the longer the more values there are, so a large reply would stop the referee's clock. See
guides/design/contestants.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.protocol.channel import FrameLimit

BASE = FrameLimit(nbytes=768 * 2**10, values=20_000)
"""For any reply: an exception with its message and trace (`fields.MAX_TRACE`), and findings (`fields.MAX_REPORTS`)."""

CALL = FrameLimit(nbytes=2048, values=64)
"""For a claim about a call, without its tensors."""

TENSOR = FrameLimit(nbytes=768, values=96)
"""For each input, output and state of a call: at most 64 dimensions, and a place in the description of the output."""


class ReplyLimits:
    """The limits of one contestant's replies, from the requests as JSON."""

    def __init__(self) -> None:
        self._prepared = BASE
        self._names = BASE

    def of(self, request: Mapping[str, Any]) -> FrameLimit:
        """Return the limit of the reply to a request.

        Args:
            request: The request's JSON; requests must be given in the order in which they are sent.
        """
        match request["type"]:
            case "burst" | "take_census" | "record_launches":
                return _of_calls(request["calls"])
            case "prepare":
                self._prepared = _of_calls(request["calls"])
            case "collect":
                return self._prepared
            case "load":
                names = request["state"]
                self._names = FrameLimit(
                    nbytes=BASE.nbytes + sum(8 + 6 * len(name) for name in names), values=BASE.values + len(names)
                )
                return self._names
            case "take_state":
                return self._names
        return BASE


def _of_calls(calls: list[Mapping[str, Any]]) -> FrameLimit:
    tensors = sum(len(call[name]) for call in calls for name in ("inputs", "outputs", "state"))
    return FrameLimit(
        nbytes=BASE.nbytes + len(calls) * CALL.nbytes + tensors * TENSOR.nbytes,
        values=BASE.values + len(calls) * CALL.values + tensors * TENSOR.values,
    )
