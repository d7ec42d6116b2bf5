"""Exchange frames of strict JSON over a Unix socket, with limits of size and time.

Both sides. A frame is a 4-byte big-endian length and that many bytes of UTF-8 JSON with one object. File descriptors
may come with a frame (SCM_RIGHTS). Received data are never unpickled, evaluated or imported.

The reader assumes a hostile peer: it limits buffer, waiting time and nesting, and raises `WireError` for any violation.
"""

from __future__ import annotations

import array
import json
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NoReturn

MAX_FRAME_BYTES = 16 * 2**20
"""Largest frame from a peer, in bytes; tracebacks and burst claims are far smaller."""

MAX_DEPTH = 64
"""Deepest nesting of JSON; deeper values could exhaust the stack of recursive code."""

LATE_S = 1.0
"""Seconds after the timeout in which a frame is still read to its end, as long as more bytes are available."""

_NOTHING_S = 0.001
"""Pause in seconds if a socket is readable but has no data."""

MAX_DIGITS = 300
"""Most digits of an integer. One with more exceeds all floats, so calculations with it fail and records with it can't
be read."""

_HEADER = struct.Struct(">I")
_MAX_FDS = 16


class WireError(Exception):
    """The peer violated the protocol, or the connection broke."""


class ChannelClosed(WireError):
    """The peer closed the connection, between frames or within one."""


class FrameTooLarge(WireError):
    """A frame has more bytes or values than the reader accepts."""


class FrameMalformed(WireError):
    """A frame is not UTF-8 JSON with one object, contains NaN, or nests too deep."""


class FrameTimeout(WireError):
    """No complete frame arrived in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameLimit:
    """What a reader accepts of one frame.

    Attributes:
        nbytes: Bytes.
        values: Commas and opening brackets, also inside of texts.
    """

    nbytes: int
    values: int

    def refusal(self, payload: bytes) -> str | None:
        """Return why a frame's payload is beyond the limit; None if it is not.

        Characters in texts count, too: this is fast and needs no parser.
        """
        if len(payload) > self.nbytes:
            return f"a frame of {len(payload)} bytes; at most {self.nbytes} are accepted"
        if (values := sum(map(payload.count, (b",", b"[", b"{")))) > self.values:
            return f"a frame with {values} commas and brackets; at most {self.values} are accepted"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One received frame: the JSON object and its file descriptors.

    The receiver must close the descriptors.
    """

    message: dict[str, Any]
    fds: tuple[int, ...] = ()


class Channel:
    """One end of a connected Unix stream socket that carries frames.

    It is not safe for use by several threads.
    """

    def __init__(self, sock: socket.socket, *, max_frame_bytes: int = MAX_FRAME_BYTES, takes_fds: bool = True) -> None:
        """Take over a connected socket.

        Args:
            sock: The socket; `close` closes it.
            max_frame_bytes: Largest frame to send or receive.
            takes_fds: If False, file descriptors from the peer violate the protocol. A hostile peer could otherwise
                fill the receiver's table of descriptors.
        """
        self._sock = sock
        self._takes_fds = takes_fds
        self.parsing: Callable[[], AbstractContextManager[object]] = nullcontext
        """Makes the block within which a frame is parsed; it may wait for a moment when parsing disturbs nothing."""
        self._max_frame_bytes = max_frame_bytes
        self._left_bytes: int | None = None
        self._buffer = bytearray()
        self._fds: list[int] = []

    def fileno(self) -> int:
        return self._sock.fileno()

    def expect_at_most(self, total_bytes: int) -> None:
        """Limit the total bytes of all further frames.

        Parsing one of the largest frames can take 15 s and blocks all threads (it holds the interpreter's lock). The
        limit prevents that a peer sends many of them while the process waits for other peers.
        """
        self._left_bytes = total_bytes

    def send(
        self,
        message: Mapping[str, object],
        fds: Sequence[int] = (),
        *,
        timeout_s: float | None = None,
        limit: FrameLimit | None = None,
    ) -> None:
        """Send one frame.

        Args:
            message: The JSON object.
            fds: File descriptors to send with it.
            timeout_s: Time limit in seconds; None is no limit.
            limit: What the peer accepts, if it is less than the channel's limits.

        Raises:
            FrameTooLarge: The frame is beyond `limit`; nothing was sent.
            ChannelClosed: The peer closed the connection.
            FrameTimeout: The peer stopped reading.
            ValueError: `message` is not strict JSON (NaN, infinity, unknown type) or is too large.
        """
        payload = json.dumps(message, allow_nan=False, separators=(",", ":")).encode()
        if len(payload) > self._max_frame_bytes:
            raise ValueError(f"a frame of {len(payload)} bytes exceeds the limit of {self._max_frame_bytes}")
        if limit is not None and (refusal := limit.refusal(payload)) is not None:
            raise FrameTooLarge(refusal)
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

    def receive(self, timeout_s: float | None = None, limit: FrameLimit | None = None) -> Received:
        """Return the next frame.

        Args:
            timeout_s: Time limit in seconds; None is no limit.
            limit: What to accept, if it is less than the channel's limits.

        Raises:
            WireError: Any violation. After all errors but `FrameTimeout`, the channel is unusable.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._fill(_HEADER.size, deadline)
        (length,) = _HEADER.unpack_from(self._buffer)
        most = self._max_frame_bytes if limit is None else min(limit.nbytes, self._max_frame_bytes)
        if length > most:
            raise FrameTooLarge(f"a frame announces {length} bytes; at most {most} are accepted")
        if self._left_bytes is not None and length > self._left_bytes:
            raise FrameTooLarge(f"a frame announces {length} bytes; {self._left_bytes} more are accepted in all")
        self._fill(_HEADER.size + length, deadline)
        payload = bytes(self._buffer[_HEADER.size : _HEADER.size + length])
        del self._buffer[: _HEADER.size + length]
        if self._left_bytes is not None:
            self._left_bytes -= length
        if limit is not None and (refusal := limit.refusal(payload)) is not None:
            raise FrameTooLarge(refusal)
        with self.parsing():
            message = decode(payload)  # if this raises, `close` still closes the descriptors
        fds, self._fds = tuple(self._fds), []
        return Received(message=message, fds=fds)

    def has_arrived(self) -> bool:
        """Tell whether `receive` would find data or a closed connection at once."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(self._buffer) or bool(poll.poll(0))

    def close(self) -> None:
        """Close the socket and all received descriptors that no frame returned."""
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
            # Otherwise a peer that sends single bytes could delay the reader until the largest frame is full.
            if deadline is not None and time.monotonic() > deadline + LATE_S:
                raise FrameTimeout("the peer did not complete its answer in time")
            try:
                # Out-of-band data make the socket readable, but a blocking read would wait forever.
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
                raise FrameMalformed("the peer sent file descriptors, which are not allowed here")
            if flags & socket.MSG_CTRUNC or len(self._fds) > _MAX_FDS:
                raise FrameMalformed(f"more than {_MAX_FDS} file descriptors came with one frame")
            if not data:
                where = "within a frame" if self._buffer else "between frames"
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
    """Return a connected pair of Unix stream sockets; exec does not inherit them."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)


def decode(payload: bytes) -> dict[str, Any]:
    """Parse the JSON of one frame strictly.

    Raises:
        FrameMalformed: The payload is not UTF-8 JSON with one object, has a number out of range, or nests too deep.
    """
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
        raise ValueError(f"an integer of {len(text)} digits")
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
