"""ElasticQuotas as users write them, and the tree of several."""

from __future__ import annotations

import json
from typing import Any

from koordinator.api.codec import convert
from koordinator.api.document import Document
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.model.quota_tree.quota import Quota
from koordinator.model.quota_tree.tree import QuotaTree

P = "quota.scheduling.koordinator.sh"


def quota_document(
    name: str,
    /,
    parent: str | None = None,
    is_parent: bool | None = None,
    tree: str | None = None,
    namespace: str = "kube-system",
    max: Document | None = None,  # noqa: A002
    min: Document | None = None,  # noqa: A002
    used: Document | None = None,
    labels: Document | None = None,
    annotations: Document | None = None,
    **metadata: Any,
) -> Document:
    """Resources may be given as numbers; annotations that are no text are written as JSON."""
    given = {"parent": parent, "tree-id": tree, "is-parent": None if is_parent is None else str(is_parent).lower()}
    all_labels = {f"{P}/{key}": value for key, value in {**given, **(labels or {})}.items() if value is not None}
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": all_labels,
            "annotations": {f"{P}/{key}": _text(value) for key, value in (annotations or {}).items()},
            **metadata,
        },
        "spec": {key: value for key, value in (("max", max), ("min", min)) if value is not None},
        "status": {"used": used} if used is not None else {},
    }


def wire_quota(name: str, /, **given: Any) -> ElasticQuota:
    return convert(quota_document(name, **given), ElasticQuota)


def quota(name: str, /, **given: Any) -> Quota:
    return Quota.of(wire_quota(name, **given))


def tree_of(*quotas: Quota) -> QuotaTree:
    return QuotaTree(quotas)


def amounts(cpu: int | None = None, memory: int | None = None) -> Document:
    given = {"cpu": cpu, "memory": memory}
    return {name: str(value) for name, value in given.items() if value is not None}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
