"""What a DrainNode makes and changes: the Reservations and PodMigrationJobs of its pods, and the node."""

from __future__ import annotations

from typing import Any, Final

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from koordinator.api.codec import to_document
from koordinator.api.document import Document, copied
from koordinator.api.drain_node import LABEL, TAINT, UNSCHEDULABLE, DrainNode, PodMigration
from koordinator.api.kinds import DRAIN_NODES, POD_MIGRATION_JOBS, RESERVATIONS
from koordinator.api.pod_migration_job import EVICT_DIRECTLY, RESERVATION_FIRST
from koordinator.base.durations import format_duration
from koordinator.descheduler.drain.plan import (
    DOMAIN,
    DRAIN_NODE,
    NODE_GROUP,
    NODE_PLANNING,
    PAUSED_AFTER_CONFIRMED,
    WAS_UNSCHEDULABLE,
)
from koordinator.descheduler.migration.reservation_template import keep_off

TRIGGER: Final = "DrainNode"
LONGEST_LABEL: Final = 63
"""Characters of a label's value."""


def reservation_for(drain: DrainNode, name: str, pod: Document, ttl: float) -> Document:
    """A Reservation elsewhere for the replacement of ``pod``, with all of its requests. ``ttl`` is in seconds."""
    metadata, spec = pod["metadata"], copied(pod["spec"])
    spec.pop("nodeName", None)
    _keep_off(drain.spec.node_name, spec)
    namespace = metadata["namespace"]
    owner = next(each for each in metadata["ownerReferences"] if each.get("controller"))
    kept = ("labels", "annotations", "ownerReferences", "namespace")
    template = {"metadata": {key: copied(metadata[key]) for key in kept if key in metadata}, "spec": spec}
    names = {f"{DOMAIN}/pod-namespace": namespace, f"{DOMAIN}/pod-name": metadata["name"]}
    return {
        "apiVersion": RESERVATIONS.api_version,
        "kind": RESERVATIONS.name,
        "metadata": {
            "name": name,
            "labels": {key: text for key, text in names.items() if len(text) <= LONGEST_LABEL} | owned_labels(drain),
            "ownerReferences": [_owner(drain)],
        },
        "spec": {
            "template": template,
            "owners": [{"controller": {**owner, "namespace": namespace}}],
            "allocateOnce": True,
            "ttl": f"{int(ttl)}s",
        },
    }


def job_for(drain: DrainNode, migration: PodMigration, name: str, *, directly: bool) -> Document:
    """The job that moves the pod of ``migration`` into its Reservation, or evicts it."""
    spec: dict[str, Any] = {
        "podRef": {"namespace": migration.namespace, "name": migration.pod_name, "uid": migration.uid},
        "mode": EVICT_DIRECTLY if directly else RESERVATION_FIRST,
        "paused": migration.started_after_confirmed and PAUSED_AFTER_CONFIRMED in drain.metadata.annotations,
    }
    if not directly:
        reference = {"apiVersion": RESERVATIONS.version, "kind": RESERVATIONS.name, "name": migration.reservation_name}
        spec["reservationOptions"] = {"reservationRef": reference}
    if drain.spec.ttl:
        spec["ttl"] = format_duration(drain.spec.ttl)
    if drain.spec.delete_options is not None:
        spec["deleteOptions"] = to_document(drain.spec.delete_options)
    policy = {label_keys.EVICT_POLICY: drain.spec.eviction_policy} if drain.spec.eviction_policy else {}
    return {
        "apiVersion": POD_MIGRATION_JOBS.api_version,
        "kind": POD_MIGRATION_JOBS.name,
        "metadata": {
            "name": name,
            "labels": owned_labels(drain) | policy,
            "annotations": {
                annotation_keys.EVICT_TRIGGER: TRIGGER,
                annotation_keys.EVICT_REASON: f"drain node {drain.spec.node_name} by {drain.metadata.name}",
            },
            "ownerReferences": [_owner(drain)],
        },
        "spec": spec,
    }


def owned_labels(drain: DrainNode) -> dict[str, str]:
    """What finds the objects of a DrainNode."""
    return {DRAIN_NODE: drain.metadata.name}


def _owner(drain: DrainNode) -> Document:
    return {
        "apiVersion": DRAIN_NODES.api_version,
        "kind": DRAIN_NODES.name,
        "name": drain.metadata.name,
        "uid": drain.metadata.uid,
        "controller": True,
    }


def _keep_off(node: str, spec: Document) -> None:
    """Not to a node that is drained, and rather not to one that will be."""
    keep_off(node, spec, {"key": NODE_PLANNING, "operator": "DoesNotExist"})
    affinity = spec["affinity"]["nodeAffinity"]
    grouped = {"matchExpressions": [{"key": NODE_GROUP, "operator": "DoesNotExist"}]}
    preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or []
    affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [*preferred, {"weight": 100, "preference": grouped}]


def cordon_patch(drain: DrainNode, node: Document) -> dict[str, Any]:
    """What is to be merged into the node; empty if it is kept free already. ``node`` is all of it: its taints are one
    value, which is written with what we do not know of them."""
    policy, labels = drain.spec.cordon_policy, node["metadata"].get("labels") or {}
    missing = {key: value for key, value in _own_labels(drain).items() if labels.get(key) != value}
    patch: dict[str, Any] = {"metadata": {"labels": missing}} if missing else {}
    if policy.mode == UNSCHEDULABLE and not is_unschedulable(node):
        patch["spec"] = {"unschedulable": True}
    taints = node.get("spec", {}).get("taints") or []
    if policy.mode == TAINT and not any(_is_own(taint, drain) for taint in taints):
        own = {"key": DRAIN_NODE, "value": drain.metadata.name, "effect": "NoSchedule"}
        patch["spec"] = {"taints": [*taints, own]}
    return patch


def uncordon_patch(drain: DrainNode, node: Document) -> dict[str, Any]:
    """What is to be merged into the node for it to be as before; empty if there is nothing of the drain on it."""
    was_unschedulable = drain.metadata.annotations.get(WAS_UNSCHEDULABLE)
    if was_unschedulable is None:
        return {}
    labels = node["metadata"].get("labels") or {}
    left = {key: None for key, value in _own_labels(drain).items() if labels.get(key) == value}
    patch: dict[str, Any] = {"metadata": {"labels": left}} if left else {}
    # Our labels were removed in the same write: without them another client has cordoned the node since.
    is_ours = NODE_PLANNING in left and was_unschedulable == "false"
    if drain.spec.cordon_policy.mode == UNSCHEDULABLE and is_ours and is_unschedulable(node):
        patch["spec"] = {"unschedulable": None}
    taints = node.get("spec", {}).get("taints") or []
    others = [taint for taint in taints if not _is_own(taint, drain)]
    if len(others) < len(taints):
        patch["spec"] = {"taints": others or None}
    return patch


def is_unschedulable(node: Document) -> bool:
    return bool(node.get("spec", {}).get("unschedulable"))


def _own_labels(drain: DrainNode) -> dict[str, str]:
    policy = drain.spec.cordon_policy
    return {NODE_PLANNING: "", **(policy.labels if policy.mode == LABEL else {})}


def _is_own(taint: Document, drain: DrainNode) -> bool:
    return taint.get("key") == DRAIN_NODE and taint.get("value") == drain.metadata.name
