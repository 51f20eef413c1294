"""CPU and memory as the formulas count them: milli-CPU and bytes, rounded as the Go original rounds.

Where the original goes through a float64, so does this: products are cut towards zero, quotients rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import CPU, MEMORY

_LARGEST: Final = 2**63 - 1


class Amounts(NamedTuple):
    """An amount of both resources."""

    cpu: int
    """Milli-CPU."""
    memory: int
    """Bytes; where amounts are shares of a zone, thousandths of a byte."""

    def plus(self, other: Amounts) -> Amounts:
        return Amounts(self.cpu + other.cpu, self.memory + other.memory)

    def at_least(self, other: Amounts) -> Amounts:
        """The larger of each."""
        return Amounts(max(self.cpu, other.cpu), max(self.memory, other.memory))


NOTHING: Final = Amounts(0, 0)


def cpu_and_memory(resources: Mapping[str, Quantity]) -> Amounts:
    """The two resources of a list; what is missing counts as zero."""
    cpu, memory = resources.get(CPU), resources.get(MEMORY)
    return Amounts(0 if cpu is None else cpu.milli, 0 if memory is None else memory.value)


def usage_of(resources: Mapping[str, Quantity]) -> Amounts:
    """The same for a measured usage. Nothing uses less than nothing: a negative reading counts as zero, so that it
    cannot make room for others."""
    return cpu_and_memory(resources).at_least(NOTHING)


def scaled(amount: int, factor: float) -> int:
    """An amount times a factor, cut towards zero."""
    product = float(amount) * factor
    if not math.isfinite(product):
        return _LARGEST if product > 0 else 0
    return int(product)


def fraction(percent: int) -> float:
    return float(percent) / 100.0


def share(amount: int, parts: int) -> int:
    """One of ``parts`` equal parts, rounded up."""
    return amount if parts == 1 else math.ceil(float(amount) / parts)


def is_different(old: Quantity | None, new: Quantity | None, threshold: float) -> bool:
    """Whether one of two is missing, or the new one is off by more than ``threshold`` times the old one."""
    if old is None or new is None:
        return old is not new
    return abs(float(new.milli - old.milli)) > float(old.milli) * threshold
