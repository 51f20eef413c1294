"""Keeps the board current with what the API has.

A change is only noted when it happens. Rows are made once a turn, however often their objects have changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final, TypeVar, cast

from koordinator.api.core import Namespace
from koordinator.api.kinds import (
    DEVICES,
    DRAIN_NODES,
    ELASTIC_QUOTAS,
    NAMESPACES,
    NODE_METRICS,
    NODES,
    POD_MIGRATION_JOBS,
    PODS,
    RESERVATIONS,
    Kind,
)
from koordinator.api.meta import Object
from koordinator.api.pod import Pod
from koordinator.base.clock import Clock
from koordinator.cli.page.board import Row, Table
from koordinator.cli.page.rows import (
    KeptMetric,
    KeptNode,
    KeptPod,
    device_rows,
    drain_row,
    keep_metric,
    keep_name,
    keep_node,
    keep_pod,
    listed,
    node_row,
    quota_row,
)
from koordinator.cli.usage import (
    NO_READING,
    ClassUsage,
    ClusterUsage,
    NodeReading,
    PodUsage,
    usage_of_node,
    with_reading,
)
from koordinator.kube.informer import Informer
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Client
from koordinator.kube.lacks import without_remedy

T = TypeVar("T", bound=Object)

CLASSES: Final = "classes"
PENDING: Final = "pending"
INTERFERENCE: Final = "interference"
_OF_ONE_OBJECT: Final[Mapping[str, tuple[Kind[Any], Callable[[Any], Row | None]]]] = {
    PENDING: (PODS, lambda pod: cast("KeptPod", pod).waits),
    "quotas": (ELASTIC_QUOTAS, quota_row),
    "reservations": (RESERVATIONS, partial(listed, "reservations")),
    "migrations": (POD_MIGRATION_JOBS, partial(listed, "migrations")),
    "drains": (DRAIN_NODES, drain_row),
}
"""The tables with a row for each object of a kind; no row where the function returns None."""
READS: Final[Mapping[str, Sequence[Kind[Any]]]] = {
    "nodes": (NODES, PODS, NODE_METRICS),
    CLASSES: (NODES, PODS, NODE_METRICS),
    INTERFERENCE: (NODE_METRICS,),
    "devices": (DEVICES, PODS),
    **{name: (kind,) for name, (kind, _) in _OF_ONE_OBJECT.items()},
}
"""What a viewer has to be allowed to list for the rows of a table."""
_BY_NODE: Final = "node"


class Feed:
    """Run ``informers``, and ``turn`` again and again."""

    def __init__(self, client: Client, clock: Clock, *, is_for_administrator: bool = True) -> None:
        """Others are told what is lacking, and not what would put it right."""
        self._is_for_administrator = is_for_administrator
        self.informers = InformerSet(client, clock=clock, write_through=False)
        self.tables = {name: Table(name) for name in READS}
        self._nodes = self.informers.informer(NODES, transform=keep_node)
        self._pods = self.informers.informer(PODS, indexes={_BY_NODE: _node_of}, transform=keep_pod)
        self._metrics = self.informers.informer(NODE_METRICS, transform=keep_metric, absent_is_empty=True)
        self._devices = self.informers.informer(DEVICES, absent_is_empty=True)
        self._changed: dict[str, set[str]] = {name: set() for name in _OF_ONE_OBJECT}
        self._changed_nodes: set[str] = set()
        self._usage = ClusterUsage()
        self._keys_of: dict[tuple[str, str], frozenset[str]] = {}
        """(table, node) -> the rows that the node has there."""
        for name, (kind, _) in _OF_ONE_OBJECT.items():
            informer = self.informers.informer(kind, absent_is_empty=kind is not PODS)
            _on_change(informer, partial(self._note, name))
        by_node: tuple[Informer[Any], ...] = (self._nodes, self._metrics, self._devices)
        for informer in by_node:
            _on_change(informer, self._note_node)
        _on_change(self._pods, lambda pod: self._changed_nodes.update(_node_of(pod)))

    def namespaces(self) -> Informer[Namespace]:
        """Those that there are, for whoever needs them; before the informers run."""
        return self.informers.informer(NAMESPACES, transform=keep_name)

    def turn(self) -> None:
        """Make the rows of what has changed."""
        for name, (kind, row_of) in _OF_ONE_OBJECT.items():
            self._turn_objects(name, self.informers.informer(kind), row_of)
        if self._changed_nodes:
            for node in self._changed_nodes:
                self._turn_node(node)
            self._changed_nodes.clear()
            self.tables[CLASSES].replace({each.name: asdict(each) for each in self.classes()})
        for name, kinds in READS.items():
            self.tables[name].problem = "; ".join(filter(None, map(self._problem, kinds)))

    def classes(self) -> list[ClassUsage]:
        """All nodes together, as ``koord top`` has them."""
        return self._usage.classes()

    def pod(self, key: str) -> KeptPod | None:
        return cast("KeptPod | None", self._pods.get(key))

    def pods(self) -> Iterable[KeptPod]:
        """All, in no order."""
        return cast("Iterable[KeptPod]", self._pods.store.values())

    def pods_on(self, node: str) -> Sequence[KeptPod]:
        """Those on a node that have not ended."""
        return cast("Sequence[KeptPod]", self._pods.by_index(_BY_NODE, node))

    def measured(self, pod: KeptPod) -> PodUsage:
        """As ``koord top pods`` has it."""
        return with_reading(pod.usage, self._reading(pod.usage.node))

    def _reading(self, node: str) -> NodeReading:
        metric = cast("KeptMetric | None", self._metrics.get(node))
        return metric.reading if metric is not None else NO_READING

    def _note_node(self, obj: Object) -> None:
        self._changed_nodes.add(obj.metadata.name)

    def _note(self, table: str, obj: Object) -> None:
        self._changed[table].add(obj.metadata.key)

    def _turn_objects(self, name: str, informer: Informer[Any], row_of: Callable[[Any], Row | None]) -> None:
        table, changed = self.tables[name], self._changed[name]
        for key in changed:
            obj = informer.get(key)
            row = row_of(obj) if obj is not None else None
            if row is None:
                table.remove(key)
            else:
                table.put(key, row)
        changed.clear()

    def _turn_node(self, name: str) -> None:
        metric, device = cast("KeptMetric | None", self._metrics.get(name)), self._devices.get(name)
        pods = self.pods_on(name)
        self._turn_rows(INTERFERENCE, name, _suffering(metric) if metric is not None else {})
        self._turn_rows("devices", name, dict(device_rows(device, pods)) if device is not None else {})
        node = cast("KeptNode | None", self._nodes.get(name))
        if node is None:
            self._usage.remove(name)
            self.tables["nodes"].remove(name)
            return
        usage = usage_of_node(name, node.status.allocatable, map(self.measured, pods), self._reading(name))
        self._usage.put(usage)
        self.tables["nodes"].put(name, node_row(usage, node, metric))

    def _turn_rows(self, table: str, node: str, rows: Mapping[str, Row]) -> None:
        """These are all the rows that the node has in the table."""
        before = self._keys_of.pop((table, node), frozenset())
        for key in before.difference(rows):
            self.tables[table].remove(key)
        for key, row in rows.items():
            self.tables[table].put(key, row)
        if rows:
            self._keys_of[table, node] = frozenset(rows)

    def _problem(self, kind: Kind[Any]) -> str:
        informer = self.informers.informer(kind)
        if informer.lack or informer.has_synced:
            return informer.lack if self._is_for_administrator else without_remedy(informer.lack)
        return f"{kind.plural} are not read yet: {informer.reflector_statistics.last_error or 'that takes a moment'}"


def _suffering(metric: KeptMetric) -> dict[str, Row]:
    """By pod and what it suffers from."""
    return {f"{row['pod']} {row['indicator']}": row for row in metric.suffering}


def _node_of(pod: Pod) -> tuple[str, ...]:
    kept = cast("KeptPod", pod)
    return (kept.usage.node,) if kept.is_on_node else ()


def _on_change(informer: Informer[T], note: Callable[[T], None]) -> None:
    def update(old: T, new: T) -> None:
        note(old)
        note(new)

    informer.add_handlers(name="page", on_add=lambda obj, _: note(obj), on_update=update, on_delete=note)
