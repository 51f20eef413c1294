"""Who an object is: does a body belong to the URL that it was sent to, and what makes a new object unique?"""

from __future__ import annotations

import uuid
from random import Random

from koordinator.api.document import Document
from koordinator.cluster.errors import bad_request
from koordinator.cluster.resource import Resource
from koordinator.cluster.verbs.target import Target


def check_kind(resource: Resource, obj: Document) -> None:
    """A body without apiVersion and kind takes those of the URL; another kind is refused."""
    found = (obj.setdefault("apiVersion", resource.api_version), obj.setdefault("kind", resource.kind))
    if found != (resource.api_version, resource.kind):
        message = (
            f"the API version in the data ({found[0]}) does not match the expected API version ({resource.api_version})"
            if found[0] != resource.api_version
            else f"the kind in the data ({found[1]}) does not match the expected kind ({resource.kind})"
        )
        raise bad_request(message)


def check_namespace(target: Target, obj: Document) -> Document:
    """The metadata, with the namespace of the URL filled in."""
    metadata = obj.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise bad_request("metadata must be an object")
    if not target.resource.namespaced:
        return metadata
    if metadata.get("namespace") and metadata["namespace"] != target.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    metadata["namespace"] = target.namespace
    return metadata


def new_uid(random: Random) -> str:
    return str(uuid.UUID(int=random.getrandbits(128), version=4))


def check_name(target: Target, metadata: Document) -> None:
    """An update names the object that it replaces."""
    name = metadata.setdefault("name", target.name)
    if name != target.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({target.name})")
