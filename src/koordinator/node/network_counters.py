"""What the kernel counts of one network namespace: packets of its devices, and segments of its TCP connections.

Both are read through a process that is in the namespace (``/proc/PID/net``), so that nobody has to enter it. Every
kernel counts them, for each namespace by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from koordinator.node.errors import MalformedFileError, OddRowError, Skipped
from koordinator.node.host import Host, parse_count, read_file

_LOOPBACK: Final = b"lo"
_COLUMNS: Final = 16
"""Of a device: eight of what it received, eight of what it sent."""
_BYTES, _PACKETS, _DROPPED = 0, 1, 3
_SENT: Final = 8
"""Where the columns of what it sent begin."""


@dataclass(frozen=True, slots=True)
class NetworkCounters:
    """Since the namespace was made: bytes of all its devices but the loopback, and their packets, both ways;
    ``segments`` of TCP that were sent for the first time, and those that had to be sent again."""

    received: int
    sent: int
    packets: int
    dropped: int
    segments: int
    retransmitted: int


def read_network_counters(host: Host, process: int | Literal["self"], skipped: Skipped) -> NetworkCounters:
    """Of the namespace that the process is in; MissingFileError if it has ended."""
    folder = f"{host.proc}/{process}/net"
    segments, again = _parse_tcp(f"{folder}/snmp", read_file(f"{folder}/snmp"))
    path = f"{folder}/dev"
    return NetworkCounters(*_parse_devices(path, read_file(path), skipped), segments, again)


def _parse_tcp(path: str, content: bytes) -> tuple[int, int]:
    """Two lines of each protocol: names, then values."""
    rows = [line.split() for line in content.splitlines() if line.startswith(b"Tcp:")]
    if len(rows) == 2:
        named = dict(zip(*rows, strict=False))
        sent, again = (parse_count(named.get(name, b"")) for name in (b"OutSegs", b"RetransSegs"))
        if sent is not None and again is not None:
            return sent, again
    raise MalformedFileError(path, "has no OutSegs and RetransSegs of Tcp")


def _parse_devices(path: str, content: bytes, skipped: Skipped) -> tuple[int, int, int, int]:
    """Bytes received and sent, packets, dropped."""
    totals = [0] * (2 * _SENT)
    for line in content.splitlines()[2:]:
        name, colon, rest = line.partition(b":")
        counts = [parse_count(field) for field in rest.split()[:_COLUMNS]]
        if not colon or len(counts) < _COLUMNS or None in counts:
            skipped(OddRowError(path, f"{line[:80]!r} is not a device with {_COLUMNS} counts"))
        elif name.strip() != _LOOPBACK:
            totals = [total + (count or 0) for total, count in zip(totals, counts, strict=True)]
    packets, dropped = (totals[column] + totals[_SENT + column] for column in (_PACKETS, _DROPPED))
    return totals[_BYTES], totals[_SENT + _BYTES], packets, dropped
