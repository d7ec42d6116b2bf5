"""Knows a fork by a new process id, as libraries do that must not share a connection or a lock with their parent."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.protocol.channel import Channel

_last = os.getpid()
_forks = _noticed = 0


def _after_fork() -> None:
    global _last, _forks, _noticed
    _forks += 1
    if os.getpid() != _last:
        _noticed += 1
        _last = os.getpid()


os.register_at_fork(after_in_child=_after_fork)


def count(channel: Channel, fds: list[int]) -> None:
    channel.send({"forks": _forks, "noticed": _noticed})
