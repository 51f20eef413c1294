"""Namespaces and CustomResourceDefinitions that are being deleted: first what they hold, then they themselves."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import closing

from koordinator.api.document import Document
from koordinator.cluster.background import LoopBody
from koordinator.cluster.custom_resources import DEFINITIONS
from koordinator.cluster.errors import ApiError
from koordinator.cluster.resource import Resource
from koordinator.cluster.storage.interface import StorageError, Stored
from koordinator.cluster.verbs.delete import BACKGROUND_POLICY, delete_collection
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.options import DeleteOptions, ListOptions
from koordinator.cluster.verbs.target import CUSTOM_RESOURCE_CLEANUP, Target, decode
from koordinator.cluster.verbs.update import Attempt, retry, store

_LOG = logging.getLogger(__name__)
_NAMESPACES = ("", "namespaces")
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
        name = obj["metadata"]["name"]
        if resource.plural == "namespaces":
            if "kubernetes" not in (obj.get("spec") or {}).get("finalizers", ()):
                return True
            contents = [Target(r, name) for r in self._environment.registry if r.namespaced and _holds_objects(r)]
        else:
            if CUSTOM_RESOURCE_CLEANUP not in obj["metadata"].get("finalizers", ()):
                return True
            spec = obj["spec"]
            stored = self._environment.registry.stored[spec["group"], spec["names"]["plural"]]
            contents = [Target(stored)] if stored is not None else []
        empty = [await self._emptied(target) for target in contents]
        if all(empty):
            await retry(self._environment, Target(resource, None, name), self._release(resource, name))
        return all(empty)

    async def _emptied(self, target: Target) -> bool:
        storage = self._environment.storage
        if storage.list(target.prefix, limit=1).items:
            options = DeleteOptions(propagation_policy=BACKGROUND_POLICY)
            await delete_collection(self._environment, target, ListOptions(), options)
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
