"""Whether the ports that programs are to serve on are free, and who holds those that are not."""

from __future__ import annotations

import errno
import socket
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from koordinator.base.errors import KoordinatorError
from koordinator.base.port_holder import holder_of

ADDRESS: Final = "127.0.0.1"


class PortsTaken(KoordinatorError):
    """Ports that are needed cannot be had; the text names each with its holder and the flag that changes it."""


@dataclass(frozen=True, slots=True)
class PortUse:
    """One port that a program is to serve on."""

    port: int
    what: str
    """``the Kubernetes API``."""
    flag: str
    """``--port``."""


def check_ports(uses: Sequence[PortUse]) -> None:
    """Raises PortsTaken with a line for each port that cannot be listened on; 0 takes any and is always fine."""
    problems = _named_twice(uses)
    for use in uses:
        if use.port and (reason := _why_taken(use.port)):
            problems.append(f"port {use.port} ({use.what}) {reason}: choose another with {use.flag}")
    if problems:
        listed = "".join(f"\n  {problem}" for problem in problems)
        raise PortsTaken(f"nothing was started, for want of ports (0 as a port takes any free one):{listed}")


def free_ports(count: int) -> list[int]:
    """Ports on which no process listens now; all are held until the last is known, so that they differ."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((ADDRESS, 0))
        return [probe.getsockname()[1] for probe in probes]


def _named_twice(uses: Sequence[PortUse]) -> list[str]:
    flags: dict[int, list[str]] = defaultdict(list)
    for use in uses:
        if use.port:
            flags[use.port].append(use.flag)
    return [
        f"port {port} is requested more than once: give {' and '.join(names)} different ports"
        for port, names in flags.items()
        if len(names) > 1
    ]


def _why_taken(port: int) -> str:
    """Empty when it is free."""
    with socket.socket() as probe:
        # As the programs do: the remains of closed connections do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ADDRESS, port))
            probe.listen()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return f"is taken by {holder_of(port)}"
            return f"cannot be listened on ({error.strerror})"
    return ""
