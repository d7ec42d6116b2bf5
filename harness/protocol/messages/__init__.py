"""What the referee and a contestant say to each other, as typed values over `wire` frames.

Pure; both sides of the trust boundary use it. Requests go from the referee to the contestant, replies come back.
Every `from_json` is strict about types and sizes, because the other side may be hostile; it raises `MessageError`.
"""

from harness.protocol.messages.fields import MAX_ITEMS, MAX_REPORTS, MAX_TEXT, MessageError, report
from harness.protocol.messages.replies import (
    Broken,
    BurstDone,
    CallClaim,
    EmptyTimed,
    Loaded,
    Located,
    OutputClaim,
    Ready,
    Reply,
    Stage,
    parse_reply,
)
from harness.protocol.messages.requests import (
    Attach,
    Burst,
    Call,
    CallMode,
    Collect,
    Go,
    LaunchMode,
    Load,
    Locate,
    Open,
    Prepare,
    Region,
    Release,
    Request,
    TakeCensus,
    TimeEmpty,
)

__all__ = [
    "MAX_ITEMS",
    "MAX_REPORTS",
    "MAX_TEXT",
    "Attach",
    "Broken",
    "Burst",
    "BurstDone",
    "Call",
    "CallClaim",
    "CallMode",
    "Collect",
    "EmptyTimed",
    "Go",
    "LaunchMode",
    "Load",
    "Loaded",
    "Locate",
    "Located",
    "MessageError",
    "Open",
    "OutputClaim",
    "Prepare",
    "Ready",
    "Region",
    "Release",
    "Reply",
    "Request",
    "Stage",
    "TakeCensus",
    "TimeEmpty",
    "parse_reply",
    "report",
]
