"""What the clients of one server may take up: how many connections, and how long for each step.

What becomes of those that take longer is in ``koordinator.base.served_connections``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

STALLED_SECONDS: Final = 1.0
"""For so long a client is watched before it may be called stalled."""
OLDEST_SAMPLE_SECONDS: Final = 5.0
"""What a client had moved longer ago is not compared: it may have read one response since and have got another."""
SLOWEST: Final = 16 << 10
"""Bytes a second. A client that moves fewer is stalled, else a byte now and then would hold a connection."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Of one server. Times are in seconds."""

    connections: int = 256
    handshake: float = 10.0
    """From the connection to its first byte and the end of the TLS handshake."""
    header: float = 10.0
    """From there, or from the first byte of a later request, to the end of the request's header."""
    body: float = 30.0
    """From the end of the header to the end of the body."""
    idle: float = 120.0
    """Between two requests; longer than API servers keep an idle connection (90 s), so that they close it first."""
    response: float = 30.0
    """For reading a response; each MiB of it adds a second."""

    @property
    def reserve(self) -> int:
        """So many connections may have sent no request yet and are closed after all others that may be closed."""
        return self.connections // 2

    def reading(self, size: int) -> float:
        """How long a client may take to read a response of that many bytes."""
        return self.response + size / (1 << 20)


SOCKET_LIMITS: Final = ServerLimits(idle=inf)
"""Of a unix socket. Its clients, such as the kubelet, may keep a connection for days without a request."""
