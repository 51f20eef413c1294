"""The stored form of an object, chosen so that most answers are made without decoding it.

Stored bytes leave out what the request's URL and the store's revision say anyway (apiVersion, kind,
metadata.resourceVersion) and begin with ``{"metadata":{``. The wire form of any served version is then a splice of
those three in front: get, list and watch of plain objects cost a copy, not a JSON round trip.
"""

from __future__ import annotations

from typing import Any

import msgspec

from koordinator.api.document import Document
from koordinator.cluster.errors import too_large
from koordinator.cluster.limits import MAX_BODY
from koordinator.cluster.resource import Resource
from koordinator.cluster.storage.interface import Stored

_HEAD = b'{"metadata":{'
_LEFT_OUT = frozenset(("apiVersion", "kind", "metadata"))
_LEFT_OUT_OF_METADATA = frozenset(("resourceVersion", "managedFields", "selfLink"))
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def encode(resource: Resource, obj: Document) -> bytes:
    """An object of one served version as it is stored."""
    if resource.to_stored is not None:
        obj = resource.to_stored(obj)
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _LEFT_OUT_OF_METADATA}
    body: Document = {"metadata": metadata}
    body.update((name, value) for name, value in obj.items() if name not in _LEFT_OUT)
    return _encode(body)


def check_size(value: bytes) -> None:
    """Raises ApiError 413 for an object that patches, webhooks or defaults have made too large."""
    if len(value) > MAX_BODY:
        raise too_large(f"limit is {MAX_BODY}")


def decode(resource: Resource, stored: Stored) -> Document:
    """A stored object in the form of one served version; the caller owns the result."""
    if resource.current is not None:
        stored = resource.current(stored)
    obj: Document = {"apiVersion": resource.api_version, "kind": resource.kind, **_decode(stored.value)}
    if stored.revision:
        obj["metadata"]["resourceVersion"] = str(stored.revision)
    return obj if resource.from_stored is None else resource.from_stored(obj)


def wire(resource: Resource, stored: Stored) -> bytes:
    """``decode`` and encode again, without doing either where the versions differ in nothing else."""
    if resource.from_stored is not None:
        return _encode(decode(resource, stored))
    if resource.current is not None:
        stored = resource.current(stored)
    version = b'"resourceVersion":"%d",' % stored.revision if stored.revision else b""
    head = b'{"kind":"%s","apiVersion":"%s","metadata":{%s' % (
        resource.kind.encode(),
        resource.api_version.encode(),
        version,
    )
    return head + stored.value[len(_HEAD) :]
