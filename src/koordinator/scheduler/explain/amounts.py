"""Amounts of resources as people write them: cores, Gi, counts."""

from __future__ import annotations

from typing import Final

_BINARY: Final = ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)


def amount_text(resource: str, amount: int) -> str:
    """``amount`` in the unit of its column: milli-CPU, bytes or a count. Rounded to three digits after the point."""
    if resource == "cpu":
        return _decimal(amount, 1000)
    if _is_bytes(resource):
        for suffix, bits in _BINARY:
            if abs(amount) >= 1 << bits:
                return f"{_decimal(amount, 1 << bits)}{suffix}"
    return str(amount)


def _is_bytes(resource: str) -> bool:
    return resource.endswith(("memory", "storage")) or "hugepages-" in resource


def _decimal(amount: int, unit: int) -> str:
    return f"{amount / unit:.3f}".rstrip("0").rstrip(".")
