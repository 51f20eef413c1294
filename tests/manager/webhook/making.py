"""Certificates for tests: made once for all of them, since a key takes a tenth of a second."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache

from koordinator.manager.webhook.certificates import Certificates, make_certificates

NAME = "koordinator-webhook-service.koordinator-system.svc"
NOW = datetime(2026, 1, 15, 12, tzinfo=UTC)


@cache
def certificates(name: str = NAME, now: datetime = NOW, which: int = 0) -> Certificates:
    """Those of one name and time; each ``which`` has an authority of its own."""
    return make_certificates(name, now)
