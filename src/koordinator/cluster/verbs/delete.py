"""DELETE of an object or of a collection: at once, after a grace period, or when the last finalizer goes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import msgspec

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError, conflict
from koordinator.cluster.resource import Resource
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.verbs.environment import Attributes, Environment, review, timestamp
from koordinator.cluster.verbs.options import DeleteOptions, ListOptions, WriteOptions
from koordinator.cluster.verbs.read import ObjectList, list_objects
from koordinator.cluster.verbs.target import Target, blocks_removal, claim, encode, is_definition, is_namespace
from koordinator.cluster.verbs.update import retry


@dataclass(frozen=True, slots=True)
class Deletion:
    """The object's last state, or when it is not ``gone`` yet the state in which it waits."""

    stored: Stored
    gone: bool


async def delete(
    environment: Environment,
    target: Target,
    options: DeleteOptions,
    request: WriteOptions | None = None,
    *,
    of_collection: bool = False,
) -> Deletion:
    """Raises ApiError: 404, or 409 when a precondition does not hold.

    ``of_collection``: the request named no object, and so admission gets none, as from the real server.
    """
    gone = False
    request = request or WriteOptions(dry_run=options.dry_run)
    about = msgspec.structs.replace(target, name="") if of_collection else target

    async def attempt(stored: Stored, old: Document) -> Stored:
        nonlocal gone
        gone = False
        check_preconditions(target, old, options)
        if _is_pending(target.resource, old, options):
            return stored
        grace = _grace_period(target.resource, old, options)
        requested = replace(options, grace_period_seconds=grace) if target.resource.graceful_deletion else options
        context = environment.context(request.warnings)
        await _admit(environment, Attributes("DELETE", about, None, old, context, request, requested))
        claim(target.resource, old, environment.clock.now())
        changed = _set_finalizers(target.resource, old, options)
        gone = grace == 0 and not blocks_removal(target.resource, old)
        if gone:
            final = encode(target.resource, old) if changed else None
            return stored if options.dry_run else await environment.storage.delete(stored.key, stored.revision, final)
        changed |= _mark(target.resource, old, grace, environment.clock.now())
        return await _store(environment, stored, target.resource, old, options) if changed else stored

    stored = await retry(environment, target, attempt)
    return Deletion(stored, gone)


async def _store(
    environment: Environment, stored: Stored, resource: Resource, obj: Document, options: DeleteOptions
) -> Stored:
    value = encode(resource, obj)
    if options.dry_run:
        return Stored(stored.key, value, stored.revision)
    return await environment.storage.update(stored.key, value, stored.revision, frees=True)


async def _admit(environment: Environment, attributes: Attributes) -> None:
    if environment.webhooks.mutates(attributes):
        await environment.webhooks.mutate(attributes)
    await review(environment, attributes)


def _is_pending(resource: Resource, old: Document, options: DeleteOptions) -> bool:
    """Whether the kubelet is to end it already, and has no less time than is requested now."""
    granted = old["metadata"].get("deletionGracePeriodSeconds")
    if not resource.graceful_deletion or not old["metadata"].get("deletionTimestamp") or not granted:
        return False
    return options.grace_period_seconds is None or options.grace_period_seconds >= granted


def _set_finalizers(resource: Resource, obj: Document, options: DeleteOptions) -> bool:
    """Say in the object what becomes of its dependents; whether that was not said already."""
    metadata = obj["metadata"]
    before, after = metadata.get("finalizers") or [], finalizers_for(resource, obj, options)
    if set(before) == set(after) or (is_namespace(resource) and metadata.get("deletionTimestamp")):
        return False
    metadata["finalizers"] = after
    if not after:
        del metadata["finalizers"]
    return True


def check_preconditions(target: Target, old: Document, options: DeleteOptions) -> None:
    """Raises ApiError 409 when the object is not the one, or not the version, that is to go."""
    metadata = old["metadata"]
    recreated, modified = "might have been deleted and then recreated", "might have been modified"
    for title, wanted, found, why in (
        ("UID", options.uid, metadata["uid"], recreated),
        ("ResourceVersion", options.resource_version, metadata["resourceVersion"], modified),
    ):
        if wanted and wanted != found:
            message = f"the {title} in the precondition ({wanted}) does not match the {title} in record ({found})"
            # In this one message the real server puts the kind where the plural belongs.
            named = replace(target.resource, plural=target.resource.kind)
            raise conflict(named, target.name, f"{message}. The object {why}")


def _grace_period(resource: Resource, old: Document, options: DeleteOptions) -> int:
    """Seconds that the kubelet has; 0 where there is none for the object."""
    if not resource.graceful_deletion:
        return 0
    spec, status = old.get("spec") or {}, old.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Failed", "Succeeded"):
        return 0
    period = options.grace_period_seconds
    if period is None:
        period = spec.get("terminationGracePeriodSeconds") or 0
    return 1 if period < 0 else int(period)


def _as_duration(seconds: int) -> timedelta:
    """As API servers count: nanoseconds of 64 bits, which begin anew below zero after three centuries."""
    nanoseconds = (seconds * 10**9 + 2**63) % 2**64 - 2**63
    return timedelta(microseconds=nanoseconds // 1000)


def _mark(resource: Resource, obj: Document, grace: int, now: datetime) -> bool:
    """Set or shorten the time of deletion; False when that is set already and no later than requested."""
    metadata = obj["metadata"]
    if "deletionTimestamp" in metadata:
        granted = metadata.get("deletionGracePeriodSeconds") or 0
        if grace >= granted:
            return False
        due = datetime.fromisoformat(metadata["deletionTimestamp"])
        metadata["deletionTimestamp"] = timestamp(due - _as_duration(granted) + _as_duration(grace))
    else:
        metadata["deletionTimestamp"] = timestamp(now + _as_duration(grace))
        if metadata.get("generation") and not is_definition(resource):
            metadata["generation"] += 1
    if is_namespace(resource):
        # Its end has no time: it comes when the namespace is empty.
        obj.setdefault("status", {})["phase"] = "Terminating"
    elif not is_definition(resource):
        metadata["deletionGracePeriodSeconds"] = grace
    return True


# DELETE of a collection: each object that the selectors match, one by one.


async def delete_collection(
    environment: Environment,
    target: Target,
    selection: ListOptions,
    options: DeleteOptions,
    request: WriteOptions | None = None,
) -> ObjectList:
    """Returns what was deleted, or marked for it. An object that goes meanwhile is no error."""
    found = list_objects(environment, target, selection)
    deleted = []
    for stored in found.items:
        namespace, _, name = stored.key.removeprefix(target.resource.prefix).rpartition("/")
        try:
            one = await delete(
                environment, Target(target.resource, namespace or None, name), options, request, of_collection=True
            )
        except ApiError as error:
            if error.code != 404:
                raise
        else:
            deleted.append(one.stored)
    return ObjectList(deleted, environment.storage.revision(), found.continue_token)


# What becomes of what the object owns.


ORPHAN: Final = "orphan"
"""Finalizer of an object whose dependents lose their reference to it before it goes."""
FOREGROUND: Final = "foregroundDeletion"
"""Finalizer of an object that goes after those of its dependents that block its deletion."""
FOREGROUND_POLICY: Final = "Foreground"
BACKGROUND_POLICY: Final = "Background"
ORPHAN_POLICY: Final = "Orphan"
_FINALIZERS: Final = {FOREGROUND_POLICY: FOREGROUND, ORPHAN_POLICY: ORPHAN, BACKGROUND_POLICY: ""}
_ORPHANING: Final = frozenset((("", "v1", "replicationcontrollers"), ("batch", "v1", "jobs")))
"""Kinds whose dependents stay unless the request says otherwise, as they did before there was a garbage collector."""
_WITHOUT_DEPENDENTS: Final = frozenset(("events",))
"""Kinds that own nothing: no deletion of one waits."""


def finalizers_for(resource: Resource, obj: Document, options: DeleteOptions) -> list[str]:
    """The finalizers that ``obj`` has once its deletion is requested with ``options``."""
    present: list[str] = obj["metadata"].get("finalizers") or []
    if resource.plural in _WITHOUT_DEPENDENTS and resource.group in ("", "events.k8s.io"):
        return present
    wanted = _namespace(present, options) if is_namespace(resource) else _ordinary(resource, present, options)
    kept = [each for each in present if each not in (ORPHAN, FOREGROUND)]
    return [*kept, wanted] if wanted else kept


def _ordinary(resource: Resource, present: list[str], options: DeleteOptions) -> str:
    """What the request says; else what was said before; else what is usual for the kind."""
    if options.orphan_dependents is not None:
        return ORPHAN if options.orphan_dependents else ""
    if options.propagation_policy:
        return _FINALIZERS[options.propagation_policy]
    said = next((each for each in present if each in (ORPHAN, FOREGROUND)), "")
    if said:
        return said
    return ORPHAN if (resource.group, resource.version, resource.plural) in _ORPHANING else ""


def _namespace(present: list[str], options: DeleteOptions) -> str:
    """A namespace has rules of its own: not to orphan means to wait."""
    if options.orphan_dependents is not None:
        return ORPHAN if options.orphan_dependents else FOREGROUND
    if options.propagation_policy:
        return _FINALIZERS[options.propagation_policy]
    return next((each for each in present if each in (ORPHAN, FOREGROUND)), "")
