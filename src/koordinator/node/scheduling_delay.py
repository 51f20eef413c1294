"""How long a thread has run and how long it has waited for a CPU, which every kernel counts for every thread."""

from __future__ import annotations

from dataclasses import dataclass

from koordinator.node.errors import MalformedFileError
from koordinator.node.host import Host, parse_count, read_file


@dataclass(frozen=True, slots=True)
class SchedulingDelay:
    """Nanoseconds since the thread began: on a CPU, and ready to run without one."""

    ran: int
    waited: int


def read_scheduling_delay(host: Host, thread: int) -> SchedulingDelay:
    """Of a thread by its ID, as cgroups list it; MissingFileError if it has ended."""
    path = f"{host.proc}/{thread}/schedstat"
    content = read_file(path, limit=4096)
    fields = content.split()
    ran, waited, slices = [parse_count(field) for field in [*fields, b"", b"", b""][:3]]
    if ran is None or waited is None or slices is None:
        raise MalformedFileError(path, f"{content[:60]!r} does not begin with three counts")
    return SchedulingDelay(ran, waited)
