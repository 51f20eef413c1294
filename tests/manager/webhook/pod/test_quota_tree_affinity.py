"""Pods of a quota tree on the tree's nodes: the cases of the original's own test, and what comes out in order here."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from koordinator.api.codec import convert
from koordinator.api.document import Document, copied
from koordinator.api.elastic_quota_profile import ElasticQuotaProfile
from koordinator.manager.webhook.pod.mutating import add_quota_tree_affinity

POOL_A = {"key": "node-pool", "operator": "In", "values": ["nodePoolA"]}
POOL_B = {"key": "node-pool", "operator": "In", "values": ["nodePoolB"]}
ZONE = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["cn-hangzhou-a"]}


class Trees:
    def __init__(self) -> None:
        self.trees = {
            "root-quota-a": "tree1",
            "root-quota-a-child1": "tree1",
            "namespace1": "tree1",
            "root-quota-b": "tree2",
            "root-quota-b-child1": "tree2",
            "other-quota": "",
            "bare-quota": "tree-without-profile",
        }
        self.by_namespace = {"namespace2": "tree2"}
        self.selectors: dict[str, list[tuple[str, Document | None]]] = {
            "tree1": [("profileA", {"matchLabels": {"node-pool": "nodePoolA"}})],
            "tree2": [("profileB", {"matchLabels": {"node-pool": "nodePoolB"}})],
        }

    def tree_of(self, quota: str, namespace: str) -> str:
        return self.trees.get(quota) or self.by_namespace.get(namespace, "")

    def profiles_of(self, tree: str) -> Iterable[ElasticQuotaProfile]:
        for name, selector in self.selectors.get(tree, []):
            document = {"metadata": {"namespace": "kube-system", "name": name}, "spec": {"nodeSelector": selector}}
            yield convert(document, ElasticQuotaProfile)


def affinity(*terms: list[Document]) -> Document:
    listed = [{"matchExpressions": term} for term in terms]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": listed}}}


def pod(quota: str = "", **spec: Document) -> Document:
    labels = {"quota.scheduling.koordinator.sh/name": quota} if quota else {}
    return {"metadata": {"name": "test-pod-1", "labels": labels}, "spec": {**spec}}


def changed(document: Document, namespace: str = "default", trees: Trees | None = None) -> Document:
    result: Document = copied(document)
    add_quota_tree_affinity(result, namespace, trees or Trees())
    return dict(result["spec"])


@pytest.mark.parametrize(
    ("quota", "namespace", "wanted"),
    [
        ("", "default", {}),
        ("other-quota", "default", {}),
        ("bare-quota", "default", {}),
        ("root-quota-a-child1", "default", {"affinity": affinity([POOL_A])}),
        ("root-quota-b-child1", "default", {"affinity": affinity([POOL_B])}),
        ("", "namespace1", {"affinity": affinity([POOL_A])}),
        ("", "namespace2", {"affinity": affinity([POOL_B])}),
    ],
)
def test_the_tree_is_that_of_the_quota_or_of_the_namespace(quota: str, namespace: str, wanted: Document) -> None:
    assert changed(pod(quota), namespace) == wanted


def test_every_term_is_narrowed() -> None:
    found = changed(pod("root-quota-a", affinity=affinity([ZONE], [])))
    assert found == {"affinity": affinity([ZONE, POOL_A], [POOL_A])}


def test_a_second_time_changes_nothing() -> None:
    once = changed(pod("root-quota-a", affinity=affinity([ZONE], [])))
    assert changed(pod("root-quota-a", **once)) == once


def test_labels_come_in_order_and_expressions_after_them() -> None:
    trees = Trees()
    selector = {
        "matchLabels": {"b": "2", "a": "1"},
        "matchExpressions": [{"key": "c", "operator": "Exists"}],
    }
    trees.selectors["tree1"] = [("p", selector)]
    assert changed(pod("root-quota-a"), trees=trees)["affinity"] == affinity(
        [
            {"key": "a", "operator": "In", "values": ["1"]},
            {"key": "b", "operator": "In", "values": ["2"]},
            {"key": "c", "operator": "Exists"},
        ]
    )


def test_of_several_profiles_the_first_by_name_counts() -> None:
    trees = Trees()
    trees.selectors["tree1"] = [*trees.selectors["tree2"], *trees.selectors["tree1"]]
    assert changed(pod("root-quota-a"), trees=trees)["affinity"] == affinity([POOL_A])


@pytest.mark.parametrize("selector", [None, {}])
def test_a_profile_that_selects_no_nodes_narrows_nothing(selector: Document | None) -> None:
    trees = Trees()
    trees.selectors["tree1"] = [("p", selector)]
    assert changed(pod("root-quota-a"), trees=trees) == {}
