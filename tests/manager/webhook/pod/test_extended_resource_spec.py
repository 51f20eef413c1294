"""The annotation that tells node agents what containers have of batch resources."""

from __future__ import annotations

import json

import pytest

from koordinator.api.document import Document
from koordinator.manager.webhook.pod.resource_specs import ExtendedResourceSpecError, record_extended_resources

KEY = "node.koordinator.sh/extended-resource-spec"
AMOUNTS = {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "4Gi", "unknown-resource": "1"}
RECORDED = {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "4Gi"}


def recorded(containers: list[Document], annotation: str | None = None) -> str | None:
    pod: Document = {"metadata": {"name": "a"}, "spec": {"containers": containers}}
    if annotation is not None:
        pod["metadata"]["annotations"] = {KEY: annotation}
    record_extended_resources(pod)
    text: str | None = (pod["metadata"].get("annotations") or {}).get(KEY)
    return text


def container(name: str, **resources: Document) -> Document:
    return {"name": name, "resources": resources}


def test_batch_resources_alone_are_recorded() -> None:
    text = recorded([container("test-container-a", limits=AMOUNTS, requests=AMOUNTS)])
    wanted = {"containers": {"test-container-a": {"limits": RECORDED, "requests": RECORDED}}}
    assert text == json.dumps(wanted, separators=(",", ":"))


def test_free_resources_are_recorded_as_well() -> None:
    text = recorded([container("a", requests={"kubernetes.io/free-cpu": "2000"})])
    assert text == '{"containers":{"a":{"requests":{"kubernetes.io/free-cpu":"2k"}}}}'


def test_containers_are_named_in_order_and_those_without_are_left_out() -> None:
    with_memory = {"kubernetes.io/batch-memory": "1Gi"}
    text = recorded([container("b", requests=with_memory), container("c"), container("a", limits=with_memory)])
    assert text == (
        '{"containers":{"a":{"limits":{"kubernetes.io/batch-memory":"1Gi"}},'
        '"b":{"requests":{"kubernetes.io/batch-memory":"1Gi"}}}}'
    )


def test_pods_without_batch_resources_get_no_annotation() -> None:
    assert recorded([container("a", requests={"cpu": "1", "kubernetes.io/mid-cpu": "1k"})]) is None


def test_what_says_the_same_stays_as_it_was_written() -> None:
    text = '{ "containers": {"a": {"requests": {"kubernetes.io/batch-cpu": "1000"}}}}'
    assert recorded([container("a", requests={"kubernetes.io/batch-cpu": "1k"})], text) == text


def test_what_says_something_else_is_replaced() -> None:
    text = '{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"2k"}}}}'
    assert recorded([container("a")], text) == "{}"


def test_what_cannot_be_read_refuses_the_pod() -> None:
    with pytest.raises(ExtendedResourceSpecError) as refused:
        recorded([container("a")], "{")
    assert str(refused.value).startswith(
        "failed to get current extended resource spec, err: "
        "metadata.annotations[node.koordinator.sh/extended-resource-spec]: not JSON"
    )


@pytest.mark.parametrize("text", ["null", "{}", '{"containers":null}'])
def test_an_empty_one_stays(text: str) -> None:
    assert recorded([container("a")], text) == text
