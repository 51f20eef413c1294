"""Durations as kubectl shows them: about two digits of precision, so that a column stays narrow."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 365 * 86_400


def human_duration(duration: timedelta) -> str:
    """``45s``, ``3m20s``, ``5h``, ``2d3h``, ``400d``, ``2y35d`` (k8s.io/apimachinery, duration.HumanDuration)."""
    seconds = int(duration.total_seconds())
    if seconds < -1:
        return "<invalid>"
    if seconds < 0:
        return "0s"
    if seconds < 2 * _MINUTE:
        return f"{seconds}s"
    if seconds < 10 * _MINUTE:
        return _two(seconds, _MINUTE, "m", 1, "s")
    if seconds < 3 * _HOUR:
        return f"{seconds // _MINUTE}m"
    if seconds < 8 * _HOUR:
        return _two(seconds, _HOUR, "h", _MINUTE, "m")
    if seconds < 2 * _DAY:
        return f"{seconds // _HOUR}h"
    if seconds < 8 * _DAY:
        return _two(seconds, _DAY, "d", _HOUR, "h")
    if seconds < 2 * _YEAR:
        return f"{seconds // _DAY}d"
    if seconds < 8 * _YEAR:
        return _two(seconds, _YEAR, "y", _DAY, "d")
    return f"{seconds // _YEAR}y"


def age(timestamp: Any, now: datetime) -> str:
    """How long ago an RFC 3339 time was; ``<unknown>`` when it is not set."""
    if not timestamp:
        return "<unknown>"
    return human_duration(now - datetime.fromisoformat(timestamp))


def _two(seconds: int, unit: int, name: str, small: int, small_name: str) -> str:
    whole, rest = divmod(seconds, unit)
    rest //= small
    return f"{whole}{name}{rest}{small_name}" if rest else f"{whole}{name}"
