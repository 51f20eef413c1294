"""Which pods quotas take: the cases of the original's own tests."""

from __future__ import annotations

from koordinator.api.document import Document
from koordinator.api.elastic_quota import DEFAULT_QUOTA
from koordinator.manager.webhook.elastic_quota.settings import QuotaSettings
from koordinator.manager.webhook.elastic_quota.validating import QuotaPodCheck
from koordinator.manager.webhook.pod.rules import pod_review
from tests.manager.webhook.elastic_quota.quota_bench import QuotaBench
from tests.manager.webhook.small_cluster import request_for
from tests.model.quota_tree.quota_objects import P, quota_document

QUOTAS = (
    quota_document("temp", is_parent=True),
    quota_document("sub-1", parent="temp"),
    quota_document("sub-2", parent="temp"),
    quota_document("parents", namespace="parents", is_parent=True),
    quota_document(DEFAULT_QUOTA, is_parent=True),
)
REFUSED = ["pod can not be linked to a parentQuotaGroup,quota:temp, pod:p"]


def pod(quota: str = "", namespace: str = "n", **labels: str) -> Document:
    given = {"name": quota, **labels} if quota else labels
    all_labels = {f"{P}/{key}": value for key, value in given.items()}
    return {"kind": "Pod", "metadata": {"name": "p", "namespace": namespace, "labels": all_labels}, "spec": {}}


def problems(new: Document, old: Document | None = None, **settings: bool) -> list[str]:
    bench = QuotaBench()
    bench.observe(*QUOTAS)
    check = QuotaPodCheck(bench.quotas, QuotaSettings(**settings))
    return list(check.problems(pod_review(request_for(new, "CREATE" if old is None else "UPDATE", old))))


def test_a_leaf_takes_pods_and_a_parent_does_not() -> None:
    assert problems(pod("sub-1")) == []
    assert problems(pod("temp")) == REFUSED


def test_a_parent_takes_pods_where_it_may() -> None:
    assert problems(pod("temp"), pods_in_parents=True) == []


def test_a_pod_moves_to_another_leaf_and_not_into_a_parent() -> None:
    assert problems(pod("sub-2"), pod("sub-1")) == []
    assert problems(pod("sub-2"), pod("temp")) == []
    assert problems(pod("temp"), pod("sub-2")) == REFUSED


def test_a_pod_that_is_in_a_parent_can_be_updated_there() -> None:
    assert problems(pod("temp", app="new"), pod("temp")) == []


def test_an_unknown_quota_counts_as_the_default_one() -> None:
    assert problems(pod("unknown")) == []
    assert problems(pod()) == []


def test_the_namespace_says_which_quota_it_is() -> None:
    assert problems(pod(namespace="parents")) == ["pod can not be linked to a parentQuotaGroup,quota:parents, pod:p"]
    assert problems(pod(namespace="parents"), by_namespace=False) == []


def test_whether_a_pod_can_be_preempted_does_not_change() -> None:
    text = ["Preemptible label is forbidden modify now."]
    assert problems(pod("sub-1", preemptible="false"), pod("sub-1")) == text
    assert problems(pod("sub-1"), pod("sub-1", preemptible="false"), pods_in_parents=True) == text
    assert problems(pod("sub-1", preemptible="false"), pod("sub-1", preemptible="false")) == []
