"""Amounts of resources as quotas count them: resource name -> integer, in milli-CPUs for CPU, in whole units for
others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from koordinator.api.pod import ResourceList
from koordinator.api.quantity import Format, Quantity
from koordinator.api.resource_names import CPU, MEMORY

Amounts = dict[str, int]
NOTHING: Final[Mapping[str, int]] = {}


def from_wire(resources: ResourceList) -> Amounts:
    """The amounts of a ResourceList, rounded up as in the original."""
    return {name: quantity.milli if name == CPU else quantity.value for name, quantity in resources.items()}


def to_wire(amounts: Mapping[str, int]) -> ResourceList:
    """The ResourceList sorted by name, in the original's formats: memory with binary suffixes, all else decimal."""
    return {name: _quantity(name, amounts[name]) for name in sorted(amounts)}


def _quantity(name: str, amount: int) -> Quantity:
    if name == CPU:
        return Quantity.from_milli(amount)
    return Quantity.from_value(amount, Format.BINARY_SI if name == MEMORY else Format.DECIMAL_SI)


def printed(resources: ResourceList) -> str:
    """``cpu:4,memory:8Gi``, the original's format of a ResourceList in messages."""
    return ",".join(sorted(f"{name}:{quantity}" for name, quantity in resources.items())) or "<empty>"


def add(total: Amounts, amounts: Mapping[str, int], times: int = 1) -> None:
    """Add to ``total`` in place; a name stays even when its amount is 0 again."""
    for name, amount in amounts.items():
        # Nearly always it is there: this runs several times for each event of each pod.
        try:
            total[name] += times * amount
        except KeyError:
            total[name] = times * amount


def summed(parts: Iterable[Mapping[str, int]]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        add(total, part)
    return total


def masked(amounts: Mapping[str, int], names: Collection[str]) -> Amounts:
    return {name: amount for name, amount in amounts.items() if name in names}


def larger(left: Mapping[str, int], right: Mapping[str, int]) -> Amounts:
    """The maximum of both for each name in either; a missing name counts as 0."""
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}


def limited(amounts: Mapping[str, int], limit: Mapping[str, int]) -> Amounts:
    """``amounts`` cut to ``limit``; a name missing in ``limit`` is not limited."""
    return {name: min(amount, limit.get(name, amount)) for name, amount in amounts.items()}


def exceeding(amounts: Mapping[str, int], limit: Mapping[str, int]) -> list[str]:
    """The names whose amounts exceed ``limit``, sorted; a name missing in ``limit`` is not limited."""
    return sorted([name for name, amount in amounts.items() if name in limit and amount > limit[name]])


def without_zeros(amounts: Mapping[str, int]) -> Amounts:
    return {name: amount for name, amount in amounts.items() if amount}
