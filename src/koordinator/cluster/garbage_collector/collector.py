"""The garbage collector by owner: deletes what no owner is left of, and lets go of owners that wait for that.

kube-controller-manager has one, too. Both may run on the same server: each acts on the state that it has just read,
with its uid and resourceVersion as preconditions, and what the other has done already is nothing to be done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from koordinator.api.document import Document, copied
from koordinator.base.clock import Clock
from koordinator.base.deadline import unless
from koordinator.cluster.background import LoopBody
from koordinator.cluster.custom_resources import DEFINITIONS
from koordinator.cluster.errors import ApiError
from koordinator.cluster.garbage_collector.graph import DependencyGraph, Metadata, OwnerReference, metadata_of
from koordinator.cluster.resource import Resource
from koordinator.cluster.storage.interface import Change, OutcomeUnknown, Stored, WriteFailed
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.delete import (
    BACKGROUND_POLICY,
    FOREGROUND,
    FOREGROUND_POLICY,
    ORPHAN,
    ORPHAN_POLICY,
    delete,
)
from koordinator.cluster.verbs.environment import Environment, timestamp
from koordinator.cluster.verbs.options import CONTROLLER_MANAGER, DeleteOptions, WriteOptions
from koordinator.cluster.verbs.target import Target
from koordinator.cluster.verbs.update import modify

_LOG = logging.getLogger(__name__)
_WORKERS: Final = 20
_RETRY_SECONDS: Final = 5.0
_COMPONENT: Final = "garbage-collector-controller"
_DEFAULT_NAMESPACE: Final = "default"
_REASON: Final = "OwnerRefInvalidNamespace"
_SEARCHES: Final = 500
"""How many owners are remembered that were looked for in vain."""


@dataclass(slots=True)
class _Owners:
    """The owners that an object refers to, by what has become of them."""

    solid: list[OwnerReference] = field(default_factory=list)
    """They are there, or it cannot be known that they are not."""
    dangling: list[OwnerReference] = field(default_factory=list)
    """They are gone."""
    waiting: list[OwnerReference] = field(default_factory=list)
    """They wait for their dependents to go."""
    elsewhere: list[OwnerReference] = field(default_factory=list)
    """Those of the dangling ones that are in another namespace."""
    invalid: list[OwnerReference] = field(default_factory=list)
    """They have a namespace, and the object has none."""


class GarbageCollector:
    """Costs a search in the bytes of each write while no object has an owner."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._clock: Clock = environment.clock
        self._graph = DependencyGraph()
        self._failed: dict[str, None] = {}
        self._of_unknown_kind: dict[str, None] = {}
        """Objects with owners of kinds that are not served; looked at again when a kind is added."""
        self._reported: dict[tuple[str, str], None] = {}
        """Uids of objects and of owners of which an event says that they cannot belong together."""
        self._searched: dict[str, bool] = {}
        """Uids of owners that were not where they should be: whether they were anywhere."""
        self._served: dict[tuple[str, str], Resource] = {}
        self._served_since = -1
        self._definitions = f"/{DEFINITIONS[0]}/{DEFINITIONS[1]}/"
        self._wake = asyncio.Event()
        self._is_observing = False

    def loops(self) -> Mapping[str, LoopBody]:
        """Name -> what runs until the store closes."""
        return {"garbage-collector": self._collect}

    async def _collect(self) -> AsyncIterator[None]:
        storage = self._environment.storage
        self._graph.load(stored for each in self._kinds() for stored in storage.list(each.prefix).items)
        if not self._is_observing:
            storage.observe(self._follow)
            self._is_observing = True
        yield
        while True:
            while keys := self._graph.take(_WORKERS):
                found = [(key, work) for key in keys if (work := self._work_for(key)) is not None]
                if not found:
                    # Most objects need nothing: others get the processor all the same.
                    await asyncio.sleep(0)
                    continue
                async with asyncio.TaskGroup() as tasks:
                    for key, work in found:
                        tasks.create_task(self._try(key, work), name=f"garbage collection of {key}")
            yield
            await self._rest()

    def _kinds(self) -> Iterable[Resource]:
        """Each kind that is stored, once."""
        stored = {(each.group, each.plural): each for each in self._environment.registry if _is_stored(each)}
        return stored.values()

    async def _rest(self) -> None:
        """Until there is something to do."""
        if not self._failed:
            await self._wake.wait()
        elif not self._graph.waiting and await unless(self._wake, self._clock.sleep(_RETRY_SECONDS)):
            for key in self._failed:
                self._graph.add(key)
            self._failed.clear()
        self._wake.clear()

    def _follow(self, changes: Sequence[Change]) -> None:
        self._graph.apply(changes)
        if self._of_unknown_kind and any(change.key.startswith(self._definitions) for change in changes):
            for key in self._of_unknown_kind:
                self._graph.add(key)
            self._of_unknown_kind.clear()
        if self._graph.waiting:
            self._wake.set()

    def _work_for(self, key: str) -> Coroutine[Any, Any, None] | None:
        """What an object's owners and dependents ask for as they are now; None for nothing."""
        try:
            target, stored = self._target(key), self._environment.storage.get(key)
            if target is None or stored is None:
                return None
            metadata = metadata_of(stored)
            if metadata.is_orphaning:
                return self._orphan(target, metadata)
            if metadata.is_waiting:
                return self._finish(target, metadata)
            if metadata.deletion_timestamp is not None or not metadata.owners:
                return None
            return self._work_for_owned(target, stored, metadata)
        except Exception:
            # One object that cannot be read must not keep the others.
            _LOG.exception("%s is not collected", key)
            return None

    async def _try(self, key: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ApiError as error:
            if error.code == 409:
                # It has changed meanwhile, and what is to be done about it, too.
                self._graph.add(key)
            elif error.code != 404:
                _LOG.warning("%s is not collected yet: %s", key, error)
                self._failed[key] = None
        except (WriteFailed, OutcomeUnknown) as error:
            _LOG.warning("%s is not collected yet: %s", key, error)
            self._failed[key] = None
        except Exception:
            _LOG.exception("%s is not collected", key)
            self._failed[key] = None

    def _target(self, key: str) -> Target | None:
        """None for an object of a kind that is not served any more."""
        _, group, plural, *place = key.split("/")
        resource = self._environment.registry.stored["" if group == "core" else group, plural]
        if resource is None or not _is_stored(resource):
            return None
        return Target(resource, place[0] if len(place) > 1 else None, place[-1])

    async def _orphan(self, target: Target, metadata: Metadata) -> None:
        for key in self._graph.dependents_of(metadata.uid):
            dependent = self._target(key)
            if dependent is not None:
                await self._change_owners(dependent, "", lambda owners: _without(owners, {metadata.uid}))
        await self._release(target, metadata.uid, ORPHAN)

    async def _finish(self, target: Target, metadata: Metadata) -> None:
        """The owner goes when nothing is left that blocks it; what is left is on its way."""
        if not any(self._blocks(key, metadata.uid) for key in self._graph.dependents_of(metadata.uid)):
            await self._release(target, metadata.uid, FOREGROUND)

    def _blocks(self, key: str, uid: str) -> bool:
        stored = self._environment.storage.get(key)
        if stored is None:
            return False
        return any(owner.uid == uid and owner.block_owner_deletion for owner in metadata_of(stored).owners)

    def _work_for_owned(self, target: Target, stored: Stored, metadata: Metadata) -> Coroutine[Any, Any, None] | None:
        owners = self._owners_of(stored.key, target, metadata)
        if owners.invalid:
            return self._report(target, metadata, owners.invalid)
        lost = {owner.uid for owner in (*owners.dangling, *owners.waiting)}
        if owners.solid:
            return self._change_owners(target, metadata.uid, lambda all_: _without(all_, lost)) if lost else None
        if owners.elsewhere:
            return self._report_and_delete(target, stored, metadata, owners)
        return self._delete(target, stored, metadata, owners)

    async def _delete(self, target: Target, stored: Stored, metadata: Metadata, owners: _Owners) -> None:
        policy = BACKGROUND_POLICY
        if owners.waiting and self._graph.has_dependents(metadata.uid):
            policy = FOREGROUND_POLICY
            if self._is_in_circle(metadata.uid) and any(owner.block_owner_deletion for owner in metadata.owners):
                # It must not wait for an owner that waits for it; the change of its owners makes it be looked at again.
                await self._change_owners(target, metadata.uid, _unblocked)
                return
        elif ORPHAN in (metadata.finalizers or ()):
            policy = ORPHAN_POLICY
        elif FOREGROUND in (metadata.finalizers or ()):
            policy = FOREGROUND_POLICY
        options = DeleteOptions(uid=metadata.uid, resource_version=str(stored.revision), propagation_policy=policy)
        await delete(self._environment, target, options)

    def _owners_of(self, key: str, target: Target, metadata: Metadata) -> _Owners:
        found = _Owners()
        for reference in metadata.owners:
            resource = self._resource_of(reference)
            if self._graph.was_deleted(reference.uid):
                found.dangling.append(reference)
            elif resource is None:
                self._of_unknown_kind[key] = None
                found.solid.append(reference)
            elif resource.namespaced and not target.resource.namespaced:
                found.invalid.append(reference)
            else:
                owner = self._owner(resource, target.namespace, reference)
                if owner is not None:
                    (found.waiting if owner.is_waiting else found.solid).append(reference)
                    continue
                found.dangling.append(reference)
                if resource.namespaced and self._is_elsewhere(resource, reference):
                    found.elsewhere.append(reference)
        return found

    def _resource_of(self, reference: OwnerReference) -> Resource | None:
        registry = self._environment.registry
        if self._served_since != registry.generation:
            self._served_since = registry.generation
            self._served = {(each.api_version, each.kind): each for each in registry if _is_stored(each)}
        return self._served.get((reference.api_version, reference.kind))

    def _owner(self, resource: Resource, namespace: str | None, reference: OwnerReference) -> Metadata | None:
        """None where there is no object of that name, or another one."""
        key = Target(resource, namespace if resource.namespaced else None, reference.name).key
        stored = self._environment.storage.get(key)
        owner = metadata_of(stored) if stored is not None else None
        return owner if owner is not None and owner.uid == reference.uid else None

    def _is_in_circle(self, uid: str) -> bool:
        """Whether a dependent waits for its own dependents already, of which the owner may be one."""
        for key in self._graph.dependents_of(uid):
            stored = self._environment.storage.get(key)
            if stored is not None and metadata_of(stored).is_waiting:
                return True
        return False

    async def _change_owners(
        self, target: Target, uid: str, change: Callable[[list[Document]], list[Document]]
    ) -> None:
        """Of the object of this uid, or of whichever there is; one that is gone is no error."""

        def changed(obj: Document) -> Document:
            new: Document = copied(obj)
            if uid and new["metadata"]["uid"] != uid:
                return new
            references = change(new["metadata"].get("ownerReferences") or [])
            new["metadata"]["ownerReferences"] = references
            if not references:
                del new["metadata"]["ownerReferences"]
            return new

        try:
            await modify(self._environment, target, changed, WriteOptions(user_agent=CONTROLLER_MANAGER))
        except ApiError as error:
            if error.code != 404:
                raise

    async def _release(self, target: Target, uid: str, finalizer: str) -> None:
        """Take a finalizer away from this very object."""

        def released(obj: Document) -> Document:
            new: Document = copied(obj)
            if new["metadata"]["uid"] == uid:
                left = [each for each in new["metadata"].get("finalizers") or [] if each != finalizer]
                new["metadata"]["finalizers"] = left
                if not left:
                    del new["metadata"]["finalizers"]
            return new

        await modify(self._environment, target, released, WriteOptions(user_agent=CONTROLLER_MANAGER))

    def _is_elsewhere(self, resource: Resource, reference: OwnerReference) -> bool:
        """Whether the owner is there, in whatever namespace. Looked for once: no other object gets its uid."""
        if reference.uid not in self._searched:
            if len(self._searched) >= _SEARCHES:
                self._searched.clear()
            name, objects = f"/{reference.name}", self._environment.storage.list(resource.prefix).items
            named = (stored for stored in objects if stored.key.endswith(name))
            self._searched[reference.uid] = any(metadata_of(stored).uid == reference.uid for stored in named)
        return self._searched[reference.uid]

    async def _report_and_delete(self, target: Target, stored: Stored, metadata: Metadata, owners: _Owners) -> None:
        await self._report(target, metadata, owners.elsewhere)
        await self._delete(target, stored, metadata, owners)

    async def _report(self, target: Target, metadata: Metadata, invalid: Iterable[OwnerReference]) -> None:
        for reference in invalid:
            resource = self._resource_of(reference)
            pair = (metadata.uid, reference.uid)
            if resource is not None and pair not in self._reported and self._is_elsewhere(resource, reference):
                self._reported[pair] = None
                if len(self._reported) > _SEARCHES:
                    del self._reported[next(iter(self._reported))]
                await _report_invalid_namespace(self._environment, target.resource, metadata, reference)


async def _report_invalid_namespace(
    environment: Environment, resource: Resource, dependent: Metadata, owner: OwnerReference
) -> None:
    """Say of an object that it refers to an owner where it cannot have one, in the real collector's words."""
    events = environment.registry.stored["", "events"]
    assert events is not None
    namespace, now = dependent.namespace, timestamp(environment.clock.now())
    named = f"[{owner.api_version}/{owner.kind}, namespace: {namespace}, name: {owner.name}, uid: {owner.uid}]"
    about = {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "name": dependent.name,
        "uid": dependent.uid,
        **({"namespace": namespace} if namespace else {}),
    }
    event = {
        "metadata": {"name": f"{dependent.name}.{environment.random.getrandbits(64):016x}"},
        "involvedObject": about,
        "reason": _REASON,
        "message": f'ownerRef {named} does not exist in namespace "{namespace}"',
        "source": {"component": _COMPONENT},
        "reportingComponent": _COMPONENT,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        "type": "Warning",
    }
    await create(
        environment, Target(events, namespace or _DEFAULT_NAMESPACE), event, WriteOptions(user_agent=CONTROLLER_MANAGER)
    )


def _is_stored(resource: Resource) -> bool:
    """Whether objects of the kind are kept, and are not another kind's under another name. Events own nothing, and are
    too many to look at."""
    return "delete" in resource.verbs and resource.storage_group is None and resource.plural != "events"


def _without(references: list[Document], uids: set[str]) -> list[Document]:
    return [each for each in references if each["uid"] not in uids]


def _unblocked(references: list[Document]) -> list[Document]:
    return [{**each, "blockOwnerDeletion": False} for each in references]
