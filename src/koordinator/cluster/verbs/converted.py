"""Custom resources between the store and those who read and write them in another version than the stored one."""

from __future__ import annotations

from collections.abc import Sequence

from koordinator.api.document import Document
from koordinator.cluster.resource import Resource
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.verbs.target import decode, encode


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
