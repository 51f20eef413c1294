"""What admission handlers know of quotas: one rule decides which quota a name stands for, whoever asks."""

from __future__ import annotations

import pytest

from koordinator.api.codec import convert
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.meta import ObjectMeta
from koordinator.base.clock import ManualClock
from koordinator.manager.webhook.elastic_quota.assume_cache import QuotaAssumeCache
from koordinator.manager.webhook.listers import QuotaTreeLister
from koordinator.model.quota_tree.pod_quota import quota_name_of
from tests.manager.broken_input.bench import ManagerBench
from tests.model.quota_tree.quota_objects import quota_document

EARLIER, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def stored(name: str, namespace: str, tree: str, created: str, **annotations: object) -> ElasticQuota:
    document = quota_document(name, namespace=namespace, tree=tree, annotations=annotations)
    document["metadata"] |= {"creationTimestamp": created, "resourceVersion": "1"}
    return convert(document, ElasticQuota)


def expected_of(*quotas: ElasticQuota) -> QuotaAssumeCache:
    expected = QuotaAssumeCache(ManualClock().monotonic)
    for quota in quotas:
        expected.observe(quota)
    return expected


def trees(expected: QuotaAssumeCache) -> QuotaTreeLister:
    return QuotaTreeLister(ManagerBench().informers, "", expected)


@pytest.mark.parametrize(("older", "newer"), [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("reverse", [False, True])
def test_of_two_quotas_of_one_name_affinity_goes_by_the_one_that_is_accounted(
    older: str, newer: str, reverse: bool
) -> None:
    both = [stored("team", older, "old-tree", EARLIER), stored("team", newer, "new-tree", LATER)]
    expected = expected_of(*(reversed(both) if reverse else both))
    accounted = expected.tree().get("team")
    assert accounted is not None
    assert accounted.tree == "old-tree"
    assert trees(expected).tree_of("team", "default") == "old-tree"


def test_of_two_quotas_that_claim_a_namespace_affinity_goes_by_the_one_that_is_accounted() -> None:
    newer = stored("first", "a", "new-tree", LATER, namespaces=["shared"])
    older = stored("second", "b", "old-tree", EARLIER, namespaces=["shared"])
    expected = expected_of(newer, older)
    assert quota_name_of(ObjectMeta(name="p"), "shared", expected.tree()) == "second"
    assert trees(expected).tree_of("shared", "shared") == "old-tree"


def test_a_name_that_no_quota_has_is_that_of_the_namespace_that_a_quota_claims() -> None:
    expected = expected_of(stored("owner", "a", "tree", EARLIER, namespaces=["shared"]))
    assert trees(expected).tree_of("unknown", "shared") == "tree"
    assert trees(expected).tree_of("unknown", "other") == ""
