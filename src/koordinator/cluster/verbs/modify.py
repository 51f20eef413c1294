"""What update, patch and the subresources share: read, change, prepare, admit, validate, compare, store, try again.

The object is removed instead of stored when the change drops the last finalizer of an object that is being deleted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec

from koordinator.api.document import Document, same
from koordinator.cluster.errors import conflict, invalid, not_found
from koordinator.cluster.resource import Cause, RequestContext
from koordinator.cluster.storage.interface import KeyMissing, RevisionMismatch, Stored
from koordinator.cluster.verbs.admission import Attributes
from koordinator.cluster.verbs.encoding import check_size, decode, encode
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.finalizers import blocks_removal
from koordinator.cluster.verbs.identity import check_kind, check_name, check_namespace
from koordinator.cluster.verbs.options import WriteOptions
from koordinator.cluster.verbs.target import Target

_ATTEMPTS = 100
"""Each failed attempt means that another writer of the object got through, so this is never reached in practice."""

Change = Callable[[Document], Document]
"""From the current object to the wanted one; must leave its argument alone. May be called several times."""
Attempt = Callable[[Stored, Document], Awaitable[Stored]]
"""From the stored state, as bytes and decoded, to what was stored; may let RevisionMismatch pass."""
Prepare = Callable[[Document, Document, RequestContext], None]
_decode = msgspec.json.Decoder(dict[str, Any]).decode


async def modify(
    environment: Environment,
    target: Target,
    change: Change,
    options: WriteOptions | None = None,
) -> Stored:
    """Returns the new state; for an object that was removed its last one. Raises ApiError."""
    strategy, options = target.resource.strategy, options or WriteOptions()
    prepare = strategy.prepare_status_update if target.subresource == "status" else strategy.prepare_update

    async def replace(stored: Stored, old: Document) -> Stored:
        obj = change(old)
        _check_identity(target, obj, old)
        context = environment.context(options.warnings)
        await _admit(environment, Attributes("UPDATE", target, obj, old, context, options), prepare)
        return await store(environment, target, stored, obj, dry_run=options.dry_run)

    return await retry(environment, target, replace)


async def retry(environment: Environment, target: Target, attempt: Attempt) -> Stored:
    """Run ``attempt`` on the newest state until no other writer comes in between. Raises ApiError 404 and 409."""
    for _ in range(_ATTEMPTS):
        stored = environment.storage.get(target.key)
        if stored is None:
            break
        try:
            return await attempt(stored, decode(target.resource, stored))
        except RevisionMismatch:
            continue
        except KeyMissing:
            break
    else:
        raise conflict(target.resource, target.name)
    raise not_found(target.resource, target.name)


async def store(environment: Environment, target: Target, stored: Stored, obj: Document, *, dry_run: bool) -> Stored:
    """Write what differs from ``stored``; raises RevisionMismatch and KeyMissing like the storage."""
    value = encode(target.resource, obj)
    if _same(value, stored.value):
        return stored
    check_size(value)
    if dry_run:
        return Stored(stored.key, value, stored.revision)
    metadata = obj["metadata"]
    going = metadata.get("deletionTimestamp") and not metadata.get("deletionGracePeriodSeconds")
    if going and not blocks_removal(target.resource, obj):
        return await environment.storage.delete(stored.key, stored.revision, value)
    return await environment.storage.update(stored.key, value, stored.revision)


def _check_identity(target: Target, obj: Document, old: Document) -> None:
    """Optimistic concurrency, and no update of another object under the same name."""
    check_kind(target.resource, obj)
    metadata, before = check_namespace(target, obj), old["metadata"]
    check_name(target, metadata)
    version = metadata.get("resourceVersion")
    if version and version != before["resourceVersion"]:
        raise conflict(target.resource, target.name)
    if not version and not target.resource.unconditional_update:
        cause = Cause(
            "FieldValueInvalid", "metadata.resourceVersion", "Invalid value: 0: must be specified for an update"
        )
        # In this one message the real server puts the plural where the kind belongs.
        raise invalid(replace(target.resource, kind=target.resource.plural), target.name, [cause])
    if metadata.get("uid") and metadata["uid"] != before["uid"]:
        why = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {before['uid']}"
        raise conflict(target.resource, target.name, why)


async def _admit(environment: Environment, attributes: Attributes, prepare: Prepare) -> None:
    obj, old, resource = attributes.obj, attributes.old, attributes.target.resource
    assert obj is not None
    assert old is not None
    strategy = resource.strategy
    if environment.webhooks.mutates(attributes):
        strategy.decode(obj)
        if not attributes.target.subresource:
            strategy.admit_update(obj, old, attributes.context)
        await environment.webhooks.mutate(attributes)
        check_namespace(attributes.target, obj)
    prepare(obj, old, attributes.context)
    for admission in environment.admission:
        await admission.mutate(attributes)
    validate = strategy.validate_status if attributes.target.subresource == "status" else strategy.validate
    if causes := validate(obj, old):
        raise invalid(resource, attributes.target.name, causes)
    for admission in environment.admission:
        await admission.validate(attributes)
    await environment.webhooks.validate(attributes)


def _same(value: bytes, stored: bytes) -> bool:
    """Equal but for the order of fields, which is no matter of length."""
    return value == stored or (len(value) == len(stored) and same(_decode(value), _decode(stored)))
