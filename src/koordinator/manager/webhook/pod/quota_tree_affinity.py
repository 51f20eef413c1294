"""Pods of a quota tree go to the nodes that the tree is made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from koordinator.api.document import Document
from koordinator.api.elastic_quota_profile import ElasticQuotaProfile
from koordinator.api.labels import QUOTA_NAME
from koordinator.api.meta import LabelSelector
from koordinator.manager.webhook.colocation_profile.changes import section

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


class QuotaTrees(Protocol):
    """What is known of quota trees, read from memory."""

    def tree_of(self, quota: str, namespace: str) -> str:
        """The tree of the quota of that name, else of the one that claims the namespace; empty without one."""
        ...

    def profiles_of(self, tree: str) -> Iterable[ElasticQuotaProfile]:
        """Those labelled with the tree, in any order."""
        ...


def add_quota_tree_affinity(pod: Document, namespace: str, trees: QuotaTrees) -> None:
    """Change ``pod`` in place; what its terms ask for already is not added again."""
    quota = ((pod.get("metadata") or {}).get("labels") or {}).get(QUOTA_NAME) or namespace
    tree = trees.tree_of(quota, namespace)
    if not tree:
        return
    profile = min(trees.profiles_of(tree), key=lambda each: each.metadata.key, default=None)
    if profile is None or profile.spec.node_selector is None:
        return
    requirements = _requirements(profile.spec.node_selector)
    if requirements:
        _require(pod, requirements)


def _requirements(selector: LabelSelector) -> list[Document]:
    asked = [(key, "In", [value]) for key, value in sorted(selector.match_labels.items())]
    asked += [(each.key, each.operator, each.values) for each in selector.match_expressions]
    return [
        {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
        for key, operator, values in asked
    ]


def _require(pod: Document, requirements: list[Document]) -> None:
    required = section(section(section(section(pod, "spec"), "affinity"), "nodeAffinity"), _REQUIRED)
    if not required.get("nodeSelectorTerms"):
        required["nodeSelectorTerms"] = [{"matchExpressions": requirements}]
        return
    for term in required["nodeSelectorTerms"]:
        present = term.get("matchExpressions") or []
        term["matchExpressions"] = present + [dict(each) for each in requirements if each not in present]
