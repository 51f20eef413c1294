"""Determines the quota that a pod counts against."""

from __future__ import annotations

from koordinator.api.elastic_quota import DEFAULT_QUOTA
from koordinator.api.labels import QUOTA_NAME
from koordinator.api.meta import ObjectMeta
from koordinator.model.quota_tree.tree import QuotaTree


def quota_name_of(pod: ObjectMeta, namespace: str, tree: QuotaTree, *, by_namespace: bool = True) -> str:
    """The quota that the pod's label names, known or not; else, if ``by_namespace``, the quota of its namespace.

    That is the quota with the name of the namespace and in it, then the one that claims the namespace, then the default
    quota. Without ``by_namespace`` a pod without the label has none: "".
    """
    named = pod.labels.get(QUOTA_NAME, "")
    if named or not by_namespace:
        return named
    return namespace_quota(namespace, tree)


def namespace_quota(namespace: str, tree: QuotaTree) -> str:
    """The quota of pods of the namespace without a label."""
    if tree.object(f"{namespace}/{namespace}") is not None:
        return namespace
    claimant = tree.claimant(namespace)
    return claimant.name if claimant is not None else DEFAULT_QUOTA
