"""Request bodies: JSON, YAML or the protobuf of client-go, as one document."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml
from aiohttp import web

from koordinator.api.document import Document
from koordinator.cluster import protobuf
from koordinator.cluster.errors import bad_request, unsupported_media_type
from koordinator.cluster.resource import Resource

MAX_BODY = 3 << 20
"""Bytes; the real server's limit."""
_ACCEPTED = ("application/json", "application/yaml", protobuf.CONTENT_TYPE)


def media_type(request: web.BaseRequest) -> str:
    return request.headers.get("Content-Type", "").partition(";")[0].strip().lower()


async def read_document(request: web.BaseRequest, resource: Resource | None) -> Document:
    """The object in the body. Raises ApiError: 400 when it does not parse, 415 for another format."""
    document = decode_document(await request.read(), media_type(request), resource)
    if document is None:
        raise bad_request("the request body must hold an object")
    return document


def decode_document(body: bytes, content_type: str, resource: Resource | None) -> Document | None:
    """None for an empty body."""
    if content_type == protobuf.CONTENT_TYPE:
        return protobuf.decode(body, resource) if body else None
    if content_type not in ("", "application/json", "application/yaml"):
        raise unsupported_media_type(content_type, _ACCEPTED)
    if not body:
        return None
    try:
        document: Any = _from_yaml(body) if content_type == "application/yaml" else msgspec.json.decode(body)
    except (msgspec.DecodeError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise bad_request(f"the request body does not parse: {error}") from error
    if not isinstance(document, dict):
        raise bad_request("the request body must be an object")
    return document


def _from_yaml(body: bytes) -> Any:
    # YAML has a type for moments, JSON writes them as text.
    return msgspec.to_builtins(yaml.safe_load(body))
