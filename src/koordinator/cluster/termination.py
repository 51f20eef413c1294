"""Namespaces and CustomResourceDefinitions that were asked to go: first what they hold, then they themselves."""

from __future__ import annotations

import asyncio
import logging

from koordinator.api.document import Document
from koordinator.cluster.custom_resources import DEFINITIONS
from koordinator.cluster.errors import ApiError
from koordinator.cluster.resource import Resource
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.verbs.deletecollection import delete_collection
from koordinator.cluster.verbs.encoding import decode
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.finalizers import CUSTOM_RESOURCE_CLEANUP
from koordinator.cluster.verbs.modify import Attempt, retry, store
from koordinator.cluster.verbs.options import DeleteOptions, ListOptions
from koordinator.cluster.verbs.target import Target

_LOG = logging.getLogger(__name__)
_NAMESPACES = ("", "namespaces")
_RECHECK_SECONDS = 1.0
"""How often a namespace that waits for its pods to end is looked at."""


class Termination:
    """One loop per kind of container."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    async def run(self) -> None:
        """Until the store closes."""
        async with asyncio.TaskGroup() as group:
            for group_name, plural in (_NAMESPACES, DEFINITIONS):
                resource = self._environment.registry.stored(group_name, plural)
                assert resource is not None
                group.create_task(self._follow(resource), name=f"termination of {plural}")

    async def _follow(self, resource: Resource) -> None:
        storage = self._environment.storage
        cursor = storage.watch(resource.storage_prefix(), storage.revision())
        while True:
            if await self._finish_all(resource):
                await self._environment.clock.sleep(_RECHECK_SECONDS)
            elif await cursor.next() is None:
                return

    async def _finish_all(self, resource: Resource) -> bool:
        """True while something waits for what it holds."""
        waiting = False
        for stored in self._environment.storage.list(resource.storage_prefix()).items:
            obj = decode(resource, stored)
            if not obj["metadata"].get("deletionTimestamp"):
                continue
            try:
                waiting |= not await self._finish(resource, obj)
            except ApiError as error:
                # Another writer or an admission check; the next look decides anew.
                _LOG.warning("%s %s: %s", resource.kind, obj["metadata"]["name"], error)
                waiting = True
        return waiting

    async def _finish(self, resource: Resource, obj: Document) -> bool:
        name = obj["metadata"]["name"]
        if resource.plural == "namespaces":
            if "kubernetes" not in (obj.get("spec") or {}).get("finalizers", ()):
                return True
            contents = [Target(r, name) for r in self._environment.registry if r.namespaced and _holds_objects(r)]
        else:
            if CUSTOM_RESOURCE_CLEANUP not in obj["metadata"].get("finalizers", ()):
                return True
            spec = obj["spec"]
            stored = self._environment.registry.stored(spec["group"], spec["names"]["plural"])
            contents = [Target(stored)] if stored is not None else []
        empty = [await self._emptied(target) for target in contents]
        if all(empty):
            await retry(self._environment, Target(resource, None, name), self._release(resource, name))
        return all(empty)

    async def _emptied(self, target: Target) -> bool:
        storage = self._environment.storage
        if storage.list(target.prefix, limit=1).items:
            await delete_collection(self._environment, target, ListOptions(), DeleteOptions())
        return not storage.list(target.prefix, limit=1).items

    def _release(self, resource: Resource, name: str) -> Attempt:
        async def release(stored: Stored, obj: Document) -> Stored:
            held = obj["spec"] if resource.plural == "namespaces" else obj["metadata"]
            own = ("kubernetes", CUSTOM_RESOURCE_CLEANUP)
            held["finalizers"] = [finalizer for finalizer in held.get("finalizers") or [] if finalizer not in own]
            return await store(self._environment, Target(resource, None, name), stored, obj, dry_run=False)

        return release


def _holds_objects(resource: Resource) -> bool:
    return "delete" in resource.verbs and resource.storage_group is None
