"""Go's duration strings, as Kubernetes writes them in flags and in ``metav1.Duration`` fields."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from koordinator.base.errors import KoordinatorError

_NANOSECONDS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_TERM = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")

_LONGEST = 200
"""Characters; Python reads numbers of thousands of digits slowly, and rejects very long ones."""
_LIMIT = 2**63 - 1
"""Nanoseconds."""


class DurationError(KoordinatorError, ValueError):
    """A text that is not a Go duration."""


def parse_duration(text: str) -> timedelta:
    """Read a duration such as ``1h30m``, ``300ms`` or ``-1.5h``; resolution is a microsecond.

    Raises DurationError when the text is not a sequence of numbers with units (a bare ``0`` is allowed).
    """
    if len(text) > _LONGEST:
        raise DurationError(f"{text[:_LONGEST]!r}… is not a duration: at most {_LONGEST} characters are allowed")
    body = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    if body == "0":
        return timedelta()
    position = total = 0
    for term in _TERM.finditer(body):
        if term.start() != position:
            break
        position = term.end()
        number, unit = term.groups()
        whole, _, fraction = number.partition(".")
        scale = _NANOSECONDS[unit]
        total += int(whole or 0) * scale
        if fraction:
            total += int(fraction) * scale // 10 ** len(fraction)
    if not body or position != len(body):
        raise DurationError(f"{text!r} is not a duration: write numbers with units such as 300ms, 10s, 5m or 1h30m")
    if total > _LIMIT:
        raise DurationError(f"{text!r} is not a duration: Go's reach to about 292 years")
    # The maximum is truncated, because rounding could yield a duration that Go cannot read.
    microseconds = min((total + 500) // 1000, _LIMIT // 1000)
    return timedelta(microseconds=-microseconds if text.startswith("-") else microseconds)


def format_duration(duration: timedelta) -> str:
    """Return the duration in Go's canonical form: ``5m0s``, ``24h0m0s``, ``1.5s``, ``300ms``, ``0s``."""
    microseconds = duration // timedelta(microseconds=1)
    sign, microseconds = ("-", -microseconds) if microseconds < 0 else ("", microseconds)
    if microseconds == 0:
        return "0s"
    if microseconds < 1_000:
        return f"{sign}{microseconds}µs"
    if microseconds < 1_000_000:
        return f"{sign}{_decimal(microseconds, 1_000)}ms"
    minutes, rest = divmod(microseconds, 60_000_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, 1_000_000)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    if hours:
        text = f"{hours}h{text}"
    return sign + text


def has_passed(duration: timedelta, since: datetime, now: datetime) -> bool:
    """Whether so much time has passed since a moment that a wall clock gave.

    Where the clock has been set back since then by more than the duration, it has: nothing waits for a clock to come
    back to where it was."""
    return abs(now - since) >= duration


def _decimal(value: int, unit: int) -> str:
    whole, fraction = divmod(value, unit)
    digits = f"{fraction:0{len(str(unit)) - 1}d}".rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)
