"""The requests for each verb: targets, query strings and bodies, encoded once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from koordinator.api import codec
from koordinator.api.kinds import Kind

JSON = "application/json"
_ENCODED = (bytes, bytearray, memoryview)
_PLAIN_SEGMENT = re.compile(r"[A-Za-z0-9_~:-][A-Za-z0-9._~:-]*")


class Request(msgspec.Struct, frozen=True, gc=False):
    """One request. ``repeatable``: sending it twice has the same effect as sending it once."""

    method: str
    target: str
    body: bytes | None = None
    content_type: str = JSON
    repeatable: bool = True


def target(kind: Kind[Any], namespace: str = "", name: str = "", subresource: str = "", query: str = "") -> str:
    """Return the path and query. Names with reserved characters are escaped; ``.`` and ``..`` raise ValueError."""
    path = kind.path(_namespace_segment(namespace), _segment(name), subresource)
    return f"{path}?{query}" if query else path


def _segment(text: str) -> str:
    if not text or _PLAIN_SEGMENT.fullmatch(text):
        return text
    if text in (".", ".."):
        raise ValueError(f"{text!r} cannot be a name in a request path")
    return quote(text, safe="")


_namespace_segment = lru_cache(maxsize=1024)(_segment)


def require_name(name: str) -> str:
    """Return ``name``; ValueError if it is empty, which would turn a DELETE into one of the whole collection."""
    if not name:
        raise ValueError("a name is required")
    return name


def query_string(values: Mapping[str, str | int]) -> str:
    """Return the query without empty values; zero counts as empty."""
    return urlencode({key: value for key, value in values.items() if value})


def encode_body(body: Any) -> bytes:
    """Return encoded JSON unchanged; encode a struct or plain document."""
    return bytes(body) if isinstance(body, _ENCODED) else codec.encode(body)


def encode_object(kind: Kind[Any], body: Any) -> bytes:
    """As ``encode_body``, with the required apiVersion and kind filled in if absent."""
    if isinstance(body, _ENCODED):
        return bytes(body)
    document = codec.to_document(body) if isinstance(body, msgspec.Struct) else body
    if isinstance(document, dict) and not ("kind" in document and "apiVersion" in document):
        document = {"apiVersion": kind.api_version, "kind": kind.name, **document}
    return codec.encode(document)


def delete_options(
    uid: str, resource_version: str, grace_period_seconds: int | None, propagation_policy: str
) -> bytes | None:
    """Return the body of a DELETE; None without any options."""
    preconditions = {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
    options: dict[str, Any] = {}
    if preconditions:
        options["preconditions"] = preconditions
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    if propagation_policy:
        options["propagationPolicy"] = propagation_policy
    if not options:
        return None
    return codec.encode({"apiVersion": "v1", "kind": "DeleteOptions", **options})
