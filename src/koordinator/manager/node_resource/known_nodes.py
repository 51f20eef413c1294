"""What is known of each node, kept current by events: facts are worked out once for each version of an object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from koordinator.api.kinds import DEVICES, NODE_METRICS, NODE_RESOURCE_TOPOLOGIES, NODES
from koordinator.api.meta import Object
from koordinator.api.node import Node
from koordinator.api.node_resource_topology import NodeResourceTopology
from koordinator.api.pod import Pod
from koordinator.kube.informer import Informer
from koordinator.kube.informer_set import InformerSet
from koordinator.manager.pod_digests import PodDigest, pod_digests
from koordinator.model.overcommit.decision import NodeSnapshot
from koordinator.model.overcommit.device_resources import device_facts
from koordinator.model.overcommit.metric_facts import MetricFacts, metric_facts
from koordinator.model.overcommit.node_facts import NodeFacts, node_facts
from koordinator.model.overcommit.pod_facts import PodFacts
from koordinator.model.overcommit.topology_facts import topology_facts

T = TypeVar("T", bound=Object)
F = TypeVar("F")


class _Facts(Generic[T, F]):
    """Of the objects of one informer, those that were asked for."""

    def __init__(self, informer: Informer[T], make: Callable[[T], F]) -> None:
        self.informer = informer
        self._make = make
        self._known: dict[str, tuple[T, F]] = {}

    def of(self, name: str) -> F | None:
        """None when there is no such object."""
        found = self.informer.get(name)
        if found is None:
            self._known.pop(name, None)
            return None
        known = self._known.get(name)
        if known is None or known[0] is not found:
            known = self._known[name] = found, self._make(found)
        return known[1]

    def unreadable(self, name: str) -> str:
        """Why the object cannot be read as it is now; empty when it can be, or is not there."""
        broken = self.informer.cache.malformed.get(name)
        if broken is None:
            return ""
        return f"{broken.kind.name} {name} cannot be read, what was known of it before counts: {broken.error}"


class KnownNodes:
    """``changed`` is called with the name of a node when something has changed that its resources follow."""

    def __init__(
        self, informers: InformerSet, changed: Callable[[str], None], *, namespace: str = "", sync_shared: bool = False
    ) -> None:
        """``namespace``: pods of others are not seen. ``sync_shared``: GPU shares are counted too."""
        self._nodes = _Facts(informers.informer(NODES), node_facts)
        self._metrics = _Facts(informers.informer(NODE_METRICS, absent_is_empty=True), metric_facts)
        self._topologies = _Facts(informers.informer(NODE_RESOURCE_TOPOLOGIES, absent_is_empty=True), topology_facts)
        devices = informers.informer(DEVICES, absent_is_empty=True)
        self._devices = _Facts(devices, lambda device: device_facts(device, sync_shared))
        self._no_devices = device_facts(None, sync_shared)
        self._pods: dict[str, dict[str, PodFacts]] = {}
        """By node and uid."""
        self._changed = changed
        self._follow(self._nodes.informer, lambda old, new: True)
        self._follow(self._metrics.informer, lambda old, new: True)
        self._follow(self._topologies.informer, lambda old, new: True)
        self._follow(devices, lambda old, new: old.spec != new.spec or old.metadata.labels != new.metadata.labels)
        pod_digests(informers, namespace).add_handlers(
            name="noderesource",
            on_add=lambda pod, _: self._put(pod),
            on_update=self._replace,
            on_delete=self._drop,
        )

    def names(self) -> list[str]:
        return [node.metadata.name for node in self._nodes.informer.list()]

    def node(self, name: str) -> Node | None:
        return self._nodes.informer.get(name)

    def topology(self, name: str) -> NodeResourceTopology | None:
        return self._topologies.informer.get(name)

    def node_facts(self, name: str) -> NodeFacts | None:
        return self._nodes.of(name)

    def metric_facts(self, name: str) -> MetricFacts | None:
        return self._metrics.of(name)

    def runs_pods(self, name: str) -> bool:
        return name in self._pods

    def unreadable(self, name: str) -> tuple[str, ...]:
        """Sentences on what of a node's objects cannot be read as it is now."""
        broken = (facts.unreadable(name) for facts in (self._nodes, self._metrics, self._topologies, self._devices))
        return tuple(filter(None, broken))

    def snapshot(self, name: str, abnormal: str) -> NodeSnapshot | None:
        """What one node's resources are computed from; None when there is no such node. ``abnormal``: why its
        readings are not to be trusted."""
        facts = self._nodes.of(name)
        if facts is None:
            return None
        return NodeSnapshot(
            node=facts,
            pods=tuple(self._pods.get(name, {}).values()),
            metric=self._metrics.of(name),
            topology=self._topologies.of(name),
            device=self._devices.of(name) or self._no_devices,
            abnormal=abnormal,
        )

    def _follow(self, informer: Informer[T], matters: Callable[[T, T], bool]) -> None:
        changed = self._changed
        informer.add_handlers(
            name="noderesource",
            on_add=lambda found, _: changed(found.metadata.name),
            on_update=lambda old, new: changed(new.metadata.name) if matters(old, new) else None,
            on_delete=lambda found: changed(found.metadata.name),
            on_malformed=lambda broken: changed(broken.name),
        )

    def _put(self, pod: Pod) -> None:
        name = pod.spec.node_name
        if name and isinstance(pod, PodDigest) and pod.facts is not None:
            self._pods.setdefault(name, {})[pod.metadata.uid] = pod.facts

    def _replace(self, old: Pod, new: Pod) -> None:
        if old.spec.node_name != new.spec.node_name:
            self._drop(old)
        self._put(new)

    def _drop(self, pod: Pod) -> None:
        pods = self._pods.get(pod.spec.node_name)
        if pods is not None:
            pods.pop(pod.metadata.uid, None)
            if not pods:
                del self._pods[pod.spec.node_name]
