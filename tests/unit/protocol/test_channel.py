"""The framed protocol against real sockets: frames cut short, oversized, malformed, late, and descriptors."""

from __future__ import annotations

import json
import math
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.protocol.channel import (
    LATE_S,
    MAX_FRAME_BYTES,
    Channel,
    ChannelClosed,
    FrameMalformed,
    FrameTimeout,
    FrameTooLarge,
    WireError,
    decode,
    pair,
)


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = pair()
    channel = Channel(ours)
    yield channel, theirs
    channel.close()
    theirs.close()


def frame(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


def test_messages_arrive_in_order_and_unchanged() -> None:
    ours, theirs = pair()
    with Channel(ours) as left, Channel(theirs) as right:
        sent = [{"n": n, "text": "ä\n" * n, "list": [1.5, None, True, {"x": []}]} for n in range(20)]
        for message in sent:
            left.send(message)
        assert [right.receive(1.0).message for _ in sent] == sent


def test_who_only_looks_is_told_what_has_arrived_and_takes_nothing() -> None:
    ours, theirs = pair()
    with Channel(ours) as left, Channel(theirs) as right:
        assert not right.has_arrived()
        for number in range(2):
            left.send({"n": number})
        assert right.has_arrived()
        assert right.receive(1.0).message == {"n": 0}
        assert right.has_arrived(), "the second one came along with the first"
        assert right.receive(1.0).message == {"n": 1}
        assert not right.has_arrived()
        left.close()
        assert right.has_arrived()
        with pytest.raises(ChannelClosed):
            right.receive(1.0)


def test_a_large_message_passes_while_the_reader_is_slow() -> None:
    ours, theirs = pair()
    with Channel(ours) as left, Channel(theirs) as right:
        message = {"text": "x" * 5_000_000}
        sender = threading.Thread(target=left.send, args=(message,))
        sender.start()
        assert right.receive(10.0).message == message
        sender.join()


def test_descriptors_travel_with_their_own_frame() -> None:
    ours, theirs = pair()
    with Channel(ours) as left, Channel(theirs) as right:
        readable, writable = os.pipe()
        left.send({"n": 0})
        left.send({"n": 1}, fds=[writable])
        left.send({"n": 2})
        os.close(writable)
        assert right.receive(1.0).fds == ()
        received = right.receive(1.0)
        assert received.message == {"n": 1}
        assert right.receive(1.0).fds == ()
        os.write(received.fds[0], b"through")
        os.close(received.fds[0])
        assert os.read(readable, 100) == b"through"
        os.close(readable)


@pytest.mark.parametrize("cut", [0, 1, 3, 4, 5, 11])
def test_a_frame_cut_short_is_a_closed_channel(ends: tuple[Channel, socket.socket], cut: int) -> None:
    channel, peer = ends
    peer.sendall(frame(b'{"a": 1}')[:cut])
    peer.close()
    with pytest.raises(ChannelClosed, match="within a frame" if cut else "between"):
        channel.receive(1.0)


def test_an_oversized_announcement_is_refused_before_it_is_read(ends: tuple[Channel, socket.socket]) -> None:
    channel, peer = ends
    peer.sendall(struct.pack(">I", 2**32 - 1))
    with pytest.raises(FrameTooLarge):
        channel.receive(1.0)


def test_no_more_is_read_than_is_expected_in_all(ends: tuple[Channel, socket.socket]) -> None:
    channel, peer = ends
    channel.expect_at_most(25)
    peer.sendall((struct.pack(">I", 10) + b'{"a": 123}') * 3)
    assert [channel.receive(1.0).message for _ in range(2)] == [{"a": 123}] * 2
    with pytest.raises(FrameTooLarge, match="5 more are accepted in all"):
        channel.receive(1.0)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"1",
        b"null",
        b"{",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'\xff{"a": 1}',
        b'{"a": 1} trailing',
        b'{"a": ' + b"[" * 200 + b"]" * 200 + b"}",
        b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a": ' + b"9" * 10_000 + b"}",
        b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01a\x94K\x01s.",
    ],
)
def test_what_is_not_strict_json_is_malformed(ends: tuple[Channel, socket.socket], payload: bytes) -> None:
    channel, peer = ends
    sender = threading.Thread(target=peer.sendall, args=(frame(payload),))
    sender.start()
    with pytest.raises(FrameMalformed):
        channel.receive(5.0)
    sender.join()


def test_whole_numbers_are_such_as_floats_can_hold() -> None:
    assert decode(b'{"n": -%s}' % (b"9" * 299)) == {"n": -int("9" * 299)}
    for digits in (b"1" + b"0" * 400, b"-1" + b"0" * 309):
        with pytest.raises(FrameMalformed):
            decode(b'{"n": [%s]}' % digits)


def test_a_silent_peer_times_out_and_may_still_answer_later(ends: tuple[Channel, socket.socket]) -> None:
    channel, peer = ends
    with pytest.raises(FrameTimeout):
        channel.receive(0.01)
    whole = frame(b'{"a": 1}')
    peer.sendall(whole[:6])
    with pytest.raises(FrameTimeout):
        channel.receive(0.01)
    peer.sendall(whole[6:])
    assert channel.receive(1.0).message == {"a": 1}


@pytest.mark.parametrize("before", [b"", b"\0\0", frame(b"{}")[:5]])
def test_a_byte_out_of_band_holds_nobody_up(ends: tuple[Channel, socket.socket], before: bytes) -> None:
    channel, peer = ends
    threading.Timer(20.0, peer.close).start()  # so that a reader who waits for ever comes back
    if before:
        peer.sendall(before)
    peer.send(b"!", socket.MSG_OOB)
    begin = time.monotonic()
    with pytest.raises(FrameTimeout):
        channel.receive(0.2)
    assert time.monotonic() - begin < 10.0
    peer.sendall(frame(b"{}")[len(before) :] if before != frame(b"{}")[:5] else b"}")
    assert channel.receive(5.0).message == {}


def test_a_peer_that_sends_byte_after_byte_is_late_too(ends: tuple[Channel, socket.socket]) -> None:
    channel, peer = ends
    over = threading.Event()

    def trickle() -> None:
        peer.sendall(struct.pack(">I", MAX_FRAME_BYTES))
        while not over.is_set():
            peer.sendall(b" ")

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        begin = time.monotonic()
        with pytest.raises(FrameTimeout):
            channel.receive(0.2)
        assert time.monotonic() - begin < 0.2 + LATE_S + 5.0
    finally:
        over.set()
        peer.setblocking(False)
        thread.join(10.0)


def test_a_frame_that_is_there_is_read_though_its_time_is_over(ends: tuple[Channel, socket.socket]) -> None:
    channel, peer = ends
    peer.sendall(frame(b'{"a": 1}'))
    assert channel.receive(0.0).message == {"a": 1}


def test_a_peer_that_does_not_read_times_out() -> None:
    ours, theirs = pair()
    with Channel(ours) as channel, pytest.raises(FrameTimeout):
        # Far more than a socket's buffers hold.
        channel.send({"text": "x" * 10_000_000}, timeout_s=0.05)
    theirs.close()


def test_sending_to_a_closed_peer_is_a_closed_channel(ends: tuple[Channel, socket.socket]) -> None:
    channel, peer = ends
    peer.close()
    with pytest.raises(ChannelClosed):
        channel.send({"a": 1})


@pytest.mark.parametrize("value", [math.nan, math.inf, object(), {1, 2}])
def test_what_json_can_not_hold_is_not_sent(ends: tuple[Channel, socket.socket], value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        ends[0].send({"a": value})


def test_too_many_descriptors_are_refused_and_closed(ends: tuple[Channel, socket.socket]) -> None:
    channel, peer = ends
    before = len(os.listdir("/proc/self/fd"))
    null = os.open("/dev/null", os.O_RDONLY)
    for _ in range(3):
        socket.send_fds(peer, [b"\x00"], [null] * 10)
    with pytest.raises(WireError):
        channel.receive(1.0)
    channel.close()
    os.close(null)
    assert len(os.listdir("/proc/self/fd")) < before


@given(st.binary(max_size=300))
def test_no_bytes_crash_the_reader(payload: bytes) -> None:
    try:
        value = decode(payload)
    except FrameMalformed:
        return
    assert isinstance(value, dict)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=10,
    )
)
def test_whatever_is_sent_is_received(value: object) -> None:
    assert decode(json.dumps({"value": value}, allow_nan=False).encode()) == {"value": value}
