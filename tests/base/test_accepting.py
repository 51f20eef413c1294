"""How a server comes by its connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from koordinator.base.accepting import attach
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.base.served_connections import ProgramConnections, ServedConnection
from koordinator.base.server_limits import ServerLimits


class Gone(asyncio.Protocol):
    """Of a client that is gone as soon as it is here."""

    def __init__(self, connection: ServedConnection) -> None:
        self._connection = connection

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.closed()


class TransportOfNobody(asyncio.Transport):
    """As asyncio's own for TLS once its connection is lost."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        raise AttributeError("'NoneType' object has no attribute '_get_extra_info'")


class Loop(asyncio.SelectorEventLoop):
    """Loses each connection while it is accepted."""

    async def connect_accepted_socket(  # type: ignore[override]
        self, factory: Callable[[], asyncio.Protocol], sock: socket.socket, **options: Any
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        protocol = factory()
        protocol.connection_lost(None)
        return TransportOfNobody(), protocol


def test_a_client_that_is_gone_at_once_is_no_error() -> None:
    async def story() -> bool:
        pool = ProgramConnections(Metrics(), ManualClock()).serve("1", ServerLimits())
        connection = pool.open("10.0.0.1", lambda: None)
        connection.await_handshake()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            await attach(ours, connection, Gone(connection))
        await pool.time_limits.close()
        return connection.is_open

    with asyncio.Runner(loop_factory=Loop) as runner:
        assert not runner.run(story())
