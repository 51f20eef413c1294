"""Amounts of resources as people write them, each with its unit: cores, milli-CPU, Gi, percent, pods."""

from __future__ import annotations

from typing import Final

from koordinator.api import resource_names

_BINARY: Final = ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)
_MILLI_CPU: Final = frozenset({resource_names.BATCH_CPU, resource_names.MID_CPU})
"""Their whole numbers are milli-CPU, unlike those of ``cpu``, whose unit in the API is the core."""
_PERCENT: Final = frozenset({resource_names.GPU, resource_names.GPU_CORE, resource_names.GPU_MEMORY_RATIO})


def amount_text(resource: str, amount: int) -> str:
    """``amount`` in the unit of its column (milli-CPU, bytes or a count), rounded to three digits after the point.

    What is neither CPU nor bytes nor a percentage is counted in pieces of the resource itself: its name is the unit,
    and the text is the number alone (see ``amount_of``).
    """
    if resource == resource_names.CPU:
        return f"{_decimal(amount, 1000)} core{'' if abs(amount) == 1000 else 's'}"
    if resource in _MILLI_CPU:
        return f"{amount}m"
    if resource in _PERCENT:
        return f"{amount} %"
    if resource == resource_names.PODS:
        return f"{amount} pod{'' if amount == 1 else 's'}"
    if _is_bytes(resource):
        for suffix, bits in _BINARY:
            if abs(amount) >= 1 << bits:
                return f"{_decimal(amount, 1 << bits)}{suffix}"
        return f"{amount} B"
    return str(amount)


def amount_of(resource: str, amount: int) -> str:
    """``6 cores of cpu``, ``2 example.com/gpu``: the amount with the name of the resource."""
    text = amount_text(resource, amount)
    if resource == resource_names.PODS:
        return text
    return f"{text} {resource}" if text == str(amount) else f"{text} of {resource}"


def _is_bytes(resource: str) -> bool:
    return resource.endswith(("memory", "storage")) or "hugepages-" in resource


def _decimal(amount: int, unit: int) -> str:
    return f"{amount / unit:.3f}".rstrip("0").rstrip(".")
