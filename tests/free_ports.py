"""Ports for programs that have to be told theirs."""

from __future__ import annotations

import random
import socket
from typing import Final

_RANGE: Final = range(10_000, 32_000)
"""Below the ports that kernels give to outgoing connections, of which one could take a port before its program does."""
_CHOICE: Final = random.SystemRandom()
"""Several test runs and workers choose at the same time; they would choose alike with a seed."""


def free_ports(count: int) -> list[int]:
    """Loopback ports that no process listens on now; all are held until the last is known, so that they differ."""
    sockets: list[socket.socket] = []
    try:
        while len(sockets) < count:
            one = socket.socket()
            try:
                one.bind(("127.0.0.1", _CHOICE.choice(_RANGE)))
            except OSError:
                one.close()
            else:
                sockets.append(one)
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
