"""What is claimed of the day, and what is said where it is not so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement about the day, with the figure that decides it."""

    text: str
    holds: bool
    expected: str
    seen: str
    """With numbers and names."""
    advice: Sequence[str]
    """What to try when it does not hold, beginning with commands where there are some."""


def some(names: Sequence[str], most: int = 5) -> str:
    """A few names of many."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "") if names else "none"


def clock(hour: float) -> str:
    """An hour of the day, as a clock shows it."""
    return f"{int(hour):02d}:{int(hour % 1 * 60):02d}"
