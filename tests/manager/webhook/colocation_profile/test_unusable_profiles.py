"""Profiles that cannot be used: nobody is blocked by them, and whoever they may be meant for is told."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.manager.webhook.admission import AdmissionResponse, Document
from koordinator.manager.webhook.pod.mutating import PodMutatingHandler
from tests.manager.webhook.small_cluster import NoQuotaTrees, SmallCluster, profile, request_for

POD: Document = {
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "default", "labels": {"app": "a"}},
    "spec": {"containers": [{"name": "main", "image": "b"}]},
}
APPLIED: Document = {"metadata": {"name": "good"}, "spec": {"labels": {"good": "yes"}}}


def response_to(*profiles: Document) -> AdmissionResponse:
    handler = PodMutatingHandler(SmallCluster(*profiles), NoQuotaTrees(), lambda: 0)
    return handler.handle(request_for(POD))


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            {"selector": {"matchExpressions": [{"key": "app", "operator": "Is", "values": ["a"]}]}},
            'spec.selector.matchExpressions[0].operator: Unsupported value: "Is": supported values: "In", "NotIn", '
            '"Exists", "DoesNotExist"',
        ),
        (
            {"selector": {"matchExpressions": [{"key": "app", "operator": "In"}]}},
            "spec.selector.matchExpressions[0].values: Required value: the operator In needs at least one value",
        ),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "app", "operator": "Exists", "values": ["a"]}]}},
            'spec.namespaceSelector.matchExpressions[0].values: Invalid value: ["a"]: the operator Exists takes no '
            "values",
        ),
        (
            {"selector": {"matchLabels": {"the app": "a"}}},
            'spec.selector.matchLabels: Invalid value: "the app": must be a label key such as app or example.com/app',
        ),
        (
            {"selector": {"matchLabels": {"app": "my app"}}},
            'spec.selector.matchLabels[app]: Invalid value: "my app": must be a label value: empty, or at most 63 '
            "letters, digits, '-', '_' and '.'",
        ),
        (
            {"selector": {"matchExpressions": [{"key": "a b", "operator": "NotIn", "values": ["a", "b c"]}]}},
            'spec.selector.matchExpressions[0].key: Invalid value: "a b": must be a label key such as app or '
            'example.com/app; spec.selector.matchExpressions[0].values: Invalid value: "b c": must be a label value: '
            "empty, or at most 63 letters, digits, '-', '_' and '.'",
        ),
        (
            {"probability": "30"},
            'spec.probability: Invalid value: "30": must be a whole number from 0 to 100, or such a number followed by '
            "%",
        ),
        (
            {"patch": "spec: {}"},
            'spec.patch: Invalid value: "spec: {}": must be a strategic merge patch of a Pod, which is an object',
        ),
        (
            {"patch": {"spec": {"schedulerName": 5}}},
            'spec.patch: Invalid value: {"spec":{"schedulerName":5}}: must be a strategic merge patch of a Pod: json: '
            "cannot unmarshal number into Go struct field PodSpec.spec.schedulerName of type string",
        ),
        (
            {"patch": {"spec": {"containers": [{"image": "c"}]}}},
            'spec.patch: Invalid value: {"spec":{"containers":[{"image":"c"}]}}: must be a strategic merge patch of a '
            "Pod: map: map[image:c] does not contain declared merge key: name",
        ),
    ],
)
def test_it_is_named_with_field_value_and_what_is_allowed(spec: Document, problem: str) -> None:
    response = response_to(profile("bad", **spec, labels={"bad": "yes"}), APPLIED)
    assert response.warnings == [f'ClusterColocationProfile "bad" is not applied: {problem}']
    assert response.changed is not None
    assert response.changed["metadata"]["labels"] == {"app": "a", "good": "yes"}


def test_a_long_patch_is_shown_in_part() -> None:
    response = response_to(profile("bad", patch={"spec": {"schedulerName": 5}, "unknown": "x" * 200}))
    assert len(response.warnings[0]) < 350
    assert "…" in response.warnings[0]


@pytest.mark.parametrize(
    "spec",
    [
        {"selector": {"matchLabels": {"app": "b"}}, "probability": "30"},
        {"namespaceSelector": {"matchLabels": {"app": "b"}}, "patch": "x"},
        {
            "selector": {"matchExpressions": [{"key": "app", "operator": "Is"}]},
            "namespaceSelector": {"matchLabels": {"app": "b"}},
        },
        {
            "namespaceSelector": {"matchExpressions": [{"key": "app", "operator": "Is"}]},
            "selector": {"matchLabels": {"app": "b"}},
        },
    ],
)
def test_objects_that_it_is_not_for_are_not_bothered(spec: dict[str, Any]) -> None:
    assert not response_to(profile("bad", **spec)).warnings


BATCH_POD: Document = {
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "default", "labels": {"app": "a"}},
    "spec": {
        "priority": 5500,
        "containers": [{"name": "main", "image": "b", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
    },
}
KEEPS_RESOURCES = {"annotations": {"config.koordinator.sh/skip-update-resources": "true"}}


@pytest.mark.parametrize("spec", [{"probability": "often"}, {"patch": "x"}])
def test_a_batch_pod_that_only_an_unusable_profile_matches_stays_as_it_is(spec: dict[str, Any]) -> None:
    """Translated without the profile's QoS class it would be refused by the validating webhook."""
    handler = PodMutatingHandler(SmallCluster(profile("bad", qosClass="BE", **spec)), NoQuotaTrees(), lambda: 0)
    assert handler.handle(request_for(BATCH_POD)).changed is None


def test_the_annotation_of_an_unusable_profile_does_not_keep_native_resources() -> None:
    bad = profile("bad", metadata=KEEPS_RESOURCES, probability="often")
    handler = PodMutatingHandler(SmallCluster(bad, APPLIED), NoQuotaTrees(), lambda: 0)
    changed = handler.handle(request_for(BATCH_POD)).changed
    assert changed is not None
    assert "kubernetes.io/batch-cpu" in changed["spec"]["containers"][0]["resources"]["requests"]


def test_an_unusable_profile_refuses_nobody_whose_namespace_is_not_known_yet() -> None:
    bad = profile("bad", namespaceSelector={"matchLabels": {"a": "b"}}, probability="often")
    pod = {**POD, "metadata": {**POD["metadata"], "namespace": "new"}}
    handler = PodMutatingHandler(SmallCluster(bad, APPLIED), NoQuotaTrees(), lambda: 0)
    changed = handler.handle(request_for(pod)).changed
    assert changed is not None
    assert changed["metadata"]["labels"]["good"] == "yes"


def test_a_profile_that_was_put_right_is_applied() -> None:
    cluster = SmallCluster(profile("p", probability="x", labels={"a": "b"}))
    handler = PodMutatingHandler(cluster, NoQuotaTrees(), lambda: 0)
    assert handler.handle(request_for(POD)).changed is None
    cluster.profiles = SmallCluster(profile("p", probability="100%", labels={"a": "b"})).profiles
    response = handler.handle(request_for(POD))
    assert (response.changed is not None, list(response.warnings)) == (True, [])


def test_a_profile_that_was_deleted_is_forgotten() -> None:
    cluster = SmallCluster(profile("p", labels={"a": "b"}))
    handler = PodMutatingHandler(cluster, NoQuotaTrees(), lambda: 0)
    assert handler.handle(request_for(POD)).changed is not None
    cluster.profiles = []
    assert handler.handle(request_for(POD)).changed is None
