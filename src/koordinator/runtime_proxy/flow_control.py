"""How much may be sent to the container runtime (RFC 9113, 5.2).

Windows pass through the relay, so that a client can never send more than the runtime can receive. Intercepted calls
are the exception: their requests end at the relay, and what is sent in their place is of another length. So the window
of the connection that the client knows may be larger than the one that the runtime has granted. The difference is the
*debt*: updates of the runtime pay it off before the client sees any, and DATA that does not fit meanwhile waits here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from koordinator.node import http2

_LARGEST_CREDIT: Final = 16384
"""What the relay may take of a client's window before it gives it back, so that long requests keep flowing."""


@dataclass(slots=True)
class _Waiting:
    stream: int
    content: bytes
    end_stream: bool
    is_ours: bool


class RuntimeWindows:
    """The windows of one connection to the runtime, and the DATA that waits for them."""

    def __init__(self) -> None:
        self._connection = http2.DEFAULT_WINDOW
        self._initial = http2.DEFAULT_WINDOW
        self._streams: dict[int, int] = {}
        """Of the intercepted calls; a client keeps to the windows of its other streams by itself."""
        self._debt = 0
        """The client's window of the connection minus the runtime's, with what waits counted as sent; below 0, the
        relay has taken more DATA than it has sent."""
        self._waiting: deque[_Waiting] = deque()

    def open(self, stream: int) -> None:
        """The requests on this stream are sent by the relay."""
        self._streams[stream] = self._initial

    def close(self, stream: int) -> None:
        """Nothing more is sent on a stream; what waits for it is dropped."""
        self._streams.pop(stream, None)
        if any(waiting.stream == stream for waiting in self._waiting):
            kept = deque(waiting for waiting in self._waiting if waiting.stream != stream)
            dropped = (waiting for waiting in self._waiting if waiting.stream == stream)
            self._debt -= sum(len(waiting.content) for waiting in dropped)
            self._waiting = kept

    def pass_on(self, length: int) -> bool:
        """Whether a DATA frame of the client may be sent now; if so, it is counted."""
        if self._waiting or length > self._connection:
            return False
        self._connection -= length
        return True

    def delay(self, stream: int, content: bytes, *, end_stream: bool) -> None:
        """Keep DATA of the client that cannot be passed on yet."""
        self._waiting.append(_Waiting(stream, content, end_stream, is_ours=False))

    def take(self, length: int) -> None:
        """The relay has taken DATA of an intercepted call."""
        self._debt -= length

    def send(self, stream: int, content: bytes) -> None:
        """The last DATA of an intercepted call, in place of what was taken; ``sendable`` has the frames."""
        self._debt += len(content)
        self._waiting.append(_Waiting(stream, content, end_stream=True, is_ours=True))

    def credit(self, *, all_of_it: bool) -> int:
        """How much window the client gets back of what the relay has taken; a little is kept unless ``all_of_it``."""
        if self._debt >= (0 if all_of_it else -_LARGEST_CREDIT):
            return 0
        credit, self._debt = -self._debt, 0
        return credit

    def update_connection(self, increment: int) -> int:
        """The runtime has opened its window; by how much that opens the client's."""
        self._connection += increment
        paid = min(increment, max(self._debt, 0))
        self._debt -= paid
        return increment - paid

    def update_stream(self, stream: int, increment: int) -> bool:
        """The runtime has opened the window of a stream; whether that stream is the relay's."""
        if stream not in self._streams:
            return False
        self._streams[stream] += increment
        return True

    def change_initial(self, window: int) -> None:
        """The runtime has changed the initial window of streams, which changes that of the open ones, too."""
        for stream in self._streams:
            self._streams[stream] += window - self._initial
        self._initial = window

    def sendable(self) -> list[bytes]:
        """The frames that fit now, of what waits."""
        frames: list[bytes] = []
        full: set[int] = set()
        kept: deque[_Waiting] = deque()
        for waiting in self._waiting:
            if waiting.stream not in full:
                frames += self._fitting(waiting)
            if waiting.content or waiting.end_stream:
                full.add(waiting.stream)
                kept.append(waiting)
        self._waiting = kept
        return frames

    def _fitting(self, waiting: _Waiting) -> list[bytes]:
        """Takes from ``waiting`` what fits; nothing is left of it, ``end_stream`` included, when all has fitted."""
        credit = self._connection
        if waiting.is_ours:
            credit = min(credit, self._streams.get(waiting.stream, 0))
        length = max(0, min(credit, len(waiting.content)))
        is_all = length == len(waiting.content)
        if not length and not is_all:
            return []
        content, waiting.content = waiting.content[:length], waiting.content[length:]
        frames = list(http2.data_frames(waiting.stream, content, end_stream=is_all and waiting.end_stream))
        if is_all:
            waiting.end_stream = False
        self._connection -= length
        if waiting.is_ours:
            self._streams[waiting.stream] -= length
        return frames
