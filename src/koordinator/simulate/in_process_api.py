"""The embedded API without its sockets: the store, the verbs and the rules of each kind, loaded with a snapshot."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any, Final

import msgspec

from koordinator.api.document import Document
from koordinator.api.kinds import ELASTIC_QUOTAS, NAMESPACES, PODS, Kind
from koordinator.api.manifests import custom_resource_definitions
from koordinator.base.clock import Clock
from koordinator.cluster.admission.chain import AdmissionChain, NamespaceLifecycle, Plugin
from koordinator.cluster.admission.pods import DefaultTolerationSeconds, Priority
from koordinator.cluster.admission.storage import DefaultStorageClass, PersistentVolumeClaimResize
from koordinator.cluster.background import BackgroundLoops
from koordinator.cluster.builtin import BUILTIN_RESOURCES
from koordinator.cluster.custom_resources import resources_of
from koordinator.cluster.quota.controller import QuotaController
from koordinator.cluster.resource import Cause, Registry, Resource
from koordinator.cluster.storage.indexed import MemoryStorage
from koordinator.cluster.storage.interface import Change, Stored
from koordinator.cluster.storage.watch_cache import HistoryLimits
from koordinator.cluster.strategy.pod import PodStrategy
from koordinator.cluster.system_objects import create_system_objects
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.target import Target, decode, encode
from koordinator.simulate.admission import ManagerAdmission
from koordinator.simulate.snapshot import Snapshot, SnapshotError
from koordinator.simulate.snapshot_kinds import ALL_KINDS, CONFIGURATION_NAMESPACE

_WHOLE_HISTORY: Final = HistoryLimits(changes=1 << 40, size=1 << 50)
"""All changes of a simulation are kept, so that they can be read afterwards."""


class _Metadata(msgspec.Struct):
    name: str
    namespace: str = ""


class _Named(msgspec.Struct):
    metadata: _Metadata


_NODE_NAMES: Final = re.compile(rb'"nodeName":"([^"\\]*)"')
_decode_name = msgspec.json.Decoder(_Named).decode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


_PLUGINS: Final[tuple[Plugin, ...]] = (
    NamespaceLifecycle(),
    Priority(),
    DefaultTolerationSeconds(),
    DefaultStorageClass(),
    PersistentVolumeClaimResize(),
)
"""Those whose objects a snapshot has: LimitRanges and RuntimeClasses are in none."""


class InProcessApi:
    """``environment`` is what the verbs of ``koordinator.cluster`` work on."""

    def __init__(self, environment: Environment, quotas: QuotaController) -> None:
        self.environment = environment
        self._quotas = quotas

    @classmethod
    async def loaded(
        cls, snapshot: Snapshot, clock: Clock, seed: int, history: HistoryLimits = _WHOLE_HISTORY
    ) -> InProcessApi:
        """Load a snapshot. Raises SnapshotError for objects that cannot be decoded. ``history`` is how much of the
        changes ``changes`` and watches can go back to."""
        registry = _registry()
        storage = MemoryStorage(history, list(_stored(snapshot, registry)))
        admission, quotas = AdmissionChain(*_PLUGINS), QuotaController()
        environment = Environment(
            storage,
            registry,
            clock,
            Random(seed),
            admission=admission,
            webhooks=ManagerAdmission(storage, registry, admission),
            quotas=quotas,
            creation_warnings={},
        )
        await create_system_objects(environment)
        api = cls(environment, quotas)
        await api._complete_namespaces()
        return api

    async def _complete_namespaces(self) -> None:
        """Create namespaces that objects are in and that could not be listed: nothing can be created in a missing one,
        and koord-scheduler creates the built-in quotas."""
        wanted = {CONFIGURATION_NAMESPACE}
        for kind in (PODS, ELASTIC_QUOTAS):
            prefix = self.resource(kind).prefix
            wanted |= {stored.key.split("/")[-2] for stored in self.environment.storage.list(prefix).items}
        for name in sorted(wanted):
            if self.document(NAMESPACES, name) is None:
                await create(self.environment, Target(self.resource(NAMESPACES)), {"metadata": {"name": name}})

    async def run_quotas(self) -> None:
        """Run the ResourceQuota controller, until cancelled; without it no quota refuses anything."""
        loops = BackgroundLoops(self.environment.clock, self.environment.random)
        for name, body in self._quotas.loops(self.environment, loops.add).items():
            loops.add(name, body)
        await loops.run()

    def resource(self, kind: Kind[Any]) -> Resource:
        found = self.environment.registry.served.get((kind.group, kind.version, kind.plural))
        assert found is not None, f"{kind.qualified} is not served"
        return found

    def documents(self, kind: Kind[Any], namespace: str | None = None) -> Iterator[Document]:
        """The objects of a kind, in the order of their keys; the caller owns them."""
        resource = self.resource(kind)
        for stored in self.environment.storage.list(Target(resource, namespace).prefix).items:
            yield decode(resource, stored)

    def document(self, kind: Kind[Any], name: str, namespace: str | None = None) -> Document | None:
        """The object, which the caller owns; None if it does not exist."""
        resource = self.resource(kind)
        stored = self.environment.storage.get(Target(resource, namespace, name).key)
        return None if stored is None else decode(resource, stored)

    def changes(self, kind: Kind[Any], since: int) -> list[Change]:
        """The changes of objects of the kind after that revision, in order."""
        cursor, found = self.environment.storage.watch(self.resource(kind).prefix, since), list[Change]()
        while batch := cursor.pending():
            found += batch
        cursor.close()
        return found

    def pods_on(self, nodes: Collection[str]) -> list[Document]:
        """The pods that are bound to one of these nodes."""
        resource, wanted = self.resource(PODS), frozenset(nodes)
        # Decoding all pods of a large cluster takes seconds.
        encoded = {name.encode() for name in nodes}
        candidates = [
            decode(resource, stored)
            for stored in self.environment.storage.list(resource.prefix).items
            if not encoded.isdisjoint(_NODE_NAMES.findall(stored.value))
        ]
        return [pod for pod in candidates if pod["spec"].get("nodeName") in wanted]

    async def put(self, kind: Kind[Any], obj: Document) -> Stored:
        """Store a whole object, including its status, without admission: as a kubelet or a controller writes it."""
        resource = self.resource(kind)
        metadata = obj["metadata"]
        key = Target(resource, metadata.get("namespace"), metadata["name"]).key
        value, before = encode(resource, obj), self.environment.storage.get(key)
        if before is None:
            return await self.environment.storage.create(key, value)
        return await self.environment.storage.update(key, value, before.revision)

    async def remove(self, kind: Kind[Any], name: str, namespace: str | None = None) -> None:
        """Remove the object at once, ignoring finalizers and grace period; no error if it does not exist."""
        key = Target(self.resource(kind), namespace, name).key
        found = self.environment.storage.get(key)
        if found is not None:
            await self.environment.storage.delete(key, found.revision)


class _PodStrategy(PodStrategy):
    """Pods of a snapshot lack fields that do not affect scheduling. An update restores these as defaults, which must
    not count as a forbidden change."""

    def check(self, obj: Document, old: Document | None) -> list[Cause]:
        return [] if old is not None else super().check(obj, old)


def _registry() -> Registry:
    registry = Registry(BUILTIN_RESOURCES)
    pods = registry.served.get((PODS.group, PODS.version, PODS.plural))
    assert pods is not None
    registry.add(replace(pods, strategy=_PodStrategy()))
    for resource in _custom_resources():
        registry.add(resource)
    return registry


@cache
def _custom_resources() -> tuple[Resource, ...]:
    """The project's kinds. Objects of the snapshot are kept as they are, not pruned to our schemas."""
    definitions = custom_resource_definitions()
    return tuple(replace(resource, current=None) for each in definitions for resource in resources_of(each))


def _stored(snapshot: Snapshot, registry: Registry) -> Iterator[Stored]:
    revision = 0
    for name, objects in snapshot.objects.items():
        kind = ALL_KINDS.get(name)
        resource = registry.served.get((kind.group, kind.version, kind.plural)) if kind is not None else None
        if resource is None:
            raise SnapshotError(f"the snapshot has objects of the kind {name}, which this version does not know")
        for value in _stored_form(objects, resource):
            try:
                metadata = _decode_name(value).metadata
            except msgspec.DecodeError as error:
                raise SnapshotError(f"an object of the kind {name} cannot be read: {error}") from error
            revision += 1
            yield Stored(Target(resource, metadata.namespace or None, metadata.name).key, value, revision)


def _stored_form(objects: Sequence[bytes], resource: Resource) -> Iterator[bytes]:
    if resource.to_stored is None:
        yield from objects
        return
    for value in objects:
        yield encode(resource, {"apiVersion": resource.api_version, "kind": resource.kind, **_decode(value)})
