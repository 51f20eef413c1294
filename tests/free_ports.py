"""Ports for programs that have to be told theirs."""

from __future__ import annotations

import socket


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody listens on now; all are held until the last is known, so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
