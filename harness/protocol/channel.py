"""The protocol between trusted and untrusted processes: framed, size-limited, strict JSON over a Unix socket.

A frame is a 4-byte big-endian length and that many bytes of UTF-8 JSON holding one object. File descriptors may
travel beside a frame (SCM_RIGHTS). Nothing here unpickles, evaluates or imports anything that was received.

Pure; both sides of the trust boundary use it. The reading side assumes that the peer lies: it bounds what it
buffers, how long it waits and how deep the JSON nests, and answers every violation with a `WireError`.
"""

from __future__ import annotations

import array
import json
import os
import select
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

MAX_FRAME_BYTES = 16 * 2**20
"""Largest frame accepted from a peer: tracebacks and burst claims are far smaller."""

MAX_DEPTH = 64
"""Deepest JSON nesting accepted; deeper values could exhaust the stack of whoever walks them."""

LATE_S = 1.0
"""How long after its time is over a frame is still read to its end, as long as there is always more of it at hand."""

_NOTHING_S = 0.001
"""How long to leave alone a socket that says that there is something to be read, and has nothing."""

MAX_DIGITS = 300
"""Of a whole number: one with more is beyond all floats, and whoever reckons with it fails. Records that hold one can't
be read any more."""

_HEADER = struct.Struct(">I")
_MAX_FDS = 16


class WireError(Exception):
    """The peer broke the protocol, or the connection did."""


class ChannelClosed(WireError):
    """The peer closed its end, between frames or in the middle of one."""


class FrameTooLarge(WireError):
    """A frame announces more bytes than the reader is willing to hold."""


class FrameMalformed(WireError):
    """A frame that is not UTF-8 JSON holding one object, or holds NaN, or nests too deep."""


class FrameTimeout(WireError):
    """No complete frame arrived in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One frame as it arrived: the JSON object and the file descriptors that came along (owned by the receiver)."""

    message: dict[str, Any]
    fds: tuple[int, ...] = ()


class Channel:
    """One end of a connected Unix stream socket that carries frames. Not safe for concurrent use by threads."""

    def __init__(self, sock: socket.socket, *, max_frame_bytes: int = MAX_FRAME_BYTES, takes_fds: bool = True) -> None:
        """With `takes_fds` false, a peer that sends file descriptors breaks the protocol: each would fill a place in
        the receiver's own table, of which a process has few.
        """
        self._sock = sock
        self._takes_fds = takes_fds
        self._max_frame_bytes = max_frame_bytes
        self._left_bytes: int | None = None
        self._buffer = bytearray()
        self._fds: list[int] = []

    def fileno(self) -> int:
        return self._sock.fileno()

    def expect_at_most(self, total_bytes: int) -> None:
        """From now on so many bytes of frames are accepted in all. One of the largest can take the parser 8 s, in which
        it holds the interpreter's lock: where others are waited for as well, nobody may send these one after another.
        """
        self._left_bytes = total_bytes

    def send(self, message: Mapping[str, object], fds: Sequence[int] = (), *, timeout_s: float | None = None) -> None:
        """Send one frame.

        Raises `ChannelClosed` where the peer is gone, `FrameTimeout` where it stopped reading, `ValueError` where
        `message` can't be written as strict JSON (NaN, infinities, unknown types).
        """
        payload = json.dumps(message, allow_nan=False, separators=(",", ":")).encode()
        if len(payload) > self._max_frame_bytes:
            raise ValueError(f"a frame of {len(payload)} bytes exceeds the limit of {self._max_frame_bytes}")
        data = memoryview(_HEADER.pack(len(payload)) + payload)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            self._wait(select.POLLOUT, deadline)
            if fds:
                flags = socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT
                sent = socket.send_fds(self._sock, [data], list(fds), flags)
            else:
                sent = self._sock.send(data, socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
            while sent < len(data):
                self._wait(select.POLLOUT, deadline)
                try:
                    sent += self._sock.send(data[sent:], socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
                except BlockingIOError:
                    continue
        except (BrokenPipeError, ConnectionResetError, ConnectionAbortedError) as error:
            raise ChannelClosed("the peer closed the connection") from error

    def receive(self, timeout_s: float | None = None) -> Received:
        """Return the next frame, waiting at most `timeout_s` seconds (for ever where None).

        Raises a `WireError`; after anything but `FrameTimeout` the channel can't be used any more.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._fill(_HEADER.size, deadline)
        (length,) = _HEADER.unpack_from(self._buffer)
        if length > self._max_frame_bytes:
            raise FrameTooLarge(f"a frame announces {length} bytes; at most {self._max_frame_bytes} are accepted")
        if self._left_bytes is not None and length > self._left_bytes:
            raise FrameTooLarge(f"a frame announces {length} bytes; {self._left_bytes} more are accepted in all")
        self._fill(_HEADER.size + length, deadline)
        payload = bytes(self._buffer[_HEADER.size : _HEADER.size + length])
        del self._buffer[: _HEADER.size + length]
        if self._left_bytes is not None:
            self._left_bytes -= length
        message = decode(payload)  # where this raises, `close` still knows the descriptors
        fds, self._fds = tuple(self._fds), []
        return Received(message=message, fds=fds)

    def has_arrived(self) -> bool:
        """Whether `receive` would find something at once: a part of a frame, or that the peer closed the connection."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(self._buffer) or bool(poll.poll(0))

    def close(self) -> None:
        """Close the socket and every received descriptor that was not handed out."""
        for fd in self._fds:
            os.close(fd)
        self._fds = []
        self._sock.close()

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fill(self, size: int, deadline: float | None) -> None:
        while len(self._buffer) < size:
            self._wait(select.POLLIN, deadline)
            # A peer that sends byte after byte would else be waited for until the largest frame is full.
            if deadline is not None and time.monotonic() > deadline + LATE_S:
                raise FrameTimeout("the peer did not come to the end of its answer in time")
            try:
                # A byte sent out of band makes the socket readable, and a read that may wait does so for ever.
                data, ancillary, flags, _ = self._sock.recvmsg(
                    min(2**20, size - len(self._buffer)), socket.CMSG_SPACE(_MAX_FDS * 4), socket.MSG_DONTWAIT
                )
            except BlockingIOError:
                time.sleep(_NOTHING_S)
                continue
            except (ConnectionResetError, ConnectionAbortedError) as error:
                raise ChannelClosed("the connection was reset") from error
            for level, kind, payload in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    received = array.array("i")
                    received.frombytes(payload[: len(payload) - len(payload) % received.itemsize])
                    self._fds.extend(received)
            if self._fds and not self._takes_fds:
                raise FrameMalformed("file descriptors came along, which nobody asked for")
            if flags & socket.MSG_CTRUNC or len(self._fds) > _MAX_FDS:
                raise FrameMalformed(f"more than {_MAX_FDS} file descriptors came with one frame")
            if not data:
                where = "in the middle of a frame" if self._buffer else "between frames"
                raise ChannelClosed(f"the peer closed the connection {where}")
            self._buffer += data

    def _wait(self, event: int, deadline: float | None) -> None:
        poll = select.poll()
        poll.register(self._sock, event)
        while True:
            left_ms = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1e3
            if poll.poll(left_ms):
                return
            if deadline is not None and time.monotonic() >= deadline:
                raise FrameTimeout("the peer did not answer in time")


def pair() -> tuple[socket.socket, socket.socket]:
    """A connected pair of Unix stream sockets, neither inherited by exec."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)


def decode(payload: bytes) -> dict[str, Any]:
    """Parse the JSON of one frame strictly. Raises `FrameMalformed`."""
    try:
        text = payload.decode("utf-8")
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_whole)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise FrameMalformed(f"a frame is not strict JSON: {error}") from error
    if not isinstance(value, dict):
        raise FrameMalformed(f"a frame must hold a JSON object, not {type(value).__name__}")
    if _depth(value) > MAX_DEPTH:
        raise FrameMalformed(f"a frame nests deeper than {MAX_DEPTH} levels")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not allowed")


def _finite(text: str) -> float:
    value = float(text)
    if value - value != 0.0:
        raise ValueError(f"{text} is out of the range of a float")
    return value


def _whole(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a whole number of {len(text)} digits")
    return int(text)


def _depth(value: object) -> int:
    level: list[object] = [value]
    depth = 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            return depth
        following: list[object] = []
        for item in level:
            if isinstance(item, dict):
                following.extend(item.values())
            elif isinstance(item, list):
                following.extend(item)
        level = following
    return depth
