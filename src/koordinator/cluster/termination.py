"""Namespaces and CustomResourceDefinitions that are being deleted: first what they hold, then they themselves."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import closing

from koordinator.api.document import Document, copied
from koordinator.cluster.background import LoopBody
from koordinator.cluster.custom_resources import DEFINITIONS
from koordinator.cluster.errors import ApiError
from koordinator.cluster.namespace_content import (
    Remainder,
    Wanted,
    conditions,
    longest_grace,
    seconds_since_deletion,
    set_conditions,
)
from koordinator.cluster.resource import Resource
from koordinator.cluster.storage.interface import StorageError, Stored, WriteFailed
from koordinator.cluster.strategy.custom_resource_definition import DELETION_COMPLETED, DELETION_IN_PROGRESS
from koordinator.cluster.verbs.delete import BACKGROUND_POLICY, delete_collection
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.options import CONTROLLER_MANAGER, DeleteOptions, ListOptions, WriteOptions
from koordinator.cluster.verbs.target import CUSTOM_RESOURCE_CLEANUP, Target, decode, is_definition
from koordinator.cluster.verbs.update import modify, retry, store

_LOG = logging.getLogger(__name__)
_NAMESPACES = ("", "namespaces")
_PODS = ("", "pods")
_RECHECK_SECONDS = 1.0
"""How often a namespace that waits for its pods to end is looked at."""


class Termination:
    """One loop per kind of container."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def loops(self) -> Mapping[str, LoopBody]:
        """Name -> what follows the containers of a kind until the store closes."""
        return {
            "namespace-termination": lambda: self._watch(*_NAMESPACES),
            "custom-resource-definition-termination": lambda: self._watch(*DEFINITIONS),
        }

    async def _watch(self, group: str, plural: str) -> AsyncIterator[None]:
        storage = self._environment.storage
        resource = self._environment.registry.stored[group, plural]
        assert resource is not None
        while True:
            # What happens from here on is looked at once more, and nothing before it: a namespace may wait for longer
            # than the history reaches back.
            with closing(storage.watch(resource.prefix, storage.revision())) as cursor:
                waiting = await self._finish_all(resource)
                yield
                if waiting:
                    await self._environment.clock.sleep(_RECHECK_SECONDS)
                elif await cursor.next() is None:
                    return

    async def _finish_all(self, resource: Resource) -> bool:
        """True while something waits for what it holds. Raises what went wrong with some, after all had their turn."""
        waiting = False
        failures: list[Exception] = []
        for stored in self._environment.storage.list(resource.prefix).items:
            name = stored.key.rpartition("/")[2]
            try:
                obj = decode(resource, stored)
                if obj["metadata"].get("deletionTimestamp"):
                    waiting |= not await self._finish(resource, obj)
            except ApiError as error:
                # Another writer or an admission check; the next look decides anew.
                _LOG.warning("%s %s: %s", resource.kind, name, error)
                waiting = True
            except StorageError:
                raise
            except Exception as error:
                error.add_note(f"{resource.kind} {name}")
                failures.append(error)
        if failures:
            raise ExceptionGroup(f"{resource.plural} that cannot be terminated", failures)
        return waiting

    async def _finish(self, resource: Resource, obj: Document) -> bool:
        if resource.plural == "namespaces":
            return "kubernetes" not in (obj.get("spec") or {}).get("finalizers", ()) or (
                await self._finish_namespace(resource, obj)
            )
        if CUSTOM_RESOURCE_CLEANUP not in obj["metadata"].get("finalizers", ()):
            return True
        spec = obj["spec"]
        stored = self._environment.registry.stored[spec["group"], spec["names"]["plural"]]
        name = obj["metadata"]["name"]
        await self._report(Target(resource, None, name, "status"), obj, DELETION_IN_PROGRESS)
        if stored is not None and not await self._emptied(Target(stored)):
            return False
        await self._release(resource, name)
        return True

    async def _finish_namespace(self, resource: Resource, namespace: Document) -> bool:
        """Pods go first: what they use must be there as long as they are."""
        kinds = {each.prefix: each for each in self._environment.registry if each.namespaced and _holds_objects(each)}
        pods = self._environment.registry.stored[_PODS]
        assert pods is not None
        del kinds[pods.prefix]
        left = Remainder()
        await self._empty(pods, namespace, left)
        has_pods = not left.is_empty
        if not has_pods:
            for kind in kinds.values():
                await self._empty(kind, namespace, left)
        name = namespace["metadata"]["name"]
        says = conditions(left, counts_content=not has_pods)
        await self._report(Target(resource, None, name, "status"), namespace, says)
        if left.is_empty:
            await self._release(resource, name)
        return left.is_empty

    async def _empty(self, kind: Resource, namespace: Document, left: Remainder) -> None:
        name = namespace["metadata"]["name"]
        try:
            if await self._emptied(Target(kind, name)):
                return
        except ApiError as error:
            # Such as a webhook that refuses it: the other kinds are deleted all the same.
            left.failures.append(error.message)
            return
        objects = self._environment.list_objects(kind.group, kind.plural, name)
        grace = longest_grace(objects) if (kind.group, kind.plural) == _PODS else 0
        since = seconds_since_deletion(namespace, self._environment.clock.now())
        left.add(kind, name, objects.metadata(), may_wait=since < grace)

    async def _report(self, target: Target, obj: Document, wanted: Wanted) -> None:
        now = self._environment.clock.now()
        if not set_conditions(dict(obj), wanted, now):
            return

        def change(old: Document) -> Document:
            new: Document = copied(old)
            set_conditions(new, wanted, now)
            return new

        try:
            await modify(self._environment, target, change, WriteOptions(user_agent=CONTROLLER_MANAGER))
        except (ApiError, WriteFailed) as error:
            # It is only said what happens. On a full disk, what frees space goes on.
            _LOG.debug("conditions of %s %s: %s", target.resource.kind, target.name, error)

    async def _emptied(self, target: Target) -> bool:
        storage = self._environment.storage
        if storage.list(target.prefix, limit=1).items:
            options = DeleteOptions(propagation_policy=BACKGROUND_POLICY)
            await delete_collection(self._environment, target, ListOptions(), options)
        return not storage.list(target.prefix, limit=1).items

    async def _release(self, resource: Resource, name: str) -> None:
        target = Target(resource, None, name)

        async def release(stored: Stored, obj: Document) -> Stored:
            held = obj["spec"] if resource.plural == "namespaces" else obj["metadata"]
            own = ("kubernetes", CUSTOM_RESOURCE_CLEANUP)
            held["finalizers"] = [finalizer for finalizer in held.get("finalizers") or [] if finalizer not in own]
            if is_definition(resource) and held["finalizers"]:
                # One that goes is shown as it was.
                set_conditions(obj, DELETION_COMPLETED, self._environment.clock.now())
            return await store(self._environment, target, stored, obj, dry_run=False)

        await retry(self._environment, target, release)


def _holds_objects(resource: Resource) -> bool:
    return "delete" in resource.verbs and resource.storage_group is None
