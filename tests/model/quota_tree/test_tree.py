"""The tree, one event after the other."""

from __future__ import annotations

from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA
from koordinator.api.meta import ObjectMeta
from koordinator.model.quota_tree.pod_quota import quota_name_of
from koordinator.model.quota_tree.tree import QuotaTree
from tests.model.quota_tree.quota_objects import P, quota, tree_of


def test_an_empty_tree_is_the_root_alone() -> None:
    assert QuotaTree().hierarchy() == {ROOT_QUOTA: []}


def test_children_may_come_before_their_parents() -> None:
    tree = tree_of(quota("sub-1", parent="temp"))
    assert tree.hierarchy() == {ROOT_QUOTA: [], "sub-1": [], "temp": ["sub-1"]}
    tree.put(quota("temp", parent="xxx", is_parent=True))
    tree.put(quota("sub-2", parent="temp"))
    assert tree.hierarchy() == {ROOT_QUOTA: [], "sub-1": [], "sub-2": [], "temp": ["sub-1", "sub-2"], "xxx": ["temp"]}


def test_a_quota_can_move_below_a_parent_that_was_never_seen() -> None:
    tree = tree_of(quota("temp"), quota("sub", parent="temp"))
    tree.put(quota("sub", parent="xxx"))
    assert tree.hierarchy() == {ROOT_QUOTA: ["temp"], "sub": [], "temp": [], "xxx": ["sub"]}


def test_a_deleted_quota_leaves_nothing_behind() -> None:
    tree = tree_of(quota("a", annotations={"namespaces": '["n"]'}))
    tree.discard("kube-system/a")
    tree.discard("kube-system/a")
    assert tree.hierarchy() == {ROOT_QUOTA: []}
    assert tree.claimant("n") is None
    assert not any(vars(tree).values())


def test_the_children_of_a_deleted_parent_stay_below_its_name() -> None:
    tree = tree_of(quota("temp"), quota("sub", parent="temp"))
    tree.discard("kube-system/temp")
    assert tree.get("temp") is None
    assert [child.name for child in tree.children("temp")] == ["sub"]


def test_namespaces_follow_the_annotation() -> None:
    tree = tree_of(quota("a", annotations={"namespaces": '["n1","n2"]'}))
    tree.put(quota("a", annotations={"namespaces": '["n2","n3"]'}))
    claimants = {namespace: tree.claimant(namespace) for namespace in ("n1", "n2", "n3")}
    assert [found.name if found else None for found in claimants.values()] == [None, "a", "a"]


def test_of_two_quotas_of_one_name_the_older_counts_until_it_is_deleted() -> None:
    younger = quota("a", parent="y", namespace="n1", creationTimestamp="2026-01-02T00:00:00Z")
    older = quota("a", parent="x", namespace="n2", creationTimestamp="2026-01-01T00:00:00Z")
    for tree in (tree_of(younger, older), tree_of(older, younger)):
        assert tree.get("a") == older
        assert tree.hierarchy() == {ROOT_QUOTA: [], "a": [], "x": ["a"]}
        tree.discard(older.key)
        assert tree.get("a") == younger
        assert tree.hierarchy() == {ROOT_QUOTA: [], "a": [], "y": ["a"]}


def test_ancestors_end_below_the_root() -> None:
    tree = tree_of(quota(ROOT_QUOTA), quota("a"), quota("b", parent="a"), quota("c", parent="b"))
    assert [each.name for each in tree.ancestors(quota("c", parent="b"))] == ["b", "a"]


def test_ancestors_end_in_a_ring() -> None:
    tree = tree_of(quota("a", parent="c"), quota("b", parent="a"), quota("c", parent="b"))
    assert [each.name for each in tree.ancestors(quota("c", parent="b"))] == ["b", "a"]


def pod_quota(tree: QuotaTree, label: str = "", namespace: str = "test-ns", *, by_namespace: bool = True) -> str:
    pod = ObjectMeta(name="p", labels={f"{P}/name": label} if label else {})
    return quota_name_of(pod, namespace, tree, by_namespace=by_namespace)


def test_pods_count_against_the_quota_that_they_name_even_if_it_is_unknown() -> None:
    tree = tree_of(quota("test-ns", namespace="test-ns"))
    assert pod_quota(tree, "test-quota") == "test-quota"


def test_pods_count_against_the_quota_named_like_their_namespace_and_in_it() -> None:
    claiming = quota("other", annotations={"namespaces": '["test-ns"]'})
    assert pod_quota(tree_of(claiming, quota("test-ns", namespace="test-ns"))) == "test-ns"
    assert pod_quota(tree_of(claiming, quota("test-ns", namespace="elsewhere"))) == "other"


def test_pods_count_against_the_default_quota_where_nobody_claims_their_namespace() -> None:
    assert pod_quota(tree_of()) == DEFAULT_QUOTA


def test_pods_that_name_none_have_none_where_namespaces_do_not_count() -> None:
    assert pod_quota(tree_of(quota("test-ns", namespace="test-ns")), by_namespace=False) == ""
