"""A cluster in memory: its API server has faults on demand, and a scheduler, kubelet and workload are simulated.

Informers see a change only when ``deliver`` is called, so that a test decides how far behind they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, cast

from koordinator.api.codec import convert, encode
from koordinator.api.document import Document
from koordinator.api.kinds import (
    ADVANCED_STATEFUL_SETS,
    CLONE_SETS,
    POD_DISRUPTION_BUDGETS,
    POD_MIGRATION_JOBS,
    PODS,
    RESERVATIONS,
    Kind,
)
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.descheduler.framework import Evictor, Handle
from koordinator.descheduler.migration.arguments import MigrationControllerArgs
from koordinator.descheduler.migration.plugin import MigrationController
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Client, WatchEvent
from tests.in_memory_api import InMemoryApi, InMemoryConnection, InMemoryResponse, failed
from tests.recorded_events import RecordedEvents

Fault = Callable[[str, str, bool], Exception | None]
"""Asked about each write with its verb and its path, before it is done (False) and after (True)."""


class Crash(Exception):
    """The program ends here."""


class SimulatedCluster:
    """``as_client`` is what the program gets."""

    def __init__(self, others: Sequence[Kind[Any]] = ()) -> None:
        """``others`` are kinds that the API server serves beside its own."""
        self.clock = ManualClock()
        self.scales: dict[str, Document] = {}
        """By path: the responses of subresources scale, and of discovery, of kinds that the API server lacks."""
        self.reads: list[str] = []
        """The path of every read."""
        self.writes: list[tuple[str, str]] = []
        """(verb, path) of every write that was done."""
        self.evicted: list[str] = []
        """The uids of pods that were evicted, once for each eviction that was accepted."""
        self.fault: Fault = lambda verb, path, done: None
        self.recorded = RecordedEvents()
        self.api = InMemoryApi(self.clock, others=(ADVANCED_STATEFUL_SETS, CLONE_SETS, *others))
        self._client = self.api.client(self.clock, _Connection(self))
        self._delivered = self.api.revision
        self._informers: InformerSet | None = None

    @property
    def as_client(self) -> Client:
        return self._client

    @property
    def is_away(self) -> bool:
        """No request gets a response."""
        return self.api.away

    @is_away.setter
    def is_away(self, value: bool) -> None:
        self.api.away = value

    @property
    def disruptions_allowed(self) -> int | None:
        """Of a budget over all pods; None is no budget."""
        budget = self.api.found(POD_DISRUPTION_BUDGETS, "all", "default")
        return None if budget is None else int(budget["status"]["disruptionsAllowed"])

    @disruptions_allowed.setter
    def disruptions_allowed(self, value: int | None) -> None:
        if value is not None:
            document = {
                "metadata": {"namespace": "default", "name": "all"},
                "spec": {"maxUnavailable": 1, "selector": {}},
                "status": {"disruptionsAllowed": value, "observedGeneration": 1},
            }
            self.api.put(POD_DISRUPTION_BUDGETS, document)
        elif self.disruptions_allowed is not None:
            self.api.remove(POD_DISRUPTION_BUDGETS, "all", "default")

    # What the program is.

    def start(
        self, args: MigrationControllerArgs | None = None, seed: int = 1, gates: frozenset[str] = frozenset()
    ) -> MigrationController:
        """The plugin of a program that has just started: its informers know all that there is."""
        self._informers = InformerSet(self.as_client, clock=self.clock, random=Random(seed))
        handle = Handle(
            "test",
            self.as_client,
            self._informers,
            cast("Evictor", None),
            self.recorded,
            self.clock,
            Random(seed),
            Metrics(),
            gates=gates,
        )
        plugin = MigrationController(args or MigrationControllerArgs(), handle)
        self._delivered = self.api.revision
        for informer in self._informers:
            informer.cache.begin_replace(authoritative=True)
            listed = [convert(document, informer.kind.type) for document in self.api.all(informer.kind)]
            informer.cache.replace_page(listed, [])
            informer.cache.end_replace(str(self._delivered))
            # What the program writes itself is in its informers at once, as if their watches ran.
            informer._reflector._version = str(self._delivered)
        return plugin

    def deliver(self) -> None:
        """Informers see everything that has happened, in its order."""
        since, self._delivered = self._delivered, self.api.revision
        changes = [
            (revision, informer, verb, document)
            for informer in self._informers or ()
            for revision, verb, document in self.api.changes(informer.kind, since)
        ]
        for revision, informer, verb, document in sorted(changes, key=lambda each: each[0]):
            obj = convert(document, informer.kind.type)
            informer.cache.apply(WatchEvent(cast("Any", verb), obj, str(revision)))

    # What others do.

    def put(self, kind: Kind[Any], document: Document) -> Document:
        """Create or replace an object; as it is stored."""
        self.api.put(kind, document)
        metadata = document["metadata"]
        return self.api.document(kind, metadata["name"], metadata.get("namespace", ""))

    def remove(self, kind: Kind[Any], key: str) -> None:
        namespace, _, name = key.rpartition("/")
        self.api.remove(kind, name, namespace)

    def get_document(self, kind: Kind[Any], key: str) -> Document | None:
        namespace, _, name = key.rpartition("/")
        return self.api.found(kind, name, namespace)

    def documents(self, kind: Kind[Any]) -> dict[str, Document]:
        """By key."""
        found = self.api.all(kind)
        return {
            "/".join(filter(None, (each["metadata"].get("namespace"), each["metadata"]["name"]))): each
            for each in found
        }

    def job(self, name: str = "job") -> Document:
        return self.api.document(POD_MIGRATION_JOBS, name)

    def status(self, name: str = "job") -> Document:
        found: Document = self.job(name).get("status", {})
        return found

    def reservations(self) -> Iterator[Document]:
        yield from self.api.all(RESERVATIONS)

    def change(self, kind: Kind[Any], key: str, **status: Any) -> None:
        """Set fields of an object's status."""
        document = self.get_document(kind, key)
        assert document is not None, f"there are no {kind.plural} {key}"
        document["status"] = {**document.get("status", {}), **status}
        self.put(kind, document)

    def done(self, method: str, path: str, victim: str) -> None:
        """The program has written; ``victim`` is the uid of a pod that this evicts."""
        self.writes.append((method, path))
        if victim:
            self.evicted.append(victim)


class _Connection(InMemoryConnection):
    """Of the program: faults go by the verb and the path of a write, and scales are answered."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(cluster.api)
        self._cluster = cluster

    async def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        give_up_at: float,
        may_send: Callable[[], bool] | None = None,
    ) -> InMemoryResponse:
        cluster, path = self._cluster, target.partition("?")[0]
        if method == "GET":
            cluster.reads.append(path)
        if method == "GET" and path in cluster.scales and not cluster.is_away:
            return InMemoryResponse(200, {}, encode(cluster.scales[path]))
        is_write = method != "GET" and not cluster.is_away
        victim = self._victim(method, path) if is_write else ""
        if is_write and (failure := failed(cluster.fault(method, path, False))) is not None:
            return failure
        response = await super().request(method, target, headers, body, give_up_at=give_up_at, may_send=may_send)
        if is_write and response.status < 300:
            cluster.done(method, path, victim)
            return failed(cluster.fault(method, path, True)) or response
        return response

    def _victim(self, method: str, path: str) -> str:
        """The uid of the pod that a write evicts or deletes."""
        parts = path.split("/")
        if "pods" not in parts or not (method == "DELETE" or parts[-1] == "eviction"):
            return ""
        name = parts[parts.index("pods") + 1]
        found = self._cluster.api.found(PODS, name, parts[parts.index("pods") - 1])
        return "" if found is None else str(found["metadata"]["uid"])
