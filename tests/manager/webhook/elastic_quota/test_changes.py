"""Quotas that come, change and go: the sequences of the original's own tests."""

from __future__ import annotations

import pytest

from koordinator.api.codec import DecodeError
from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA
from koordinator.manager.webhook.admission import ALLOWED, AdmissionRequest
from koordinator.manager.webhook.elastic_quota.settings import QuotaSettings
from tests.manager.webhook.elastic_quota.quota_bench import Pod, QuotaBench, changed, quota_request
from tests.model.quota_tree.quota_objects import P, amounts, quota_document

MOST = amounts(120, 1048576)
TOP = quota_document("temp", max=MOST, min=amounts(64, 51200), is_parent=True)
TOP2 = quota_document("temp2", max=MOST, min=amounts(64, 51200), is_parent=True)
SUB = quota_document("sub-1", parent="temp", max=MOST, min=amounts(60, 12800), is_parent=False)


def bench_with(*documents: dict[str, object], settings: QuotaSettings | None = None) -> QuotaBench:
    bench = QuotaBench(settings)
    bench.observe(*documents)
    return bench


def test_quotas_are_created_from_the_top_down() -> None:
    bench = QuotaBench()
    assert bench.create(TOP) == ""
    assert bench.create(SUB) == ""
    assert bench.hierarchy() == {ROOT_QUOTA: ["temp"], "temp": ["sub-1"], "sub-1": []}


def test_a_name_is_taken_once_in_all_namespaces() -> None:
    bench = bench_with(TOP)
    assert bench.create(TOP) == "AddQuota quota already exist:temp"
    elsewhere = quota_document("temp", namespace="elsewhere")
    assert bench.create(elsewhere) == "AddQuota quota already exist:temp"


def test_the_root_itself_can_be_created() -> None:
    assert QuotaBench().create(quota_document(ROOT_QUOTA, max=MOST)) == ""


def test_a_child_of_a_tree_needs_to_be_in_it() -> None:
    bench = bench_with(quota_document("temp2", tree="tree-1", max=MOST, is_parent=True))
    below = quota_document("sub-3", parent="temp2", max=MOST, is_parent=True)
    assert bench.create(below) == "sub-3 tree id is different from parent temp2, [] vs [tree-1]"


def test_a_namespace_belongs_to_one_quota() -> None:
    first = quota_document("temp", annotations={"namespaces": '["test1","test2"]'})
    bench = bench_with(first)
    second = quota_document("temp2", annotations={"namespaces": '["test1"]'})
    assert bench.create(second) == ("AddQuota quota temp2's annotation namespace test1 is already bound to quota temp")
    moved = quota_document("temp", annotations={"namespaces": '["test2","test3"]'})
    assert bench.update(first, moved) == ""
    assert bench.create(second) == ""
    taking = quota_document("temp2", annotations={"namespaces": '["test2"]'})
    assert bench.update(second, taking) == (
        "UpdadteQuota, quota temp2 update namespaces, but namespace test2 is already bound to quota temp"
    )
    assert bench.delete(moved) == ""
    assert bench.update(second, taking) == ""


def test_an_update_that_touches_nothing_of_interest_passes_unseen() -> None:
    stuck = quota_document("unknown", max=amounts(1), min=amounts(2))
    annotated = quota_document("unknown", max={"cpu": "1000m"}, min=amounts(2), annotations={"runtime": "{}"})
    assert QuotaBench().update(stuck, annotated) == ""


def test_an_update_is_checked_like_a_creation() -> None:
    bench = bench_with(TOP, TOP2, SUB)
    assert bench.update(SUB, changed(SUB, min=amounts(121, 1))) == "resourceKey cpu of quota sub-1 min 121 > max 120"
    assert bench.update(SUB, changed(SUB, {"tree-id": "tree-1"})) == "sub-1 tree id changed [] vs [tree-1]"


def test_a_quota_moves_to_another_parent() -> None:
    bench = bench_with(TOP, TOP2, SUB)
    assert bench.update(SUB, changed(SUB, {"parent": "temp2"})) == ""
    assert bench.hierarchy() == {ROOT_QUOTA: ["temp", "temp2"], "temp": [], "temp2": ["sub-1"], "sub-1": []}


def test_a_quota_does_not_move_below_nobody() -> None:
    bench = bench_with(TOP, SUB)
    assert bench.update(SUB, changed(SUB, {"parent": "nobody"})) == (
        "sub-1 has parentName nobody but not find parentInfo in quotaInfoMap"
    )


def test_an_unknown_quota_is_not_updated() -> None:
    assert QuotaBench().update(SUB, changed(SUB, max=amounts(1))) == "UpdateQuota quota not exist in quotaInfoMap:sub-1"


@pytest.mark.parametrize("name", [ROOT_QUOTA, SYSTEM_QUOTA])
def test_quotas_of_the_system_are_not_updated(name: str) -> None:
    document = quota_document(name, max=MOST)
    assert bench_with(document).update(document, changed(document, max=amounts(1))) == f"invalid quota {name}"


def test_a_parent_without_children_becomes_a_leaf() -> None:
    bench = bench_with(TOP, TOP2, SUB)
    assert bench.update(TOP2, changed(TOP2, {"is-parent": "false"})) == ""
    assert bench.update(TOP, changed(TOP, {"is-parent": "false"})) == (
        "quota has children, isParent is forbidden to modify as false, quotaName:temp"
    )


@pytest.mark.parametrize(
    "pod", [Pod("elsewhere", "p", "sub-1"), Pod("sub-1", "p"), Pod("namespace1", "p", "another")], ids=str
)
def test_a_quota_with_pods_becomes_no_parent(pod: Pod) -> None:
    sub = quota_document("sub-1", parent="temp", max=MOST, annotations={"namespaces": '["namespace1"]'})
    bench = bench_with(TOP, sub)
    wanted = changed(sub, {"is-parent": "true"})
    bench.pods.pods = [pod]
    assert bench.update(sub, wanted) == (
        "quota has bound pods, isParent is forbidden to modify as true, quotaName: sub-1"
    )
    bench.pods.pods = []
    assert bench.update(sub, wanted) == ""


def test_quotas_are_deleted_from_the_bottom_up() -> None:
    bench = bench_with(TOP, SUB)
    assert bench.delete(TOP) == "delete quota failed, quota temp has 1 child quotas"
    assert bench.delete(SUB) == ""
    assert bench.delete(TOP) == ""
    assert bench.hierarchy() == {ROOT_QUOTA: []}


@pytest.mark.parametrize(("count", "shown"), [(1, "p0"), (2, "p0, p1"), (3, "p0, p1, ...")])
def test_a_quota_with_pods_is_not_deleted(count: int, shown: str) -> None:
    bench = bench_with(TOP, SUB)
    bench.pods.pods = [Pod("n", f"p{number}", "sub-1") for number in range(count)]
    assert bench.delete(SUB) == f"delete quota failed, quota sub-1 has {count} child pods: {shown}"


def test_pods_that_count_by_their_namespace_count() -> None:
    claiming = quota_document("claiming", annotations={"namespaces": '["n"]'})
    named = quota_document("own", namespace="own")
    bench = bench_with(claiming, named)
    bench.pods.pods = [Pod("n", "a"), Pod("n", "b", "other"), Pod("own", "c"), Pod("claiming", "d")]
    assert bench.delete(claiming) == "delete quota failed, quota claiming has 1 child pods: a"
    assert bench.delete(named) == "delete quota failed, quota own has 1 child pods: c"


def test_namespaces_that_do_not_count_keep_no_quota() -> None:
    named = quota_document("own", namespace="own")
    bench = bench_with(named, settings=QuotaSettings(by_namespace=False))
    bench.pods.pods = [Pod("own", "c")]
    assert bench.delete(named) == ""


@pytest.mark.parametrize("name", [ROOT_QUOTA, SYSTEM_QUOTA, DEFAULT_QUOTA])
def test_quotas_of_the_system_are_not_deleted(name: str) -> None:
    document = quota_document(name)
    assert bench_with(document).delete(document) == f"can not delete quotaGroup :{name}"


def test_an_unknown_quota_is_not_deleted() -> None:
    assert QuotaBench().delete(SUB) == "not found quota:sub-1"


def test_a_quota_that_another_of_its_name_hides_can_go() -> None:
    double = quota_document("temp", namespace="elsewhere", creationTimestamp="2026-01-02T00:00:00Z")
    counting = quota_document("temp", creationTimestamp="2026-01-01T00:00:00Z", is_parent=True)
    bench = bench_with(double, counting, quota_document("sub", parent="temp"))
    assert bench.delete(double) == ""
    assert bench.delete(counting) == "delete quota failed, quota temp has 1 child quotas"


@pytest.mark.parametrize(("resource", "sub_resource"), [("configmaps", ""), ("elasticquotas", "status")])
def test_other_requests_pass(resource: str, sub_resource: str) -> None:
    request = AdmissionRequest("CREATE", "", "v1", resource, sub_resource)
    bench = QuotaBench()
    assert bench.validating.handle(request) is ALLOWED
    assert bench.mutating.handle(request) is ALLOWED


def test_a_request_without_object_is_refused() -> None:
    with pytest.raises(DecodeError):
        QuotaBench().validating.handle(quota_request("UPDATE", {"metadata": {"name": "a", "labels": {P: "b"}}}))
