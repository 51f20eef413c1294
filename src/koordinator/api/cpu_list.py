"""Lists of CPUs (or of NUMA nodes) as the kernel and the annotations write them: ``0-3,7``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

HIGHEST_CPU: Final = 1 << 16
"""No machine has more CPUs; without a bound ``0-999999999`` would cost minutes and gigabytes."""
HIGHEST_NUMA_NODE: Final = (1 << 10) - 1
"""The kernel's own bound."""


def parse_cpu_list(text: str) -> frozenset[int]:
    """The CPUs that the list names; none for an empty one, and none for a range that ends before it begins.

    Raises ValueError, with a text for the list's author.
    """
    cpus: set[int] = set()
    for part in text.split(",") if text else ():
        first, dash, last = part.partition("-")
        # isdecimal() alone accepts the digits of other scripts.
        if not _is_number(first) or (dash and not _is_number(last)):
            raise ValueError(f"{text!r} is no list of CPUs: write numbers and ranges, such as 0-3,7")
        start, end = int(first), int(last if dash else first)
        if max(start, end) > HIGHEST_CPU:
            raise ValueError(f"{text!r} names CPU {max(start, end)}: the highest is {HIGHEST_CPU}")
        cpus.update(range(start, end + 1))
    return frozenset(cpus)


def format_cpu_list(cpus: Iterable[int]) -> str:
    """The list in ascending order, neighbours as ranges: what ``parse_cpu_list`` reads back."""
    parts: list[str] = []
    ordered = sorted(set(cpus))
    start = 0
    for position, cpu in enumerate(ordered):
        if position + 1 < len(ordered) and ordered[position + 1] == cpu + 1:
            continue
        first = ordered[start]
        parts.append(str(cpu) if first == cpu else f"{first}-{cpu}")
        start = position + 1
    return ",".join(parts)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10
