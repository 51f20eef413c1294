"""What profiles make of Reservations: the cases of the original's own tests, and where this differs from pods."""

from __future__ import annotations

import dataclasses

import pytest

from koordinator.api.codec import DecodeError
from koordinator.api.document import Document, copied
from koordinator.manager.webhook.admission import ALLOWED
from koordinator.manager.webhook.colocation_profile.changes import ProfileError
from koordinator.manager.webhook.reservation.mutating import ReservationMutatingHandler
from tests.manager.webhook.small_cluster import SmallCluster, profile, request_for

NATIVE = {"cpu": "1", "memory": "4Gi"}
RESERVATION: Document = {
    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
    "kind": "Reservation",
    "metadata": {
        "name": "test-reservation-1",
        "labels": {"koordinator-colocation-reservation": "true", "label-key-to-load": "test-label-value"},
        "annotations": {"annotation-key-to-load": "test-annotation-value"},
    },
    "spec": {
        "owners": [{"labelSelector": {"matchLabels": {"app": "a"}}}],
        "template": {
            "spec": {
                "containers": [{"name": "test-container-a", "resources": {"limits": NATIVE, "requests": NATIVE}}],
                "overhead": {"cpu": "1", "memory": "2Gi"},
                "schedulerName": "nonExistSchedulerName",
            }
        },
    },
}
SELECTOR = {"matchLabels": {"koordinator-colocation-reservation": "true"}}


def mutated(reservation: Document, *profiles: Document, draw: int = 0) -> Document:
    handler = ReservationMutatingHandler(SmallCluster(*profiles), lambda: draw)
    response = handler.handle(request_for(reservation))
    assert response.allowed
    return reservation if response.changed is None else dict(response.changed)


def test_metadata_takes_labels_and_annotations_and_the_template_nothing_but_how_it_is_scheduled() -> None:
    found = mutated(
        RESERVATION,
        profile(
            selector=SELECTOR,
            labels={"testLabelA": "valueA"},
            annotations={"testAnnotationA": "valueA"},
            labelKeysMapping={"label-key-to-load": "label-key-to-store"},
            annotationKeysMapping={"annotation-key-to-load": "annotation-key-to-store"},
            labelSuffixes={"label-key-1": "suffix", "label-key-to-store": "suffix-0"},
            qosClass="BE",
            koordinatorPriority=1111,
            schedulerName="koordinator-scheduler",
            priorityClassName="koordinator-batch",
            patch={"metadata": {"labels": {"test-patch-label": "patch-a"}}},
        ),
    )
    wanted = copied(RESERVATION)
    wanted["metadata"]["labels"].update(
        {
            "testLabelA": "valueA",
            "label-key-to-store": "test-label-valuesuffix-0",
            "koordinator.sh/qosClass": "BE",
            "koordinator.sh/priority": "1111",
            "test-patch-label": "patch-a",
        }
    )
    wanted["metadata"]["annotations"].update(
        {"testAnnotationA": "valueA", "annotation-key-to-store": "test-annotation-value"}
    )
    wanted["spec"]["template"]["spec"].update(
        schedulerName="koordinator-scheduler",
        priorityClassName="koordinator-batch",
        priority=5999,
        preemptionPolicy="fakePreemptionPolicy",
    )
    assert found == wanted


@pytest.mark.parametrize(("probability", "draw", "changed"), [(0, 0, False), (50, 30, True), ("100%", 99, True)])
def test_probability(probability: int | str, draw: int, changed: bool) -> None:
    found = mutated(RESERVATION, profile(labels={"a": "b"}, probability=probability), draw=draw)
    assert ("a" in found["metadata"]["labels"]) is changed


def test_without_a_template_there_is_nothing_to_schedule() -> None:
    reservation: Document = {"kind": "Reservation", "metadata": {"name": "a"}, "spec": {}}
    scheduled = profile(schedulerName="koordinator-scheduler", priorityClassName="gone", qosClass="LS")
    assert mutated(reservation, scheduled) == {
        "kind": "Reservation",
        "metadata": {"name": "a", "labels": {"koordinator.sh/qosClass": "LS"}},
        "spec": {},
    }


def test_a_priority_class_that_does_not_exist_refuses_the_reservation() -> None:
    with pytest.raises(ProfileError, match='"unknown-priority-class" not found'):
        mutated(RESERVATION, profile(selector=SELECTOR, priorityClassName="unknown-priority-class"))


NAMESPACES = {"matchLabels": {"enable-koordinator-colocation": "true"}}


@pytest.mark.parametrize(
    ("spec", "matches"),
    [
        ({}, True),
        ({"selector": SELECTOR}, True),
        ({"selector": {"matchLabels": {"a": "b"}}}, False),
        ({"selector": SELECTOR, "namespaceSelector": NAMESPACES}, True),
        ({"selector": SELECTOR, "namespaceSelector": {"matchLabels": {"no": "such"}}}, True),
        ({"namespaceSelector": NAMESPACES}, False),
        ({"namespaceSelector": NAMESPACES, "selector": {}}, False),
        ({"namespaceSelector": {}}, True),
    ],
)
def test_it_is_chosen_by_its_labels_and_never_by_namespaces(spec: Document, matches: bool) -> None:
    found = mutated(RESERVATION, profile(**spec, labels={"matched": "yes"}))
    assert ("matched" in found["metadata"]["labels"]) is matches


def test_a_patch_merges_the_lists_of_the_template_and_replaces_those_of_the_reservation() -> None:
    patch = {
        "spec": {
            "owners": [{"object": {"name": "b"}}],
            "template": {"spec": {"containers": [{"name": "test-container-a", "image": "c"}]}},
        }
    }
    spec = mutated(RESERVATION, profile(patch=patch))["spec"]
    assert spec["owners"] == [{"object": {"name": "b"}}]
    assert spec["template"]["spec"]["containers"] == [
        {**RESERVATION["spec"]["template"]["spec"]["containers"][0], "image": "c"}
    ]


def test_a_patch_that_does_not_fit_a_reservation_is_reported() -> None:
    patch = {"spec": {"template": {"spec": {"priority": "high"}}}}
    handler = ReservationMutatingHandler(SmallCluster(profile(patch=patch)), lambda: 0)
    response = handler.handle(request_for(RESERVATION))
    assert response.changed is None
    assert response.warnings == [
        'ClusterColocationProfile "test-profile" is not applied: spec.patch: Invalid value: '
        '{"spec":{"template":{"spec":{"priority":"high"}}}}: must be a strategic merge patch of a Reservation: json: '
        "cannot unmarshal string into Go struct field PodSpec.spec.template.spec.priority of type int32"
    ]


def test_other_requests_pass() -> None:
    handler = ReservationMutatingHandler(SmallCluster(profile(labels={"a": "b"})), lambda: 0)
    assert handler.handle(request_for(RESERVATION, "UPDATE", RESERVATION)) is ALLOWED
    assert handler.handle(request_for({**RESERVATION, "kind": "Pod"})) is ALLOWED


def test_a_question_without_a_reservation_cannot_be_answered() -> None:
    handler = ReservationMutatingHandler(SmallCluster(), lambda: 0)
    with pytest.raises(DecodeError, match="no content"):
        handler.handle(dataclasses.replace(request_for(RESERVATION), object=None))


@pytest.mark.parametrize("member", ["labels", "annotations"])
def test_metadata_of_a_wrong_type_are_refused_by_their_field(member: str) -> None:
    handler = ReservationMutatingHandler(SmallCluster(profile(labels={"a": "b"})), lambda: 0)
    with pytest.raises(DecodeError, match=rf"object.*{member}"):
        handler.handle(request_for({**RESERVATION, "metadata": {"name": "r", member: ["x"]}}))


def test_a_spec_of_a_wrong_type_is_left_to_the_schema() -> None:
    found = mutated({**RESERVATION, "spec": "x"}, profile(labels={"a": "b"}, schedulerName="c"))
    assert found["spec"] == "x"


def test_the_reservation_that_was_queried_about_stays_as_it_was() -> None:
    before = copied(RESERVATION)
    mutated(RESERVATION, profile(labels={"a": "b"}, schedulerName="c", patch={"metadata": {"labels": None}}))
    assert before == RESERVATION
