"""Request bodies: JSON, YAML or the protobuf of client-go, as one document."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from aiohttp import web

from koordinator.api.document import Document
from koordinator.base.errors import KoordinatorError
from koordinator.cluster import protobuf
from koordinator.cluster.errors import bad_request, unsupported_media_type
from koordinator.cluster.http.yaml_body import YamlError, read_yaml
from koordinator.cluster.limits import MAX_DEPTH, TOO_DEEP, is_too_deep
from koordinator.cluster.resource import Resource
from koordinator.cluster.strategy.json_syntax import complaint, json_kind

_JSON: Final = "application/json"
_YAML: Final = "application/yaml"
_ACCEPTED: Final = (_JSON, _YAML, protobuf.CONTENT_TYPE)
_LONG_YAML: Final = 16 << 10
"""Bytes from which on YAML is parsed beside the event loop: a mebibyte takes seconds."""
_NAMES: Final = ("apiVersion", "kind")
_SHOWN: Final = 30
"""Bytes of a body in a message."""
_TYPE_META: Final = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)
_UNDECODED: Final = "couldn't get version/kind; json parse error: "


class _Undecodable(KoordinatorError):
    """The text is the real server's."""


def media_type(request: web.BaseRequest) -> str:
    return request.headers.get("Content-Type", "").partition(";")[0].strip().lower()


async def read_document(request: web.BaseRequest, kind: str, resource: Resource | None = None) -> Document:
    """The object of a ``kind`` in the body. Raises ApiError: 400 when it does not parse, 415 for another format.

    ``resource`` names the kind where a body in protobuf does not.
    """
    body = await request.read()
    try:
        return await _decoded(body, media_type(request), resource)
    except _Undecodable as error:
        why = f"the object provided is unrecognized (must be of type {kind}): {error} ({_summary(body)})"
        raise bad_request(why) from error


async def read_options(request: web.BaseRequest) -> Document | None:
    """The DeleteOptions in the body; None when it is empty. Raises ApiError as ``read_document`` does."""
    body = await request.read()
    if not body:
        return None
    try:
        return await _decoded(body, media_type(request), None)
    except _Undecodable as error:
        raise bad_request(str(error)) from error


async def _decoded(body: bytes, content_type: str, resource: Resource | None) -> Document:
    if content_type == protobuf.CONTENT_TYPE:
        try:
            return protobuf.decode(body, resource)
        except RecursionError as error:
            raise _Undecodable(TOO_DEEP) from error
    if content_type == _YAML:
        document = await asyncio.to_thread(_from_yaml, body) if len(body) > _LONG_YAML else _from_yaml(body)
    elif content_type in ("", _JSON):
        document = _from_json(body)
    else:
        raise unsupported_media_type(_ACCEPTED)
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise _Undecodable(
            f"{_UNDECODED}json: cannot unmarshal {json_kind(document)} into Go value of type {_TYPE_META}"
        )
    _check_names(document)
    return document


def _from_yaml(body: bytes) -> Any:
    try:
        return read_yaml(body)
    except YamlError as error:
        raise _Undecodable(str(error)) from error


def _from_json(body: bytes) -> Any:
    try:
        document = msgspec.json.decode(body)
    except UnicodeDecodeError:
        # As Go does; where such a text matters, it is refused for what it has become.
        return _from_json(body.decode(errors="replace").encode())
    except (msgspec.DecodeError, RecursionError) as error:
        raise _Undecodable(_UNDECODED + complaint(body, error)) from error
    # Few bodies have so many brackets that they could be too deep.
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and is_too_deep(document):
        raise _Undecodable(_UNDECODED + TOO_DEEP)
    return document


def _check_names(document: Document) -> None:
    for name in _NAMES:
        value = document.get(name)
        if value is None:
            document.pop(name, None)
        elif not isinstance(value, str):
            why = f"json: cannot unmarshal {json_kind(value)} into Go struct field .{name} of type string"
            raise _Undecodable(_UNDECODED + why)
        elif value.count("/") > 1 and name == "apiVersion":
            raise _Undecodable(f"unexpected GroupVersion string: {value}")


def _summary(body: bytes) -> str:
    """The beginning of a body that is not understood, in hexadecimal digits unless it looks like JSON."""
    if not body:
        return "<empty>"
    more = " ..." if len(body) > _SHOWN else ""
    start = body[:_SHOWN]
    return (start.decode(errors="replace") if body.startswith(b"{") else start.hex()) + more
