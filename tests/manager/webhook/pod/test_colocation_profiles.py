"""What profiles make of pods: the cases of the original's own tests, inputs and outputs alike."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.document import Document, copied
from koordinator.manager.webhook.colocation_profile.changes import ProfileError
from koordinator.manager.webhook.pod.mutating import PodMutatingHandler, PodMutationSettings
from tests.manager.webhook.small_cluster import NoQuotaTrees, SmallCluster, profile, request_for

NATIVE = {"cpu": "1", "memory": "4Gi"}
BATCH = {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "4Gi"}
POD: Document = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "namespace": "default",
        "name": "test-pod-1",
        "labels": {"koordinator-colocation-pod": "true", "label-key-to-load": "value", "label-key-1": "value-1"},
        "annotations": {"annotation-key-to-load": "test-annotation-value"},
    },
    "spec": {
        "initContainers": [
            {
                "name": "test-init-container-a",
                "resources": {
                    "limits": {"cpu": "500m", "memory": "1Gi"},
                    "requests": {"cpu": "500m", "memory": "1Gi"},
                },
            }
        ],
        "containers": [{"name": "test-container-a", "resources": {"limits": NATIVE, "requests": NATIVE}}],
        "overhead": {"cpu": "1", "memory": "2Gi"},
        "schedulerName": "nonExistSchedulerName",
        "priority": 5999,
    },
}
INIT_BATCH = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"}
SPEC: Document = {
    "namespaceSelector": {"matchLabels": {"enable-koordinator-colocation": "true"}},
    "selector": {"matchLabels": {"koordinator-colocation-pod": "true"}},
    "labels": {"testLabelA": "valueA"},
    "annotations": {"testAnnotationA": "valueA"},
    "schedulerName": "koordinator-scheduler",
    "qosClass": "BE",
    "priorityClassName": "koordinator-batch",
    "koordinatorPriority": 1111,
    "patch": {
        "metadata": {"labels": {"test-patch-label": "patch-a"}, "annotations": {"test-patch-annotation": "patch-b"}}
    },
}
LABELS = {
    **POD["metadata"]["labels"],
    "testLabelA": "valueA",
    "test-patch-label": "patch-a",
    "koordinator.sh/qosClass": "BE",
    "koordinator.sh/priority": "1111",
}
ANNOTATIONS = {
    **POD["metadata"]["annotations"],
    "testAnnotationA": "valueA",
    "test-patch-annotation": "patch-b",
}


def mutated(pod: Document, *profiles: Document, draw: int = 0, **settings: bool) -> Document:
    """The pod after the profiles alone, with a random number that is known."""
    return _mutated(SmallCluster(*profiles), pod, draw, **settings)


def _mutated(cluster: SmallCluster, pod: Document, draw: int = 0, **settings: bool) -> Document:
    only = {"record_extended_resources": False, "normalise_device_resources": False, **settings}
    handler = PodMutatingHandler(cluster, NoQuotaTrees(), lambda: draw, PodMutationSettings(**only))
    response = handler.handle(request_for(pod))
    assert response.allowed
    return pod if response.changed is None else dict(response.changed)


def expected(changed: bool = True, translated: bool = True, **metadata: Any) -> Document:
    pod: Document = copied(POD)
    if changed:
        pod["metadata"].update({"labels": LABELS, "annotations": ANNOTATIONS})
        pod["spec"].update(
            schedulerName="koordinator-scheduler",
            priorityClassName="koordinator-batch",
            priority=5999,
            preemptionPolicy="fakePreemptionPolicy",
        )
    pod["metadata"].update(metadata)
    if translated:
        pod["spec"]["initContainers"][0]["resources"] = {"limits": INIT_BATCH, "requests": INIT_BATCH}
        pod["spec"]["containers"][0]["resources"] = {"limits": BATCH, "requests": BATCH}
        pod["spec"]["overhead"] = {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "2Gi"}
    return pod


def test_all_fields_of_a_profile() -> None:
    assert mutated(POD, profile(**SPEC)) == expected()


@pytest.mark.parametrize(
    ("probability", "draw", "changed"),
    [
        (100, 99, True),
        ("100%", 99, True),
        (150, 99, True),
        (0, 0, False),
        ("0%", 0, False),
        (-5, 0, False),
        (50, 70, False),
        (50, 30, True),
        ("50%", 49, True),
        ("50%", 50, False),
        (1, 0, True),
        (1, 1, False),
    ],
)
def test_probability_decides_about_the_profile_and_not_about_the_translation(
    probability: int | str, draw: int, changed: bool
) -> None:
    assert mutated(POD, profile(**SPEC, probability=probability), draw=draw) == expected(changed=changed)


def test_a_limit_without_a_request_is_requested() -> None:
    pod: Document = copied(POD)
    pod["spec"]["containers"][0]["resources"] = {"limits": dict(NATIVE)}
    assert mutated(pod, profile(**SPEC)) == expected()


def test_a_request_without_a_limit_stays_unlimited() -> None:
    pod: Document = copied(POD)
    pod["spec"]["containers"][0]["resources"] = {"requests": dict(NATIVE)}
    assert mutated(pod, profile(**SPEC))["spec"]["containers"][0]["resources"] == {"requests": BATCH}


def test_the_annotation_of_a_profile_keeps_native_resources() -> None:
    keeping = profile(metadata={"annotations": {"config.koordinator.sh/skip-update-resources": "true"}}, **SPEC)
    assert mutated(POD, keeping) == expected(translated=False)


def test_a_skipped_profile_keeps_native_resources_too() -> None:
    annotated = {"annotations": {"config.koordinator.sh/skip-update-resources": ""}}
    keeping = profile(metadata=annotated, **SPEC, probability=0)
    assert mutated(POD, keeping) == POD


def test_the_gate_keeps_native_resources() -> None:
    assert mutated(POD, profile(**SPEC), translate_resources=False) == expected(translated=False)


def test_a_label_is_copied_to_another_key() -> None:
    mapping = {"label-key-to-load": "label-key-to-store"}
    wanted = expected(labels={**LABELS, "label-key-to-store": "value"})
    assert mutated(POD, profile(**SPEC, labelKeysMapping=mapping)) == wanted


def test_a_label_that_is_not_there_is_copied_as_an_empty_one() -> None:
    mapping = {"label-key-to-load": "stored", "label-key-to-load-not-exist": "stored-not-exist"}
    wanted = expected(labels={**LABELS, "stored": "value", "stored-not-exist": ""})
    assert mutated(POD, profile(**SPEC, labelKeysMapping=mapping)) == wanted


def test_a_chain_of_copies_moves_the_values_that_were_there_before() -> None:
    spec = {**SPEC, "labels": {"a": "1", "b": "2"}, "labelKeysMapping": {"a": "b", "b": "c"}}
    labels = mutated(POD, profile(**spec))["metadata"]["labels"]
    assert (labels["b"], labels["c"]) == ("1", "2")


def test_an_annotation_is_copied_to_another_key() -> None:
    mapping = {"annotation-key-to-load": "annotation-key-to-store"}
    wanted = expected(annotations={**ANNOTATIONS, "annotation-key-to-store": "test-annotation-value"})
    assert mutated(POD, profile(**SPEC, annotationKeysMapping=mapping)) == wanted


def test_suffixes_go_to_labels_that_are_there() -> None:
    suffixes = {"label-key-1": "-suffix", "label-key-2": "-suffix", "testLabelA": "-b"}
    wanted = expected(labels={**LABELS, "label-key-1": "value-1-suffix", "testLabelA": "valueA-b"})
    assert mutated(POD, profile(**SPEC, labelSuffixes=suffixes)) == wanted


def test_a_pod_without_labels_gets_some() -> None:
    pod: Document = copied(POD)
    del pod["metadata"]["labels"], pod["metadata"]["annotations"]
    found = mutated(pod, profile(labels={"a": "b"}, annotations={"c": "d"}, annotationKeysMapping={"c": "e"}))
    assert found["metadata"]["labels"] == {"a": "b"}
    assert found["metadata"]["annotations"] == {"c": "d", "e": "d"}


def test_without_a_preemption_policy_of_the_class_the_pod_has_none() -> None:
    pod: Document = copied(POD)
    pod["spec"]["preemptionPolicy"] = "Never"
    spec = mutated(pod, profile(priorityClassName="koordinator-prod"))["spec"]
    assert (spec["priority"], spec.get("preemptionPolicy")) == (9999, None)


def test_profiles_are_applied_by_name_and_later_ones_override() -> None:
    first = profile("profile-1", labels={"a": "1", "b": "1"})
    second = profile("profile-2", labels={"b": "2"})
    labels = mutated(POD, second, first)["metadata"]["labels"]
    assert (labels["a"], labels["b"]) == ("1", "2")


def test_labels_that_a_profile_adds_choose_no_other_profile() -> None:
    first = profile("profile-1", labels={"chosen": "yes"})
    second = profile("profile-2", selector={"matchLabels": {"chosen": "yes"}}, labels={"second": "yes"})
    assert "second" not in mutated(POD, first, second)["metadata"]["labels"]


@pytest.mark.parametrize(
    ("spec", "matches"),
    [
        ({}, True),
        ({"selector": {}}, True),
        ({"namespaceSelector": {}}, True),
        ({"selector": {"matchLabels": {"koordinator-colocation-pod": "true"}}}, True),
        ({"selector": {"matchLabels": {"koordinator-colocation-pod": "false"}}}, False),
        ({"selector": {"matchExpressions": [{"key": "label-key-1", "operator": "Exists"}]}}, True),
        ({"selector": {"matchExpressions": [{"key": "label-key-1", "operator": "DoesNotExist"}]}}, False),
        ({"selector": {"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["y"]}]}}, True),
        ({"namespaceSelector": {"matchLabels": {"enable-koordinator-colocation": "true"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"enable-koordinator-colocation": "no"}}}, False),
    ],
)
def test_selectors(spec: Document, matches: bool) -> None:
    labels = mutated(POD, profile(**spec, labels={"matched": "yes"}))["metadata"]["labels"]
    assert ("matched" in labels) is matches


def test_no_match_leaves_a_batch_pod_with_native_resources() -> None:
    assert mutated(POD, profile(selector={"matchLabels": {"a": "b"}})) == POD


def test_no_profiles_leave_a_batch_pod_with_native_resources() -> None:
    assert mutated(POD) == POD


def test_the_namespace_of_the_request_counts_for_a_pod_without_one() -> None:
    pod: Document = copied(POD)
    del pod["metadata"]["namespace"]
    wanted = expected()
    del wanted["metadata"]["namespace"]
    assert mutated(pod, profile(**SPEC)) == wanted


def test_a_patch_merges_containers_by_name() -> None:
    patch = {"spec": {"containers": [{"name": "test-container-a", "image": "b"}, {"name": "sidecar", "image": "c"}]}}
    found = mutated(POD, profile(patch=patch), translate_resources=False)["spec"]["containers"]
    assert [(each["name"], each["image"], "resources" in each) for each in found] == [
        ("test-container-a", "b", True),
        ("sidecar", "c", False),
    ]


def test_resources_that_a_patch_adds_are_translated() -> None:
    patch = {"spec": {"containers": [{"name": "test-container-a", "resources": {"requests": {"cpu": 2}}}]}}
    found = mutated(POD, profile(**{**SPEC, "patch": patch}))["spec"]["containers"][0]["resources"]
    assert found["requests"]["kubernetes.io/batch-cpu"] == "2k"


def test_a_priority_class_that_does_not_exist_refuses_the_pod() -> None:
    with pytest.raises(ProfileError) as refused:
        mutated(POD, profile(priorityClassName="gone"))
    assert str(refused.value) == (
        'PriorityClass.scheduling.k8s.io "gone" not found, which spec.priorityClassName of the '
        'ClusterColocationProfile "test-profile" asks for'
    )


def test_a_pod_of_a_namespace_that_is_not_known_yet_is_not_guessed_about() -> None:
    cluster = SmallCluster(profile(**SPEC))
    cluster.namespaces.clear()
    with pytest.raises(
        ProfileError, match=r'namespace "default" are not known yet.*"test-profile" asks for: try again'
    ):
        _mutated(cluster, POD)


def test_an_unknown_namespace_does_not_matter_where_nothing_depends_on_it() -> None:
    other = profile(selector={"matchLabels": {"a": "b"}}, namespaceSelector={"matchLabels": {"c": "d"}})
    cluster = SmallCluster(other, profile("all", labels={"x": "y"}))
    cluster.namespaces.clear()
    assert _mutated(cluster, POD)["metadata"]["labels"]["x"] == "y"
