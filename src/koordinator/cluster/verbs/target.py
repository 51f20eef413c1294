"""What a request is about: the object that it names, its identity, and how it is stored."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from random import Random
from typing import Any, Final, overload

import msgspec

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.canonical import WrongType
from koordinator.api.kubernetes_types.table import kind_type
from koordinator.api.meta import Object, ObjectMeta
from koordinator.cluster.errors import ApiError, bad_request, invalid, too_large
from koordinator.cluster.limits import MAX_BODY
from koordinator.cluster.managed_fields.field_manager import MANAGED_FIELDS
from koordinator.cluster.namespace_content import set_conditions
from koordinator.cluster.resource import Resource
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.strategy.causes import invalid as field_invalid
from koordinator.cluster.strategy.custom_resource_definition import DELETION_PENDING
from koordinator.cluster.strategy.json_syntax import json_kind


class Target(msgspec.Struct, frozen=True):
    """One object, or with an empty name all objects of a kind in a namespace (None: in all namespaces)."""

    resource: Resource
    namespace: str | None = None
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> str:
        """Where the object is stored."""
        prefix = self.resource.prefix
        return f"{prefix}{self.namespace}/{self.name}" if self.namespace else f"{prefix}{self.name}"

    @property
    def prefix(self) -> str:
        """Where all objects of the namespace are stored, or of all namespaces."""
        return f"{self.resource.prefix}{self.namespace}/" if self.namespace else self.resource.prefix


# The stored form of an object, chosen so that most responses are made without decoding it.
#
# Stored bytes leave out what the request's URL and the store's revision say anyway (apiVersion, kind,
# metadata.resourceVersion) and begin with ``{"metadata":{``. The wire form of any served version is then a splice of
# those three in front: get, list and watch of plain objects cost a copy, not a JSON round trip.


_HEAD = b'{"metadata":{'
_MARK = re.compile(rb',"apiVersion":"[^"\\]*"\}\Z')
_LEFT_OUT = frozenset(("apiVersion", "kind", "metadata"))
_LEFT_OUT_OF_METADATA = frozenset(("resourceVersion", "selfLink"))
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_decode_head = msgspec.json.Decoder(Object).decode


def encode(resource: Resource, obj: Document) -> bytes:
    """An object of one served version as it is stored."""
    if resource.to_stored is not None:
        obj = resource.to_stored(obj)
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _LEFT_OUT_OF_METADATA}
    body: Document = {"metadata": metadata}
    body.update((name, value) for name, value in obj.items() if name not in _LEFT_OUT)
    if resource.stored_as:
        body["apiVersion"] = resource.stored_as if resource.conversion is None else obj["apiVersion"]
    return _encode(body)


def encode_within_limit(resource: Resource, obj: Document) -> bytes:
    """Without the managers of its fields, where these make it too large.

    Raises ApiError 413 for an object that patches, webhooks or defaults have made too large by itself.
    """
    value = encode(resource, obj)
    if len(value) > MAX_BODY and obj["metadata"].pop(MANAGED_FIELDS, None):
        value = encode(resource, obj)
    if len(value) > MAX_BODY:
        raise too_large(f"limit is {MAX_BODY}")
    return value


def current(resource: Resource, stored: Stored) -> Stored:
    """A stored object in the form that the schema of its kind gives it now."""
    form = resource.current
    if form is None or (form.since is not None and stored.revision > form.since):
        return stored
    return form(stored)


def decode(resource: Resource, stored: Stored) -> Document:
    """A stored object in the form of one served version; the caller owns the result.

    Where a webhook converts, it has the stored form, and says so in its apiVersion: see ``shown``."""
    stored = current(resource, stored)
    obj: Document = {"apiVersion": resource.api_version, "kind": resource.kind, **_decode(stored.value)}
    if resource.stored_as and resource.conversion is None:
        obj["apiVersion"] = resource.api_version
    if stored.revision:
        obj["metadata"]["resourceVersion"] = str(stored.revision)
    return obj if resource.from_stored is None else resource.from_stored(obj)


class StoredObjects(Sequence[Document]):
    """Objects of one kind, each decoded when it is asked for: there may be tens of thousands."""

    def __init__(self, resource: Resource | None, stored: Sequence[Stored]) -> None:
        """Of a kind that is not served, which has no ``resource``, there are none."""
        self._resource = resource
        self._stored = stored

    def __len__(self) -> int:
        return len(self._stored)

    @overload
    def __getitem__(self, place: int) -> Document: ...
    @overload
    def __getitem__(self, place: slice) -> StoredObjects: ...
    def __getitem__(self, place: int | slice) -> Document | StoredObjects:
        if isinstance(place, slice):
            return StoredObjects(self._resource, self._stored[place])
        stored = self._stored[place]
        assert self._resource is not None
        return decode(self._resource, stored)

    def metadata(self) -> Iterator[ObjectMeta]:
        """That of each, for a part of the price; without the resource version."""
        return (_decode_head(each.value).metadata for each in self._stored)


def wire(resource: Resource, stored: Stored) -> bytes:
    """``decode`` and encode again, without doing either where the versions differ in nothing else."""
    if resource.from_stored is not None:
        return _encode(decode(resource, stored))
    stored = current(resource, stored)
    version = b'"resourceVersion":"%d",' % stored.revision if stored.revision else b""
    head = b'{"kind":"%s","apiVersion":"%s","metadata":{%s' % (
        resource.kind.encode(),
        resource.api_version.encode(),
        version,
    )
    value = unmarked(stored.value) if resource.stored_as else stored.value
    return head + value[len(_HEAD) :]


def unmarked(value: bytes) -> bytes:
    """Stored bytes without the version that they are stored in, which is their last member."""
    found = _MARK.search(value)
    return value if found is None else value[: found.start()] + b"}"


def list_item(resource: Resource, stored: Stored) -> Sequence[bytes]:
    """An object in a list, in pieces: to put them together here would copy it once more.

    The list names the kind, so that only custom resources do, too, as from the real server.
    """
    if resource.schema is not None:
        return (wire(resource, stored),)
    if resource.from_stored is not None or resource.current is not None:
        obj = decode(resource, stored)
        del obj["apiVersion"], obj["kind"]
        return (_encode(obj),)
    head = b'{"metadata":{"resourceVersion":"%d",' % stored.revision if stored.revision else _HEAD
    return head, stored.value[len(_HEAD) :]


# Custom resources between the store and those who read and write them in another version than the stored one.


async def shown(resource: Resource, items: Sequence[Stored]) -> Sequence[Stored]:
    """Stored objects in the form of the version that is read. Raises ApiError 500."""
    if resource.conversion is None or not items:
        return items
    objects = [decode(resource, stored) for stored in items]
    if all(obj["apiVersion"] == resource.api_version for obj in objects):
        return items
    converted = await resource.conversion.convert(objects, resource.api_version)
    pairs = zip(items, converted, strict=True)
    return [Stored(stored.key, encode(resource, obj), stored.revision) for stored, obj in pairs]


async def shown_one(resource: Resource, stored: Stored) -> Stored:
    return stored if resource.conversion is None else (await shown(resource, [stored]))[0]


async def storable(resource: Resource, obj: Document) -> Document:
    """An object in the form of the version that is stored. Raises ApiError 500."""
    if resource.conversion is None:
        return obj
    (converted,) = await resource.conversion.convert([obj], resource.stored_as)
    return converted


# Who an object is: does a body belong to the URL that it was sent to, and what makes a new object unique?


_TEXTS: Final = {
    "name": "string", "generateName": "string", "namespace": "string", "uid": "types.UID", "resourceVersion": "string"
}  # fmt: skip
"""What the verbs compare before the rest of the metadata is looked at, and the types that Go names for them."""


def check_kind(resource: Resource, obj: Document) -> None:
    """A body without apiVersion and kind takes those of the URL; another kind is refused. Of a custom resource, a body
    that names its kind must name its version."""
    if resource.schema is None:
        check_form(resource, obj, resource.api_version)
        return
    version = obj.setdefault("apiVersion", "" if "kind" in obj else resource.api_version)
    kind = obj.setdefault("kind", resource.kind)
    if version != resource.api_version:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})"
        )
    if kind != resource.kind:
        name = (obj.get("metadata") or {}).get("name") or ""
        raise invalid(replace(resource, kind=kind), name, [field_invalid("kind", kind, f"must be {resource.kind}")])


def check_form(form: Resource, obj: Document, *versions: str) -> None:
    """The same for what a subresource takes: ``versions`` of ``form``'s kind, the first of which is the default one."""
    version, kind = str(obj.get("apiVersion") or versions[0]), str(obj.get("kind") or form.kind)
    obj |= {"apiVersion": version, "kind": kind}
    if version in versions and kind == form.kind:
        return
    why = f'no kind "{kind}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
    if kind_type(version, kind) is not None:
        package = form.group.partition(".")[0] or "core"
        why = f"converting ({_short(version)}.{kind}) to ({package}.{form.kind}): unknown conversion"
    raise _wrong_type(form, obj, why)


def check_namespace(target: Target, obj: Document, form: Resource | None = None) -> Document:
    """The metadata, with the namespace of the URL filled in; ``form`` is the kind where it is not the target's."""
    if obj.get("metadata") is None:
        obj["metadata"] = {}
    metadata = obj["metadata"]
    if not isinstance(metadata, dict):
        kind = (form or target.resource).kind
        why = f"cannot unmarshal {json_kind(metadata)} into Go struct field {kind}.metadata of type v1.ObjectMeta"
        raise _wrong_type(form or target.resource, obj, f"json: {why}")
    for name, of in _TEXTS.items():
        if not isinstance(metadata.get(name), (str, type(None))):
            why = f"cannot unmarshal {json_kind(metadata[name])} into Go struct field ObjectMeta.metadata.{name}"
            raise _wrong_type(form or target.resource, obj, f"json: {why} of type {of}")
    if not target.resource.namespaced:
        return metadata
    if metadata.get("namespace") and metadata["namespace"] != target.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    metadata["namespace"] = target.namespace
    return metadata


def _wrong_type(form: Resource, obj: Document, why: str) -> ApiError:
    """Caused by WrongType, since in a patch it is the patch that is to blame."""
    kind, version = obj.get("kind") or form.kind, _short(str(obj.get("apiVersion") or form.api_version))
    error = bad_request(f'{kind} in version "{version}" cannot be handled as a {form.kind}: {why}')
    error.__cause__ = WrongType(why)
    return error


def _short(api_version: str) -> str:
    return api_version.rpartition("/")[2]


def new_uid(random: Random) -> str:
    return str(uuid.UUID(int=random.getrandbits(128), version=4))


def check_name(target: Target, metadata: Document) -> None:
    """An update names the object that it replaces."""
    name = metadata.get("name")
    if not name:
        why = f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
        raise bad_request(why)
    if name != target.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({target.name})")


# What keeps an object whose deletion was requested.


CUSTOM_RESOURCE_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


def blocks_removal(resource: Resource, obj: Document) -> bool:
    """Namespaces hold themselves by ``spec.finalizers`` beside what every object has in its metadata."""
    if obj["metadata"].get("finalizers"):
        return True
    return is_namespace(resource) and bool((obj.get("spec") or {}).get("finalizers"))


def is_namespace(resource: Resource) -> bool:
    return resource.plural == "namespaces" and not resource.group


def is_definition(resource: Resource) -> bool:
    return resource.plural == "customresourcedefinitions" and resource.group == "apiextensions.k8s.io"


def claim(resource: Resource, obj: Document, now: datetime) -> None:
    """The first request to delete a CustomResourceDefinition makes it wait for its objects to go, and say so."""
    metadata = obj["metadata"]
    if not is_definition(resource) or metadata.get("deletionTimestamp"):
        return
    finalizers = metadata.get("finalizers") or []
    if CUSTOM_RESOURCE_CLEANUP not in finalizers:
        metadata["finalizers"] = [*finalizers, CUSTOM_RESOURCE_CLEANUP]
    set_conditions(obj, DELETION_PENDING, now)
