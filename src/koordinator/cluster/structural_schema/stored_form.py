"""What readers see of an object that was stored before its schema became what it is now.

The real server prunes and defaults whatever it reads. Here an object that is younger than the schema went through it
when it was written, and is passed on as the bytes that it is; only older ones are decoded, and each of them once.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.strategy.custom import CustomSchema

_REMEMBERED: Final = 20_000
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class StoredForm:
    """From the stored form of a kind to that of one version."""

    def __init__(self, stored: CustomSchema, shown: CustomSchema | None, since: int | None) -> None:
        """``stored`` is the schema of the storage version, ``shown`` that of another one that is read.

        ``since``: see ``CurrentForm``.
        """
        self._schema = stored
        self._shown = shown
        self.since = since
        self._known: dict[str, tuple[int, bytes]] = {}
        """Key -> a revision, and what is shown of it."""

    def __call__(self, stored: Stored) -> Stored:
        if not stored.revision:
            return stored
        known = self._known.get(stored.key)
        if known is None or known[0] != stored.revision:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[stored.key] = (stored.revision, self._refreshed(stored.value))
        return Stored(stored.key, known[1], stored.revision)

    def _refreshed(self, value: bytes) -> bytes:
        obj = _decode(value)
        self._schema.refresh(obj)
        if self._shown is not None:
            self._shown.prune(obj)
        refreshed = _encode(obj)
        # Most old objects fit the new schema, and need not be kept twice.
        return value if refreshed == value else refreshed


class ConvertedForm:
    """The same where a webhook converts: only what has the version already is looked at, and nothing is remembered."""

    since: int | None = None

    def __init__(self, schema: CustomSchema, api_version: str, unnamed: str) -> None:
        """``unnamed`` is the version of bytes that name none."""
        self._schema = schema
        self._api_version = api_version
        self._unnamed = unnamed

    def __call__(self, stored: Stored) -> Stored:
        obj = _decode(stored.value)
        if obj.setdefault("apiVersion", self._unnamed) == self._api_version:
            self._schema.refresh(obj)
        return Stored(stored.key, _encode(obj), stored.revision)
