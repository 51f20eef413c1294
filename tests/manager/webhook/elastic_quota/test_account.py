"""Which pods still fit: the cases of the original's own tests."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.pod import ResourceList
from koordinator.manager.webhook.elastic_quota.account import Account
from koordinator.manager.webhook.elastic_quota.settings import QuotaRefused
from tests.model.quota_tree.quota_objects import wire_quota

GPU = "nvidia.com/gpu"


def amounts(given: dict[str, Any]) -> ResourceList:
    found: ResourceList = convert(given, ResourceList)
    return found


def account(most: dict[str, Any], used: Any = None, admission: Any = None) -> Account:
    given = {"child-request": used, "admission": admission}
    annotations = {name: value for name, value in given.items() if value is not None}
    return Account.of(wire_quota("test", namespace="ns", max=most, annotations=annotations))


def used_after(before: Account, **usage: Any) -> dict[str, str]:
    after = before.with_pod(amounts(usage))
    return {name: str(amount) for name, amount in after.used.items()}


def test_what_pods_use_adds_up_in_the_units_of_the_first() -> None:
    start = account({"cpu": "20", "memory": "60Gi"}, {"cpu": "10"})
    assert used_after(start, cpu="500m", memory="4Gi") == {"cpu": "10500m", "memory": "4Gi"}


def test_only_resources_of_max_count() -> None:
    pod = {"cpu": "2", "memory": "4Gi", GPU: "1"}
    assert used_after(account({GPU: "4"}), **pod) == {GPU: "1"}


@pytest.mark.parametrize("most", [{"memory": "1Gi"}, {"example.com/licence": "1"}, {}])
def test_a_pod_of_which_nothing_counts_always_fits(most: dict[str, str]) -> None:
    start = account(most)
    assert start.with_pod(amounts({"cpu": "2", "memory": "0", "example.com/licence": "5"})) is start


def refusal(start: Account, **usage: Any) -> str:
    with pytest.raises(QuotaRefused) as refused:
        start.with_pod(amounts(usage))
    return str(refused.value)


def test_a_pod_too_many_is_refused_with_what_is_exceeded() -> None:
    start = account({"cpu": "20", "memory": "60Gi", GPU: "1"}, {"cpu": "19", "memory": "50Gi"})
    assert refusal(start, cpu="2", memory="4Gi") == (
        "exceeded quota: ns/test, requested: cpu=2, used: cpu=19, limited: cpu=20"
    )
    assert refusal(start, **{"memory": "11Gi", "cpu": "1500m", GPU: "2"}) == (
        "exceeded quota: ns/test, requested: cpu=1500m,memory=11Gi,nvidia.com/gpu=2, "
        "used: cpu=19,memory=50Gi, limited: cpu=20,memory=60Gi,nvidia.com/gpu=1"
    )


def test_the_annotation_limits_instead_of_max() -> None:
    start = account({"cpu": "20"}, {"cpu": "19"}, {"cpu": "30"})
    assert used_after(start, cpu="2") == {"cpu": "21"}
    assert "limited: cpu=30" in refusal(start, cpu="12")


def test_an_empty_annotation_does_not() -> None:
    assert "limited: cpu=20" in refusal(account({"cpu": "20"}, {"cpu": "19"}, {}), cpu="2")


def test_what_is_not_limited_is_counted_all_the_same() -> None:
    start = account({"cpu": "20", "memory": "1Gi"}, None, {"cpu": "30"})
    assert used_after(start, memory="2Gi") == {"memory": "2Gi"}


@pytest.mark.parametrize("annotation", ["used", "admission"])
def test_annotations_that_cannot_be_read_are_named(annotation: str) -> None:
    with pytest.raises(QuotaRefused, match="elastic quota ns/test: annotation "):
        account({"cpu": "20"}, **{annotation: "{"})
