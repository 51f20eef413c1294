"""The ``scale`` subresource: the same small object for every kind that has replicas.

A Scale is read out of its object, changed as any object is, and its replicas are written back; the object then passes
the preparation and validation of its own kind. Admission sees the Scale.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from koordinator.api.document import Document
from koordinator.cluster.errors import conflict, invalid, not_found
from koordinator.cluster.patch import accepted_patch_types, check_not_applied, unsupported_patch
from koordinator.cluster.resource import ScalePaths
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.strategy.scale import (
    SCALE,
    SCALE_KIND,
    check_scale,
    empty_replicas,
    has_replicas,
    missing_replicas,
    scale_of,
    scaled,
)
from koordinator.cluster.verbs.admission import Attributes
from koordinator.cluster.verbs.encoding import decode, encode
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.identity import check_form, check_name, check_namespace
from koordinator.cluster.verbs.modify import retry, store
from koordinator.cluster.verbs.options import WriteOptions
from koordinator.cluster.verbs.patch import explained
from koordinator.cluster.verbs.target import Target

Change = Callable[[Document], Document]
"""From the current Scale to the wanted one."""


def get_scale(environment: Environment, target: Target) -> Stored:
    """Raises ApiError: 404, or 500 for a custom resource that does not say how many replicas it wants."""
    stored = environment.storage.get(target.key)
    if stored is None:
        raise not_found(target.resource, target.name)
    paths = _paths(target)
    if paths.custom and not has_replicas(decode(target.resource, stored), paths):
        raise missing_replicas(paths)
    return _view(target, stored)


async def update_scale(environment: Environment, target: Target, scale: Document, options: WriteOptions) -> Stored:
    sent = msgspec.json.encode(scale)
    return await _modify(environment, target, lambda old: msgspec.json.decode(sent, type=dict), options)


async def patch_scale(
    environment: Environment, target: Target, content_type: str, body: bytes, options: WriteOptions
) -> Stored:
    """Raises ApiError: 415 for a format that the object's kind does not take."""
    check_not_applied(content_type)
    if content_type.partition(";")[0].strip().lower() not in accepted_patch_types(target.resource):
        raise unsupported_patch(target.resource)
    with explained(content_type, body, SCALE) as change:
        return await _modify(environment, target, change, options)


async def _modify(environment: Environment, target: Target, change: Change, options: WriteOptions) -> Stored:
    resource, paths = target.resource, _paths(target)

    async def attempt(stored: Stored, old: Document) -> Stored:
        before = scale_of(old, paths)
        if not has_replicas(old, paths):
            before["spec"].pop("replicas", None)
        scale = change(before)
        _check_identity(target, scale, before)
        context = environment.context(options.warnings)
        attributes = Attributes("UPDATE", target, scale, before, context, options, body_kind=SCALE_KIND)
        SCALE.strategy.decode(scale)
        if environment.webhooks.mutates(attributes):
            await environment.webhooks.mutate(attributes)
            SCALE.strategy.decode(scale)
        if paths.custom and not has_replicas(old, paths) and "replicas" not in scale["spec"]:
            raise empty_replicas(paths)
        check_scale(scale, target.name, paths, resource)
        obj = scaled(old, scale, paths)
        resource.strategy.prepare_update(obj, old, context)
        if causes := resource.strategy.validate(obj, old):
            raise invalid(resource, target.name, causes)
        await environment.webhooks.validate(
            Attributes("UPDATE", target, scale_of(obj, paths), before, context, options, body_kind=SCALE_KIND)
        )
        return await store(environment, target, stored, obj, dry_run=options.dry_run)

    return _view(target, await retry(environment, target, attempt))


def _check_identity(target: Target, scale: Document, before: Document) -> None:
    check_form(SCALE, scale, SCALE.api_version)
    metadata, current = check_namespace(target, scale, SCALE), before["metadata"]
    check_name(target, metadata)
    if metadata.get("resourceVersion") not in (None, "", current["resourceVersion"]):
        raise conflict(target.resource, target.name)
    if metadata.get("uid") not in (None, "", current["uid"]):
        why = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {current['uid']}"
        raise conflict(target.resource, target.name, why)


def _paths(target: Target) -> ScalePaths:
    paths = target.resource.scale
    assert paths is not None
    return paths


def _view(target: Target, stored: Stored) -> Stored:
    """A stored object as the Scale that is answered, to be rendered as one."""
    scale = scale_of(decode(target.resource, stored), _paths(target))
    return Stored(stored.key, encode(SCALE, scale), stored.revision)
