"""A cluster in memory: an API server with faults on demand, and a simulated scheduler, kubelet and workload.

Informers see a change only when ``deliver`` is called, so that a test decides how far behind they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, cast

from koordinator.api.codec import convert, decode_any, encode
from koordinator.api.document import Document, copied
from koordinator.api.kinds import (
    ADVANCED_STATEFUL_SETS,
    CLONE_SETS,
    DEPLOYMENTS,
    DRAIN_NODE_GROUPS,
    DRAIN_NODES,
    NODES,
    POD_MIGRATION_JOBS,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESERVATIONS,
    STATEFUL_SETS,
    Kind,
)
from koordinator.api.meta import Object
from koordinator.api.timestamps import format_time
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.descheduler.framework import Evictor, Handle
from koordinator.descheduler.migration.arguments import MigrationControllerArgs
from koordinator.descheduler.migration.plugin import MigrationController
from koordinator.kube.errors import ApiStatusError, TransportError
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Client, PatchType, WatchEvent
from koordinator.kube.request import target

KINDS: tuple[Kind[Any], ...] = (
    ADVANCED_STATEFUL_SETS,
    CLONE_SETS,
    DEPLOYMENTS,
    DRAIN_NODE_GROUPS,
    DRAIN_NODES,
    NODES,
    POD_MIGRATION_JOBS,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESERVATIONS,
    STATEFUL_SETS,
)
Fault = Callable[[str, str, bool], Exception | None]
"""Asked about each write with its verb and its path, before it is done (False) and after (True)."""


class Crash(Exception):
    """The program ends here."""


class SimulatedCluster:
    """Objects as documents by kind and key. ``as_client`` is what the program gets."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.objects: dict[str, dict[str, Document]] = {kind.plural: {} for kind in KINDS}
        self.scales: dict[str, Document] = {}
        """By path: the answers of subresources scale, and of discovery."""
        self.writes: list[tuple[str, str]] = []
        """(verb, path) of every write that was done."""
        self.evicted: list[str] = []
        """The uids of pods that were evicted, once for each eviction that was accepted."""
        self.disruptions_allowed: int | None = None
        """Of a budget over all pods; None is no budget."""
        self.fault: Fault = lambda verb, path, done: None
        self.is_away = False
        """No request gets an answer."""
        self.events: list[tuple[str, str, str, str]] = []
        """(kind, type, reason, note) of every event."""
        self._version = 0
        self._undelivered: list[tuple[str, str, Document]] = []
        self._informers: InformerSet | None = None

    @property
    def as_client(self) -> Client:
        return cast("Client", self)

    # What the program is.

    def start(
        self, args: MigrationControllerArgs | None = None, seed: int = 1, gates: frozenset[str] = frozenset()
    ) -> MigrationController:
        """The plugin of a program that has just started: its informers know all that there is."""
        self._informers = InformerSet(self.as_client, clock=self.clock, random=Random(seed))
        recorder = EventBroadcaster(self.as_client, clock=self.clock, random=Random(seed)).recorder("test")
        recorder.event = self._record  # type: ignore[method-assign]
        handle = Handle(
            "test",
            self.as_client,
            self._informers,
            cast("Evictor", None),
            recorder,
            self.clock,
            Random(seed),
            Metrics(),
            gates=gates,
        )
        plugin = MigrationController(args or MigrationControllerArgs(), handle)
        self._undelivered.clear()
        for informer in self._informers:
            listed = self.objects[informer.kind.plural].values()
            informer.cache.begin_replace(authoritative=True)
            informer.cache.replace_page([convert(document, informer.kind.type) for document in listed], [])
            informer.cache.end_replace(str(self._version))
        return plugin

    def deliver(self) -> None:
        """Informers see everything that has happened."""
        undelivered, self._undelivered = self._undelivered, []
        for plural, verb, document in undelivered:
            for informer in self._informers or ():
                if informer.kind.plural == plural:
                    obj = convert(document, informer.kind.type)
                    informer.cache.apply(WatchEvent(cast("Any", verb), obj, document["metadata"]["resourceVersion"]))

    # What others do.

    def put(self, kind: Kind[Any], document: Document, *, verb: str = "") -> Document:
        """Create or replace an object."""
        metadata = document.setdefault("metadata", {})
        key = f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else metadata["name"]
        known = key in self.objects[kind.plural]
        self._version += 1
        metadata.setdefault("uid", f"uid-{self._version}")
        metadata.setdefault("creationTimestamp", format_time(self.clock.now()))
        metadata["resourceVersion"] = str(self._version)
        self.objects[kind.plural][key] = document
        self._undelivered.append((kind.plural, verb or ("MODIFIED" if known else "ADDED"), copied(document)))
        return document

    def remove(self, kind: Kind[Any], key: str) -> None:
        self._version += 1
        document = self.objects[kind.plural].pop(key)
        document["metadata"]["resourceVersion"] = str(self._version)
        self._undelivered.append((kind.plural, "DELETED", copied(document)))

    def get_document(self, kind: Kind[Any], key: str) -> Document | None:
        return self.objects[kind.plural].get(key)

    def job(self, name: str = "job") -> Document:
        return self.objects[POD_MIGRATION_JOBS.plural][name]

    def status(self, name: str = "job") -> Document:
        found: Document = self.job(name).get("status", {})
        return found

    def reservations(self) -> Iterator[Document]:
        yield from self.objects[RESERVATIONS.plural].values()

    def change(self, kind: Kind[Any], key: str, **status: Any) -> None:
        """Set fields of an object's status."""
        document = copied(self.objects[kind.plural][key])
        document["status"] = {**document.get("status", {}), **status}
        self.put(kind, document)

    def _record(self, regarding: Any, type_: str, reason: str, action: str, note: str, **_: Any) -> None:
        self.events.append((regarding.kind, type_, reason, note))

    # The API server, as a client sees it.

    async def get(self, kind: Kind[Any], name: str, namespace: str = "") -> Any:
        self._reach()
        target(kind, namespace, name)  # as a client does, which refuses what is no part of a path
        return convert(self._found(kind, name, namespace), kind.type)

    async def create(
        self, kind: Kind[Any], body: Any, namespace: str = "", *, name: str = "", subresource: str = ""
    ) -> Any:
        path = kind.path(namespace, name or body["metadata"]["name"], subresource)
        self._ask("POST", path, done=False)
        if subresource:
            self._evict(name, namespace, body)
            self._ask("POST", path, done=True)
            return Object()
        if body["metadata"]["name"] in self.objects[kind.plural]:
            raise ApiStatusError(409, "AlreadyExists", f"{kind.plural} {body['metadata']['name']!r} already exists")
        made = self.put(kind, copied(body))
        self._ask("POST", path, done=True)
        return convert(made, kind.type)

    async def patch(
        self,
        kind: Kind[Any],
        name: str,
        body: Document,
        patch_type: PatchType,
        namespace: str = "",
        *,
        subresource: str = "",
    ) -> Any:
        assert patch_type is PatchType.MERGE
        path = kind.path(namespace, name, subresource)
        self._ask("PATCH", path, done=False)
        document = copied(self._found(kind, name, namespace))
        wanted = body.get("metadata", {})
        for field in ("uid", "resourceVersion"):
            if field in wanted and wanted[field] != document["metadata"][field]:
                raise ApiStatusError(409, "Conflict", f"{field} is another one")
        has_status = kind in (DRAIN_NODE_GROUPS, DRAIN_NODES, POD_MIGRATION_JOBS, RESERVATIONS)
        part = {"status": body.get("status", {})} if subresource == "status" else dict(body)
        if not subresource and has_status:
            part.pop("status", None)
        merged = _merge(document, part)
        answer = self.put(kind, merged)
        self._ask("PATCH", path, done=True)
        metadata = merged["metadata"]
        if "deletionTimestamp" in metadata and metadata.get("finalizers") == []:
            self.remove(kind, name)
        return convert(answer, kind.type)

    async def delete(self, kind: Kind[Any], name: str, namespace: str = "", *, uid: str = "") -> None:
        path = kind.path(namespace, name)
        self._ask("DELETE", path, done=False)
        document = self._found(kind, name, namespace)
        if uid and document["metadata"]["uid"] != uid:
            raise ApiStatusError(409, "Conflict", "the uid is another one")
        if document["metadata"].get("finalizers"):
            self.put(kind, {**document, "metadata": {**document["metadata"], **self._deleted_now()}})
        else:
            self.remove(kind, f"{namespace}/{name}" if namespace else name)
        self._ask("DELETE", path, done=True)

    def _deleted_now(self) -> Document:
        return {"deletionTimestamp": format_time(self.clock.now())}

    async def raw(self, method: str, path: str, body: bytes | None = None) -> bytes:
        self._reach()
        if method == "GET" and path in self.scales:
            return encode(self.scales[path])
        if path.startswith("/api/v1/nodes/"):
            return encode(self._found(NODES, path.rsplit("/", 1)[1], ""))
        if "/pods/" not in path:
            raise ApiStatusError(404, "NotFound", f"there is nothing at {path}")
        namespace, name = path.split("/")[-3], path.split("/")[-1]
        if method == "GET":
            return encode(self._found(PODS, name, namespace))
        self._ask(method, path, done=False)
        self._terminate(name, namespace, decode_any(body or b"{}"))
        self._ask(method, path, done=True)
        return b"{}"

    def _found(self, kind: Kind[Any], name: str, namespace: str) -> Document:
        found = self.objects[kind.plural].get(f"{namespace}/{name}" if namespace else name)
        if found is None:
            raise ApiStatusError(404, "NotFound", f"{kind.plural} {name!r} not found")
        return found

    def _reach(self) -> None:
        if self.is_away:
            raise TransportError("connection refused", maybe_applied=False)

    def _ask(self, verb: str, path: str, *, done: bool) -> None:
        self._reach()
        if done:
            self.writes.append((verb, path))
        error = self.fault(verb, path, done)
        if error is not None:
            raise error

    def _evict(self, name: str, namespace: str, eviction: Document) -> None:
        if self.disruptions_allowed is not None:
            if self.disruptions_allowed <= 0:
                message = "Cannot evict pod as it would violate the pod's disruption budget."
                raise ApiStatusError(429, "TooManyRequests", message)
            self.disruptions_allowed -= 1
        self._terminate(name, namespace, eviction["deleteOptions"])

    def _terminate(self, name: str, namespace: str, options: Document) -> None:
        document = copied(self._found(PODS, name, namespace))
        if options.get("preconditions", {}).get("uid", document["metadata"]["uid"]) != document["metadata"]["uid"]:
            raise ApiStatusError(409, "Conflict", "the uid in the precondition does not match")
        self.evicted.append(document["metadata"]["uid"])
        document["metadata"]["deletionTimestamp"] = format_time(self.clock.now())
        self.put(PODS, document)


def _merge(document: Document, patch: Document) -> Document:
    for name, value in patch.items():
        if value is None:
            document.pop(name, None)
        elif isinstance(value, dict):
            document[name] = _merge(document.get(name) or {}, value)
        else:
            document[name] = value
    return document
