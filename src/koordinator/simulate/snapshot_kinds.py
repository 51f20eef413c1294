"""The kinds in a snapshot, and the kept part of their objects: what affects scheduling, and nothing secret."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from koordinator.api.document import Document
from koordinator.api.kinds import (
    CLUSTER_COLOCATION_PROFILES,
    CLUSTER_NETWORK_TOPOLOGIES,
    CONFIG_MAPS,
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    DAEMON_SETS,
    DEPLOYMENTS,
    DEVICES,
    ELASTIC_QUOTA_PROFILES,
    ELASTIC_QUOTAS,
    JOBS,
    NAMESPACES,
    NODE_METRICS,
    NODE_RESOURCE_TOPOLOGIES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    RECOMMENDATIONS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESERVATIONS,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    Kind,
)
from koordinator.api.meta import Object

RESOURCE_QUOTAS: Final = Kind("", "v1", "resourcequotas", "ResourceQuota", Object)
REQUIRED_KINDS: Final = (NODES, PODS)
"""Without these there is nothing to simulate."""
SNAPSHOT_KINDS: Final[tuple[Kind[Any], ...]] = (
    NAMESPACES,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    NODES,
    NODE_METRICS,
    DEVICES,
    NODE_RESOURCE_TOPOLOGIES,
    CLUSTER_NETWORK_TOPOLOGIES,
    CLUSTER_COLOCATION_PROFILES,
    ELASTIC_QUOTA_PROFILES,
    ELASTIC_QUOTAS,
    POD_GROUPS,
    RESERVATIONS,
    RECOMMENDATIONS,
    POD_DISRUPTION_BUDGETS,
    SERVICES,
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    REPLICATION_CONTROLLERS,
    DAEMON_SETS,
    JOBS,
    STORAGE_CLASSES,
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    PERSISTENT_VOLUMES,
    PERSISTENT_VOLUME_CLAIMS,
    VOLUME_ATTACHMENTS,
    # Last, so that the objects that a new pod refers to have been listed before it.
    PODS,
)
CONFIGURATION_NAMESPACE: Final = "koordinator-system"
SLO_CONFIG_MAP: Final = "slo-controller-config"
SCHEDULER_CONFIG_MAP: Final = "koord-scheduler-config"
CONFIG_MAP_NAMES: Final = (SLO_CONFIG_MAP, SCHEDULER_CONFIG_MAP)
"""The ConfigMaps of Koordinator's own programs; no others are read."""

_encode = msgspec.json.Encoder().encode
_NOT_STORED: Final = frozenset(("apiVersion", "kind", "metadata"))
_NOT_STORED_METADATA: Final = ("managedFields", "resourceVersion", "selfLink")
_CONTAINER_FIELDS: Final = ("name", "image", "resources", "ports", "restartPolicy")
_CONTAINER_LISTS: Final = ("containers", "initContainers")
_STATUS_LISTS: Final = ("containerStatuses", "initContainerStatuses")
_STATUS_FIELDS: Final = ("name", "ready", "allocatedResources", "resources")
_POD_STATUS: Final = (
    "phase", "conditions", "startTime", "nominatedNodeName", "qosClass", "resize", "reason", *_STATUS_LISTS,
)  # fmt: skip
_NOT_IN_POD_SPECS: Final = (
    "imagePullSecrets", "hostAliases", "dnsConfig", "securityContext", "serviceAccount", "serviceAccountName",
    "ephemeralContainers", "hostname", "subdomain",
)  # fmt: skip
_NAMES_CONTENTS: Final = ("configMap", "secret", "projected", "downwardAPI")
"""Kinds of volumes that name objects whose contents only matter to the container."""
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_NODE_STATUS: Final = ("capacity", "allocatable", "conditions", "images", "volumesAttached", "features")


def kept_form(kind: Kind[Any], obj: Document) -> bytes | None:
    """The part of an object that a snapshot keeps, in the form in which the embedded API stores objects: ``metadata``
    first, without the apiVersion, kind and resourceVersion. Changes ``obj``. None if the object is not kept."""
    metadata = obj.get("metadata") or {}
    _trim_metadata(metadata)
    trim = _TRIMMERS.get(kind.qualified)
    kept = obj if trim is None else trim(obj)
    if kept is None:
        return None
    return _encode({"metadata": metadata} | {key: value for key, value in kept.items() if key not in _NOT_STORED})


def _trim_metadata(metadata: Document) -> None:
    for name in _NOT_STORED_METADATA:
        metadata.pop(name, None)
    annotations = metadata.get("annotations")
    if annotations:
        # It repeats the whole object, environment variables included.
        annotations.pop(_LAST_APPLIED, None)


def _pod(obj: Document) -> Document:
    trim_pod_spec(obj.get("spec") or {})
    status = obj.get("status")
    if status:
        obj["status"] = kept = {name: status[name] for name in _POD_STATUS if name in status}
        for name in _STATUS_LISTS:
            if kept.get(name):
                kept[name] = [{key: each[key] for key in _STATUS_FIELDS if key in each} for each in kept[name]]
    return obj


def trim_pod_spec(spec: Document) -> None:
    """Remove from a pod's spec, or from that of a template, what does not affect scheduling: commands, environments,
    mounts, and the names of Secrets and ConfigMaps."""
    for name in _NOT_IN_POD_SPECS:
        spec.pop(name, None)
    for name in _CONTAINER_LISTS:
        if spec.get(name):
            spec[name] = [{key: each[key] for key in _CONTAINER_FIELDS if key in each} for each in spec[name]]
    if spec.get("volumes"):
        spec["volumes"] = [
            {"name": volume.get("name"), "emptyDir": {}} if any(key in volume for key in _NAMES_CONTENTS) else volume
            for volume in spec["volumes"]
        ]


def with_trimmed_template(obj: Document) -> Document:
    """The workload, changed: its templates of pods and claims without what does not affect scheduling."""
    template = (obj.get("spec") or {}).get("template") or {}
    _trim_metadata(template.setdefault("metadata", {}) if template else {})
    trim_pod_spec(template.get("spec") or {})
    for claim in (obj.get("spec") or {}).get("volumeClaimTemplates") or ():
        _trim_metadata(claim.get("metadata") or {})
    return obj


def _replica_set(obj: Document) -> Document | None:
    """ReplicaSets of earlier revisions of a Deployment are dropped: they have no pods."""
    if (obj.get("spec") or {}).get("replicas") == 0 and not (obj.get("status") or {}).get("replicas"):
        return None
    return with_trimmed_template(obj)


def _reservation(obj: Document) -> Document:
    trim_pod_spec(((obj.get("spec") or {}).get("template") or {}).get("spec") or {})
    return obj


def _node(obj: Document) -> Document:
    status = obj.get("status") or {}
    obj["status"] = {name: status[name] for name in _NODE_STATUS if name in status}
    return obj


_TRIMMERS: Final[Mapping[str, Callable[[Document], Document | None]]] = {
    PODS.qualified: _pod,
    NODES.qualified: _node,
    REPLICA_SETS.qualified: _replica_set,
    RESERVATIONS.qualified: _reservation,
    **{
        kind.qualified: with_trimmed_template
        for kind in (DEPLOYMENTS, STATEFUL_SETS, REPLICATION_CONTROLLERS, DAEMON_SETS, JOBS)
    },
}
ALL_KINDS: Final[Mapping[str, Kind[Any]]] = {kind.qualified: kind for kind in (*SNAPSHOT_KINDS, CONFIG_MAPS)}
"""By their qualified names."""
