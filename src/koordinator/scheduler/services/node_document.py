"""The cache's view of one node, in the original's format: what is on it, what that takes, what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from koordinator.api.meta import LabelSelector
from koordinator.api.node import Node
from koordinator.api.pod import Pod, PodAffinityTerm
from koordinator.api.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from koordinator.base.services import Service, ServiceError
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.row_amounts import WITH_DEFAULTS
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.node_ports import host_ports

_NOT_SCALAR: Final[Mapping[str, str]] = {
    CPU: "MilliCPU",
    MEMORY: "Memory",
    EPHEMERAL_STORAGE: "EphemeralStorage",
    PODS: "AllowedPodNumber",
}
"""The resources with fields of their own."""


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
    pods = [info.pod for info in view.pods_on.get(row, {}).values()]
    listed = [_pod(pod) for pod in pods]
    amounts = columns.numbers[row].by_name()
    allocatable = {name: whole for name, (_, whole) in amounts.items()}
    # The original counts pods by their list, never as a requested resource.
    requested = {**{name: used for name, (used, _) in amounts.items()}, PODS: 0}
    parts = {
        "node": node,
        "pods": listed,
        "podsWithAffinity": [pod for pod in listed if any(pod[kind] for kind in pod if kind != "Pod")],
        "podsWithRequiredAntiAffinity": [pod for pod in listed if pod["RequiredAntiAffinityTerms"]],
        "usedPorts": ports_document(pods),
        "requested": resource_document(requested),
        "nonZeroRequested": _non_zero(columns, row),
        "remaining": resource_document({name: whole - requested[name] for name, whole in allocatable.items()}),
        "allocatable": resource_document(allocatable),
        "imageStates": _images(view, node),
        "pvcRefCounts": _claims(pods),
        "generation": columns.row_version(row),
    }
    return {name: part for name, part in parts.items() if part}


def resource_document(amounts: Mapping[str, int]) -> dict[str, Any]:
    """The original's form of amounts by resource, in the units of columns."""
    scalars = {name: amount for name, amount in amounts.items() if amount and name not in _NOT_SCALAR}
    return {
        **{field: amounts.get(name, 0) for name, field in _NOT_SCALAR.items()},
        "ScalarResources": scalars or None,
    }


def _non_zero(columns: NodeColumns, row: int) -> dict[str, Any]:
    cpu, memory = columns.numbers[row].counted[:WITH_DEFAULTS]
    return {"MilliCPU": cpu, "Memory": memory, "EphemeralStorage": 0, "AllowedPodNumber": 0, "ScalarResources": None}


def _pod(pod: Pod) -> dict[str, Any]:
    namespace, affinity = pod.metadata.namespace, pod.spec.affinity
    together = affinity.pod_affinity if affinity is not None else None
    apart = affinity.pod_anti_affinity if affinity is not None else None
    document: dict[str, Any] = {"Pod": pod}
    for name, terms in (("Affinity", together), ("AntiAffinity", apart)):
        required = terms.required_during_scheduling_ignored_during_execution if terms is not None else []
        preferred = terms.preferred_during_scheduling_ignored_during_execution if terms is not None else []
        document[f"Required{name}Terms"] = [_term(each, namespace) for each in required] or None
        document[f"Preferred{name}Terms"] = [
            {**_term(each.pod_affinity_term, namespace), "Weight": each.weight} for each in preferred
        ] or None
    return document


def ports_document(pods: Iterable[Pod]) -> dict[str, list[dict[str, Any]]]:
    """The host ports of the pods by address."""
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
