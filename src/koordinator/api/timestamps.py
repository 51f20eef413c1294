"""Times on the wire: ``metav1.Time`` has seconds, ``metav1.MicroTime`` always six digits after the point."""

from __future__ import annotations

from datetime import UTC, datetime


def format_time(moment: datetime) -> str:
    """RFC 3339 in UTC with whole seconds, cut as Go does."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(moment: datetime) -> str:
    """RFC 3339 in UTC with microseconds; the API server refuses a MicroTime without a fraction."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    # Several times as fast as strftime; the offset at the end is always +00:00.
    return f"{moment.isoformat(timespec='microseconds')[:-6]}Z"
