"""Amounts by chance, in all notations that an API server takes for quantities."""

from __future__ import annotations

from random import Random
from typing import Final

_GIB: Final = 2**30


def cpu(chance: Random, most: int, least: int = 0) -> str:
    """So many cores, in whole milli-CPU; some notations leave less."""
    milli = chance.randrange(least * 1000, most * 1000 + 1)
    match chance.randrange(9):
        case 0:
            return f"{milli // 1000}"
        case 1:
            return f"{milli}m"
        case 2:
            return f"{milli / 1000:.3f}"
        case 3:
            return f"{milli}e-3"
        case 4:
            return f"{milli}000u"
        case 5:
            return f"+{milli / 1000:.1f}"
        case 6:
            return f"{milli * 10**6}n"
        case 7:
            return f"{milli * 10**3}e-6"
        case _:
            return f"{milli // 1000}.{milli % 1000 // 100}"


def memory(chance: Random, most: int, least: int = 0) -> str:
    """So many gibibytes, in whole bytes; some notations leave less."""
    size = chance.randrange(least * _GIB, most * _GIB + 1)
    match chance.randrange(9):
        case 0:
            return f"{size}"
        case 1:
            return f"{size // 2**10}Ki"
        case 2:
            return f"{size // 2**20}Mi"
        case 3:
            return f"{size // _GIB}Gi"
        case 4:
            return f"{size // 1000}k"
        case 5:
            return f"{size // 10**6}M"
        case 6:
            return f"{size // 10**9}e9"
        case 7:
            return f"{size}000m"
        case _:
            return f"{size // _GIB}.5Gi"


def pair(chance: Random, cores: int, gibibytes: int) -> dict[str, str]:
    """CPU and memory; now and then one of them is missing, or there is another resource beside them."""
    amounts = {"cpu": cpu(chance, cores), "memory": memory(chance, gibibytes)}
    if chance.random() < 0.05:
        amounts.pop(chance.choice(["cpu", "memory"]))
    if chance.random() < 0.1:
        amounts["ephemeral-storage"] = memory(chance, 100)
    return amounts
