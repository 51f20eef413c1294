"""Which quota a pod counts against."""

from __future__ import annotations

from koordinator.api.elastic_quota import DEFAULT_QUOTA
from koordinator.api.labels import QUOTA_NAME
from koordinator.api.meta import ObjectMeta
from koordinator.model.quota_tree.tree import QuotaTree


def quota_name_of(pod: ObjectMeta, namespace: str, tree: QuotaTree, *, by_namespace: bool = True) -> str:
    """The one that its label names, known or not; else, if ``by_namespace``, the one that its namespace belongs to.

    That is the quota named like the namespace and living in it, then the one that claims the namespace, then the
    default quota. Without ``by_namespace`` a pod that names none has none: "".
    """
    named = pod.labels.get(QUOTA_NAME, "")
    if named or not by_namespace:
        return named
    return namespace_quota(namespace, tree)


def namespace_quota(namespace: str, tree: QuotaTree) -> str:
    """Where the pods of a namespace count that name no quota."""
    if tree.object(f"{namespace}/{namespace}") is not None:
        return namespace
    claimant = tree.claimant(namespace)
    return claimant.name if claimant is not None else DEFAULT_QUOTA
