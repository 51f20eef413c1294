"""Cases of ElasticQuotaProfiles, and the nodes that they sum up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from tests.real.overcommit.differences import BAD_PROFILE_LEFT_ALONE
from tests.real.overcommit.node_case import Document, NodeCase, NodeWords, node_case

NAMESPACE: Final = "quotas"


@dataclass(frozen=True, slots=True)
class QuotaCase:
    """A profile, and its quota as it is before (None: there is none)."""

    name: str
    profile: Document
    quota: Document | None = None
    intended: tuple[str, ...] = ()


def quota_nodes() -> list[NodeCase]:
    """Nodes that offer nothing but what they have, so that sums do not depend on who was faster."""
    sizes = {
        "pool-one": ("east", {"cpu": "7500m", "memory": "10Gi", "example.com/widget": "3"}),
        "pool-two": ("east", {"cpu": "8", "memory": "12345Ki"}),
        "pool-three": ("west", {"cpu": "16", "memory": "64G"}),
    }
    return [
        node_case(
            name,
            words=NodeWords(capacity=size, spec={"unschedulable": name == "pool-two"}),
            labels={"pool": pool},
            is_measured=False,
        )
        for name, (pool, size) in sizes.items()
    ]


def _case(
    name: str,
    selector: Document,
    *,
    ratio: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    quota_labels: Mapping[str, str] | None = None,
    quota: Document | None = None,
    intended: Sequence[str] = (),
) -> QuotaCase:
    spec: dict[str, Any] = {"quotaName": f"{name}-root", "nodeSelector": selector}
    if ratio is not None:
        spec["resourceRatio"] = ratio
    if quota_labels is not None:
        spec["quotaLabels"] = dict(quota_labels)
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "labels": dict(labels or {}),
        "annotations": dict(annotations or {}),
    }
    return QuotaCase(name, {"metadata": metadata, "spec": spec}, quota, tuple(intended))


def quota_cases() -> list[QuotaCase]:
    east, both = {"matchLabels": {"pool": "east"}}, {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}
    near = {"matchExpressions": [{"key": "pool", "operator": "Near", "values": ["east"]}]}
    tree = {label_keys.QUOTA_TREE_ID: "tree-1"}
    keys = annotation_keys.QUOTA_RESOURCE_KEYS
    old = {
        "metadata": {"labels": {"other": "kept"}, "annotations": {"other": "kept"}},
        "spec": {"min": {"cpu": "1", "example.com/widget": "9"}, "max": {"cpu": "2"}},
    }
    return [
        _case("quota-east", east),
        _case("quota-all", both, labels=tree),
        _case("quota-nobody", {"matchLabels": {"pool": "north"}}),
        _case("quota-bad-selector", near, intended=[BAD_PROFILE_LEFT_ALONE]),
        _case("quota-ratio", both, ratio="0.9"),
        _case("quota-ratio-odd", east, ratio="0.333"),
        _case("quota-ratio-bad", east, ratio="much"),
        _case("quota-ratio-above-one", east, ratio="1.5"),
        _case("quota-keys", east, annotations={keys: '["cpu","example.com/widget","example.com/none"]'}),
        _case("quota-keys-bad", east, annotations={keys: "cpu,memory"}),
        _case("quota-labels", east, quota_labels={"team": "a", label_keys.QUOTA_IS_ROOT: "false"}),
        _case("quota-there-before", east, labels=tree, quota=old),
    ]
