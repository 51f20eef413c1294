"""Which connection goes when there is no room, whatever the clients do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.base.served_connections import ProgramConnections, ServedConnection, ServedConnections
from koordinator.base.server_limits import OLDEST_SAMPLE_SECONDS, SLOWEST, STALLED_SECONDS, ServerLimits
from tests.kube.clients import run

BOUND = 6
LIMITS = ServerLimits(connections=BOUND)


class Server:
    """Connections by number, and which of them were closed for others."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.pool = ProgramConnections(Metrics(), self.clock).serve("1", LIMITS)
        self.connections: list[ServedConnection] = []
        self.dropped: list[int] = []

    def come(self) -> int:
        """The number of the new one, or -1 if it had to wait."""
        if not self.pool.make_room():
            return -1
        number = len(self.connections)
        self.connections.append(self.pool.open("10.0.0.1", lambda: self.dropped.append(number)))
        return number

    def serve(self, number: int) -> None:
        """A whole request and its response."""
        self.connections[number].begin()
        self.connections[number].rest(is_complete=True)


def state(pool: ServedConnections, connection: ServedConnection) -> str:
    return next(
        name for name in ("waiting", "idle", "busy", "closed") if name == "closed" or connection in vars(pool)[name]
    )


def test_who_has_sent_nothing_goes_before_who_has_if_they_are_many() -> None:
    async def work() -> list[int]:
        server = Server()
        for _ in range(2):
            server.serve(server.come())
        for _ in range(8):
            server.come()
        return server.dropped

    assert run(work()) == [2, 3, 4, 5]


def test_newcomers_have_a_reserve_before_those_that_are_idle() -> None:
    async def work() -> list[int]:
        server = Server()
        for _ in range(BOUND):
            server.serve(server.come())
        server.serve(0)
        for _ in range(4):
            server.come()
        return server.dropped

    assert run(work()) == [1, 2, 3, 4]


def test_who_neither_sends_nor_reads_goes_when_all_others_are_busy() -> None:
    async def work() -> tuple[int, list[int]]:
        server = Server()
        for number in range(BOUND):
            server.connections[server.come()].begin()
            if number % 2:
                server.connections[number].progress = lambda: 7
        assert server.come() == -1
        await server.clock.advance(STALLED_SECONDS)
        return server.come(), server.dropped

    assert run(work()) == (BOUND, [1])


def test_known_clients_go_only_when_there_are_no_others() -> None:
    async def work() -> list[int]:
        server = Server()
        for number in range(BOUND):
            server.serve(server.come())
            server.connections[number].is_known = number < 3
        server.connections[5].begin()
        server.connections[5].progress = lambda: 7
        assert server.come() == BOUND
        server.connections[BOUND].is_known = True
        server.come()
        server.connections[-1].is_known = True
        # All that is left of the others is one that is busy, and stalls.
        await server.clock.advance(0)
        server.connections[5].is_stalled(server.clock.monotonic())
        await server.clock.advance(STALLED_SECONDS)
        server.come()
        server.connections[-1].is_known = True
        server.come()
        return server.dropped

    assert run(work()) == [3, 4, 5, 0]


def test_newcomers_within_the_reserve_stay_when_all_others_are_known() -> None:
    async def work() -> list[int]:
        server = Server()
        for number in range(BOUND):
            server.serve(server.come())
            server.connections[number].is_known = True
        for _ in range(5):
            server.come()
        return server.dropped

    # Those within the reserve of three and the one that comes; beyond, it is their oldest that goes.
    assert run(work()) == [0, 1, 2, 3, BOUND]


def test_a_newcomer_goes_only_when_all_others_are_busy_and_before_a_known_client() -> None:
    async def work() -> list[int]:
        server = Server()
        for number in range(BOUND):
            server.come()
            server.connections[number].is_known = True
            if number:
                server.connections[number].begin()
        server.connections[1].rest(is_complete=True)
        server.come()
        server.come()
        return server.dropped

    assert run(work()) == [1, BOUND]


@pytest.mark.parametrize(
    ("moved", "seconds", "is_stalled"),
    [
        (SLOWEST - 1, STALLED_SECONDS, True),
        (SLOWEST, STALLED_SECONDS, False),
        (0, STALLED_SECONDS / 2, False),
        (0, OLDEST_SAMPLE_SECONDS, True),
        (0, OLDEST_SAMPLE_SECONDS + 1, False),
    ],
)
def test_a_client_is_stalled_that_has_hardly_moved_for_a_second_or_a_few(
    moved: int, seconds: float, is_stalled: bool
) -> None:
    async def work() -> list[bool]:
        server = Server()
        connection = server.connections[server.come()]
        connection.begin()
        connection.progress = lambda: 7
        found = [connection.is_stalled(0.0)]
        connection.progress = lambda: 7 + moved
        return [*found, connection.is_stalled(seconds)]

    assert run(work()) == [False, is_stalled]


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["come", "begin", "rest", "header", "end", "wait"]), st.integers(0, 30)), max_size=60
)


@given(ACTIONS)
def test_no_request_in_progress_is_closed_for_another_and_all_others_are_let_in(actions: list[tuple[str, int]]) -> None:
    async def work() -> None:
        server = Server()
        for action, which in actions:
            busy = [each for each in server.connections if state(server.pool, each) == "busy"]
            if action == "come":
                assert (server.come() == -1) == (len(busy) == BOUND)
            elif action == "wait":
                await server.clock.advance(which)
            elif server.connections:
                connection = server.connections[which % len(server.connections)]
                busy = [each for each in busy if each is not connection]
                if action == "begin":
                    connection.begin()
                elif action == "rest":
                    connection.rest(is_complete=True)
                elif action == "header":
                    connection.await_header()
                else:
                    connection.closed()
            assert all(state(server.pool, each) == "busy" for each in busy)
            assert len(server.pool) <= BOUND
            assert server.pool.quiet.is_set() == (not server.pool.busy)
        await server.clock.advance(LIMITS.idle + 1)
        assert len(server.pool) == len(server.pool.busy)
        server.pool.close_all()
        assert sorted(server.dropped) == sorted(set(server.dropped))
        await server.pool.time_limits.close()

    run(work())
