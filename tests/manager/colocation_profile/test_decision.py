"""What profiles make of pods that exist: the cases of the original's own tests; a second time changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.codec import convert
from koordinator.api.colocation_profile import ClusterColocationProfile
from koordinator.api.document import Document, copied
from koordinator.manager.colocation_profile.decision import (
    changed_pod,
    compile_for_pods,
    is_drawn,
    is_for,
    is_managed,
    reads_whole_pod,
)
from koordinator.manager.webhook.colocation_profile.changes import ProfileError
from koordinator.manager.webhook.colocation_profile.compiled_patch import compile_patch
from tests.manager.colocation_profile.profiles import (
    MANAGED,
    RESULT_ANNOTATIONS,
    RESULT_LABELS,
    SELECTOR,
    SPEC,
    compiled,
    document,
    pod,
    profile,
)

OWN = {"koordinator-colocation-pod": "true"}


def texts(changed: Document) -> tuple[dict[str, str], dict[str, str]]:
    return changed["metadata"].get("labels", {}), changed["metadata"].get("annotations", {})


def test_labels_annotations_quality_of_service_priority_and_patch() -> None:
    changed = changed_pod(compiled(**SPEC), pod(OWN))
    assert texts(changed) == (RESULT_LABELS, RESULT_ANNOTATIONS)
    assert changed["spec"] == pod()["spec"]


def test_values_are_copied_to_other_keys() -> None:
    mapped = {
        **SPEC,
        "labels": {"testLabelA": "valueA", "koordinator.sh/scheduler-name": "koordinator-scheduler"},
        "labelKeysMapping": {
            "label-key-to-load": "label-key-to-store",
            "label-key-to-load-not-exist": "label-key-to-store-not-exist",
        },
        "annotationKeysMapping": {"annotation-key-to-load": "annotation-key-to-store"},
    }
    own = {**OWN, "label-key-to-load": "test-label-value"}
    changed = changed_pod(compiled(**mapped), pod(own, {"annotation-key-to-load": "test-annotation-value"}))
    assert texts(changed) == (
        {
            **RESULT_LABELS,
            "label-key-to-load": "test-label-value",
            "label-key-to-store": "test-label-value",
            "label-key-to-store-not-exist": "",
            "koordinator.sh/scheduler-name": "koordinator-scheduler",
        },
        {
            **RESULT_ANNOTATIONS,
            "annotation-key-to-load": "test-annotation-value",
            "annotation-key-to-store": "test-annotation-value",
        },
    )


def test_scheduler_priority_class_and_resources_stay() -> None:
    spec = {"selector": {}, "schedulerName": "koord-scheduler", "priorityClassName": "koord-batch", "qosClass": "BE"}
    assert changed_pod(compiled(**spec), pod())["spec"] == pod()["spec"]


def test_suffixes_are_appended_once() -> None:
    suffixed = compiled(labelSuffixes={"a": "-x", "gone": "-x", "given": "-x"}, labels={"given": "-x"})
    once = changed_pod(suffixed, pod({"a": "1"}))
    assert texts(once)[0] == {"a": "1-x", "given": "-x-x"}
    assert changed_pod(suffixed, once) == once


def test_a_label_that_the_patch_renames_keeps_its_value() -> None:
    renamed = compiled(labelKeysMapping={"old": "new"}, patch={"metadata": {"labels": {"old": None}}})
    once = changed_pod(renamed, pod({"old": "value"}))
    assert texts(once)[0] == {"new": "value"}
    assert changed_pod(renamed, once) == once


def test_a_value_that_the_profile_replaces_is_kept_where_it_was_copied_to() -> None:
    kept = compiled(labelKeysMapping={"koordinator.sh/qosClass": "qos-before"}, qosClass="BE")
    once = changed_pod(kept, pod({"koordinator.sh/qosClass": "LS"}))
    assert texts(once)[0] == {"koordinator.sh/qosClass": "BE", "qos-before": "LS"}
    assert changed_pod(kept, once) == once


def test_a_copy_follows_its_source() -> None:
    mapped = compiled(labelKeysMapping={"from": "to"})
    assert texts(changed_pod(mapped, pod({"from": "new", "to": "old"})))[0]["to"] == "new"


def test_the_patch_merges_lists_and_comes_last() -> None:
    toleration = {"key": "batch", "operator": "Exists"}
    patched = compiled(
        labels={"a": "label"}, patch={"metadata": {"labels": {"a": "patch"}}, "spec": {"tolerations": [toleration]}}
    )
    changed = changed_pod(patched, pod(tolerations=[{"key": "own"}]))
    assert texts(changed)[0] == {"a": "patch"}
    assert changed["spec"]["tolerations"] == [toleration]
    assert changed["spec"]["newField"] == {"a": 1}


def test_a_patch_that_cannot_be_applied_is_reported() -> None:
    odd = replace(compiled(), apply_patch=compile_patch({"$patch": "odd"}, None))
    with pytest.raises(ProfileError, match=r'"test-profile": spec\.patch does not fit'):
        changed_pod(odd, pod())


@pytest.mark.parametrize(
    ("patch", "whole"),
    [
        (None, False),
        ({}, False),
        ({"metadata": {"labels": {"a": "b"}, "annotations": {"a": None}}}, False),
        ({"metadata": {"finalizers": ["a"]}}, True),
        ({"metadata": {"labels": {}}, "spec": {}}, True),
        ({"metadata": {"$patch": "replace"}}, True),
        ({"spec": {"nodeSelector": {"a": "b"}}}, True),
    ],
)
def test_most_profiles_need_to_know_labels_and_annotations_alone(patch: Document | None, whole: bool) -> None:
    assert reads_whole_pod(compiled(patch=patch)) is whole


@pytest.mark.parametrize(
    ("spec", "labels", "namespace", "matches"),
    [
        ({}, OWN, {}, False),
        ({"selector": {}}, {}, {}, True),
        ({"selector": SELECTOR}, OWN, {}, True),
        ({"selector": SELECTOR}, OWN, None, True),
        ({"selector": SELECTOR}, {}, {}, False),
        ({"selector": SELECTOR, "namespaceSelector": {}}, OWN, None, True),
        ({"selector": SELECTOR, "namespaceSelector": {"matchLabels": {"env": "prod"}}}, OWN, {"env": "prod"}, True),
        ({"selector": SELECTOR, "namespaceSelector": {"matchLabels": {"env": "prod"}}}, OWN, {"env": "dev"}, False),
        ({"selector": SELECTOR, "namespaceSelector": {"matchLabels": {"env": "prod"}}}, OWN, None, False),
        ({"namespaceSelector": {}}, OWN, {}, False),
    ],
)
def test_who_is_meant(spec: Document, labels: dict[str, str], namespace: dict[str, str] | None, matches: bool) -> None:
    assert is_for(compiled(**spec), labels, namespace) is matches


@pytest.mark.parametrize(
    ("labels", "by_default", "managed"),
    [
        (MANAGED, False, True),
        ({}, False, False),
        ({}, True, True),
        ({"config.koordinator.sh/controller-managed": "false"}, False, False),
    ],
)
def test_which_profiles_existing_pods_follow(labels: dict[str, str], by_default: bool, managed: bool) -> None:
    assert is_managed(profile(labels), by_default) is managed


def test_a_profile_that_is_being_deleted_is_not_followed() -> None:
    metadata = {"labels": MANAGED, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert not is_managed(convert({"metadata": metadata}, ClusterColocationProfile), True)


@pytest.mark.parametrize(
    ("probability", "least", "most"), [(0, 0, 0), ("30%", 240, 360), (70, 640, 760), (None, 1000, 1000)]
)
def test_probability_is_a_share_of_the_pods(probability: int | str | None, least: int, most: int) -> None:
    drawn = compiled(probability=probability)
    assert least <= sum(is_drawn(drawn, f"uid-{number}") for number in range(1000)) <= most


def test_each_profile_draws_its_own() -> None:
    one, other = (
        compile_for_pods(convert(document({"probability": 50}, name=name), ClusterColocationProfile)) for name in "ab"
    )
    assert any(is_drawn(one, str(uid)) and not is_drawn(other, str(uid)) for uid in range(50))


KEYS = ("a", "b", "c", "koordinator.sh/qosClass", "koordinator.sh/priority")
keys = st.sampled_from(KEYS)
values = st.sampled_from(("", "1", "2", "1-x", "-x"))
strings = st.dictionaries(keys, values, max_size=4)
parts = st.dictionaries(keys, st.none() | values, max_size=2)
specs = st.fixed_dictionaries(
    {},
    optional={
        "labels": strings,
        "annotations": strings,
        "labelKeysMapping": st.dictionaries(keys, keys, max_size=4),
        "annotationKeysMapping": st.dictionaries(keys, keys, max_size=4),
        "labelSuffixes": st.dictionaries(keys, st.sampled_from(("", "-x", "x")), max_size=3),
        "qosClass": st.sampled_from(("", "BE", "LS")),
        "koordinatorPriority": st.integers(0, 3),
        "patch": st.fixed_dictionaries(
            {},
            optional={
                "metadata": st.fixed_dictionaries(
                    {}, optional={"labels": parts, "annotations": parts, "finalizers": st.just(["x/y"])}
                ),
                "spec": st.just({"nodeSelector": {"pool": "batch"}, "tolerations": [{"key": "k"}]}),
            },
        ),
    },
)


@given(specs, strings, strings)
def test_a_second_time_changes_nothing(
    spec: dict[str, Any], labels: dict[str, str], annotations: dict[str, str]
) -> None:
    once = changed_pod(compiled(**spec), pod(labels, annotations))
    assert changed_pod(compiled(**spec), once) == once


@given(specs, strings, strings)
def test_the_pod_and_what_is_unknown_of_it_stay(
    spec: dict[str, Any], labels: dict[str, str], annotations: dict[str, str]
) -> None:
    before = pod(labels, annotations)
    untouched = copied(before)
    changed = changed_pod(compiled(**spec), before)
    assert before == untouched
    assert changed["spec"]["newField"] == before["spec"]["newField"]
    assert changed["metadata"]["managedFields"] == before["metadata"]["managedFields"]


@given(specs, strings, strings)
def test_labels_and_annotations_alone_give_the_same(
    spec: dict[str, Any], labels: dict[str, str], annotations: dict[str, str]
) -> None:
    made = compiled(**spec)
    if reads_whole_pod(made):
        return
    part = {"metadata": {"labels": labels, "annotations": annotations}}
    assert texts(changed_pod(made, part)) == texts(changed_pod(made, pod(labels, annotations)))


def test_a_copy_stays_when_its_source_is_gone() -> None:
    mapped = compiled(labelKeysMapping={"from": "to"})
    assert texts(changed_pod(mapped, pod({"to": "old"})))[0]["to"] == "old"
