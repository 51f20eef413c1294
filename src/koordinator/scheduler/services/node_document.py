"""The cache's view of one node, in the original's format: what is on it, what that takes, what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from koordinator.api.meta import LabelSelector
from koordinator.api.node import Node
from koordinator.api.pod import Pod, PodAffinity, PodAffinityTerm
from koordinator.base.services import Service, ServiceError
from koordinator.scheduler.engine.columns import Ints, NodeColumns
from koordinator.scheduler.engine.resource_index import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.node_ports import host_ports


def required_terms(terms: PodAffinity | None, namespace: str) -> list[dict[str, Any]]:
    """``terms`` are those of pods in ``namespace``."""
    if terms is None:
        return []
    return [_term(term, namespace) for term in terms.required_during_scheduling_ignored_during_execution]


def preferred_terms(terms: PodAffinity | None, namespace: str) -> list[dict[str, Any]]:
    """As ``required_terms``, with weights."""
    if terms is None:
        return []
    return [
        {**_term(weighted.pod_affinity_term, namespace), "Weight": weighted.weight}
        for weighted in terms.preferred_during_scheduling_ignored_during_execution
    ]


def _term(term: PodAffinityTerm, namespace: str) -> dict[str, Any]:
    own = [namespace] if not term.namespaces and term.namespace_selector is None else []
    return {
        "Namespaces": {name: {} for name in (*term.namespaces, *own)},
        "Selector": _selector(term.label_selector),
        "TopologyKey": term.topology_key,
        "NamespaceSelector": _selector(term.namespace_selector),
    }


def _selector(selector: LabelSelector | None) -> Any:
    """A list of requirements, all of which must hold; an object for a selector that matches nothing."""
    if selector is None:
        return {}
    found = [{"key": key, "operator": "In", "values": [value]} for key, value in selector.match_labels.items()]
    found += [
        {"key": each.key, "operator": each.operator, "values": each.values} for each in selector.match_expressions
    ]
    return sorted(found, key=lambda each: str(each["key"]))


def node_service(view: ClusterView) -> Service:
    """The service of ``/apis/v1/nodes/:nodeName``."""

    def respond(parameters: Mapping[str, str]) -> Any:
        name = parameters["nodeName"]
        row = view.columns.row_of.get(name)
        node = view.columns.nodes[row] if row is not None else None
        if row is None or node is None:
            raise ServiceError(404, f"cannot find node {name}")
        return node_document(view, row, node)

    return respond


def node_document(view: ClusterView, row: int, node: Node) -> dict[str, Any]:
    """The node as the original's NodeInfo. Empty fields are omitted, except for resources."""
    columns = view.columns
    columns.fit_resources()
    pods = [info.pod for info in view.pods_on.get(row, {}).values()]
    listed = [_pod(pod) for pod in pods]
    allocatable, requested = columns.allocatable[row], columns.requested[row].copy()
    # The original counts pods by their list, never as a requested resource.
    requested[PODS] = 0
    parts = {
        "node": node,
        "pods": listed,
        "podsWithAffinity": [pod for pod in listed if any(pod[kind] for kind in pod if kind != "Pod")],
        "podsWithRequiredAntiAffinity": [pod for pod in listed if pod["RequiredAntiAffinityTerms"]],
        "usedPorts": _used_ports(pods),
        "requested": _resource(columns, requested),
        "nonZeroRequested": _non_zero(columns, row),
        "remaining": _resource(columns, allocatable - requested),
        "allocatable": _resource(columns, allocatable),
        "imageStates": _images(view, node),
        "pvcRefCounts": _claims(pods),
        "generation": columns.row_version(row),
    }
    return {name: part for name, part in parts.items() if part}


def _resource(columns: NodeColumns, amounts: Ints) -> dict[str, Any]:
    scalars = {
        columns.resources.name(column): int(amounts[column])
        for column in range(PODS + 1, len(columns.resources))
        if amounts[column]
    }
    return {
        "MilliCPU": int(amounts[CPU]),
        "Memory": int(amounts[MEMORY]),
        "EphemeralStorage": int(amounts[EPHEMERAL_STORAGE]),
        "AllowedPodNumber": int(amounts[PODS]),
        "ScalarResources": scalars or None,
    }


def _non_zero(columns: NodeColumns, row: int) -> dict[str, Any]:
    cpu, memory = columns.non_zero_requested[row].tolist()
    return {"MilliCPU": cpu, "Memory": memory, "EphemeralStorage": 0, "AllowedPodNumber": 0, "ScalarResources": None}


def _pod(pod: Pod) -> dict[str, Any]:
    namespace, affinity = pod.metadata.namespace, pod.spec.affinity
    together = affinity.pod_affinity if affinity is not None else None
    apart = affinity.pod_anti_affinity if affinity is not None else None
    return {
        "Pod": pod,
        "RequiredAffinityTerms": required_terms(together, namespace) or None,
        "RequiredAntiAffinityTerms": required_terms(apart, namespace) or None,
        "PreferredAffinityTerms": preferred_terms(together, namespace) or None,
        "PreferredAntiAffinityTerms": preferred_terms(apart, namespace) or None,
    }


def _used_ports(pods: Iterable[Pod]) -> dict[str, list[dict[str, Any]]]:
    ports: dict[str, list[dict[str, Any]]] = {}
    for address, protocol, port in sorted({port for pod in pods for port in host_ports(pod)}):
        ports.setdefault(address, []).append({"Protocol": protocol, "Port": port})
    return ports


def _images(view: ClusterView, node: Node) -> dict[str, dict[str, Any]]:
    """The node's images by name; ``NumNodes`` is how many nodes have the image."""
    names = {name: image.size_bytes for image in node.status.images for name in image.names}
    if not names:
        return {}
    nodes = Counter(
        name
        for other in view.columns.nodes
        if other is not None
        for name in {name for image in other.status.images for name in image.names}
        if name in names
    )
    return {name: {"Size": size, "NumNodes": nodes[name], "Nodes": None} for name, size in names.items()}


def _claims(pods: Iterable[Pod]) -> dict[str, int]:
    return Counter(
        f"{pod.metadata.namespace}/{volume.persistent_volume_claim.claim_name}"
        for pod in pods
        for volume in pod.spec.volumes
        if volume.persistent_volume_claim is not None
    )
