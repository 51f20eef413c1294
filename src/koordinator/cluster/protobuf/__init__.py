"""Bodies of requests that client-go programs send in protobuf, decoded into JSON documents.

Only requests: answers are always JSON, which every client accepts. The field numbers come from the table of types.
"""

from __future__ import annotations

from typing import Final

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.table import kind_type
from koordinator.cluster.errors import bad_request, unsupported_media_type
from koordinator.cluster.protobuf.message import NoTable, decode_message
from koordinator.cluster.protobuf.wire import WireError, read_fields
from koordinator.cluster.resource import Resource

CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"
_TYPE_META, _RAW = 1, 2
_API_VERSION, _KIND = 1, 2
_JSON_TYPES: Final = ("application/json", "application/yaml")

__all__ = ["CONTENT_TYPE", "decode"]


def decode(body: bytes, resource: Resource | None) -> Document:
    """The object in a ``runtime.Unknown`` envelope; ``resource`` names the kind where the envelope does not.

    Raises ApiError: 400 for bytes that are no such envelope, 415 for a kind without a table.
    """
    if not body.startswith(_MAGIC):
        raise bad_request("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    try:
        api_version, kind, raw = _envelope(body[len(_MAGIC) :])
        if not kind and resource is not None:
            api_version, kind = resource.api_version, resource.kind
        object_type = kind_type(_core_alias(api_version, kind), kind)
        if object_type is None:
            raise unsupported_media_type(_JSON_TYPES)
        return {"apiVersion": api_version, "kind": kind, **decode_message(raw, object_type)}
    except NoTable as error:
        raise unsupported_media_type(_JSON_TYPES) from error
    except (WireError, UnicodeDecodeError) as error:
        raise bad_request(f"unable to decode the protobuf body: {error}") from error


def _core_alias(api_version: str, kind: str) -> str:
    # Options are sent in the version of the resource that they are for.
    return "v1" if kind == "DeleteOptions" else api_version


def _envelope(data: bytes) -> tuple[str, str, bytes]:
    api_version = kind = ""
    raw = b""
    for number, value in read_fields(data):
        if number == _RAW and isinstance(value, bytes):
            raw = value
        elif number == _TYPE_META and isinstance(value, bytes):
            names = {inner: text for inner, text in read_fields(value) if isinstance(text, bytes)}
            api_version = names.get(_API_VERSION, b"").decode()
            kind = names.get(_KIND, b"").decode()
    return api_version, kind, raw
