"""Lists node snapshots from informers: facts are computed once for each version of an object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from koordinator.api.kinds import DEVICES, NODE_RESOURCE_TOPOLOGIES, NODES
from koordinator.api.meta import Object
from koordinator.api.node import Node
from koordinator.api.node_resource_topology import NodeResourceTopology
from koordinator.api.pod import Pod
from koordinator.kube.informer import Informer
from koordinator.kube.informer_set import InformerSet
from koordinator.manager.options import Options
from koordinator.manager.trimmed_objects import (
    TrimmedPod,
    facts_of,
    trimmed_node_reports,
    trimmed_pods,
)
from koordinator.model.overcommit.device_resources import device_facts
from koordinator.model.overcommit.facts import (
    NO_PODS,
    NodePods,
    PodFacts,
    node_facts,
    topology_facts,
)
from koordinator.model.overcommit.plan import NodeSnapshot

T = TypeVar("T", bound=Object)
F = TypeVar("F")


class _Facts(Generic[T, F]):
    """The facts of the objects of one informer, computed on first use."""

    def __init__(self, informer: Informer[T], make: Callable[[T], F]) -> None:
        self.informer = informer
        self.malformed = informer.cache.malformed
        self._get = informer.store.get
        self._make = make
        self._known: dict[str, tuple[T, F]] = {}

    def find(self, name: str) -> tuple[T, F] | tuple[None, None]:
        """The named object and the facts of it; None twice when it does not exist."""
        found = self._get(name)
        if found is None:
            self._known.pop(name, None)
            return None, None
        known = self._known.get(name)
        if known is None or known[0] is not found:
            known = self._known[name] = found, self._make(found)
        return known

    def unreadable(self, name: str) -> str:
        """Why the object cannot be decoded in its current form; empty when it can be, or does not exist."""
        broken = self.malformed.get(name)
        if broken is None:
            return ""
        return f"{broken.kind.name} {name} cannot be read, what was known of it before counts: {broken.error}"


class StoredNode(NamedTuple):
    """The objects of one node as they are stored, for the diff, and the facts about them, for the plan."""

    node: Node
    topology: NodeResourceTopology | None
    facts: NodeSnapshot
    unreadable: tuple[str, ...]
    """Sentences about what cannot be decoded of the node's objects in their current form."""


class SnapshotLister:
    """Calls ``changed`` with the name of a node when something changed that the node's plan depends on."""

    def __init__(
        self, informers: InformerSet, changed: Callable[[str], None], options: Options, *, sync_shared: bool = False
    ) -> None:
        """Counts the pods of the namespace that ``options`` name, or all. ``sync_shared``: GPU shares are counted
        too."""
        self._nodes = _Facts(informers.informer(NODES), node_facts)
        self._metrics = _Facts(trimmed_node_reports(informers), facts_of)
        self._topologies = _Facts(informers.informer(NODE_RESOURCE_TOPOLOGIES, absent_is_empty=True), topology_facts)
        devices = informers.informer(DEVICES, absent_is_empty=True)
        self._devices = _Facts(devices, lambda device: device_facts(device, sync_shared))
        self._no_devices = device_facts(None, sync_shared)
        self._all: tuple[_Facts[Any, Any], ...] = self._nodes, self._metrics, self._topologies, self._devices
        self._pods: dict[str, dict[str, PodFacts]] = {}
        """The pods by node and uid."""
        self._node_pods: dict[str, NodePods] = {}
        """The same as plans are made from them, until a pod of the node changes."""
        self._changed = changed
        self._watch(self._nodes.informer, lambda old, new: True)
        self._watch(self._metrics.informer, lambda old, new: True)
        self._watch(self._topologies.informer, lambda old, new: True)
        self._watch(devices, lambda old, new: old.spec != new.spec or old.metadata.labels != new.metadata.labels)
        trimmed_pods(informers, options).add_handlers(
            name="noderesource",
            on_add=lambda pod, _: self._put(pod),
            on_update=self._replace,
            on_delete=self._drop,
        )

    def names(self) -> list[str]:
        return [node.metadata.name for node in self._nodes.informer.list()]

    def get(self, name: str) -> StoredNode | None:
        """The current objects and facts of one node; None when the node does not exist."""
        node, facts = self._nodes.find(name)
        if node is None or facts is None:
            return None
        topology, zones = self._topologies.find(name)
        metric = self._metrics.find(name)[1]
        snapshot = NodeSnapshot(
            node=facts,
            pods=self._pods_of(name),
            metric=metric,
            topology=zones,
            device=self._devices.find(name)[1] or self._no_devices,
        )
        unreadable = tuple([text for each in self._all if each.malformed and (text := each.unreadable(name))])
        if metric is not None and metric.unreadable:
            unreadable += (metric.unreadable,)
        return StoredNode(node, topology, snapshot, unreadable)

    def _watch(self, informer: Informer[T], matters: Callable[[T, T], bool]) -> None:
        changed = self._changed
        informer.add_handlers(
            name="noderesource",
            on_add=lambda found, _: changed(found.metadata.name),
            on_update=lambda old, new: changed(new.metadata.name) if matters(old, new) else None,
            on_delete=lambda found: changed(found.metadata.name),
            on_malformed=lambda broken: changed(broken.name),
        )

    def _pods_of(self, name: str) -> NodePods:
        known = self._node_pods.get(name)
        if known is None and name in self._pods:
            known = self._node_pods[name] = NodePods(self._pods[name].values())
        return known or NO_PODS

    def _put(self, pod: Pod) -> None:
        name = pod.spec.node_name
        if name and isinstance(pod, TrimmedPod) and pod.facts is not None:
            self._pods.setdefault(name, {})[pod.metadata.uid] = pod.facts
            self._node_pods.pop(name, None)

    def _replace(self, old: Pod, new: Pod) -> None:
        if old.spec.node_name != new.spec.node_name:
            self._drop(old)
        self._put(new)

    def _drop(self, pod: Pod) -> None:
        pods = self._pods.get(pod.spec.node_name)
        if pods is not None:
            pods.pop(pod.metadata.uid, None)
            self._node_pods.pop(pod.spec.node_name, None)
            if not pods:
                del self._pods[pod.spec.node_name]
