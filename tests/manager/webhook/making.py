"""Certificates for tests: made once for all of them, since a key takes a tenth of a second."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from functools import cache

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from koordinator.manager.webhook.certificates import Certificates, make_certificates

NAME = "koordinator-webhook-service.koordinator-system.svc"
NOW = datetime(2026, 1, 15, 12, tzinfo=UTC)
KEYS = 4
"""How many a test gets before they repeat: two replicas need as many, for an authority and a certificate
each."""


@cache
def certificates(name: str = NAME, now: datetime = NOW, which: int = 0) -> Certificates:
    """Those of one name and time; each ``which`` has an authority of its own."""
    return make_certificates(name, now)


def reuse_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have certificates that are made from now on take keys of a pool, which exists already."""
    for number in range(KEYS):
        _key(number)
    numbers = itertools.cycle(range(KEYS))
    monkeypatch.setattr("koordinator.manager.webhook.certificates._make_key", lambda: _key(next(numbers)))


@cache
def _key(number: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)
