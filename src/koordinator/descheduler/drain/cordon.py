"""Keeps new pods off a node that is drained, and lets them come back."""

from __future__ import annotations

from typing import Any

from koordinator.api.document import Document
from koordinator.api.drain_node import LABEL, TAINT, UNSCHEDULABLE, DrainNode
from koordinator.descheduler.drain.plan import DRAIN_NODE, NODE_PLANNING, WAS_UNSCHEDULABLE


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
