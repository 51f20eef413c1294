"""Changes of nodes: drain, remove, add."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from koordinator.api.annotations import POD_CPU_ALLOCS
from koordinator.api.codec import DecodeError, convert
from koordinator.api.document import Document, copied
from koordinator.api.kinds import (
    CSI_NODES,
    DEVICES,
    NODE_METRICS,
    NODE_RESOURCE_TOPOLOGIES,
    NODES,
    PODS,
    Kind,
)
from koordinator.api.node import Node
from koordinator.api.quantity import Format, Quantity, QuantityError, parse_quantity
from koordinator.api.resource_names import MEMORY
from koordinator.api.timestamps import format_time
from koordinator.base.spelling import did_you_mean
from koordinator.cluster.controllers.daemon_set.new_pod import confine
from koordinator.cluster.errors import ApiError
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.environment import NoWebhooks
from koordinator.cluster.verbs.eviction import evict
from koordinator.cluster.verbs.options import WriteOptions
from koordinator.cluster.verbs.target import Target, new_uid
from koordinator.model.huge_pages import huge_page_pool, without_pool
from koordinator.simulate.change import Change, ChangeError, Remarks
from koordinator.simulate.colocation import give_capacity
from koordinator.simulate.in_process_api import InProcessApi
from koordinator.simulate.pod_documents import is_finished, is_mirror, is_of_daemon_set, key_of, owner_of
from koordinator.simulate.pod_life import as_new
from koordinator.simulate.simulated_cluster import SimulatedCluster

_NODE_OBJECTS: Final[tuple[Kind[Any], ...]] = (NODE_METRICS, DEVICES, NODE_RESOURCE_TOPOLOGIES, CSI_NODES)
"""Kinds whose objects bear the name of a node, and are created and deleted with it."""
_HOST_NAME: Final = "kubernetes.io/hostname"
_CORDONED: Final = "node.kubernetes.io/unschedulable"
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Drain(Change):
    """As ``kubectl drain --ignore-daemonsets --delete-emptydir-data``: the nodes are cordoned, and their pods are
    evicted, as fast as disruption budgets allow. ``force``: also pods without a controller, which are not replaced."""

    nodes: Sequence[str]
    force: bool = False

    async def apply(self, cluster: SimulatedCluster, remarks: Remarks) -> None:
        api = cluster.api
        for name in self.nodes:
            node = node_named(api, name)
            node["spec"] = {**(node.get("spec") or {}), "unschedulable": True}
            await api.put(NODES, node)
        await cluster.settle()
        refusals: dict[str, str] = {}
        while await self._evict_some(cluster, refusals):
            await cluster.settle()
        remarks.done = f"{_listed('node', self.nodes)} {'is' if len(self.nodes) == 1 else 'are'} drained"
        left = self._left(api)
        remarks.blocked += [f"{key_of(pod)} stays on {pod['spec']['nodeName']}: {refusals[_uid(pod)]}" for pod in left]
        staying = [pod for pod in api.pods_on(self.nodes) if not _goes(pod)]
        if staying:
            remarks.notes.append(
                f"{len(staying)} pods of DaemonSets, static pods and finished pods stay on the drained nodes, "
                "as with kubectl drain --ignore-daemonsets"
            )

    def _left(self, api: InProcessApi) -> list[Document]:
        return [pod for pod in api.pods_on(self.nodes) if _goes(pod)]

    async def _evict_some(self, cluster: SimulatedCluster, refusals: dict[str, str]) -> bool:
        """One round over all pods that are left; False if none of them could be evicted."""
        environment, evicted = cluster.api.environment, False
        for pod in self._left(cluster.api):
            metadata = pod["metadata"]
            if not self.force and owner_of(pod) is None:
                refusals[_uid(pod)] = "it has no controller that makes it again; --force evicts it all the same"
                continue
            target = Target(cluster.api.resource(PODS), metadata["namespace"], metadata["name"], "eviction")
            eviction = {"metadata": {"name": metadata["name"], "namespace": metadata["namespace"]}}
            cluster.pods.causes[_uid(pod)] = "drained"
            try:
                await evict(environment, target, eviction, WriteOptions())
            except ApiError as error:
                refusals[_uid(pod)] = _why(error)
            else:
                evicted = True
                # The budget has to count it before the next eviction.
                await cluster.pods.react()
        return evicted


@dataclass(frozen=True, slots=True)
class RemoveNodes(Change):
    """The nodes disappear at once, as when a machine fails and its Node is deleted: budgets are ignored, and their pods
    are lost."""

    nodes: Sequence[str]

    async def apply(self, cluster: SimulatedCluster, remarks: Remarks) -> None:
        api = cluster.api
        for name in self.nodes:
            node_named(api, name)
        for name in self.nodes:
            for kind in _NODE_OBJECTS:
                await api.remove(kind, name)
            await api.remove(NODES, name)
        for pod in api.pods_on(self.nodes):
            cluster.pods.causes[_uid(pod)] = "node removed"
            await api.remove(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])
        await cluster.settle()
        remarks.done = f"{_listed('node', self.nodes)} {'is' if len(self.nodes) == 1 else 'are'} removed"


@dataclass(frozen=True, slots=True)
class AddNodes(Change):
    """``count`` empty nodes like an existing one: its labels, taints, capacity, topology and devices. What was done to
    that node by hand (a cordon) is omitted. ``labels`` replace those of the same key."""

    like: str
    count: int = 1
    labels: tuple[tuple[str, str], ...] = ()

    async def apply(self, cluster: SimulatedCluster, remarks: Remarks) -> None:
        api = cluster.api
        model = node_named(api, self.like)
        taken = {node["metadata"]["name"] for node in api.documents(NODES)}
        names: list[str] = []
        number = 0
        while len(names) < self.count:
            number += 1
            name = f"{self.like}-what-if-{number}"
            if name not in taken:
                names.append(name)
        daemons = [pod for pod in api.pods_on([self.like]) if is_of_daemon_set(pod)]
        for name in names:
            await self._add(api, model, name)
            for pod in daemons:
                await self._run_daemon(api, pod, name)
        if daemons:
            each = "a pod of a DaemonSet" if len(daemons) == 1 else f"{len(daemons)} pods of DaemonSets"
            remarks.notes.append(f"{each}, as on {self.like}, on each new node")
        if await give_capacity(cluster, names):
            remarks.notes.append("new nodes have the batch, mid and free capacity that koord-manager gives empty nodes")
        for name in names:
            node = node_named(api, name)
            del node["spec"]["unschedulable"]
            await api.put(NODES, node)
        await cluster.settle()
        remarks.done = f"{_listed('node', names)} like {self.like} {'is' if len(names) == 1 else 'are'} added"

    async def _add(self, api: InProcessApi, model: Document, name: str) -> None:
        environment = api.environment
        for kind in _NODE_OBJECTS:
            found = api.document(kind, self.like)
            if found is not None:
                await api.put(kind, self._object(kind, found, name, new_uid(environment.random), model))
        node: Document = copied(model)
        self._identify(node, name, new_uid(environment.random), format_time(environment.clock.now()))
        labels = {**(node["metadata"].get("labels") or {}), **dict(self.labels)}
        if _HOST_NAME in labels:
            labels[_HOST_NAME] = name
        node["metadata"]["labels"] = labels
        # Unschedulable until all of its objects exist, as a node is not ready at first.
        spec = node["spec"] = {**(node.get("spec") or {}), "unschedulable": True}
        for field in ("podCIDR", "podCIDRs", "providerID"):
            spec.pop(field, None)
        spec["taints"] = [taint for taint in spec.get("taints") or () if taint.get("key") != _CORDONED]
        node["status"].pop("volumesAttached", None)
        await api.put(NODES, node)

    async def _run_daemon(self, api: InProcessApi, pod: Document, name: str) -> None:
        """Create the DaemonSet's pod for the new node, too."""
        new = as_new(pod)
        new["spec"]["nodeName"] = name
        confine(new["spec"], name)
        unchanged = replace(api.environment, webhooks=NoWebhooks())
        await create(unchanged, Target(api.resource(PODS), new["metadata"]["namespace"]), new)

    def _object(self, kind: Kind[Any], obj: Document, name: str, uid: str, model: Document) -> Document:
        found: Document = copied(obj)
        self._identify(found, name, uid, found["metadata"].get("creationTimestamp") or "")
        found["metadata"].pop("ownerReferences", None)
        if kind is NODE_METRICS:
            _empty_metric(found.get("status") or {}, model)
        if kind is DEVICES:
            found.pop("status", None)
        if kind is NODE_RESOURCE_TOPOLOGIES:
            # CPUs that the kubelet has allocated to pods of that node.
            (found["metadata"].get("annotations") or {}).pop(POD_CPU_ALLOCS, None)
        return found

    def _identify(self, obj: Document, name: str, uid: str, created: str) -> None:
        metadata = obj["metadata"]
        metadata |= {"name": name, "uid": uid, "creationTimestamp": created}
        metadata.pop("finalizers", None)


def _empty_metric(status: Document, model: Document) -> None:
    """The report of koordlet for a node without pods: the system's own usage."""
    status.pop("podsMetric", None)
    status.pop("prodReclaimableMetric", None)
    metric = status.get("nodeMetric") or {}
    system = metric.get("systemUsage")
    if system:
        metric["nodeUsage"] = copied(system)
        _take_off_huge_pages(metric["nodeUsage"].get("resources") or {}, model)
    else:
        metric.pop("nodeUsage", None)
    metric.pop("aggregatedNodeUsages", None)
    metric.pop("aggregatedSystemUsages", None)


def _take_off_huge_pages(resources: Document, model: Document) -> None:
    """The usage of a node does not contain the pool, as that of the system does. What nobody can read stays as it is,
    since schedulers cannot read it either."""
    with suppress(DecodeError, QuantityError):
        pool = huge_page_pool(convert(model, Node))
        if pool and MEMORY in resources:
            left = without_pool(parse_quantity(resources[MEMORY]).value, pool)
            resources[MEMORY] = str(Quantity.from_value(left, Format.BINARY_SI))


def node_named(api: InProcessApi, name: str) -> Document:
    """The Node of this name. Raises ChangeError."""
    found: Document | None = api.document(NODES, name)
    if found is None:
        known = sorted(node["metadata"]["name"] for node in api.documents(NODES))
        hint = did_you_mean(name, known)
        some = ", ".join(known[:_SHOWN]) + (f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else "")
        raise ChangeError(f"there is no node {name!r} in the snapshot; there are {some or 'none'}{hint}")
    return found


def _goes(pod: Document) -> bool:
    """Whether a drain evicts the pod."""
    return not (is_finished(pod) or is_mirror(pod) or is_of_daemon_set(pod))


def _why(error: ApiError) -> str:
    causes = error.details.get("causes") or ()
    return str(causes[0]["message"] if causes else error.message)


def _uid(pod: Document) -> str:
    return str(pod["metadata"]["uid"])


def _listed(what: str, names: Sequence[str]) -> str:
    return f"{what}{'s' if len(names) != 1 else ''} {', '.join(names)}"
