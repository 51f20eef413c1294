"""What a pod takes from its quota."""

from __future__ import annotations

from typing import Any

from koordinator.api.codec import convert
from koordinator.api.pod import Pod
from koordinator.manager.webhook.elastic_quota.account import pod_usage
from koordinator.model.transformers import with_replaced_resources


def pod(*requests: dict[str, Any], replace: str = "", phase: str = "", **spec: Any) -> Pod:
    containers = [{"name": f"c{number}", "resources": {"requests": each}} for number, each in enumerate(requests)]
    annotations = {"pod.koordinator.sh/replace-resources": replace}
    document = {
        "metadata": {"name": "p", "annotations": annotations},
        "spec": {"containers": containers, **spec},
        "status": {"phase": phase},
    }
    return convert(document, Pod)


def usage(given: Pod) -> dict[str, str]:
    return {name: str(amount) for name, amount in pod_usage(given).items()}


def test_requests_add_up_and_zeros_do_not_count() -> None:
    given = pod({"cpu": "500m", "memory": "1Gi", "disk": "0"}, {"cpu": "1"}, overhead={"memory": "1Mi"})
    assert usage(given) == {"cpu": "1500m", "memory": "1025Mi"}


def test_amounts_print_in_the_units_of_the_first_that_requests_any() -> None:
    given = pod({"cpu": "0", "memory": "0"}, {"cpu": "1e0", "memory": "1Gi"}, {"cpu": "500m", "memory": "1M"})
    assert usage(given) == {"cpu": "1500e-3", "memory": "1074741824"}
    assert usage(pod({"memory": "0"}, overhead={"memory": "1024Ki"})) == {"memory": "1Mi"}
    whole = pod({"memory": "1Mi"}, resources={"requests": {"memory": "1G"}})
    assert usage(whole) == {"memory": "1G"}


def test_what_nothing_is_added_to_prints_as_it_was_written() -> None:
    assert usage(pod({"cpu": "1e0", "memory": "1024Ki"})) == {"cpu": "1e0", "memory": "1Mi"}


def test_a_pod_that_has_ended_uses_nothing() -> None:
    assert usage(pod({"cpu": "1"}, phase="Succeeded")) == usage(pod({"cpu": "1"}, phase="Failed")) == {}


def test_resources_are_renamed_and_erased_everywhere() -> None:
    init = {"name": "i", "resources": {"requests": {"cpu": "4", "memory": "1Gi"}}}
    given = pod(
        {"cpu": "1500m", "memory": "1Gi"},
        replace=" cpu : kubernetes.io/batch-cpu ,memory:,nonsense",
        initContainers=[init],
        overhead={"cpu": "1"},
    )
    assert usage(with_replaced_resources(given)) == {"kubernetes.io/batch-cpu": "5k"}


def test_a_resource_that_is_there_already_is_not_replaced() -> None:
    given = pod({"a": "1", "b": "2"}, replace="a:b")
    assert usage(with_replaced_resources(given)) == {"a": "1", "b": "2"}


def test_without_wishes_the_pod_stays_as_it_is() -> None:
    given = pod({"cpu": "1"}, replace="cpu")
    assert with_replaced_resources(given) is given
