"""Windows: neither side ever gets more than it has free capacity for, and all that was sent arrives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from koordinator.node import http2
from koordinator.runtime_proxy.flow_control import RuntimeWindows

OURS, PASSING = 1, 3
_STEPS = st.lists(
    st.tuples(st.sampled_from(["client", "ours", "consume"]), st.integers(1, 60_000), st.integers(-500, 500))
)


class _Peers:
    """A client that uses all the window that it knows of, and a runtime that checks."""

    def __init__(self) -> None:
        self.windows = RuntimeWindows()
        self.client_window = self.runtime_window = http2.DEFAULT_WINDOW
        self.unconsumed = 0
        self.sent = self.arrived = 0
        self.next_ours = 101

    def send(self, length: int) -> None:
        """DATA of a call that passes."""
        length = min(length, self.client_window)
        self.client_window -= length
        self.sent += length
        if self.windows.pass_on(length):
            self.arrive(length)
        else:
            self.windows.delay(PASSING, bytes(length), end_stream=False)

    def call(self, length: int, grown: int) -> None:
        """An intercepted call whose request grows."""
        length = min(length, self.client_window)
        self.client_window -= length
        self.windows.open(self.next_ours)
        self.windows.take(length)
        self.client_window += self.windows.credit(all_of_it=False)
        changed = max(0, length + grown)
        self.sent += changed
        self.windows.send(self.next_ours, bytes(changed))
        self.take_frames()
        self.client_window += self.windows.credit(all_of_it=True)
        self.next_ours += 2

    def consume(self) -> None:
        """The runtime gives back the window of all that it has got."""
        increment, self.unconsumed = self.unconsumed, 0
        if increment:
            self.runtime_window += increment
            self.client_window += self.windows.update_connection(increment)
            self.take_frames()

    def take_frames(self) -> None:
        for frame in self.windows.sendable():
            self.arrive(len(frame) - 9)

    def arrive(self, length: int) -> None:
        self.runtime_window -= length
        assert self.runtime_window >= 0, "the runtime has got more than it has room for"
        self.unconsumed += length
        self.arrived += length


@given(_STEPS)
def test_the_runtime_gets_all_and_never_more_than_its_window(steps: list[tuple[str, int, int]]) -> None:
    peers = _Peers()
    for step, length, grown in steps:
        if step == "client":
            peers.send(length)
        elif step == "ours":
            peers.call(length, grown)
        else:
            peers.consume()
    while peers.unconsumed:
        peers.consume()
    assert peers.arrived == peers.sent
    assert peers.client_window == peers.runtime_window == http2.DEFAULT_WINDOW


def test_a_stream_without_window_does_not_stop_the_others() -> None:
    windows = RuntimeWindows()
    windows.change_initial(10)
    windows.open(1)
    windows.open(3)
    windows.send(1, bytes(100))
    windows.send(3, bytes(10))
    assert [len(frame) - 9 for frame in windows.sendable()] == [10, 10]
    assert windows.update_stream(1, 90)
    assert [len(frame) - 9 for frame in windows.sendable()] == [90]


def test_a_smaller_initial_window_holds_for_open_streams() -> None:
    windows = RuntimeWindows()
    windows.open(1)
    windows.change_initial(10)
    windows.send(1, bytes(100))
    assert [len(frame) - 9 for frame in windows.sendable()] == [10]


def test_an_empty_request_ends_its_stream() -> None:
    windows = RuntimeWindows()
    windows.open(1)
    windows.send(1, b"")
    assert windows.sendable() == [http2.frame(http2.DATA, http2.END_STREAM, 1)]


def test_the_client_gets_back_what_waited_on_a_stream_that_was_reset() -> None:
    windows = RuntimeWindows()
    assert windows.pass_on(http2.DEFAULT_WINDOW)
    windows.delay(PASSING, bytes(70), end_stream=False)
    windows.close(PASSING)
    assert windows.credit(all_of_it=True) == 70
