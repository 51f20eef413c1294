"""``metav1.Duration``: a Go duration string on the wire, a timedelta in memory."""

from __future__ import annotations

from datetime import timedelta
from functools import lru_cache

from koordinator.base.durations import DurationError, parse_duration


class GoDuration(timedelta):
    """A duration that is decoded from, and encoded to, text such as ``5m0s``."""

    @classmethod
    def parse(cls, text: str) -> GoDuration:
        """Read a Go duration string; equal texts give the same object. Raises DurationError."""
        return _parse(text)


@lru_cache(maxsize=4096)
def _parse(text: str) -> GoDuration:
    try:
        return GoDuration(microseconds=parse_duration(text) // timedelta(microseconds=1))
    except OverflowError as error:
        raise DurationError(f"{text!r} is too long for a duration") from error
