"""What was counted, what was recorded, and how far they are apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

MORE: Final = 0.03
"""The share by which a cost may grow before a test fails: what a plain change costs here and there."""
LESS: Final = 0.10
"""The share by which a cost may fall before it has to be recorded again, so that the gain is kept."""
_NAMED: Final = 12
_RECORDED_FROM: Final = 1.0
"""Functions that are called less often for one piece of work are not recorded one by one."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Calls for one piece of work, in all and by ``module:function``."""

    calls: float
    by_function: Mapping[str, float]

    @classmethod
    def of(cls, counted: Mapping[str, int], pieces: int) -> Cost:
        """Of so many pieces of work together."""
        calls = {name: round(count / pieces, 2) for name, count in counted.items()}
        kept = {name: count for name, count in sorted(calls.items()) if count >= _RECORDED_FROM}
        return cls(round(sum(counted.values()) / pieces, 1), kept)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Cost:
        return cls(document["calls"], document["by_function"])

    def document(self) -> dict[str, Any]:
        return {"calls": self.calls, "by_function": dict(self.by_function)}


def complaint(name: str, now: Cost, recorded: Cost | None, record: str) -> str:
    """What is wrong with the cost of ``name``; empty if it is what was recorded. ``record`` is the command that
    records it."""
    if recorded is None:
        return f"{name}: {now.calls:.1f} calls, of which nothing is recorded: {record}"
    change = now.calls / recorded.calls - 1
    if now.calls > recorded.calls * (1 + MORE):
        return (
            f"{name}: {now.calls:.1f} calls instead of {recorded.calls:.1f}, {change:+.1%} (allowed: {MORE:+.0%}). "
            f"These grew most:\n{_largest(now, recorded)}\nIf that is meant: {record}"
        )
    if now.calls < recorded.calls * (1 - LESS):
        return (
            f"{name}: {now.calls:.1f} calls instead of {recorded.calls:.1f}, {change:+.1%}. To keep the gain: {record}"
        )
    return ""


def _largest(now: Cost, recorded: Cost) -> str:
    names = {*now.by_function, *recorded.by_function}
    growth = {name: now.by_function.get(name, 0.0) - recorded.by_function.get(name, 0.0) for name in names}
    largest = sorted(growth, key=lambda name: (-growth[name], name))[:_NAMED]
    before, after = recorded.by_function.get, now.by_function.get
    lines = (f"{growth[name]:+9.2f}  {before(name, 0.0):.2f} -> {after(name, 0.0):.2f}  {name}" for name in largest)
    return "\n".join(f"  {line}" for name, line in zip(largest, lines, strict=True) if growth[name] > 0)
