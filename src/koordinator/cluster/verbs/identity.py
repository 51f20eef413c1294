"""Who an object is: does a body belong to the URL that it was sent to, and what makes a new object unique?"""

from __future__ import annotations

import uuid
from random import Random
from typing import Final

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.canonical import WrongType
from koordinator.api.kubernetes_types.table import kind_type
from koordinator.cluster.errors import ApiError, bad_request
from koordinator.cluster.resource import Resource
from koordinator.cluster.strategy.json_syntax import json_kind
from koordinator.cluster.verbs.target import Target

_TEXTS: Final = ("name", "generateName", "namespace", "uid", "resourceVersion")
"""What the verbs compare before the rest of the metadata is looked at."""


def check_kind(resource: Resource, obj: Document) -> None:
    """A body without apiVersion and kind takes those of the URL; another kind is refused."""
    if resource.schema is None:
        check_form(resource, obj, resource.api_version)
        return
    found = (obj.setdefault("apiVersion", resource.api_version), obj.setdefault("kind", resource.kind))
    if found != (resource.api_version, resource.kind):
        message = (
            f"the API version in the data ({found[0]}) does not match the expected API version ({resource.api_version})"
            if found[0] != resource.api_version
            else f"the kind in the data ({found[1]}) does not match the expected kind ({resource.kind})"
        )
        raise bad_request(message)


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
    for name in _TEXTS:
        if not isinstance(metadata.get(name), (str, type(None))):
            why = f"cannot unmarshal {json_kind(metadata[name])} into Go struct field ObjectMeta.metadata.{name}"
            raise _wrong_type(form or target.resource, obj, f"json: {why} of type string")
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
